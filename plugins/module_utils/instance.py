# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules share: one argument spec for each subject, and the instance that it names."""

from __future__ import annotations

from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import Owner
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import Supervisor, supervisor_for
from ansible_collections.blackwell.sglang.plugins.module_utils.systemd_unit import unit_name

INSTANCE_OPTIONS: dict[str, Any] = {
    "instance": {"type": "str", "default": "default"},
    "state_dir": {"type": "path", "default": "/var/lib/sglang"},
    "supervisor": {"type": "str", "choices": ["systemd", "process"], "default": "systemd"},
    "command_timeout": {"type": "float", "default": 20.0},
}
GPU_OPTIONS: dict[str, Any] = {
    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    "device_glob": {"type": "list", "elements": "str", "default": ["/dev/nvidia*"]},
    "gpus": {"type": "list", "elements": "int", "default": []},
    "gpu_count": {"type": "int"},
    "instance": INSTANCE_OPTIONS["instance"],
    "state_dir": INSTANCE_OPTIONS["state_dir"],
    "command_timeout": INSTANCE_OPTIONS["command_timeout"],
}


def open_instance(params: dict[str, Any]) -> tuple[InstanceState, Supervisor]:
    """The instance's state and supervisor, as the plan says if there is one, else as the options do."""
    plan = params.get("plan") or {}
    settings = plan.get("settings", {})
    state = InstanceState(
        settings.get("sglang_state_dir", params["state_dir"]), plan.get("instance", params["instance"])
    )
    kind = plan.get("run", {}).get("supervisor", params["supervisor"])
    return state, supervisor_for(kind, state, params["command_timeout"])


def owner_of(params: dict[str, Any]) -> Owner:
    """What makes a process the instance's own."""
    return Owner(InstanceState(params["state_dir"], params["instance"]).directory, unit_name(params["instance"]))
