# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of every module that looks at an instance's server."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  plan:
    description:
      - The plan, as M(blackwell.sglang.sglang_plan) returns it.
      - It names the instance, its state folder and its supervisor, so those options then count for nothing.
    type: dict
  instance:
    description: Name of the instance.
    type: str
    default: default
  state_dir:
    description: Folder of the instances' state on the host.
    type: path
    default: /var/lib/sglang
  supervisor:
    description: What starts and stops the server, V(systemd), or V(process) for containers and hosts without it.
    type: str
    choices: [systemd, process]
    default: systemd
  command_timeout:
    description: Seconds that one command may take.
    type: float
    default: 20.0
"""
