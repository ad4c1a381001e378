# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read processes, their open devices and their listening ports from /proc.

Links are read, never followed: a dead network mount behind an open file can't hang the scan.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
import signal
import time
from dataclasses import dataclass

# What the launcher puts into its server's environment: <state_dir>/<instance>, and the plan's fingerprint.
# Every child inherits them, so they name the owner of a process whose parent is gone and whose title is
# plain "python". A child that has given itself a title has written it over its environment, as setproctitle
# does: its parent names its owner then, and the folder that it runs in, which is <state_dir>/<instance>.
INSTANCE_MARK = "BLACKWELL_SGLANG_INSTANCE"
FINGERPRINT_MARK = "BLACKWELL_SGLANG_FINGERPRINT"
TITLED = "sglang::"
_CONTAINER = re.compile(r"(?:(?:docker|libpod|crio|containerd|lxc)[-./:]|machine-|nspawn@)([0-9A-Za-z_.-]{3,64})")


@dataclass(frozen=True)
class Process:
    """One process as /proc tells it. C(instance) and C(fingerprint) are the launcher's marks, its own or its parent's."""

    pid: int
    ppid: int
    session: int
    state: str
    start_ticks: int
    cpu_ticks: int
    rss_pages: int
    uid: int = -1
    comm: str = ""
    cmdline: str = ""
    cgroup: str = ""
    cwd: str = ""
    instance: str | None = None
    fingerprint: str | None = None

    def belongs_to(self, instance: str) -> bool:
        if self.instance is None and self.cmdline.startswith(TITLED):
            return self.cwd == instance
        return self.instance == instance

    @property
    def user(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    @property
    def container(self) -> str | None:
        """The container that the control group names, cut to 12 characters, or None."""
        return container_of(self.cgroup)

    @property
    def title(self) -> str:
        return (self.cmdline or f"[{self.comm}]")[:200]

    @property
    def alive(self) -> bool:
        """A zombie is dead: it holds no device and no memory."""
        return self.state not in ("Z", "X")


def container_of(cgroup: str) -> str | None:
    """Name the container in the text of /proc/PID/cgroup: docker, podman, CRI-O, containerd, LXC, nspawn."""
    for line in cgroup.splitlines():
        path = line.rsplit(":", 1)[-1]
        match = _CONTAINER.search(path)
        if match:
            return match.group(1).split(".scope")[0][:12]
    return None


def parse_stat(text: str) -> Process:
    """Read /proc/PID/stat. The name in it may hold spaces and parentheses, so it ends at the last ')'."""
    head, _sep, tail = text.rpartition(")")
    pid, _sep, comm = head.partition("(")
    fields = tail.split()
    return Process(
        pid=int(pid),
        comm=comm,
        state=fields[0],
        ppid=int(fields[1]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        rss_pages=int(fields[21]),
    )


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read().decode("utf-8", "replace")


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """The process, or None if it is gone. What may not be read (another user's environment) stays empty."""
    base = f"{proc}/{pid}"
    try:
        stat = parse_stat(_read(f"{base}/stat"))
        uid = os.stat(base).st_uid
    except (OSError, ValueError, IndexError):
        return None
    extra = {}
    for name in ("cmdline", "cgroup", "environ"):
        try:
            extra[name] = _read(f"{base}/{name}")
        except OSError:
            extra[name] = ""
    environment = dict(item.partition("=")[::2] for item in extra["environ"].split("\0"))
    marks = environment.get(INSTANCE_MARK), environment.get(FINGERPRINT_MARK)
    if marks[0] is None and extra["cmdline"].startswith(TITLED) and stat.ppid > 1:
        parent = read_process(stat.ppid, proc)
        marks = (parent.instance, parent.fingerprint) if parent is not None else marks
    try:
        cwd = os.readlink(f"{base}/cwd")
    except OSError:
        cwd = ""
    return Process(
        **{
            **stat.__dict__,
            "uid": uid,
            "cmdline": extra["cmdline"].replace("\0", " ").strip(),
            "cgroup": extra["cgroup"],
            "cwd": cwd,
            "instance": marks[0],
            "fingerprint": marks[1],
        }
    )


def pids(proc: str = "/proc") -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())


def processes_of(instance: str, proc: str = "/proc") -> list[Process]:
    """Every living process of C(instance): those with its mark, and those whose title has covered it."""
    wanted = f"{INSTANCE_MARK}={instance}".encode()
    found = []
    for pid in pids(proc):
        try:
            with open(f"{proc}/{pid}/environ", "rb") as environ, open(f"{proc}/{pid}/cmdline", "rb") as cmdline:
                if wanted not in environ.read().split(b"\0") and not cmdline.read().startswith(TITLED.encode()):
                    continue
        except OSError:
            continue
        process = read_process(pid, proc)
        if process is not None and process.alive and process.belongs_to(instance):
            found.append(process)
    return found


def ancestors(pid: int, proc: str = "/proc") -> set[int]:
    """C(pid), its parent, and so on up to 1."""
    chain = {1}
    while pid > 1 and pid not in chain:
        chain.add(pid)
        process = read_process(pid, proc)
        if process is None:
            break
        pid = process.ppid
    return chain


def device_holders(patterns: list[str], proc: str = "/proc") -> tuple[dict[int, set[str]], int]:
    """PID -> paths of open files that match one of the shell patterns; and how many processes hid theirs."""
    holders: dict[int, set[str]] = {}
    hidden = 0
    for pid in pids(proc):
        directory = f"{proc}/{pid}/fd"
        try:
            descriptors = os.listdir(directory)
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(f"{directory}/{descriptor}")
            except OSError:
                continue
            if any(fnmatch.fnmatchcase(target, pattern) for pattern in patterns):
                holders.setdefault(pid, set()).add(target)
    return holders, hidden


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def age_seconds(process: Process, proc: str = "/proc") -> float:
    """How long ago the process started, by the kernel's clock of uptime: a changed wall clock changes nothing."""
    uptime = float(_read(f"{proc}/uptime").split()[0])
    return max(0.0, uptime - process.start_ticks / os.sysconf("SC_CLK_TCK"))


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process, not a later one that got its PID. False if it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # kernel before 5.3
        handle = -1
    try:
        now = read_process(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def still_alive(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.alive and now.start_ticks == process.start_ticks


def end_processes(
    processes: list[Process], term_timeout: float, kill_timeout: float
) -> tuple[list[int], list[Process]]:
    """SIGTERM, wait, SIGKILL what is left, wait. Returns the PIDs that needed SIGKILL and those that survive it."""
    left = [process for process in processes if send_signal(process, signal.SIGTERM)]
    left = wait_gone(left, term_timeout)
    killed = [process.pid for process in left if send_signal(process, signal.SIGKILL)]
    return killed, wait_gone(left, kill_timeout)


def wait_gone(processes: list[Process], timeout: float) -> list[Process]:
    """Wait until all are dead; the ones that are not after C(timeout) seconds."""
    deadline = time.monotonic() + timeout
    left = [process for process in processes if still_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [process for process in left if still_alive(process)]
    return left


def parse_listeners(text: str, port: int) -> set[int]:
    """Inodes of the sockets that listen on C(port), from the text of /proc/net/tcp or tcp6."""
    inodes = set()
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(int(fields[9]))
    return inodes


def listening_pids(port: int, candidates: list[int] | None = None, proc: str = "/proc") -> tuple[bool, set[int]]:
    """Is the TCP port listened on, and by which of the candidate PIDs (None = all that can be read)?"""
    inodes: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            inodes |= parse_listeners(_read(f"{proc}/net/{name}"), port)
        except OSError:
            continue
    if not inodes:
        return False, set()
    sockets = {f"socket:[{inode}]" for inode in inodes}
    owners = set()
    for pid in pids(proc) if candidates is None else candidates:
        directory = f"{proc}/{pid}/fd"
        try:
            for descriptor in os.listdir(directory):
                if os.readlink(f"{directory}/{descriptor}") in sockets:
                    owners.add(pid)
                    break
        except OSError:
            continue
    return True, owners
