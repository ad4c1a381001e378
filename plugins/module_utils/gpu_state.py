# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds which GPU, and whose process it is.

Two sources are put together, since each misses some: C(nvidia-smi --query-compute-apps) lists only
processes with a compute context (of a real SGLang 0.5.14 the scheduler alone), while /proc/*/fd also
shows the launcher, the detokenizer and the orphans of a killed start, which hold the device with 4 MiB.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import ComputeApp, Gpu, NvidiaSmi

OWN, STRAY, FOREIGN, PROTECTED, SELF = "own", "stray", "foreign", "protected", "self"

# Kernel names (15 characters) of processes that hold GPUs by right and must not be killed:
# killing dcgm-exporter froze a GPU until reboot (dcgm-exporter issue 84).
PROTECTED_NAMES = frozenset(
    name[:15]
    for name in (
        "nvidia-persistenced",
        "nvidia-powerd",
        "nvidia-smi",
        "nv-hostengine",
        "nv-fabricmanager",
        "nvidia-fabricmanager",
        "dcgm-exporter",
        "dcgm_exporter",
        "nvsm_core",
        "Xorg",
        "Xwayland",
        "gnome-shell",
    )
)
# SGLang's own list of what its processes are called (sglang/cli/killall.py, from 0.5.10).
SGLANG_TITLE = re.compile(
    r"sglang::|sglang\.launch_server|sglang\.data_parallel|sglang\.srt|sgl_diffusion::|sglang serve"
)
OTHER_UNIT = re.compile(r"/sglang-[^/]+\.service")
_DEVICE_NUMBER = re.compile(r"nvidia(\d+)$")


@dataclass
class Holder:
    """A process with a device file open or a compute context. C(process) is None if /proc does not show it."""

    pid: int
    process: procfs.Process | None
    role: str
    gpus: set[int] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    used_mib: int | None = None

    def describe(self) -> str:
        where = "GPU " + ", ".join(map(str, sorted(self.gpus))) if self.gpus else "the NVIDIA driver"
        if self.process is None:
            return (
                f"pid {self.pid} on {where} (nvidia-smi lists it, this host's /proc does not: "
                "another PID namespace or a dead task)"
            )
        owner = f", of instance {self.process.instance}" if self.process.instance else ""
        box = f", in container {self.process.container}" if self.process.container else ""
        return f"pid {self.pid} of user {self.process.user} on {where}{owner}{box}: {self.process.title}"

    def as_dict(self) -> dict[str, Any]:
        process = self.process
        return {
            "pid": self.pid,
            "role": self.role,
            "gpus": sorted(self.gpus),
            "devices": sorted(self.devices),
            "used_mib": self.used_mib,
            "user": process.user if process else None,
            "command": process.title if process else None,
            "container": process.container if process else None,
            "instance": process.instance if process else None,
        }


@dataclass
class Snapshot:
    """All GPUs of the host, their holders, and how many processes hid their open files from this user."""

    gpus: list[Gpu]
    holders: list[Holder]
    hidden: int

    def used_mib(self, wanted: list[int]) -> dict[int, int]:
        return {gpu.index: gpu.memory_used_mib for gpu in self.gpus if gpu.index in wanted}


@dataclass(frozen=True)
class Owner:
    """What makes a process the instance's: its mark, the folder it runs in, or its unit in the control group."""

    instance: str
    unit: str = ""

    def role_of(self, process: procfs.Process | None, lineage: set[int], own_container: str | None) -> str:
        if process is None:
            return FOREIGN
        if process.pid in lineage:
            return SELF
        if process.comm in PROTECTED_NAMES:
            return PROTECTED
        if process.belongs_to(self.instance) or (self.unit and f"/{self.unit}" in process.cgroup):
            return OWN
        of_another = (
            process.instance is not None
            or os.path.dirname(process.cwd) == os.path.dirname(self.instance)
            or OTHER_UNIT.search(process.cgroup)
        )
        if not of_another and process.container == own_container and SGLANG_TITLE.search(process.cmdline):
            return STRAY
        return FOREIGN


def minor_numbers(root: str = "/proc/driver/nvidia/gpus") -> dict[str, int]:
    """PCI bus id (lower case, 4-digit domain) -> N of /dev/nvidiaN. Empty where the driver does not tell."""
    minors = {}
    try:
        entries = os.listdir(root)
    except OSError:
        return {}
    for bus_id in entries:
        try:
            with open(os.path.join(root, bus_id, "information"), encoding="utf-8", errors="replace") as file:
                match = re.search(r"^Device Minor:\s*(\d+)", file.read(), re.MULTILINE)
        except OSError:
            continue
        if match:
            minors[bus_id.lower()[-12:]] = int(match.group(1))
    return minors


def device_indices(gpus: list[Gpu], minors: dict[str, int]) -> dict[int, int]:
    """N of /dev/nvidiaN -> index that nvidia-smi gives it. Without the driver's table they are the same."""
    return {minors.get(gpu.bus_id.lower()[-12:], gpu.index): gpu.index for gpu in gpus}


def combine(
    gpus: list[Gpu], apps: list[ComputeApp], open_files: dict[int, set[str]], minors: dict[str, int]
) -> dict[int, Holder]:
    """Join both sources by PID. Roles are not yet known."""
    by_device = device_indices(gpus, minors)
    by_uuid = {gpu.uuid: gpu.index for gpu in gpus}
    holders: dict[int, Holder] = {}
    for pid, paths in open_files.items():
        holder = holders.setdefault(pid, Holder(pid, None, FOREIGN))
        holder.devices |= paths
        for path in paths:
            match = _DEVICE_NUMBER.search(path)
            if match and int(match.group(1)) in by_device:
                holder.gpus.add(by_device[int(match.group(1))])
    for app in apps:
        holder = holders.setdefault(app.pid, Holder(app.pid, None, FOREIGN))
        if app.gpu_uuid in by_uuid:
            holder.gpus.add(by_uuid[app.gpu_uuid])
        if app.used_mib is not None:
            holder.used_mib = (holder.used_mib or 0) + app.used_mib
    return holders


def observe(smi: NvidiaSmi, device_patterns: list[str], owner: Owner, count: int | None = None) -> Snapshot:
    """One look at the host: GPUs, then holders with the role that C(owner) gives each. Changes nothing."""
    gpus = smi.gpus(count)
    apps = smi.compute_apps()
    open_files, hidden = procfs.device_holders(device_patterns)
    lineage = procfs.ancestors(os.getpid())
    me = procfs.read_process(os.getpid())
    own_container = me.container if me else None
    holders = []
    for holder in combine(gpus, apps, open_files, minor_numbers()).values():
        holder.process = procfs.read_process(holder.pid)
        if holder.process is None and holder.devices:
            continue  # it ended while we looked; one that nvidia-smi alone lists stays, as its memory may
        if holder.process is not None and not holder.process.alive:
            continue
        holder.role = owner.role_of(holder.process, lineage, own_container)
        if holder.role != SELF:
            holders.append(holder)
    return Snapshot(gpus, sorted(holders, key=lambda holder: holder.pid), hidden)


def choose(gpus: list[int] | None, present: list[Gpu]) -> list[int]:
    """The instance's GPU indices: C(gpus), or all that are there. ValueError names the ones that are not."""
    there = [gpu.index for gpu in present]
    if not gpus:
        return there
    absent = [index for index in gpus if index not in there]
    if absent:
        raise ValueError(f"gpus names {absent}, but nvidia-smi lists {there}")
    return sorted(set(gpus))
