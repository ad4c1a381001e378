# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of every module that looks at GPUs."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  nvidia_smi:
    description: The C(nvidia-smi) command, by name or path.
    type: str
    default: nvidia-smi
  device_glob:
    description:
      - Shell patterns of the device files whose holders are looked for.
      - Links below C(/proc/PID/fd) are compared as text; nothing behind them is opened.
    type: list
    elements: str
    default: ["/dev/nvidia*"]
  gpus:
    description: Indices, as C(nvidia-smi) counts, of the instance's GPUs. All of the host's if empty.
    type: list
    elements: int
    default: []
  gpu_count:
    description: How many GPUs the host must have. Any other number fails. Whatever is there if not given.
    type: int
  instance:
    description: Name of the instance.
    type: str
    default: default
  state_dir:
    description: Folder of the instances' state on the host.
    type: path
    default: /var/lib/sglang
  command_timeout:
    description: Seconds that one command may take.
    type: float
    default: 20.0
"""
