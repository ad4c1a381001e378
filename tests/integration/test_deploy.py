# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main job: serving, proven, and nothing the second time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error

import pytest

from tests.lab import REPOSITORY, Lab


def test_the_first_run_serves_and_shows_an_answer(serving):
    assert "serving qwen3.5" in serving.first.text and "Paris" in serving.first.text
    assert "sim1: starting, " in serving.first.out
    assert serving.ask("/v1/models")["data"][0]["id"] == "qwen3.5"
    known = json.loads((serving.root / "sim1" / "state" / "default" / "known_good.json").read_text())
    assert known["plan"]["backends"]["moe_backend"] == "flashinfer_cutlass"


def test_the_second_run_changes_nothing(serving):
    before = serving.pids()
    again = serving.deploy()
    assert again.rc == 0 and again.recap()["changed"] == 0
    assert serving.pids() == before


def test_from_the_playbooks_folder_with_the_backend_named(serving):
    run = serving.deploy("moe_backend=flashinfer_cutlass", cwd=REPOSITORY / "playbooks")
    assert run.rc == 0 and run.recap()["changed"] == 0


def test_check_and_diff_show_the_change_and_touch_nothing(serving):
    before = serving.pids()
    run = serving.deploy("context_length=8192", "--check", "--diff")
    assert run.rc == 0, run.out
    assert "+--context-length 8192" in run.out
    assert run.recap()["changed"] > 0
    assert serving.pids() == before
    assert serving.deploy("--check").recap()["changed"] == 0


def test_one_changed_variable_restarts_once(serving):
    old = serving.launcher()
    changed = serving.deploy("context_length=8192")
    assert changed.rc == 0, changed.out
    assert serving.launcher() != old
    assert serving.ask("/v1/models")["data"][0]["max_model_len"] == 8192
    new = serving.launcher()
    assert serving.deploy("context_length=8192").recap()["changed"] == 0
    assert serving.launcher() == new
    assert serving.deploy().rc == 0


def test_a_limit_is_no_reason_to_restart(serving):
    run = serving.deploy("launch_timeout=77", "gpu_release_timeout=9")
    assert run.rc == 0 and run.recap()["changed"] == 0


def test_a_server_that_went_bad_since_is_started_anew(serving):
    old = serving.launcher()
    os.kill(old, signal.SIGKILL)
    run = serving.deploy()
    assert run.rc == 0, run.out
    assert serving.launcher() != old


def test_status_tells_and_changes_nothing(serving):
    run = serving.run("status.yml")
    assert run.rc == 0 and run.recap()["changed"] == 0
    assert "serving qwen3.5" in run.text and "flashinfer_cutlass" in run.text and "known good" in run.text


def test_three_hosts_in_one_run(tmp_path):
    lab = Lab(tmp_path, ["a", "b", "c"])
    try:
        run = lab.deploy()
        assert run.rc == 0, run.out
        for host in lab.hosts:
            assert lab.ask("/v1/models", host)["data"][0]["id"] == "qwen3.5"
        again = lab.deploy()
        assert {again.recap(host)["changed"] for host in lab.hosts} == {0}
    finally:
        lab.end()


def test_an_interrupted_run_is_picked_up(lab):
    config = lab.root / "sim1" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "load_seconds": 8.0}))
    first = subprocess.Popen(
        lab.command("deploy.yml"),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        env=lab.env(),
        start_new_session=True,
    )
    for line in first.stdout:
        if "starting, weights" in line:
            break
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    old = lab.launcher()
    os.kill(old, 0)
    run = lab.deploy()
    assert run.rc == 0, run.out
    assert lab.launcher() == old
    assert lab.deploy().recap()["changed"] == 0


def test_two_instances_share_a_host(lab):
    lab.write_inventory(gpus=[0, 1], tp_size=2, sglang_instance="left")
    left = lab.deploy()
    assert left.rc == 0, left.out
    mine = lab.pids()
    lab.ports["sim1"] += 1
    lab.write_inventory(gpus=[6, 7], sglang_instance="right")
    right = lab.deploy()
    assert right.rc == 0, right.out
    assert set(mine) < set(lab.pids())
    assert [index for index, used in enumerate(lab.used_mib()) if used] == [0, 1, 6, 7]
    lab.write_inventory(gpus=[1, 7], sglang_instance="right")
    greedy = lab.deploy()
    assert greedy.rc != 0 and "of instance" in greedy.text and set(mine) < set(lab.pids())


def test_the_key_reaches_the_server_and_nothing_else(lab):
    key = "sentinel-key-9f2c41d7"
    (lab.root / "vault.yml").write_text(f"api_key: {key}\n")
    run = lab.deploy(f"@{lab.root}/vault.yml", "--diff", "-vvv")
    assert run.rc == 0, run.out
    assert key not in run.out
    assert lab.ask("/v1/models", key=key)["data"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        lab.ask("/v1/models")
    again = lab.deploy(f"@{lab.root}/vault.yml")
    assert again.rc == 0 and again.recap()["changed"] == 0
    state = lab.root / "sim1" / "state" / "default"
    holding = [path.name for path in state.iterdir() if key in path.read_text()]
    # The server itself prints all its arguments into its log, which is therefore as private as the key's file.
    assert sorted(holding) == ["known_good.secrets.yaml", "secrets.yaml", "server.log"]
    assert {(state / name).stat().st_mode & 0o777 for name in holding} == {0o600}
    for pid in lab.pids():
        for name in ("cmdline", "environ"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                assert key.encode() not in file.read()


def test_teardown_leaves_clean_gpus_and_the_state(serving):
    run = serving.run("teardown.yml")
    assert run.rc == 0, run.out
    assert serving.pids() == [] and sum(serving.used_mib()) == 0
    assert (serving.root / "sim1" / "state" / "default" / "known_good.json").exists()
    assert serving.run("teardown.yml").recap()["changed"] == 0
    time.sleep(0.1)
    assert serving.deploy().rc == 0
