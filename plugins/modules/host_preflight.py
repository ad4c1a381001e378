# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: host_preflight
short_description: Check everything about a host that can fail before the running server is stopped
version_added: 0.1.0
description:
  - Read-only. Every check gives a row with its status, what was seen, what is wanted, why, and what to do.
  - Fails if any row is V(fail), with all of them told at once; the server that runs keeps running.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
options:
  plan:
    description: The plan, as M(blackwell.sglang.sglang_plan) returns it.
    type: dict
    required: true
  overrides:
    description: Name of a check to the status that a V(fail) of it becomes, V(warn) or V(ok). The row says so.
    type: dict
    default: {}
"""
EXAMPLES = r"""
- name: Check the host
  blackwell.sglang.host_preflight:
    plan: "{{ serve_plan.plan }}"
    overrides:
      model: warn
"""
RETURN = r"""
checks:
  description: One row a check.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    status: {description: "V(ok), V(warn), V(fail) or V(skipped).", type: str, returned: always}
    seen: {description: What was seen., type: str, returned: always}
    wanted: {description: What is wanted., type: str, returned: always}
    why: {description: Why it matters., type: str, returned: always}
    remedy: {description: What to do., type: str, returned: always}
stack:
  description: Versions found in the server's environment, by part.
  returned: always
  type: dict
"""

from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import Owner
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import NvidiaSmi
from ansible_collections.blackwell.sglang.plugins.module_utils.preflight import FAIL, Wanted, check_all
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState
from ansible_collections.blackwell.sglang.plugins.module_utils.systemd_unit import unit_name


def main():
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "overrides": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    plan = module.params["plan"]
    settings = plan["settings"]
    directory = InstanceState(settings["sglang_state_dir"], plan["instance"]).directory
    wanted = Wanted(
        instance=directory,
        owner=Owner(directory, unit_name(plan["instance"])),
        gpus=plan["gpus"],
        gpu_count=settings["gpu_count"],
        gpu_arch=settings["gpu_arch"],
        exclusive=settings["gpu_exclusive"],
        device_patterns=settings["gpu_device_glob"],
        port=plan["server"]["port"],
        python=settings["sglang_python"],
        sglang_version=settings["sglang_version"],
        model_path=settings["model_path"] or settings["model_name"],
        state_dir=settings["sglang_state_dir"],
        user=settings["sglang_user"],
        timeout=settings["command_timeout"],
    )
    rows, stack = check_all(wanted, NvidiaSmi(settings["nvidia_smi"], settings["command_timeout"]))
    overrides = module.params["overrides"]
    rows = [
        replace(row, status=overrides[row.name], why=f"{row.why}. Overridden by preflight_overrides")
        if row.status == FAIL and row.name in overrides
        else row
        for row in rows
    ]
    failed = [row for row in rows if row.status == FAIL]
    result = {"changed": False, "checks": [row.as_dict() for row in rows], "stack": stack}
    if failed:
        module.fail_json(
            msg="The host is not ready; nothing was touched.\n" + "\n".join(f"- {row.sentence()}" for row in failed),
            **result,
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
