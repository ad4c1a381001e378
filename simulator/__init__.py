# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A folder that stands for a host with NVIDIA GPUs: nvidia-smi, device files, and a look-alike of SGLang.

It imitates the world; nothing of the product imports it. See ``python -m simulator --help``.
"""
