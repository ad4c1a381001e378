# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's kernels, of which there is no build for a CPU: any name imports, a call raises. None is called."""

__version__ = "0.0.0"
__path__: list = []


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_words, **_options):
        raise NotImplementedError(f"sgl_kernel.{name} has no build for a CPU")

    return absent
