# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sweeps by hand and at night: outcomes, reports, interruptions, and the host afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xmlschema
import yaml
from ansible_collections.blackwell.sglang.plugins.plugin_utils.evidence import Observation
from junitparser import JUnitXml

from tests.lab import REPOSITORY, Lab

CUTLASS, DSL, CUDNN, TRTLLM = "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_cudnn", "flashinfer_trtllm"


@pytest.fixture
def lab(tmp_path):
    lab = Lab(
        tmp_path, ["sim1"],
        gpus=[0, 1], tp_size=2, smoke_rounds=1,
        sweep_moe_backends=[CUTLASS, DSL], sweep_gemm_backends=[CUDNN, TRTLLM],
    )  # fmt: skip
    yield lab
    lab.end()


def nightly(lab: Lab, *words: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "nightly", "-i", str(lab.inventory), "--dir", str(lab.root / "nights"), *words],
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options,
    )  # fmt: skip


def done(process: subprocess.Popen) -> tuple[int, str]:
    out, _err = process.communicate(timeout=300)
    return process.returncode, out


def journal(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def results(folder: Path) -> dict[str, str]:
    return {line["id"]: line["outcome"] for line in journal(folder) if line["kind"] == "result"}


def test_a_sweep_finds_what_the_backends_do_and_puts_the_host_back(lab, tmp_path):
    assert lab.deploy("context_length=8192").rc == 0
    folder = tmp_path / "reports" / "one"
    run = lab.run("sweep.yml", "-e", f"sweep_dir={folder}")
    assert run.rc == 0, run.out
    assert results(folder) == {
        f"moe={CUTLASS} gemm={CUDNN}": "ok",
        f"moe={CUTLASS} gemm={TRTLLM}": "nan",
        f"moe={DSL} gemm={CUDNN}": "garbage",
        f"moe={DSL} gemm={TRTLLM}": "garbage",
    }
    assert lab.ask("/server_info")["context_length"] == 8192
    assert lab.deploy("context_length=8192").recap()["changed"] == 0

    xmlschema.validate(folder / "junit.xml", Path(__file__).with_name("junit.xsd"))
    (suite,) = JUnitXml.fromfile(str(folder / "junit.xml"))
    assert {case.name for case in suite} == set(results(folder))
    assert (suite.tests, suite.failures, suite.errors) == (4, 0, 0)
    report = json.loads((folder / "results.json").read_text())
    assert report["counts"]["expected"] == 4 and not report["missing"]
    page = (folder / "report.html").read_text()
    assert page.count('<td class="bad">') == 3 and page.count('<td class="good">') == 1
    assert not re.search(r"<script|<link[^>]*href=.(?!data:)|src=|url\(", page)  # one file, no network
    entries = [Observation(**entry) for entry in yaml.safe_load((folder / "evidence" / "sweep.yml").read_text())]
    assert {entry.outcome for entry in entries} == {"ok", "nan", "garbage"} and len({e.id for e in entries}) == 4

    pid = lab.launcher()
    again = lab.run("sweep.yml", "-e", f"sweep_dir={folder}")
    assert again.rc == 0 and len(results(folder)) == 4 and lab.launcher() == pid, again.out

    judged = lab.run("matrix.yml", "-e", f"evidence_dirs={folder / 'evidence'}", "-e", f"matrix_dir={tmp_path / 'm'}")
    assert judged.rc == 0 and "own sweep on sim1" in judged.text


def test_two_hosts_share_the_combinations_and_what_a_release_refuses_is_skipped(tmp_path):
    lab = Lab(
        tmp_path, ["sim1", "sim2"],
        gpus=[0], tp_size=1, smoke_rounds=1, smoke_level="quick",
        sweep_moe_backends=[CUTLASS, DSL, "no_such_runner"], sweep_gemm_backends=[CUDNN, TRTLLM],
    )  # fmt: skip
    try:
        folder = tmp_path / "reports" / "one"
        run = lab.run("sweep.yml", "-e", f"sweep_dir={folder}", "-e", "sweep_hopeless_after=1")
        assert run.rc == 0, run.out
        lines = journal(folder)
        ran = [(line["kind"], line["id"]) for line in lines if "id" in line]
        assert len(ran) == len(set(ran)) == 6
        skipped = [line for line in lines if line["kind"] == "skipped"]
        assert len(skipped) == 2 and all("no_such_runner" in line["line"] for line in skipped)
        assert {line["host"] for line in lines if line["kind"] == "result"} == {"sim1", "sim2"}
        assert not lab.pids("sim1") + lab.pids("sim2")  # found stopped, left stopped
    finally:
        lab.end()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"sweep_order": "longest", "sweep_budget": "soon"}, ["sweep_order", "shortest", "sweep_budget"]),
        ({"sweep_bugdet": 5}, ["sweep_bugdet", "no such variable", "sweep_budget"]),
        ({"sweep_campaign": "/nowhere.yml"}, ["sweep_campaign", "can't be read"]),
        ({"tp_size": "many"}, ["tp_size", "whole number"]),
    ],
)
def test_wrong_variables_are_refused_before_anything_is_touched(lab, tmp_path, variables, said):
    run = lab.run("sweep.yml", "-e", f"sweep_dir={tmp_path / 'r'}", "-e", json.dumps(variables))
    assert run.rc != 0 and all(word in run.text for word in said), run.out
    assert not (tmp_path / "r").exists()


def test_a_campaign_file(lab, tmp_path):
    campaign = tmp_path / "campaign.yml"
    campaign.write_text(
        "- {moe_backend: flashinfer_cutlass, context_length: 8192}\n- {moe_backend: auto, context_length: 4096}\n"
    )
    folder = tmp_path / "reports" / "one"
    run = lab.run("sweep.yml", "-e", f"sweep_dir={folder}", "-e", f"sweep_campaign={campaign}")
    assert run.rc == 0, run.out
    assert list(results(folder).values()) == ["ok", "garbage"]
    assert "moe=auto context_length=4096" in results(folder)


def test_a_killed_night_goes_on_where_it_was_and_the_host_ends_on_its_known_good(lab):
    assert lab.deploy("context_length=8192").rc == 0
    night = nightly(lab, start_new_session=True)
    for line in night.stdout:
        if "ok after" in line:
            break
    time.sleep(1.5)  # in the middle of the second one
    subprocess.run(["pkill", "-9", "-g", str(os.getpgid(night.pid))], check=True)
    # ansible-runner gives its child a session of its own.
    children = subprocess.run(["pkill", "-9", "-f", f"ansible-playbook.*{lab.root}"], check=False)
    assert children.returncode == 0
    night.wait()
    code, out = done(nightly(lab))
    assert code == 0 and "goes on with" in out, out
    (folder,) = (lab.root / "nights").glob("[0-9]*")
    tried = [line["id"] for line in journal(folder) if line["kind"] == "result"]
    assert sorted(tried) == sorted(set(tried)) and len(tried) == 4
    assert lab.ask("/server_info")["context_length"] == 8192
    assert lab.deploy("context_length=8192").recap()["changed"] == 0


def test_a_night_that_is_told_to_end_puts_the_host_back(lab):
    assert lab.deploy("context_length=8192").rc == 0
    night = nightly(lab)
    for line in night.stdout:
        if "ok after" in line:
            break
    time.sleep(1)
    second, out = done(nightly(lab))
    assert second == 2 and "another run is at work" in out
    night.send_signal(signal.SIGTERM)
    code, out = done(night)
    assert code == 2 and "ended by SIGTERM" in out, out
    assert lab.ask("/server_info")["context_length"] == 8192
    (folder,) = (lab.root / "nights").glob("[0-9]*")
    assert 1 <= len(results(folder)) < 4


def test_a_regression_is_the_first_thing_in_every_report_and_no_key_is_anywhere(lab, tmp_path):
    """What is known good answers garbage; what is known bad has come to answer right."""
    key = "sentinel-key-5d0fa1c3"
    secret = tmp_path / "secret.yml"
    secret.write_text(f"api_key: {key}\n")
    lab.fault(answers="garbage", only_with=CUDNN)
    lab.write_inventory(sweep_moe_backends=[CUTLASS])
    environment = {**os.environ, "SENTINEL_TOKEN": key}
    code, out = done(nightly(lab, "-e", f"@{secret}", env=environment))
    assert code == 1, out
    assert f"REGRESSION sim1: moe={CUTLASS} gemm={CUDNN}: garbage" in out.splitlines()[-2]
    (folder,) = (lab.root / "nights").glob("[0-9]*")
    assert json.loads((folder / "results.json").read_text())["results"][0]["judged"] == "regression"
    assert (folder / "summary.md").read_text().splitlines()[0] == "# Sweep: 1 REGRESSION"
    xmlschema.validate(folder / "junit.xml", Path(__file__).with_name("junit.xsd"))
    ((first, *_others),) = JUnitXml.fromfile(str(folder / "junit.xml"))
    assert first.result[0].type == "garbage"
    page = (folder / "report.html").read_text()
    assert page.index("1 regression") < page.index("<article") < page.index("<table")
    for path in folder.rglob("*"):
        assert not path.is_file() or key not in path.read_text(errors="replace"), path

    lab.fault(answers="right")
    code, out = done(nightly(lab))
    assert code == 0 and "NEWS" in out, out
    folder = sorted((lab.root / "nights").glob("[0-9]*"))[-1]
    assert (
        json.loads((folder / "results.json").read_text())["past"][f"moe={CUTLASS} gemm={CUDNN}"][0]["outcome"]
        == "garbage"
    )


def test_wrong_usage(lab):
    for words in (["--inventory", "/nowhere"], ["-e", "api_key=abc"], ["-e", "@/nowhere.yml"], ["--no-such-option"]):
        code, out = done(nightly(lab, *words))
        assert code == 3, out
    assert not (lab.root / "nights").exists()
