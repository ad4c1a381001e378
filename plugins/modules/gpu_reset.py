# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gpu_reset
short_description: Make an instance's GPUs held by nobody
version_added: 0.1.0
description:
  - Ends the processes that hold the instance's GPUs, SIGTERM first, SIGKILL after O(term_timeout), and waits
    until the driver has given the memory back.
  - Ends only what belongs to the instance, or is an SGLang process that no instance owns. A foreign holder is
    an error that names PID, user, command and container, and nothing at all is killed, unless O(exclusive=true).
  - Never ends itself, its ancestors, process 1, or what holds GPUs by right (persistence daemon, DCGM, fabric
    manager, X, C(nvidia-smi)).
  - It does not reset the hardware.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes
  - blackwell.sglang.gpu
options:
  exclusive:
    description: Also end foreign processes on the instance's GPUs. For hosts that are this instance's alone.
    type: bool
    default: false
  max_used_mib:
    description: A GPU with more MiB in use is not clean. An idle one reads 0 to 5 by C(nvidia-smi).
    type: int
    default: 64
  term_timeout:
    description: Seconds between SIGTERM and SIGKILL.
    type: float
    default: 10.0
  release_timeout:
    description: Seconds for the driver to give the memory back. SGLang's own clean-up waits 100.
    type: float
    default: 100.0
seealso:
  - module: blackwell.sglang.gpu_memory_assert
"""
EXAMPLES = r"""
- name: Free the GPUs of the instance
  blackwell.sglang.gpu_reset:
    gpu_count: 8

- name: Free the first four GPUs of a host that is ours alone
  blackwell.sglang.gpu_reset:
    gpus: [0, 1, 2, 3]
    exclusive: true
"""
RETURN = r"""
ended:
  description: The holders that were ended, or would be in check mode; as RV(blackwell.sglang.gpu_info#module:holders).
  returned: success
  type: list
  elements: dict
killed:
  description: PIDs that needed SIGKILL.
  returned: success
  type: list
  elements: int
used_mib:
  description: MiB in use, by index of the GPU, at the end.
  returned: success
  type: dict
release_seconds:
  description: Seconds from the last kill until the memory was back, by index of the GPU.
  returned: success
  type: dict
holders:
  description: The holders that stand in the way.
  returned: failure
  type: list
  elements: dict
error_kind:
  description: >-
    V(foreign_holder), V(unkillable), V(not_released), or a kind of RV(blackwell.sglang.gpu_info#module:error_kind).
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_clear import (
    ClearError,
    clear,
    refuse_foreign,
    sort_holders,
)
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import choose, observe
from ansible_collections.blackwell.sglang.plugins.module_utils.instance import GPU_OPTIONS, owner_of
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import NvidiaSmi, NvidiaSmiError


def main():
    module = AnsibleModule(
        argument_spec={
            **GPU_OPTIONS,
            "exclusive": {"type": "bool", "default": False},
            "max_used_mib": {"type": "int", "default": 64},
            "term_timeout": {"type": "float", "default": 10.0},
            "release_timeout": {"type": "float", "default": 100.0},
        },
        supports_check_mode=True,
    )
    params = module.params
    smi = NvidiaSmi(params["nvidia_smi"], params["command_timeout"])
    owner = owner_of(params)

    def look():
        return observe(smi, params["device_glob"], owner, params["gpu_count"])

    def marked():
        return procfs.processes_of(owner.instance)

    try:
        before = look()
        gpus = choose(params["gpus"], before.gpus)
        ours, others = sort_holders(before, gpus)
        if not params["exclusive"]:
            refuse_foreign(others)
        targets = ours + (others if params["exclusive"] else [])
        diff = {
            "before": "".join(holder.describe() + "\n" for holder in targets),
            "after": "",
            "before_header": "holders of the instance's GPUs",
            "after_header": "holders of the instance's GPUs",
        }
        if module.check_mode:
            module.exit_json(
                changed=bool(targets or marked()),
                ended=[holder.as_dict() for holder in targets],
                killed=[],
                used_mib={str(index): used for index, used in before.used_mib(gpus).items()},
                release_seconds={},
                diff=diff,
            )
        result = clear(
            look,
            marked,
            gpus,
            params["exclusive"],
            params["max_used_mib"],
            params["term_timeout"],
            params["release_timeout"],
        )
    except NvidiaSmiError as error:
        module.fail_json(msg=str(error), error_kind=error.kind)
    except ClearError as error:
        module.fail_json(msg=str(error), error_kind=error.kind, holders=[holder.as_dict() for holder in error.holders])
    except ValueError as error:
        module.fail_json(msg=str(error), error_kind="gpu_missing")
    module.exit_json(
        changed=result.changed,
        ended=[holder.as_dict() for holder in result.ended],
        killed=result.killed,
        used_mib={str(index): used for index, used in result.used_mib.items()},
        release_seconds={str(index): seconds for index, seconds in result.release_seconds.items()},
        diff=diff,
    )


if __name__ == "__main__":
    main()
