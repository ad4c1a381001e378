# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States of a host that a deploy may meet. What a launch may die of is in the fault matrix, tests/faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tests.lab import REPOSITORY


@pytest.fixture
def lab(lab):
    """Two GPUs of the eight: the failures are the same, and they come sooner."""
    lab.write_inventory(gpus=[0, 1], tp_size=2)
    return lab


def test_residue_without_a_process_stops_the_launch(lab):
    lab.fault(residue_mib={"0": 1523})
    run = lab.deploy("gpu_release_timeout=1")
    assert run.rc != 0 and "GPU 0 still has 1523 MiB in use" in run.text
    assert "Cleaning up failed too" in run.text and lab.pids() == []


def test_orphans_of_a_start_that_was_killed(lab):
    config = lab.root / "sim1" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "import_seconds": 6.0}))
    first = subprocess.Popen(
        lab.command("deploy.yml"),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        env=lab.env(),
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(lab.pids()) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    os.kill(lab.launcher(), signal.SIGKILL)
    time.sleep(0.3)
    assert lab.pids(), "the children outlive their launcher"
    config.write_text(json.dumps({**json.loads(config.read_text()), "import_seconds": 0.05}))
    run = lab.deploy()
    assert run.rc == 0, run.out
    assert lab.ask("/v1/models")["data"]


def test_a_port_that_is_taken_is_found_before_anything_is_stopped(lab):
    import socket

    with socket.create_server(("127.0.0.1", lab.ports["sim1"])):
        run = lab.deploy()
    assert run.rc != 0 and f"port {lab.ports['sim1']} held by pid {os.getpid()}" in run.text
    assert "nothing was touched" in run.text


def test_the_disk_full_when_the_plan_is_written(lab):
    if os.geteuid() == 0:
        pytest.skip("root may write to a read-only folder")
    (lab.root / "sim1" / "state").mkdir(mode=0o555)
    run = lab.deploy()
    assert run.rc != 0 and "state_dir" in run.text


def test_a_state_file_that_is_garbage_is_named(lab):
    state = lab.root / "sim1" / "state" / "default"
    state.mkdir(parents=True)
    (state / "plan.json").write_text("{")
    run = lab.deploy()
    assert run.rc != 0 and "plan.json can't be read" in run.text and "Move it away" in run.text
