# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything is touched, and how few connections a run makes."""

from __future__ import annotations

import json
import stat

import pytest
import yaml

from tests.lab import Lab

# Stands in for ssh: counts its calls and runs the command here.
COUNTING_SSH = """#!/bin/sh
for last in "$@"; do :; done
case "$*" in *" -O "*) exit 0;; esac
echo x >> "$SSH_COUNT"
exec sh -c "$last"
"""


@pytest.fixture
def unreachable(tmp_path):
    lab = Lab(tmp_path, ["sim1"])
    members = {"sim1": {**lab.host_vars("sim1"), "ansible_connection": "ssh", "ansible_host": "host.invalid"}}
    lab.inventory.write_text(yaml.safe_dump({"gpu_hosts": {"hosts": members}}))
    return lab


@pytest.mark.parametrize(
    ("wrong", "instead"),
    [
        ("moe_backend=flashinfer_trtllm", "-e moe_backend=flashinfer_cutlass"),
        ("moe_backend=flashinfer_cutedsl", "-e moe_backend=flashinfer_cutlass"),
        ("moe_backend=auto", "-e moe_backend=flashinfer_cutlass"),
        ("gemm_backend=flashinfer_trtllm", "-e gemm_backend=flashinfer_cudnn"),
        ("moe_backnd=flashinfer_cutlass", "did you mean moe_backend?"),
        ("port=30001", "did you mean sglang_port?"),
        ("tp_size=eight", "must be a whole number"),
    ],
)
def test_refused_with_reason_and_remedy_though_the_host_is_unreachable(unreachable, wrong, instead):
    run = unreachable.deploy(wrong)
    assert run.rc == 2
    assert instead in run.text and "nothing was touched" in run.text
    assert run.recap()["unreachable"] == 0


TWELVE_FAULTS = """
moe_backend: flashinfer_cutlas
gemm_backend: [a]
tp_size: eight
sglang_port: 70000
mem_fraction_static: 1.5
served_model_name: "a:b"
gpu_arch: sm12
backend_policy: strict
sglang_env: {HF_TOKEN: sentinel-secret-1234}
api_key: short
sglang_extra_args: [--tp, "4"]
moe_backnd: flashinfer_cutlass
"""


def test_a_file_with_twelve_faults_gives_twelve_messages(unreachable):
    (unreachable.root / "bad.yml").write_text(TWELVE_FAULTS)
    run = unreachable.deploy(f"@{unreachable.root}/bad.yml")
    assert run.rc == 2 and run.recap()["unreachable"] == 0
    assert "12 problems with the variables" in run.text, run.out
    for name in yaml.safe_load(TWELVE_FAULTS):
        assert f"- {name}" in run.text, name
    assert "sentinel-secret" not in run.out and "short" not in run.text


def test_the_matrix_needs_no_connection(unreachable):
    run = unreachable.run("matrix.yml", "-e", f"matrix_dir={unreachable.root}/made", "-e", "moe_backend=auto")
    assert run.rc == 0, run.out
    assert "known good: -e moe_backend=flashinfer_cutlass" in run.text
    page = (unreachable.root / "made" / "matrix.html").read_text()
    cells = json.loads((unreachable.root / "made" / "matrix.json").read_text())["cells"]
    assert page.count("<td class=") == len(cells) > 50


def test_a_good_plan_does_try_to_connect(unreachable):
    assert unreachable.deploy().recap()["unreachable"] == 1


def test_connections_of_a_refused_plan_and_of_a_run_that_changes_nothing(tmp_path):
    lab = Lab(tmp_path, ["sim1"])
    assert lab.deploy().rc == 0
    ssh, count = tmp_path / "ssh", tmp_path / "count"
    ssh.write_text(COUNTING_SSH)
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    lab.write_inventory(ansible_connection="ssh", ansible_host="host.invalid", ansible_ssh_executable=str(ssh))

    def counted(*words):
        count.write_text("")
        run = lab.deploy(*words, env={"SSH_COUNT": str(count)})
        return run, len(count.read_text().split())

    try:
        run, calls = counted()
        assert run.rc == 0 and run.recap()["changed"] == 0, run.out
        assert calls == 2
        run, calls = counted("moe_backend=auto")
        assert run.rc == 2 and calls == 0
    finally:
        lab.end()


def test_a_foreign_process_on_the_last_gpu(lab):
    stranger = lab.hold(7)
    try:
        run = lab.deploy()
        assert run.rc != 0
        assert f"pid {stranger.pid} of user" in run.text and "GPU 7" in run.text and "simulator hold" in run.text
        assert "nothing was touched" in run.text
        assert stranger.poll() is None and lab.pids() == [stranger.pid]
        elsewhere = lab.deploy('{"gpus": [0, 1], "tp_size": 2}')
        assert elsewhere.rc == 0, elsewhere.out
        assert stranger.poll() is None
        alone = lab.deploy("gpu_exclusive=true")
        assert alone.rc == 0, alone.out
        assert stranger.wait(timeout=5) == -15
    finally:
        stranger.kill()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("ERR!", "has no value for memory.used: it printed 'ERR!'"),
        ("glued", "which is no whole number"),
        ("hang", "gave no answer in 1 s"),
        ("version_mismatch", "Driver/library version mismatch"),
    ],
)
def test_each_fault_of_nvidia_smi_is_named(lab, fault, says):
    lab.fault(nvidia_smi=fault)
    run = lab.deploy("command_timeout=1")
    assert run.rc != 0 and says in run.text, run.out
    assert lab.pids() == []


def test_nvidia_smi_missing(lab):
    run = lab.deploy("nvidia_smi=/nowhere/nvidia-smi")
    assert run.rc != 0 and "/nowhere/nvidia-smi is not on this host" in run.text


def test_everything_that_is_wrong_with_the_host_is_told_at_once(lab):
    run = lab.deploy("sglang_python=/nowhere/python", "model_path=/nowhere/model")
    assert run.rc != 0
    assert "environment: seen /nowhere/python" in run.text and "model: seen /nowhere/model/config.json" in run.text


def test_what_is_installed_is_judged_too(lab):
    run = lab.deploy("sglang_version=0.5.22")
    assert run.rc != 0 and "sglang_version: seen 0.5.23, wanted 0.5.22" in run.text
