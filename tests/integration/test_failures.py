# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launches that fail, each in its own named way, and what is left on the host then: clean GPUs and a clear word."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tests.lab import REPOSITORY

pytestmark = pytest.mark.xdist_group("failures")


@pytest.fixture
def lab(lab):
    """Two GPUs of the eight: the failures are the same, and they come sooner."""
    lab.write_inventory(gpus=[0, 1], tp_size=2)
    return lab


def fails(lab, *words) -> str:
    run = lab.deploy(*words)
    assert run.rc != 0 and "Not serving" in run.out, run.out
    assert "GPUs are clean" in run.text, run.out
    assert lab.pids() == [] and sum(lab.used_mib()) == 0
    assert not (lab.root / "sim1" / "state" / "default" / "known_good.json").exists()
    return run.text


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        ("moe_backend=flashinfer_trtllm", "did not start: host_oom_kill"),
        ("moe_backend=flashinfer_cutedsl", "verdict is garbage"),
        ("moe_backend=auto", "verdict is garbage"),
        ("gemm_backend=flashinfer_trtllm", "verdict is nan"),
    ],
)
def test_the_campaign_told_by_the_tool(lab, backend, says):
    assert says in fails(lab, backend, "backend_policy=any")


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ({"exit_at": "weights", "last_words": ["torch.OutOfMemoryError: CUDA out of memory."]}, "cuda_oom"),
        (
            {"exit_at": "cuda_graphs", "last_words": ["Capture cuda graph failed: CUDA out of memory"]},
            "graph_capture_oom",
        ),
        ({"exit_at": "http", "exit_code": 3}, "it exited with status 3"),
        ({"kill_at": "arguments"}, "it was ended by SIGKILL"),
        ({"answers": "garbage"}, "verdict is garbage"),
        ({"garbage_from_concurrency": 4}, "verdict is garbage"),
        (
            {"server_info": {"moe_runner_backend": "triton"}},
            "moe_runner_backend is 'triton', asked was 'flashinfer_cutlass'",
        ),
    ],
)
def test_each_death_and_each_lie_is_named(lab, faults, says):
    lab.fault(**faults)
    assert says in fails(lab)


def test_a_start_that_stands_still_is_stalled(lab):
    lab.fault(hang_at="weights")
    assert "did not start: stalled" in fails(lab, "stall_timeout=3")


def test_a_start_that_takes_too_long_is_ended(lab):
    lab.fault(hang_at="weights")
    assert "did not start: start_timeout" in fails(lab, "launch_timeout=4")


def test_a_server_that_ignores_sigterm_is_killed_in_time(lab):
    lab.fault(ignore_sigterm=True)
    assert lab.deploy().rc == 0
    run = lab.deploy("context_length=8192", "stop_timeout=1")
    assert run.rc == 0, run.out
    assert lab.ask("/v1/models")["data"][0]["max_model_len"] == 8192


def test_memory_that_comes_back_late_is_waited_for(lab):
    lab.fault(release_delay=3.0)
    assert lab.deploy().rc == 0
    assert lab.deploy("context_length=8192").rc == 0


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
