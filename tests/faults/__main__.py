# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cause every fault of faults.yml and hold what happens against what must.

    python -m tests.faults [ID ...]

For each fault and each of {first, over}: the outcome is named, a foreign process on another GPU lives, the GPUs
are clean or the old server serves, and the next run converges. Prints a table; exit status 1 on a surprise.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.lab import Lab

NEW_CONTEXT = 8192
GPUS = {"gpus": [0, 1], "tp_size": 2}


@dataclass
class Row:
    """One cell of the matrix. C(notice) in seconds from the blow to the line in the history."""

    fault: str
    mode: str
    surprises: list[str]
    notice: float | None
    left: str

    def line(self) -> str:
        notice = f"{self.notice:5.2f} s" if self.notice is not None else "       "
        return f"{self.fault:28} {self.mode:6} {notice}  {self.left:12} {'; '.join(self.surprises) or 'ok'}"


class Case:
    """One fault on one host, from bare to serving again."""

    def __init__(self, fault: dict, root: Path) -> None:
        self.fault = fault
        self.lab = Lab(root, ["sim1"], **GPUS)
        self.state = root / "sim1" / "state" / "default"
        self.stranger = self.lab.hold(7)

    def run(self) -> list[Row]:
        try:
            first = self._cause("first")
            over = self._cause("over")
            return [first, over]
        finally:
            self.stranger.kill()
            self.lab.end()

    def _cause(self, mode: str) -> Row:
        """Deploy into the fault, look at what is left, take the fault away and deploy again."""
        served = self._served()
        host, variables = self.fault.get("host", {}), self.fault.get("vars", {})
        if host:
            self.lab.fault(**host, only_with=str(NEW_CONTEXT))
        struck = self.lab.root / "sim1" / "struck.json"
        struck.unlink(missing_ok=True)
        run = self.lab.deploy(json.dumps({"context_length": NEW_CONTEXT, **variables}))
        notice = None
        if struck.exists() and (self.state / "history.jsonl").exists():
            entries = [json.loads(line) for line in (self.state / "history.jsonl").read_text().splitlines()]
            failed = [entry["at"] for entry in entries if entry["event"] == "failed"]
            notice = failed[-1] - json.loads(struck.read_text())["at"] if failed else None
        left = self._served()
        surprises = self._judge(mode, run, served, left)
        self.lab.fault()
        again = self.lab.deploy()
        if again.rc != 0 or self._served() is None:
            surprises.append(f"the next run does not converge: {again.text[-300:]}")
        if mode == "over" and left == served and not self.fault.get("passes") and again.recap()["changed"]:
            surprises.append("the next run changed what was right")
        holders = "serves " + str(left) if left else "clean"
        return Row(self.fault["id"], mode, surprises, notice, holders)

    def _judge(self, mode: str, run, served: int | None, left: int | None) -> list[str]:
        surprises = []
        passes = self.fault.get("passes", False)
        if (run.rc == 0) != passes:
            surprises.append(f"ended with {run.rc}: {run.text[-300:]}")
        if self.fault["says"] not in run.text:
            surprises.append(f"does not say {self.fault['says']!r}: {run.text[-600:]}")
        if passes:
            if left != NEW_CONTEXT:
                surprises.append("does not serve the new plan")
        elif mode == "over" and left != served:
            surprises.append(f"served {served} before and {left} now")
        elif mode == "first":
            mine = [pid for pid in self.lab.pids() if pid != self.stranger.pid]
            if mine or left is not None:
                surprises.append(f"not clean: {mine}")
        if self.fault.get("before") and "nothing was touched" not in run.text:
            surprises.append("was not found before anything was touched")
        if self.stranger.poll() is not None:
            surprises.append("a foreign process was hurt")
        return surprises

    def _served(self) -> int | None:
        """Context length of the server that answers, None if none does: an observer of our own."""
        try:
            return int(self.lab.ask("/v1/models")["data"][0]["max_model_len"])
        except OSError:
            return None


def main() -> int:
    faults = yaml.safe_load((Path(__file__).parent / "faults.yml").read_text(encoding="utf-8"))
    wanted = set(sys.argv[1:])
    faults = [fault for fault in faults if not wanted or fault["id"] in wanted]
    began = time.monotonic()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=3) as pool:
        for made in pool.map(lambda fault: Case(fault, Path(folder) / fault["id"]).run(), faults):
            for row in made:
                print(row.line(), flush=True)
            rows += made
    bad = [row for row in rows if row.surprises]
    noticed = sorted(row.notice for row in rows if row.notice is not None)
    print(
        f"{len(faults)} faults, {len(rows)} cases, {len(bad)} surprises, in {time.monotonic() - began:.0f} s; "
        f"deaths and hangs noticed within {noticed[len(noticed) // 2] if noticed else 0:.2f} s (median), "
        f"{noticed[-1] if noticed else 0:.2f} s (longest, stall_timeout included)"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
