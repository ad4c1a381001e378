# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``sglang serve ...``: the same server by its newer name."""

from __future__ import annotations

import sys


def main() -> None:
    from sglang.launch_server import run

    if sys.argv[1:2] != ["serve"]:
        sys.exit("usage: sglang serve --model-path MODEL [options]")
    run(sys.argv[2:])
