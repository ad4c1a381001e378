# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated host's folder: what it has, what is wrong with it, and which process uses how much GPU memory.

config.json     GPUs, versions, how long things take
faults.json     what is to go wrong (absent: nothing); read again at each use, so it can change any time
flags.json      the command line of the SGLang release that is "installed"
dev/nvidia*     the device files; real processes really open them
memory/PID.json what a process has "allocated"; its memory goes release_delay after it is dead
venv/           the server's environment, with the look-alike package
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

DEFAULTS: dict[str, Any] = {
    "gpus": 8,
    "gpu_name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "compute_cap": "12.0",
    "memory_mib": 97887,
    "driver": "580.126.09",
    "sglang": "0.5.23",
    "import_seconds": 0.2,
    "load_seconds": 0.8,
    "warmup_seconds": 0.2,
    "crash_sleep_seconds": 1.0,
    "token_seconds": 0.0,
    "release_delay": 0.3,
}
SPARED = "SIMULATOR_SPARED"
IDLE_CONTEXT_MIB = 4  # what an H200 showed for a process that had only opened the driver


def start_ticks(pid: int) -> int | None:
    """Start time of a living process; None for a dead one or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


class Host:
    """Access to the folder. Every method works from any process, without a lock: files are replaced whole."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()

    def _json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.root / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return content

    @property
    def config(self) -> dict[str, Any]:
        return {**DEFAULTS, **self._json("config.json")}

    @property
    def faults(self) -> dict[str, Any]:
        """What is to go wrong in this process. A server that C(only_with) does not mean is spared."""
        return {} if os.environ.get(SPARED) else self._json("faults.json")

    def spare_others(self, argv: list[str]) -> None:
        """In a launcher, before its children are made: faults may be C(only_with) a word of the command line."""
        word = self.faults.get("only_with")
        if word is not None and word not in argv:
            os.environ[SPARED] = "1"

    def strike(self) -> None:
        """Note when a fault struck, for those who measure how soon it is noticed."""
        self.write("struck.json", {"at": time.time()})

    @property
    def flags(self) -> dict[str, Any]:
        return self._json("flags.json")

    def device(self, name: str) -> Path:
        return self.root / "dev" / name

    def write(self, name: str, content: dict[str, Any]) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(path)

    def open_devices(self, indices: list[int]) -> list[int]:
        """Open the device files as the driver's library does; keep the descriptors."""
        names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in indices)]
        return [os.open(self.device(name), os.O_RDWR) for name in names]

    def allocate(self, memory: dict[int, int], compute: bool = True) -> None:
        """Say how many MiB this process has on each GPU, and whether nvidia-smi lists it as a compute app."""
        self.write(
            f"memory/{os.getpid()}.json",
            {"pid": os.getpid(), "start": start_ticks(os.getpid()), "compute": compute, "memory": memory},
        )

    def allocations(self) -> list[dict[str, Any]]:
        """What is allocated now. A dead process's share stays for release_delay after its death is first seen."""
        delay = self.faults.get("release_delay", self.config["release_delay"])
        found = []
        for path in sorted((self.root / "memory").glob("[0-9]*.json")):
            try:
                entry = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            alive = start_ticks(entry["pid"]) == entry["start"]
            if not alive:
                entry["compute"] = False
                if "until" not in entry:
                    entry["until"] = time.time() + delay
                    self.write(f"memory/{path.name}", entry)
                elif time.time() > entry["until"]:
                    path.unlink(missing_ok=True)
                    continue
            found.append(entry)
        return found

    def used_mib(self) -> list[int]:
        used = [0] * self.config["gpus"]
        for entry in self.allocations():
            for index, mib in entry["memory"].items():
                used[int(index)] += mib
        for index, mib in self.faults.get("residue_mib", {}).items():
            used[int(index)] += mib
        return used

    def uuid(self, index: int) -> str:
        return f"GPU-5b1ac000-0000-4000-8000-{index:012x}"
