# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start the look-alike server, as ``python -m sglang.launch_server ARGS`` starts the original.

Order, titles, log lines and exit codes are those of SGLang 0.5.23: parse, spawn schedulers and
detokenizer, wait until every scheduler has loaded, bind the port, warm up, say ready.
"""

from __future__ import annotations

import sys


def run(words: list[str]) -> None:
    from sglang import arguments, processes

    server = processes.Server(arguments.parse(words))
    server.main()


if __name__ == "__main__":
    run(sys.argv[1:])
