# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watch a launch: process, own port, log and health together, until it is ready, dead, stalled or too late.

No sign alone is proof. The ready line is printed on a port clash too, a port may be another's, status
137 may be the OOM killer, SGLang ending itself, or us; so they are judged together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs, startup_log
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient, HttpError
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import Status

READY, STARTING, DEAD, STALLED, TIMEOUT = "ready", "starting", "dead", "stalled", "timeout"
# Seconds between two looks at all processes, which cost some 10 ms on a busy host.
LOOK_EVERY = 1.0
# Less CPU than this share of one core counts as none: an idle server still polls.
IDLE_CPU_SHARE = 0.02


class Server(Protocol):
    """What the watch needs of a supervisor."""

    instance: str

    def status(self) -> Status: ...

    def log(self, cursor: Any) -> tuple[str, Any]: ...


@dataclass
class Activity:
    """The last sign of life. Handed from one call of the watch to the next."""

    age: float = 0.0
    quiet_since: float = 0.0
    cpu_ticks: int = 0
    rss_pages: int = 0
    log_size: int = 0


@dataclass
class Outcome:
    """What the watch saw. C(seconds) is the age of the server's process."""

    phase: str
    progress: str
    seconds: float
    text: str
    activity: Activity
    status: Status
    ready_seconds: float | None = None

    def activity_dict(self) -> dict[str, Any]:
        return asdict(self.activity)


def answers(client: HttpClient, timeout: float = 2.0) -> bool:
    """Is the server ready for requests? C(/ready) answers in milliseconds from 0.5.20 on; before, C(/health) costs a second."""
    try:
        status = client.request("GET", "/ready", timeout=timeout).status
        if status == 404:
            status = client.request("GET", "/health", timeout=timeout + 20).status
    except HttpError:
        return False
    return status == 200


def owns_port(processes: list[procfs.Process], port: int) -> bool:
    """Does one of the instance's processes listen there?"""
    _listening, owners = procfs.listening_pids(port, [process.pid for process in processes])
    return bool(owners)


def watch(
    server: Server,
    client: HttpClient,
    port: int,
    start_timeout: float,
    stall_timeout: float,
    watch_seconds: float,
    activity: Activity | None = None,
    last_progress: str = "",
    step: float = 0.2,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Look every C(step) seconds for C(watch_seconds); earlier if there is something to tell.

    Returns at once when the server is ready, dead, stalled or older than C(start_timeout), and with
    C(starting) when the progress is other than C(last_progress) or the time is up.
    """
    activity = activity or Activity()
    deadline = time.monotonic() + watch_seconds
    text, cursor = server.log(None)
    progress = str(startup_log.progress(text))
    looked = float("-inf")
    while True:
        status = server.status()
        more, cursor = server.log(cursor)
        if more:
            text += more
            progress = str(startup_log.progress(text))
        if status.running is None:
            more, cursor = server.log(cursor)
            return Outcome(DEAD, progress, activity.age, text + more, activity, status)
        age = activity.age = procfs.age_seconds(status.running)
        if client.reachable() and owns_port(procfs.processes_of(server.instance), port) and answers(client):
            return Outcome(READY, "ready", age, text, activity, status, ready_seconds=age)
        if time.monotonic() >= looked + LOOK_EVERY:
            _note_activity(activity, procfs.processes_of(server.instance), len(text), age)
            looked = time.monotonic()
        outcome = Outcome(STARTING, progress, age, text, activity, status)
        if age > start_timeout:
            outcome.phase = TIMEOUT
            return outcome
        if age - activity.quiet_since > stall_timeout:
            outcome.phase = STALLED
            return outcome
        if progress != last_progress or time.monotonic() >= deadline:
            return outcome
        sleep(step)


def _note_activity(activity: Activity, processes: list[procfs.Process], log_size: int, age: float) -> None:
    """A log line, memory growth or CPU time are signs of life; C(age) is when they were seen."""
    cpu = sum(process.cpu_ticks for process in processes)
    rss = sum(process.rss_pages for process in processes)
    quiet = max(age - activity.quiet_since, 0.2)
    worked = (cpu - activity.cpu_ticks) / os.sysconf("SC_CLK_TCK") > IDLE_CPU_SHARE * quiet
    if log_size != activity.log_size or rss > activity.rss_pages or worked:
        activity.quiet_since = age
        activity.cpu_ticks, activity.rss_pages, activity.log_size = cpu, rss, log_size


def explain(outcome: Outcome, settings: dict[str, Any]) -> startup_log.Diagnosis:
    """Name why the start failed: exit, log and our own limits put together.

    Status 137 alone proves nothing; a cause in the log does.
    """
    found = startup_log.diagnose(outcome.text)
    if outcome.phase == STALLED:
        return startup_log.Diagnosis(
            "stalled",
            f"No log line, CPU time or memory growth for {settings['stall_timeout']} s; the last line: {found.line}",
            "Look at the GPUs: all busy at low power without growing memory fits a peer-to-peer deadlock "
            "(NCCL_P2P_LEVEL, IOMMU, ACS). A slow but healthy start needs a larger stall_timeout.",
        )
    if outcome.phase == TIMEOUT:
        return startup_log.Diagnosis(
            "start_timeout",
            f"Not ready {settings['launch_timeout']} s after its start; the last line: {found.line}",
            "If the log was still moving, raise launch_timeout.",
        )
    status = outcome.status
    if found.failure_class == "unknown" and status.exit == 2:
        return startup_log.Diagnosis("bad_arguments", found.line, "The server refused its command line.")
    return found
