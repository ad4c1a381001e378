# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who sent a SIGKILL. The kernel's OOM killer, SGLang itself, a person: the exit status looks the same."""

from __future__ import annotations

import re
import time

from ansible_collections.blackwell.sglang.plugins.module_utils.command import CommandError, run

_STAMP = re.compile(r"\[\s*(\d+\.\d+)\]")
_KILLED = re.compile(r"Killed process (\d+) \(([^)]*)\)")
# SGLang kills its own process tree after a child died (0.5.8 to 0.5.23).
_ITSELF = re.compile(r"Received sigquit from a child|Triggering SIGQUIT|kill_process_tree|SIGQUIT for cleanup")


def kernel_kills(since: float, timeout: float) -> list[str] | None:
    """Lines of the kernel's log about processes that its OOM killer ended since Unix time C(since).

    None if this user can't read that log, which is not the same as an empty one.
    """
    try:
        told = run(["journalctl", "-k", f"--since=@{since:.0f}", "--output=cat", "--no-pager"], timeout)
        if told.rc == 0 and told.stdout.strip() and "No entries" not in told.stdout:
            return _matching(told.stdout)
    except CommandError:
        pass
    try:
        told = run(["dmesg"], timeout)
    except CommandError:
        return None
    uptime = since - (time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))
    return _matching(told.stdout, uptime) if told.rc == 0 else None


def _matching(text: str, uptime: float = 0.0) -> list[str]:
    """Lines about kills; of those with a stamp in seconds since the boot, the ones after C(uptime)."""
    found = []
    for line in text.splitlines():
        stamp = _STAMP.match(line)
        if _KILLED.search(line) and (stamp is None or float(stamp.group(1)) >= uptime):
            found.append(line.strip())
    return found


def is_ours(line: str, pids: set[int]) -> bool:
    """Does the kernel's line name one of C(pids), or a process with one of SGLang's titles?"""
    match = _KILLED.search(line)
    return match is not None and (int(match.group(1)) in pids or match.group(2).startswith("sglang"))


def sender(log: str, kills: list[str] | None, unit_oom: bool, pids: set[int]) -> tuple[str, bool]:
    """(who sent the SIGKILL, as the end of a sentence; whether it was the OOM killer for certain)."""
    named = [line for line in kills or [] if is_ours(line, pids)]
    if named:
        return f"by the kernel's OOM killer ({named[-1][:200]})", True
    if unit_oom:
        return "by the kernel's OOM killer, as systemd saw", True
    if _ITSELF.search(log):
        told = "" if kills is None else "; the kernel's log has no OOM kill of it"
        return f"by SGLang itself, after one of its processes died{told}", False
    if kills is None:
        return "by whom is not known: this user can't read the kernel's log", False
    return "not by the kernel's OOM killer, whose log has nothing of it; somebody else sent it", False
