# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask nvidia-smi, and believe only what is fully understood.

The text of one query goes in, values come out; a row that is not exactly what was asked for is an
error, never a guess. What the tool prints and its exit codes: the nvidia-smi manual, and an H200 with
driver 580.159.04, where a bad field answers on stdout with exit 2 and a missing index with exit 6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.blackwell.sglang.plugins.module_utils.command import CommandError, run

GPU_FIELDS = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "driver_version",
    "memory.total",
    "memory.used",
    "compute_cap",
)
APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")

# Exit codes that the nvidia-smi manual gives a meaning.
EXIT_CODES = {
    2: "it refused an argument",
    4: "this user has no permission",
    6: "it found no such GPU",
    8: "a GPU's external power cables are not attached",
    9: "the NVIDIA driver is not loaded",
    10: "a GPU has an interrupt problem",
    12: "the NVML library is missing",
    14: "a GPU's infoROM is corrupted",
    15: "a GPU has fallen off the bus",
}
# Whatever the driver prints in place of a value that it does not have.
NO_VALUE = re.compile(r"^(\[.*\]|ERR!|N/A|Unknown Error|-)$", re.IGNORECASE)
UUID = re.compile(r"^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
BUS_ID = re.compile(r"^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]$")


class NvidiaSmiError(Exception):
    """nvidia-smi could not be understood.

    C(kind): C(missing), C(denied), C(timeout), C(exit), C(nvml_mismatch), C(no_value), C(bad_row),
    C(gpu_missing).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Gpu:
    """One row of C(--query-gpu). Memory in MiB."""

    index: int
    uuid: str
    bus_id: str
    name: str
    driver: str
    memory_total_mib: int
    memory_used_mib: int
    compute_cap: str


@dataclass(frozen=True)
class ComputeApp:
    """One row of C(--query-compute-apps). C(used_mib) is None where the driver does not tell."""

    gpu_uuid: str
    pid: int
    name: str
    used_mib: int | None


def _fields(line: str, wanted: int) -> list[str]:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != wanted:
        raise NvidiaSmiError(
            "bad_row",
            f"nvidia-smi printed {line!r}, which has {len(fields)} fields where {wanted} were asked for. "
            "Nothing is concluded from a row that can't be read: look at nvidia-smi's output on the host",
        )
    return fields


def _number(text: str, field: str, line: str) -> int:
    if NO_VALUE.match(text):
        raise NvidiaSmiError(
            "no_value",
            f"nvidia-smi has no value for {field}: it printed {text!r} in {line!r}. A GPU that can't be read "
            "is not known to be clean: look for Xid errors in the kernel log",
        )
    if not text.isdecimal() or not text.isascii():
        raise NvidiaSmiError(
            "bad_row", f"nvidia-smi printed {text!r} for {field} in {line!r}, which is no whole number"
        )
    return int(text)


def _text(text: str, field: str, line: str, shape: re.Pattern[str] | None = None) -> str:
    if not text or NO_VALUE.match(text):
        raise NvidiaSmiError("no_value", f"nvidia-smi has no value for {field}: it printed {text!r} in {line!r}")
    if shape is not None and not shape.match(text):
        raise NvidiaSmiError("bad_row", f"nvidia-smi printed {text!r} for {field} in {line!r}, which is no {field}")
    return text


def parse_gpus(stdout: str) -> list[Gpu]:
    """Read C(--query-gpu=<GPU_FIELDS> --format=csv,noheader,nounits); indices must run 0, 1, 2, ..."""
    gpus = []
    for line in stdout.splitlines():
        if not line.strip():
            continue
        index, uuid, bus, name, driver, total, used, cap = _fields(line, len(GPU_FIELDS))
        gpus.append(
            Gpu(
                index=_number(index, "index", line),
                uuid=_text(uuid, "uuid", line, UUID),
                bus_id=_text(bus, "pci.bus_id", line, BUS_ID),
                name=_text(name, "name", line),
                driver=_text(driver, "driver_version", line),
                memory_total_mib=_number(total, "memory.total", line),
                memory_used_mib=_number(used, "memory.used", line),
                compute_cap=_text(cap, "compute_cap", line),
            )
        )
    indices = [gpu.index for gpu in gpus]
    if indices != list(range(len(gpus))):
        raise NvidiaSmiError("bad_row", f"nvidia-smi's GPU indices are {indices}, not 0 to {len(gpus) - 1} in order")
    if len({gpu.uuid for gpu in gpus}) != len(gpus):
        raise NvidiaSmiError("bad_row", "nvidia-smi named the same GPU twice")
    return gpus


def parse_compute_apps(stdout: str) -> list[ComputeApp]:
    """Read C(--query-compute-apps=<APP_FIELDS> --format=csv,noheader,nounits). A name may hold commas."""
    apps = []
    for line in stdout.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < len(APP_FIELDS):
            _fields(line, len(APP_FIELDS))
        uuid, pid, used = fields[0], fields[1], fields[-1]
        apps.append(
            ComputeApp(
                gpu_uuid=_text(uuid, "gpu_uuid", line, UUID),
                pid=_number(pid, "pid", line),
                name=", ".join(fields[2:-1]),
                used_mib=None if NO_VALUE.match(used) else _number(used, "used_memory", line),
            )
        )
    return apps


def expect_count(gpus: list[Gpu], count: int | None) -> None:
    """Raise C(gpu_missing) unless nvidia-smi named C(count) GPUs (None = whatever is there, but not none)."""
    if not gpus:
        raise NvidiaSmiError("gpu_missing", "nvidia-smi names no GPU at all")
    if count is not None and len(gpus) != count:
        raise NvidiaSmiError(
            "gpu_missing",
            f"nvidia-smi names {len(gpus)} GPUs where gpu_count says {count}: "
            + ", ".join(f"{gpu.index} at {gpu.bus_id}" for gpu in gpus)
            + ". A lost GPU must be found before anything is launched: look for Xid 79 in the kernel log",
        )


class NvidiaSmi:
    """The one place that runs nvidia-smi. Each query is a command of its own, captured by itself."""

    def __init__(self, path: str = "nvidia-smi", timeout: float = 20.0) -> None:
        self.path = path
        self.timeout = timeout

    def _query(self, what: str, fields: tuple[str, ...]) -> str:
        argv = [self.path, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            done = run(argv, self.timeout)
        except CommandError as error:
            advice = {
                "missing": "Install the NVIDIA driver's tools or set nvidia_smi to the path of the command",
                "denied": "Check the file's permissions",
                "timeout": "The driver hangs: look for Xid errors in the kernel log; a reboot may be needed",
            }[error.kind]
            raise NvidiaSmiError(error.kind, f"{error}. {advice}") from error
        if done.rc != 0:
            said = (done.stdout.strip() or done.stderr.strip())[:300]
            kind = "nvml_mismatch" if "version mismatch" in said else "exit"
            meaning = EXIT_CODES.get(done.rc, "an error without a documented code")
            raise NvidiaSmiError(kind, f"{self.path} ended with {done.rc} ({meaning}) and said: {said!r}")
        return done.stdout

    def gpus(self, count: int | None = None) -> list[Gpu]:
        """All GPUs of the host; C(count) of them or C(gpu_missing)."""
        gpus = parse_gpus(self._query("gpu", GPU_FIELDS))
        expect_count(gpus, count)
        return gpus

    def compute_apps(self) -> list[ComputeApp]:
        """Processes with a compute context. Not every holder of a GPU is among them: see gpu_state."""
        return parse_compute_apps(self._query("compute-apps", APP_FIELDS))
