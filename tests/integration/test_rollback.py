# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that served before the run serves after it, and two runs at once do not break each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.lab import REPOSITORY

NEW = "context_length=8192"


def context(lab) -> int:
    return lab.ask("/v1/models")["data"][0]["max_model_len"]


def history(lab) -> list[str]:
    lines = (lab.root / "sim1" / "state" / "default" / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


@pytest.fixture(scope="module")
def lab(serving):
    serving.write_inventory(gpus=[0, 1], tp_size=2)
    assert serving.deploy().rc == 0
    return serving


def test_both_stories_are_told_and_the_old_server_serves(lab):
    before = context(lab)
    lab.fault(exit_at="weights", last_words=["torch.OutOfMemoryError: CUDA out of memory."], only_with="8192")
    run = lab.deploy(NEW)
    lab.fault()
    assert run.rc != 0 and context(lab) == before
    assert "did not start: cuda_oom" in run.text and "Back on the last known good: qwen3.5" in run.text
    assert history(lab)[-3:] == ["failed", "ready", "promoted"]
    assert lab.deploy().recap()["changed"] == 0
    status = lab.run("status.yml")
    assert "failed" in status.text and "cuda_oom" in status.text


def test_a_proof_that_fails_goes_back_too_and_is_written_down(lab):
    lab.fault(answers="garbage", only_with="8192")
    run = lab.deploy(NEW)
    lab.fault()
    assert "verdict is garbage" in run.text and "Back on the last known good" in run.text
    assert "rejected" in history(lab)[-4:]
    assert lab.deploy().recap()["changed"] == 0


def test_no_way_back_is_asked_for(lab):
    lab.fault(answers="garbage", only_with="8192")
    run = lab.deploy(NEW, "rollback_on_failure=false")
    lab.fault()
    assert run.rc != 0 and "GPUs are clean" in run.text and lab.pids() == []
    back = lab.run("rollback.yml")
    assert back.rc == 0 and "Back on the last known good" in back.text
    assert lab.run("rollback.yml").recap()["changed"] == 0
    assert lab.deploy().recap()["changed"] == 0


def test_the_way_back_fails_too(lab):
    lab.fault(exit_at="weights", exit_code=9)
    run = lab.deploy(NEW)
    lab.fault()
    assert run.rc != 0 and "The last known good failed too" in run.text and lab.pids() == []
    assert lab.deploy().rc == 0


def test_going_back_keeps_the_key_that_the_known_good_had(lab):
    old, new = "sentinel-old-key-0001", "sentinel-new-key-0002"
    try:
        assert lab.deploy(f"api_key={old}").rc == 0
        lab.fault(answers="garbage", only_with="8192")
        run = lab.deploy(f"api_key={new}", NEW)
        lab.fault()
        assert "Back on the last known good" in run.text and old not in run.out and new not in run.out
        assert lab.ask("/v1/models", key=old)["data"]
    finally:
        lab.fault()
        assert lab.deploy().rc == 0


def test_a_run_that_is_killed_while_it_goes_back_is_finished_by_the_next(lab):
    before = context(lab)
    lab.fault(answers="garbage", only_with="8192")
    first = subprocess.Popen(
        lab.command("deploy.yml", "-e", NEW),
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=lab.env(), start_new_session=True,
    )  # fmt: skip
    for line in first.stdout:
        if "Launch the last known good" in line:
            break
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    lab.fault()
    run = lab.deploy()
    assert run.rc == 0 and context(lab) == before, run.out


def test_two_runs_at_once(lab):
    """The second waits for the first, then makes its own plan true: one server, the last word's."""
    config = lab.root / "sim1" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "load_seconds": 4.0}))
    first = subprocess.Popen(
        lab.command("deploy.yml", "-e", NEW),
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=lab.env(),
    )  # fmt: skip
    for line in first.stdout:
        if "starting, weights" in line:
            break
    config.write_text(json.dumps({**json.loads(config.read_text()), "load_seconds": 0.2}))
    second = lab.deploy("context_length=16384")
    rest = first.stdout.read()
    assert first.wait() == 0, rest
    assert second.rc == 0 and "waiting for another run, pid" in second.out, second.out
    assert context(lab) == 16384
    assert lab.deploy().rc == 0
