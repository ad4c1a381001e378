# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia-smi of the simulated host: the queries the field uses, in the real formats and exit codes.

Formats and codes: an H200 with driver 580.159.04 and the nvidia-smi manual.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from simulator.host import Host

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


def gpu_values(host: Host, index: int, used: int) -> dict[str, str]:
    config = host.config
    return {
        "index": str(index),
        "uuid": host.uuid(index),
        "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
        "name": config["gpu_name"],
        "driver_version": config["driver"],
        "memory.total": f"{config['memory_mib']} MiB",
        "memory.used": f"{used} MiB",
        "compute_cap": config["compute_cap"],
        "utilization.gpu": "0 %",
        "mig.mode.current": "[N/A]",
        "persistence_mode": "Enabled",
        "ecc.mode.current": "Disabled",
    }


def app_rows(host: Host) -> list[dict[str, str]]:
    rows = []
    for entry in host.allocations():
        if not entry["compute"]:
            continue
        try:
            name = Path(f"/proc/{entry['pid']}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[0].decode()
        except OSError:
            continue
        for index, mib in entry["memory"].items():
            rows.append(
                {
                    "gpu_uuid": host.uuid(int(index)),
                    "pid": str(entry["pid"]),
                    "process_name": name,
                    "used_memory": f"{mib} MiB",
                }
            )
    return rows


def query(what: str, words: list[str], host: Host) -> tuple[str, int]:
    fields = [field.strip() for field in what.partition("=")[2].split(",")]
    options = next((w.partition("=")[2].split(",") for w in words if w.startswith("--format=")), [])
    if "csv" not in options:
        return "Error: Option --format=csv is missing.\n", 2
    chosen = next((words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-i", "--id")), None)
    if what.startswith("--query-gpu="):
        used = host.used_mib()
        rows = [gpu_values(host, index, used[index]) for index in range(host.config["gpus"])]
        if chosen is not None:
            rows = [row for row in rows if row["index"] == chosen or row["uuid"] == chosen]
            if not rows:
                return "No devices were found\n", 6
        known = set(gpu_values(host, 0, 0))
    else:
        rows = app_rows(host)
        known = {"gpu_uuid", "pid", "process_name", "used_memory"}
    for field in fields:
        if field not in known:
            return f'Field "{field}" is not a valid field to query.\n', 2
    lines = [", ".join(row[field] for field in fields) for row in rows]
    if "nounits" in options:
        lines = [line.replace(" MiB", "").replace(" %", "") for line in lines]
    if "noheader" not in options:
        lines.insert(0, ", ".join(fields))
    return "".join(line + "\n" for line in lines), 0


def spoil(text: str, fault: str, gpu_query: bool) -> tuple[str, int]:
    """What a driver in trouble prints instead."""
    lines = text.splitlines(keepends=True)
    if fault == "no_driver":
        return NO_DRIVER, 9
    if fault == "version_mismatch":
        return "Failed to initialize NVML: Driver/library version mismatch\n", 18
    if not gpu_query:
        return text, 0
    if fault in ("[N/A]", "ERR!", "[Unknown Error]"):
        fields = lines[-1].split(", ")
        fields[6] = fault
        return "".join([*lines[:-1], ", ".join(fields)]), 0
    if fault == "seven_rows":
        return "".join(lines[:-1]), 0
    if fault == "glued":
        return "39865 39866 39" + "".join(lines), 0
    raise ValueError(f"the simulator knows no fault {fault!r} of nvidia-smi")


def main(root: str) -> None:
    host = Host(root)
    words = sys.argv[1:]
    fault = host.faults.get("nvidia_smi")
    if fault == "hang":
        time.sleep(3600)
    what = next((word for word in words if word.startswith(("--query-gpu=", "--query-compute-apps="))), None)
    if what is None:
        print(f"Invalid combination of input arguments: {' '.join(words)}")
        sys.exit(2)
    text, code = query(what, words, host)
    if fault and code == 0:
        text, code = spoil(text, fault, what.startswith("--query-gpu="))
    sys.stdout.write(text)
    sys.exit(code)
