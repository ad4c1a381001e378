# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start and stop the instance's server, and tell what became of it: under systemd, or as a process of our own.

Both supervisors offer the same: C(status), C(start), C(stop), C(log), C(files), C(settle), C(remove).
"""

from __future__ import annotations

import grp
import os
import pwd
import signal
import subprocess
import time
import typing as t
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.command import CommandError, Completed, run
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState
from ansible_collections.blackwell.sglang.plugins.module_utils.systemd_unit import render, unit_name

UNIT_DIRECTORY = "/etc/systemd/system"
RUNTIME_DIRECTORY = "/run/systemd/system"


class SupervisorError(Exception):
    """The server can't be started or stopped, with what was seen and what to do."""


@dataclass(frozen=True)
class Status:
    """C(running) is the living process of the launcher; C(exit) is how the last one ended, None if not known.

    C(exit) is negative for the signal that ended it, as in Python's subprocess. C(exited_at) in Unix time.
    C(oom): the supervisor knows that the kernel's OOM killer did it.
    """

    running: procfs.Process | None
    exit: int | None = None
    exited_at: float | None = None
    oom: bool = False

    @property
    def exit_text(self) -> str:
        if self.exit is None:
            return "it is gone; how it ended was not seen"
        if self.exit < 0:
            try:
                name = signal.Signals(-self.exit).name
            except ValueError:
                name = f"signal {-self.exit}"
            return f"it was ended by {name}"
        return f"it exited with status {self.exit}"


class ProcessSupervisor:
    """For containers and hosts without systemd: an own session, a keeper that waits for the exit status.

    C(process.json) names the server by PID, start time and boot, so that a reused PID is never taken for
    it; C(exit.json) is written by the keeper in the moment of death.
    """

    def __init__(self, state: InstanceState) -> None:
        self.state = state
        self.instance = state.directory
        self.log_path = state.path("server.log")

    def status(self) -> Status:
        known = self.state.read("process.json")
        if known is not None and known["boot_id"] == procfs.boot_id():
            process = procfs.read_process(known["pid"])
            if process is not None and process.alive and process.start_ticks == known["start_ticks"]:
                return Status(process)
            self._await_keeper(known["keeper"])  # between the death and the line about it
        ended = self.state.read("exit.json")
        if known is None or ended is None or ended["pid"] != known["pid"]:
            return Status(None)
        return Status(None, ended["status"], ended["at"])

    def files(self, run_plan: dict[str, Any], stop_timeout: float) -> tuple[str, str]:
        """Text of the supervisor's own files before and after; this one has none."""
        del run_plan, stop_timeout
        return "", ""

    def write_files(self, run_plan: dict[str, Any], stop_timeout: float) -> None:
        """Nothing to write."""

    def installed(self) -> bool:
        return os.path.exists(self.state.path("process.json"))

    def start(self, run_plan: dict[str, Any], stop_timeout: float) -> None:
        del stop_timeout
        self.state.prepare()
        for name in ("process.json", "exit.json"):
            self.state.remove(name)
        self.state.new_log(account_ids(run_plan.get("user")))
        environment = {
            key: value for key, value in os.environ.items() if key in ("HOME", "LANG", "PATH", "TMPDIR", "TZ")
        }
        environment.update(run_plan["env"])
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            self._keep(run_plan, environment, writer)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            said = pipe.read()
        if said != "started":
            raise SupervisorError(
                f"{run_plan['argv'][0]} can't be started: {said or 'the keeper died'}. "
                "Is sglang_python the server environment's interpreter?"
            )

    def _keep(self, run_plan: dict[str, Any], environment: dict[str, str], writer: int) -> None:
        """In the forked child: start the server, say so, wait for its end, write it down, leave."""
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            log = os.open(self.log_path, os.O_WRONLY | os.O_APPEND)
            owner: dict[str, Any] = {}
            if run_plan.get("user") and os.geteuid() == 0:
                account = pwd.getpwnam(run_plan["user"])
                groups = [group.gr_gid for group in grp.getgrall() if account.pw_name in group.gr_mem]
                owner = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
            # The server shares no descriptor with us but the three, and has a session of its own.
            server = subprocess.Popen(
                run_plan["argv"],
                stdin=null,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.state.directory,
                start_new_session=True,
                **owner,
            )
            process = procfs.read_process(server.pid)
            self.state.write(
                "process.json",
                {
                    "pid": server.pid,
                    "start_ticks": process.start_ticks if process else 0,
                    "boot_id": procfs.boot_id(),
                    "keeper": os.getpid(),
                },
            )
            os.write(writer, b"started")
            os.close(writer)
            status = server.wait()
            self.state.write("exit.json", {"pid": server.pid, "status": status, "at": time.time()})
        except BaseException as error:
            try:
                os.write(writer, f"{type(error).__name__}: {error}".encode())
            except OSError:
                pass
        finally:
            os._exit(0)

    def stop(self, timeout: float) -> tuple[bool, list[int]]:
        """End every process of the instance. Returns (was anything there, PIDs that needed SIGKILL)."""
        known = self.state.read("process.json")
        keeper = known["keeper"] if known else None
        running = self.status().running
        there = procfs.processes_of(self.instance)
        if running is not None and running.pid not in {process.pid for process in there}:
            there.append(running)
        if not there:
            return False, []
        # The launcher first: it drains and takes its children with it. Whatever is left then is ours too.
        killed: list[int] = []
        if running is not None:
            killed, survivors = procfs.end_processes([running], timeout, 30.0)
            _refuse_survivors(survivors)
            procfs.wait_gone(there, 2.0)
        more, survivors = procfs.end_processes(procfs.processes_of(self.instance), 2.0, 30.0)
        _refuse_survivors(survivors)
        self._await_keeper(keeper)
        return True, killed + more

    def _await_keeper(self, keeper: int | None) -> None:
        process = procfs.read_process(keeper) if keeper else None
        if process is not None:
            procfs.wait_gone([process], 2.0)

    def log(self, cursor: int | None) -> tuple[str, int]:
        """What the server printed since C(cursor), and the new cursor."""
        return self.state.read_log(cursor)

    def settle(self) -> None:
        """The launch is over: nothing to change, this supervisor never restarts."""

    def remove(self) -> bool:
        removed = [self.state.remove(name) for name in ("process.json", "exit.json")]
        return any(removed)


class SystemdSupervisor:
    """A unit per instance. While a launch is watched, a drop-in in /run holds restarts back."""

    def __init__(self, state: InstanceState, command_timeout: float) -> None:
        self.state = state
        self.instance = state.directory
        self.name = os.path.basename(state.directory)
        self.unit = unit_name(self.name)
        self.unit_path = os.path.join(UNIT_DIRECTORY, self.unit)
        self._hold_path = os.path.join(RUNTIME_DIRECTORY, self.unit + ".d", "launch.conf")
        self._timeout = command_timeout

    def _systemctl(self, *words: str, timeout: float | None = None, check: bool = True) -> Completed:
        try:
            done = run(["systemctl", *words], timeout or self._timeout)
        except CommandError as error:
            raise SupervisorError(f"{error}. Use sglang_supervisor: process on a host without systemd") from error
        if check and done.rc != 0:
            raise SupervisorError(f"systemctl {' '.join(words)} ended with {done.rc}: {done.stderr.strip()[:500]}")
        return done

    def _show(self) -> dict[str, str]:
        wanted = "LoadState,ActiveState,SubState,MainPID,ExecMainCode,ExecMainStatus,ExecMainPID,InvocationID,Result"
        shown = self._systemctl("show", self.unit, f"--property={wanted}").stdout
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    def status(self) -> Status:
        shown = self._show()
        pid = int(shown.get("MainPID") or 0)
        process = procfs.read_process(pid) if pid else None
        if process is not None and process.alive:
            return Status(process)
        if not int(shown.get("ExecMainPID") or 0):
            return Status(None)
        code, status = int(shown.get("ExecMainCode") or 0), int(shown.get("ExecMainStatus") or 0)
        # si_code of waitid(2): 1 exited, 2 killed, 3 dumped core
        return Status(None, -status if code in (2, 3) else status, oom=shown.get("Result") == "oom-kill")

    def _text(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def files(self, run_plan: dict[str, Any], stop_timeout: float) -> tuple[str, str]:
        return self._text(self.unit_path), render(self.name, run_plan, self.state.directory, stop_timeout)

    def write_files(self, run_plan: dict[str, Any], stop_timeout: float) -> None:
        """Put the unit file right without touching what runs."""
        self._place(self.unit_path, self.files(run_plan, stop_timeout)[1])
        self._systemctl("daemon-reload")

    def installed(self) -> bool:
        return os.path.exists(self.unit_path)

    def _place(self, path: str, text: str) -> bool:
        if self._text(path) == text:
            return False
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(path + ".new", path)
        except OSError as error:
            raise SupervisorError(f"{path} can't be written: {error.strerror}. Become root for this task") from error
        return True

    def start(self, run_plan: dict[str, Any], stop_timeout: float) -> None:
        self.state.prepare()
        _before, text = self.files(run_plan, stop_timeout)
        self._place(self.unit_path, text)
        self._place(self._hold_path, "[Service]\nRestart=no\nRestartForceExitStatus=\n")
        self._systemctl("daemon-reload")
        self._systemctl("enable", self.unit)
        self._systemctl("reset-failed", self.unit, check=False)
        if run_plan.get("log_file"):
            self.state.new_log(account_ids(run_plan.get("user")))
        self._systemctl("start", self.unit)

    def stop(self, timeout: float) -> tuple[bool, list[int]]:
        shown = self._show()
        active = shown.get("ActiveState") not in ("inactive", "failed", None)
        if active:
            self._systemctl("stop", self.unit, timeout=timeout + 60)
        left = procfs.processes_of(self.instance)
        killed, survivors = procfs.end_processes(left, 2.0, 30.0)
        _refuse_survivors(survivors)
        return active or bool(left), killed

    def log(self, cursor: Any) -> tuple[str, Any]:
        """What the server printed since C(cursor): to the journal of this invocation, or to its file."""
        stored = self.state.read("plan.json")
        if stored and stored["plan"]["run"].get("log_file"):
            return self.state.read_log(cursor)
        invocation = self._show().get("InvocationID")
        if not invocation:
            return "", cursor
        argv = [
            "journalctl",
            f"_SYSTEMD_INVOCATION_ID={invocation}",
            "--output=cat",
            "--no-pager",
            "--show-cursor",
        ]
        if cursor:
            argv.append(f"--after-cursor={cursor}")
        try:
            done = run(argv, self._timeout)
        except CommandError as error:
            raise SupervisorError(str(error)) from error
        text, _sep, tail = done.stdout.rpartition("-- cursor: ")
        return (text, tail.strip()) if tail else (done.stdout, cursor)

    def settle(self) -> None:
        """The launch is over: from now on systemd restarts a server that dies."""
        if os.path.exists(self._hold_path):
            os.unlink(self._hold_path)
            try:
                os.rmdir(os.path.dirname(self._hold_path))
            except OSError:
                pass  # somebody else's drop-ins are in it
            self._systemctl("daemon-reload")

    def remove(self) -> bool:
        self.settle()
        if not os.path.exists(self.unit_path):
            return False
        self._systemctl("disable", self.unit, check=False)
        os.unlink(self.unit_path)
        self._systemctl("daemon-reload")
        self._systemctl("reset-failed", self.unit, check=False)
        return True


Supervisor = t.Union[ProcessSupervisor, SystemdSupervisor]


def supervisor_for(kind: str, state: InstanceState, command_timeout: float) -> Supervisor:
    if kind == "systemd":
        return SystemdSupervisor(state, command_timeout)
    return ProcessSupervisor(state)


def run_of(plan: dict[str, Any]) -> dict[str, Any]:
    """What a supervisor starts for the plan: its run, with the fingerprint in the environment of every process."""
    run_plan: dict[str, Any] = plan["run"]
    return {**run_plan, "env": {**run_plan["env"], procfs.FINGERPRINT_MARK: plan["fingerprint"]}}


def account_ids(user: str | None) -> tuple[int, int] | None:
    """(uid, gid) of the user that the server runs as, if we may hand files to it."""
    if not user or os.geteuid() != 0:
        return None
    try:
        account = pwd.getpwnam(user)
    except KeyError as error:
        raise SupervisorError(
            f"sglang_user names {user!r}, who is not a user of this host. Create the user first"
        ) from error
    return account.pw_uid, account.pw_gid


def _refuse_survivors(survivors: list[procfs.Process]) -> None:
    if survivors:
        raise SupervisorError(
            "SIGKILL did not end "
            + "; ".join(f"pid {process.pid} ({process.title})" for process in survivors)
            + ". Such a process waits in the kernel: look for Xid errors; a reboot may be needed"
        )
