# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a real host: systemd, another user, orphans, a cut connection. Run by side_effect.yml on a host that serves."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
SSH = ["ssh", "-F", os.environ["LAB_SSH_CONFIG"], "198.18.0.11"]
HOLD = "/usr/bin/python3 -m simulator hold /srv/gpuhost"


def on_host(command: str, check: bool = True) -> str:
    done = subprocess.run([*SSH, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or not check, f"{command}: {done.stderr}"
    return done.stdout.strip()


def command(playbook: str, *words: str) -> list[str]:
    ansible = str(Path(sys.executable).parent / "ansible-playbook")
    inventory = Path(__file__).parent / "hosts.yml"
    return [ansible, "-i", str(inventory), str(REPOSITORY / "playbooks" / playbook), *words]


def deploy(*words: str) -> tuple[int, str, int]:
    """(exit status, output with folded blanks, changed tasks)"""
    extra = [item for word in words for item in (["-e", word] if not word.startswith("-") else [word])]
    done = subprocess.run(
        command("deploy.yml", *extra),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, cwd=REPOSITORY,
    )  # fmt: skip
    text = re.sub(r"\s+", " ", done.stdout + done.stderr)
    changed = re.search(r"changed=(\d+)", text)
    return done.returncode, text, int(changed.group(1)) if changed else -1


def watched(arguments: list[str], until: str, **options) -> subprocess.Popen:
    """A command whose output was read as far as C(until). It gets pipes of its own: ssh leaves shared ones non-blocking."""
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, cwd=REPOSITORY, **options,
    )  # fmt: skip
    seen = ""
    for line in process.stdout:
        seen += line
        if until in line:
            return process
    raise AssertionError(f"ended before {until!r}: {seen[-1500:]}")


def fault(**faults) -> None:
    on_host(f"echo {shlex.quote(json.dumps(faults))} | sudo tee /srv/gpuhost/faults.json")


def main_pid() -> int:
    return int(on_host("systemctl show sglang-default --property=MainPID --value"))


def background(unit: str, words: str, user: str = "root") -> int:
    """A process of its own, without a terminal; its pid."""
    on_host(f"sudo systemd-run --quiet --unit={unit} --uid={user} --working-directory=/opt/simulator {words}")
    time.sleep(1)
    return int(on_host(f"systemctl show {unit} --property=MainPID --value"))


@pytest.fixture(autouse=True)
def converged():
    """Each test may leave anything behind; the next run must converge, and a further one change nothing."""
    yield
    fault()
    status, text, _changed = deploy()
    assert status == 0, text[-1500:]
    assert deploy()[2] == 0
    assert on_host("systemctl is-active nvidia-persistenced") == "active"


def test_a_server_that_ignores_sigterm():
    fault(ignore_sigterm=True)
    assert deploy("context_length=8192")[0] == 0
    status, text, _changed = deploy("context_length=16384", "stop_timeout=2")
    assert status == 0, text[-1500:]


def test_an_orphan_with_a_title_only():
    """As a start that was killed leaves them: no unit, parent 1, a plain title, GPU 3."""
    on_host("sudo systemctl kill --kill-whom=main --signal=KILL sglang-default && sudo systemctl stop sglang-default")
    script = (
        "import os, ctypes, signal; os.open('/dev/nvidia3', os.O_RDWR); os.fork() and os._exit(0); os.setsid(); "
        "ctypes.CDLL(None).prctl(15, b'sglang::schedul', 0, 0, 0); signal.pause()"
    )
    on_host(f"sudo -u sglang setsid python3 -c {shlex.quote(script)} < /dev/null > /dev/null 2>&1")
    assert on_host("pgrep -x sglang::schedul -P 1")
    status, text, _changed = deploy()
    assert status == 0, text[-1500:]


def test_a_launcher_that_is_killed_while_it_starts():
    on_host("sudo systemctl stop sglang-default")
    fault(hang_at="weights")
    run = watched(command("deploy.yml"), "starting, weights")
    on_host(f"sudo kill -9 {main_pid()}")
    rest = re.sub(r"\s+", " ", run.stdout.read())
    assert run.wait() != 0 and "SIGKILL" in rest, rest[-1500:]
    assert not on_host("pgrep -f sglang::", check=False)


def test_a_process_of_another_user_on_the_last_gpu():
    stranger = background("job", f"{HOLD} 7 1500", user="stranger")
    old = main_pid()
    status, text, _changed = deploy("context_length=8192")
    assert status != 0 and f"pid {stranger} of user stranger" in text and "nothing was touched" in text
    assert main_pid() == old
    on_host(f"sudo kill -0 {stranger} && sudo systemctl stop job")


def test_a_process_in_a_container_is_named_as_one():
    name = "docker-" + "ab12" * 16 + ".scope"
    holder = watched(
        [*SSH, f"cd /opt/simulator && sudo systemd-run --quiet --scope --unit={name} {HOLD} 6 900"], "holding"
    )
    try:
        status, text, _changed = deploy("context_length=8192")
        assert status != 0 and "container ab12ab12ab12" in text, text[-1500:]
    finally:
        on_host(f"sudo systemctl kill --signal=KILL {name}")
        holder.kill()


def test_a_zombie_is_nobody():
    script = "import os, time; os.fork() or os._exit(0); time.sleep(300)"
    background("zombie", f"/usr/bin/python3 -c {shlex.quote(script)}")
    assert any(state.startswith("Z") for state in on_host("ps -eo stat --no-headers").split())
    assert deploy("context_length=8192")[0] == 0
    on_host("sudo systemctl stop zombie")


def test_a_unit_file_changed_by_hand_is_put_right_without_a_restart():
    old = main_pid()
    on_host("sudo sed -i s/RestartSec=10/RestartSec=99/ /etc/systemd/system/sglang-default.service")
    status, text, changed = deploy()
    assert status == 0 and changed == 1, text[-1500:]
    assert "RestartSec=10" in on_host("cat /etc/systemd/system/sglang-default.service") and main_pid() == old


def test_a_connection_that_is_cut_in_the_middle_of_a_launch():
    on_host('sudo sed -i \'s/"load_seconds": 0.3/"load_seconds": 15/\' /srv/gpuhost/config.json')
    run = watched(command("deploy.yml", "-e", "context_length=8192"), "starting, weights", start_new_session=True)
    os.killpg(run.pid, signal.SIGKILL)  # and not waited for: a zombie holds no lock
    subprocess.run(["pkill", "-9", "-f", "ssh .*198.18.0.11"], check=False)
    old = main_pid()
    status, text, _changed = deploy("context_length=8192")
    assert status == 0 and main_pid() == old, text[-1500:]
    on_host('sudo sed -i \'s/"load_seconds": 15/"load_seconds": 0.3/\' /srv/gpuhost/config.json')


def test_a_server_that_dies_at_night_is_restarted_and_a_crash_loop_ends():
    old = main_pid()
    on_host(f"sudo kill -9 {old}")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and main_pid() in (0, old):
        time.sleep(1)
    assert main_pid() not in (0, old)
    fault(exit_at="arguments", exit_code=1)
    on_host(f"sudo kill -9 {main_pid()}")
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and "failed" not in on_host("systemctl is-active sglang-default", check=False):
        time.sleep(1)
    assert on_host("systemctl is-active sglang-default", check=False) == "failed"
    assert "Start request repeated too quickly" in on_host("sudo journalctl -u sglang-default --no-pager")


def test_a_full_disk_when_state_is_written():
    on_host("sudo systemctl stop sglang-default; sudo rm -rf /root/kept; sudo cp -a /var/lib/sglang /root/kept")
    on_host("sudo mount -t tmpfs -o size=1m tmpfs /var/lib/sglang && sudo cp -a /root/kept/. /var/lib/sglang/")
    on_host("sudo sh -c 'cat /dev/zero > /var/lib/sglang/filler'", check=False)
    try:
        status, text, _changed = deploy("context_length=8192")
        assert status != 0 and "state_dir: seen 0 MiB free" in text and "nothing was touched" in text, text[-1500:]
    finally:
        on_host("sudo umount /var/lib/sglang")


def test_a_key_is_found_nowhere(tmp_path):
    key = "sentinel-key-7d31c0ffee"
    vault = tmp_path / "vault.yml"
    vault.write_text(f"api_key: {key}\n")
    status, text, _changed = deploy(f"@{vault}", "--diff", "-vvv")
    assert status == 0 and key not in text
    assert "401" in on_host("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:30000/v1/models")
    for look in (
        "ps -eo args",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
        "sudo cat /proc/[0-9]*/environ | tr '\\0' ' '",
        "sudo cat /etc/systemd/system/sglang-default.service",
        "sudo journalctl --no-pager",
        "cat /var/lib/sglang/default/*.json /var/lib/sglang/default/history.jsonl",
    ):
        assert key not in on_host(look, check=False), look
    modes = on_host("sudo stat -c '%a %U %n' /var/lib/sglang/default/secrets.yaml /var/lib/sglang/default/server.log")
    assert [line.split()[:2] for line in modes.splitlines()] == [["600", "sglang"], ["600", "sglang"]]
