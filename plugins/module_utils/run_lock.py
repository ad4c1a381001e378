# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep two runs from changing the same instance at once.

A run is one ansible-playbook process, and it makes many calls. Each call that changes something takes the
lock until the next call is due at the latest, so the lock of a run that was killed opens by itself. Times
are those of the monotonic clock of one boot: a clock that jumps neither opens nor jams it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils.procfs import boot_id
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState, StateError


class LockedError(Exception):
    """Another run is at work. C(holder) is its name, C(seconds) how long its lock holds at most."""

    def __init__(self, holder: str, seconds: float) -> None:
        super().__init__(
            f"Another run is changing this instance: {holder}. Its lock holds {seconds:.0f} s more at most; "
            "run again when it is done"
        )
        self.holder = holder
        self.seconds = seconds


class RunLock:
    """The file C(lock) in the instance's folder, held by C(run). A run without a name takes no lock."""

    def __init__(self, state: InstanceState, run: str | None, steal: str | None = None) -> None:
        self.state = state
        self.run = run
        self.steal = steal

    def take(self, seconds: float) -> None:
        """Hold it for C(seconds) more; :class:`LockedError` if another run than C(steal) does."""
        if self.run is None:
            return
        self.state.prepare()
        try:
            with open(self.state.path("lock"), "a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                held = _parse(file)
                left = held["until"] - time.monotonic() if held else 0.0
                if held and held["run"] not in (self.run, self.steal) and left > 0:
                    raise LockedError(held["run"], left)
                file.seek(0)
                file.truncate()
                json.dump({"run": self.run, "until": time.monotonic() + seconds, "boot_id": boot_id()}, file)
        except OSError as error:
            raise StateError(f"{self.state.path('lock')} can't be written: {error.strerror}") from error

    def release(self) -> None:
        """Open it, if it is ours."""
        if self.run is None or not os.path.exists(self.state.path("lock")):
            return
        with open(self.state.path("lock"), "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held = _parse(file)
            if held and held["run"] == self.run:
                file.truncate(0)


def _parse(file: Any) -> dict[str, Any] | None:
    """Who holds it by the file's word; None if nobody, or a run before the last boot."""
    file.seek(0)
    try:
        held = json.loads(file.read() or "null")
        return held if held and held["boot_id"] == boot_id() and float(held["until"]) and held["run"] else None
    except (ValueError, TypeError, KeyError):
        return None
