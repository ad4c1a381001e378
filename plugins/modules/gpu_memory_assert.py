# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gpu_memory_assert
short_description: Fail unless every GPU of an instance is empty
version_added: 0.1.0
description:
  - Reads every GPU of the instance and fails while any one has more than O(max_used_mib) in use or is held by
    a process, retrying until O(timeout).
  - A GPU that can't be read fails; it never passes. Utilisation is not looked at, since 100 % with 0 MiB and no
    process is a known latch of the driver and no leak.
  - An empty GPU does not make a launch safe by itself; see M(blackwell.sglang.host_preflight).
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
  - blackwell.sglang.gpu
options:
  max_used_mib:
    description: The bound in MiB, absolute. A share of the memory would let a residue of 1523 MiB pass.
    type: int
    default: 64
  timeout:
    description: Seconds to retry.
    type: float
    default: 10.0
seealso:
  - module: blackwell.sglang.gpu_reset
"""
EXAMPLES = r"""
- name: Verify that all eight GPUs are empty
  blackwell.sglang.gpu_memory_assert:
    gpu_count: 8
    max_used_mib: 64
"""
RETURN = r"""
used_mib:
  description: MiB in use, by index of the GPU.
  returned: when all GPUs could be read
  type: dict
holders:
  description: Processes that hold a GPU of the instance; as RV(blackwell.sglang.gpu_info#module:holders).
  returned: when all GPUs could be read
  type: list
  elements: dict
waited:
  description: Seconds until it passed or failed.
  returned: always
  type: float
error_kind:
  description: V(gpu_not_clean), or a kind of RV(blackwell.sglang.gpu_info#module:error_kind).
  returned: failure
  type: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_clear import not_clean
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import PROTECTED, choose, observe
from ansible_collections.blackwell.sglang.plugins.module_utils.instance import GPU_OPTIONS, owner_of
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import NvidiaSmi, NvidiaSmiError


def look(smi, params):
    """One look: (all well, what is wrong, kind, values to return)."""
    try:
        snapshot = observe(smi, params["device_glob"], owner_of(params), params["gpu_count"])
        gpus = choose(params["gpus"], snapshot.gpus)
    except NvidiaSmiError as error:
        return False, str(error), error.kind, {}
    except ValueError as error:
        return False, str(error), "gpu_missing", {}
    wanted = set(gpus)
    holders = [holder for holder in snapshot.holders if holder.gpus & wanted and holder.role != PROTECTED]
    dirty = not_clean(snapshot, gpus, params["max_used_mib"])
    parts = [f"GPU {index} has {used} MiB in use (bound {params['max_used_mib']})" for index, used in dirty.items()]
    parts += [holder.describe() for holder in holders]
    seen = {
        "used_mib": {str(index): used for index, used in snapshot.used_mib(gpus).items()},
        "holders": [holder.as_dict() for holder in holders],
    }
    return not parts, "; ".join(parts), "gpu_not_clean", seen


def main():
    module = AnsibleModule(
        argument_spec={
            **GPU_OPTIONS,
            "max_used_mib": {"type": "int", "default": 64},
            "timeout": {"type": "float", "default": 10.0},
        },
        supports_check_mode=True,
    )
    params = module.params
    smi = NvidiaSmi(params["nvidia_smi"], params["command_timeout"])
    began = time.monotonic()
    while True:
        clean, what, kind, seen = look(smi, params)
        waited = round(time.monotonic() - began, 2)
        if clean:
            module.exit_json(changed=False, waited=waited, **seen)
        if waited >= params["timeout"] or kind in ("missing", "denied"):
            break
        time.sleep(0.25)
    module.fail_json(
        msg=f"The GPUs are not clean: {what}. A launch on them fails or starves: run gpu_reset, or free them yourself.",
        error_kind=kind,
        waited=waited,
        **seen,
    )


if __name__ == "__main__":
    main()
