# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the instance's GPUs held by nobody, and wait for the driver to give the memory back.

SIGKILL returns before the driver has freed anything: the memory comes back when the dying task closes
the device (0.14 s for 60 GiB on one H200; over 30 s reported on larger hosts, sglang issue 36589).
SGLang's own clean-up waits 100 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import (
    FOREIGN,
    OWN,
    PROTECTED,
    STRAY,
    Holder,
    Snapshot,
)


class ClearError(Exception):
    """The GPUs are not clean. C(kind): C(foreign_holder), C(unkillable), C(not_released)."""

    def __init__(self, kind: str, message: str, holders: list[Holder] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.holders = holders or []


@dataclass
class Cleared:
    """What it took. Seconds are from the last kill until the memory of that GPU was back."""

    changed: bool = False
    ended: list[Holder] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    used_mib: dict[int, int] = field(default_factory=dict)
    release_seconds: dict[int, float] = field(default_factory=dict)


def sort_holders(snapshot: Snapshot, gpus: list[int]) -> tuple[list[Holder], list[Holder]]:
    """(ours to end, others on our GPUs). Our own count wherever they are, others only on the instance's GPUs."""
    wanted = set(gpus)
    ours = [h for h in snapshot.holders if h.role == OWN or (h.role == STRAY and h.gpus & wanted)]
    others = [h for h in snapshot.holders if h.role == FOREIGN and h.gpus & wanted]
    return ours, others


def refuse_foreign(others: list[Holder]) -> None:
    if others:
        raise ClearError(
            "foreign_holder",
            "GPUs of this instance are held by processes that are not ours: "
            + "; ".join(holder.describe() for holder in others)
            + ". Nothing was killed. Stop them yourself, give the instance other GPUs with gpus, or set "
            "gpu_exclusive: true if this host is this instance's alone",
            others,
        )


def not_clean(snapshot: Snapshot, gpus: list[int], max_used_mib: int) -> dict[int, int]:
    """GPU index -> MiB of every GPU of the instance above the bound."""
    return {index: used for index, used in snapshot.used_mib(gpus).items() if used > max_used_mib}


def clear(
    observe: Callable[[], Snapshot],
    marked: Callable[[], list[procfs.Process]],
    gpus: list[int],
    exclusive: bool,
    max_used_mib: int,
    term_timeout: float,
    release_timeout: float,
    end: Callable[..., tuple[list[int], list[procfs.Process]]] = procfs.end_processes,
    sleep: Callable[[float], None] = time.sleep,
) -> Cleared:
    """End the holders (SIGTERM, then SIGKILL) and wait until no holder and no memory is left.

    C(marked) gives the instance's processes that may hold nothing yet, such as those of a launch that
    was killed in its first seconds. Looks again after each round, since a supervisor may start anew;
    C(release_timeout) bounds the wait after the last kill.
    """
    result = Cleared()
    deadline = time.monotonic() + term_timeout + release_timeout
    last_kill = None
    while True:
        snapshot = observe()
        ours, others = sort_holders(snapshot, gpus)
        if exclusive:
            ours += others
        else:
            refuse_foreign(others)
        phantoms = [holder for holder in ours if holder.process is None]
        targets = {holder.pid: holder.process for holder in ours if holder.process is not None}
        targets.update({process.pid: process for process in marked()})
        dirty = not_clean(snapshot, gpus, max_used_mib)
        if not targets:
            result.used_mib = snapshot.used_mib(gpus)
            if last_kill is not None:
                for index in set(gpus) - set(dirty):
                    result.release_seconds.setdefault(index, round(time.monotonic() - last_kill, 2))
            if not dirty and not phantoms:
                return result
        if time.monotonic() > deadline:
            raise ClearError(
                "not_released",
                _residue(snapshot, dirty, ours, max_used_mib, term_timeout + release_timeout),
                ours,
            )
        if not targets:
            sleep(0.1)
            continue
        result.changed = True
        result.ended += [holder for holder in ours if holder.process is not None]
        killed, survivors = end(list(targets.values()), term_timeout, min(30.0, release_timeout))
        result.killed += killed
        last_kill = time.monotonic()
        if survivors:
            stuck = {process.pid for process in survivors}
            raise ClearError(
                "unkillable",
                "SIGKILL did not end "
                + "; ".join(f"pid {process.pid} ({process.title})" for process in survivors)
                + ". Such a process waits in the kernel: look for Xid errors; a reboot may be needed",
                [holder for holder in ours if holder.pid in stuck],
            )


def _residue(snapshot: Snapshot, dirty: dict[int, int], holders: list[Holder], max_used_mib: int, waited: float) -> str:
    parts = [f"GPU {index} still has {used} MiB in use (bound {max_used_mib})" for index, used in dirty.items()]
    parts += [holder.describe() for holder in holders]
    keep = [h.describe() for h in snapshot.holders if h.role == PROTECTED and h.gpus & set(dirty)]
    if keep:
        hint = "; held by a process that is never killed: " + "; ".join(keep)
    elif holders:
        hint = ". Holders came back after each kill: something restarts them"
    else:
        hint = (
            ". No process that this user can see holds it. The same residue on every GPU fits a wedged "
            "peer-to-peer transfer; a GPU reset or a reboot frees it, which is yours to decide"
        )
    hidden = f" ({snapshot.hidden} processes hid their open files: run as root to see all)" if snapshot.hidden else ""
    return f"{'; '.join(parts)} after {waited:g} s{hint}{hidden}"
