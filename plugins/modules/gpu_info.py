# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gpu_info
short_description: Tell which GPUs a host has and which processes hold them
version_added: 0.1.0
description:
  - Reads C(nvidia-smi) and C(/proc/*/fd); changes nothing.
  - Both are needed. C(nvidia-smi) lists only processes with a compute context, while a launcher, a
    detokenizer or an orphan holds the device files without one.
  - A row that is not fully understood, a value that the driver does not have, or a missing GPU is an error.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
  - blackwell.sglang.gpu
seealso:
  - module: blackwell.sglang.gpu_reset
"""
EXAMPLES = r"""
- name: Look at the GPUs
  blackwell.sglang.gpu_info:
    gpu_count: 8
  register: host_gpus
"""
RETURN = r"""
gpus:
  description: One entry a GPU, in the order of C(nvidia-smi).
  returned: success
  type: list
  elements: dict
  contains:
    index: {description: Index., type: int, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    bus_id: {description: PCI bus id., type: str, returned: always}
    name: {description: Product name., type: str, returned: always}
    driver: {description: Driver version., type: str, returned: always}
    memory_total_mib: {description: Memory in MiB., type: int, returned: always}
    memory_used_mib: {description: Memory in use in MiB., type: int, returned: always}
    compute_cap: {description: Compute capability., type: str, returned: always}
    holders: {description: PIDs of the processes that hold it., type: list, elements: int, returned: always}
holders:
  description: Processes that have a device file open or a compute context.
  returned: success
  type: list
  elements: dict
  contains:
    pid: {description: Process id., type: int, returned: always}
    role:
      description: >-
        V(own) of this instance, V(stray) SGLang that no instance owns, V(protected) never killed,
        V(foreign) anything else.
      type: str
      returned: always
    gpus: {description: Indices of the GPUs that it holds., type: list, elements: int, returned: always}
    devices: {description: Device files that it has open., type: list, elements: str, returned: always}
    used_mib: {description: GPU memory in MiB as nvidia-smi counts it or null., type: int, returned: always}
    user: {description: Its user., type: str, returned: always}
    command: {description: Its command line or title., type: str, returned: always}
    container: {description: Container that its control group names or null., type: str, returned: always}
    instance: {description: Instance that its environment names or null., type: str, returned: always}
hidden_processes:
  description: How many processes hid their open files from this user. Run as root to see all.
  returned: success
  type: int
error_kind:
  description: >-
    V(missing), V(denied), V(timeout), V(exit), V(nvml_mismatch), V(no_value), V(bad_row) or V(gpu_missing).
  returned: when nvidia-smi could not be understood
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import observe
from ansible_collections.blackwell.sglang.plugins.module_utils.instance import GPU_OPTIONS, owner_of
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import NvidiaSmi, NvidiaSmiError


def main():
    module = AnsibleModule(argument_spec=dict(GPU_OPTIONS), supports_check_mode=True)
    params = module.params
    smi = NvidiaSmi(params["nvidia_smi"], params["command_timeout"])
    try:
        snapshot = observe(smi, params["device_glob"], owner_of(params), params["gpu_count"])
    except NvidiaSmiError as error:
        module.fail_json(msg=str(error), error_kind=error.kind)
    module.exit_json(
        changed=False,
        gpus=[
            {**gpu.__dict__, "holders": [h.pid for h in snapshot.holders if gpu.index in h.gpus]}
            for gpu in snapshot.gpus
        ],
        holders=[holder.as_dict() for holder in snapshot.holders],
        hidden_processes=snapshot.hidden,
    )


if __name__ == "__main__":
    main()
