# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes, their devices and ports; seen on real processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import gpu_state, procfs


def spawn(code: str, **env: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, **env}, start_new_session=True
    )
    process.stdout.readline()
    return process


SLEEP = "import time; print(flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


@pytest.mark.parametrize("name", ["python", "a b", "odd) (name", "sglang::schedul", ")"])
def test_the_name_in_stat_may_hold_anything(name):
    tail = "S 7 8 9 " + " ".join(str(number) for number in range(7, 45))
    process = procfs.parse_stat(f"42 ({name}) {tail}")
    assert (process.pid, process.comm, process.state, process.ppid, process.session) == (42, name, "S", 7, 9)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0::/system.slice/docker-3f1c9a2b4d5e6f708192.scope\n", "3f1c9a2b4d5e"),
        ("0::/machine.slice/libpod-0123456789abcdef.scope/container\n", "0123456789ab"),
        ("12:pids:/docker/fedcba9876543210\n", "fedcba987654"),
        ("0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-99aa88bb77cc66dd.scope\n", "99aa88bb77cc"),
        ("0::/system.slice/sglang-default.service\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("", None),
    ],
)
def test_the_control_group_names_the_container(text, name):
    assert procfs.container_of(text) == name


def test_marks_and_devices_of_a_real_process(tmp_path):
    device = tmp_path / "nvidia7"
    device.touch()
    code = f"import time; held = open({str(device)!r}); print(flush=True); time.sleep(60)"
    process = spawn(code, **{procfs.INSTANCE_MARK: "/x/a", procfs.FINGERPRINT_MARK: "f00"})
    try:
        holders, _hidden = procfs.device_holders([str(tmp_path / "nvidia*")])
        assert holders == {process.pid: {str(device)}}
        seen = procfs.read_process(process.pid)
        assert (seen.instance, seen.fingerprint, seen.uid) == ("/x/a", "f00", os.getuid())
        assert [found.pid for found in procfs.processes_of("/x/a")] == [process.pid]
        assert procfs.processes_of("/x") == []
    finally:
        process.kill()
        process.wait()


TITLED = """
import ctypes, os, sys, time
os.chdir(sys.argv[1])
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[45]), int(fields[48])
if os.fork() == 0:
    ctypes.memmove(begin, b"sglang::scheduler".ljust(end - begin, b"\\0"), end - begin)
    print(os.getpid(), flush=True)
    time.sleep(60)
os._exit(0) if sys.argv[2] == "orphan" else time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["orphan", "child"])
def test_a_title_that_covers_the_marks_hides_no_process(tmp_path, kind):
    """As setproctitle does it: the environment in /proc is blank then."""
    instance = str(tmp_path / "a")
    (tmp_path / "a").mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", TITLED, instance, kind],
        env={**os.environ, procfs.INSTANCE_MARK: instance}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    child = procfs.read_process(int(parent.stdout.readline()))
    try:
        if kind == "orphan":
            parent.wait()
            child = procfs.read_process(child.pid)
        assert child.cmdline == "sglang::scheduler" and (child.instance == instance) == (kind == "child")
        assert child.pid in [found.pid for found in procfs.processes_of(instance)]
        assert procfs.processes_of(str(tmp_path / "b")) == []
        other = gpu_state.Owner(str(tmp_path / "b"))
        assert other.role_of(child, set(), None) == gpu_state.FOREIGN
        assert gpu_state.Owner(instance).role_of(child, set(), None) == gpu_state.OWN
    finally:
        os.kill(child.pid, signal.SIGKILL)
        parent.kill()
        parent.wait()


def test_sigterm_ends_the_willing_and_sigkill_the_stubborn():
    willing, stubborn = spawn(SLEEP), spawn(STUBBORN)
    targets = [procfs.read_process(process.pid) for process in (willing, stubborn)]
    killed, left = procfs.end_processes(targets, term_timeout=0.5, kill_timeout=5)
    assert (killed, left) == ([stubborn.pid], [])
    assert willing.wait() == -signal.SIGTERM
    assert stubborn.wait() == -signal.SIGKILL


def test_a_reused_pid_is_not_signalled():
    process = spawn(SLEEP)
    try:
        seen = procfs.read_process(process.pid)
        older = procfs.Process(**{**seen.__dict__, "start_ticks": seen.start_ticks - 1})
        assert procfs.send_signal(older, signal.SIGKILL) is False
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_zombie_is_dead():
    process = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while (seen := procfs.read_process(process.pid)) and seen.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    assert seen.state == "Z"
    assert procfs.wait_gone([seen], 0) == []
    process.wait()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_owner_of_a_port(family):
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        port = listener.getsockname()[1]
        assert procfs.listening_pids(port) == (False, set())
        listener.listen()
        assert procfs.listening_pids(port) == (True, {os.getpid()})
        assert procfs.listening_pids(port, [1]) == (True, set())


def test_ancestors_lead_to_process_1():
    chain = procfs.ancestors(os.getpid())
    assert {1, os.getpid(), os.getppid()} <= chain
