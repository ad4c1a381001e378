# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which combinations a sweep has, in what order, what a result means, and what it leaves as evidence."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import failure_rules
from ansible_collections.blackwell.sglang.plugins.plugin_utils import evidence, plan, sweep

MOE, GEMM = ["flashinfer_cutlass", "auto"], ["flashinfer_cudnn", "auto"]


def settings(**values) -> sweep.Sweep:
    made, problems = sweep.settings_of({"sweep_dir": "/nowhere/one", **values})
    assert made is not None, problems
    return made


def line(moe="flashinfer_cutlass", outcome="ok", depth="concurrent", **more) -> dict:
    changes = {"moe_backend": moe, "gemm_backend": "auto"}
    return {
        "kind": "result", "id": sweep.identify(changes), "host": "gpu1", "changes": changes, "seconds": 9.0,
        "combination": changes, "outcome": outcome, "depth": depth, "judged": "expected", **more,
    }  # fmt: skip


def tried(failure: dict, **changes) -> dict:
    made = plan.make({**changes, "backend_policy": "any"}).plan
    return sweep.result(
        made, {"moe_backend": made["backends"]["moe_backend"]}, "gpu1", 60, {"seconds": 40}, {}, failure
    )


def test_the_product_of_the_lists_each_once():
    listed, problems = sweep.combinations(
        settings(sweep_moe_backends=MOE, sweep_gemm_backends="flashinfer_cudnn,auto"), {}, []
    )
    assert not problems and [sweep.identify(changes) for changes in listed] == [
        f"moe={moe} gemm={gemm}" for moe in MOE for gemm in GEMM
    ]


def test_without_lists_all_that_evidence_names_and_the_release_takes():
    listed, problems = sweep.combinations(settings(), {}, evidence.load())
    names = {changes["moe_backend"] for changes in listed}
    assert not problems and {"flashinfer_cutlass", "flashinfer_trtllm", "auto"} <= names and len(listed) > 9


def test_a_campaign_file_is_checked(tmp_path):
    campaign = tmp_path / "campaign.yml"
    campaign.write_text("- {moe_backnd: auto, context_length: 5}\n- {api_key: abc}\n")
    _listed, problems = sweep.combinations(settings(sweep_campaign=str(campaign)), {}, [])
    said = " ".join(map(str, problems))
    assert "moe_backnd" in said and "did you mean moe_backend" in said and "api_key: is a secret" in said
    campaign.write_text("moe_backend: auto")
    assert "list of dictionaries" in str(sweep.combinations(settings(sweep_campaign=str(campaign)), {}, [])[1][0])


def test_the_shortest_first_and_what_is_new_before_them(tmp_path):
    past = sweep.Journal(tmp_path / "night1")
    past.append(line("slow", seconds=90.0))
    past.append(line("quick", seconds=9.0))
    listed = [{"moe_backend": name, "gemm_backend": "auto"} for name in ("slow", "quick", "new")]
    asked = settings(sweep_order="shortest")
    journal = sweep.Journal(tmp_path / "night2")
    assert [c["moe_backend"] for c in sweep.ordered(listed, asked, journal.past())] == ["new", "quick", "slow"]
    assert sweep.ordered(listed, settings(), journal.past()) == listed


def test_a_backend_that_did_not_come_up_is_hopeless_and_one_that_answers_wrong_is_not():
    asked = settings(sweep_hopeless_after=2)
    dead = [line("a", "oom", "loads"), line("a", "crash", "loads", id="other")]
    assert "a did not come up with 2 others" in sweep.hopeless({"moe_backend": "a"}, asked, dead)
    assert sweep.hopeless({"moe_backend": "b"}, asked, dead) is None
    assert sweep.hopeless({"moe_backend": "a"}, asked, dead[:1]) is None
    assert sweep.hopeless({"moe_backend": "a"}, asked, [line("a", "garbage", "answers")] * 3) is None
    assert sweep.hopeless({"moe_backend": "a"}, asked, [line("a", None, "loads")] * 3) is None


@pytest.mark.parametrize(
    ("failure", "outcome", "depth"),
    [
        ({}, "ok", "concurrent"),
        ({"failure_class": "cuda_oom", "cause": "CUDA out of memory"}, "oom", "loads"),
        ({"failure_class": "stalled"}, "hang", "loads"),
        ({"failure_class": "bad_arguments"}, "refused", "loads"),
        ({"failure_class": "illegal_access"}, "crash", "loads"),
        ({"failure_class": "weights_missing"}, None, "loads"),
        ({"failure_class": "port_in_use"}, None, "loads"),
        ({"verdict": "nan", "summary": "2 of 6"}, "nan", "answers"),
        ({"verdict": "empty"}, "garbage", "answers"),
        ({"verdict": "error"}, "crash", "answers"),
        ({"drift": [{"key": "moe_runner_backend"}]}, "refused", "loads"),
        ({"msg": "GPU 0 still has 1523 MiB in use"}, None, "loads"),
    ],
)
def test_what_a_failure_says_of_the_backends(failure, outcome, depth):
    found = tried(failure)
    assert (found["outcome"], found["depth"]) == (outcome, depth)


def test_every_class_that_is_sorted_is_a_class():
    known = {rule.name for rule in failure_rules.RULES} | {"stalled", "start_timeout", "superseded"}
    assert set(sweep.OUTCOMES) | sweep.INFRASTRUCTURE <= known


@pytest.mark.parametrize(
    ("outcome", "expected", "judged"),
    [
        ("garbage", "known_good", "regression"),
        ("ok", "known_good", "expected"),
        ("ok", "known_bad", "news"),
        ("nan", "known_bad", "expected"),
        ("ok", "untested", "new"),
        ("oom", "conditional", "new"),
        (None, "known_good", "infrastructure"),
    ],
)
def test_what_a_result_means(outcome, expected, judged):
    assert sweep.judge(outcome, expected) == judged


def test_a_result_becomes_evidence_that_a_verdict_counts(tmp_path):
    found = tried({"verdict": "garbage", "summary": "6 of 6 answers: '!'\x1b[31m"})
    entry = sweep.observation(found)
    assert "\x1b" not in entry["note"] and entry["stack"]["sglang"] == "==0.5.23" and entry["depth"] == "answers"
    (tmp_path / "own.yml").write_text(json.dumps([entry]))
    verdict = plan.make({}, evidence_dirs=[str(tmp_path)])
    assert verdict.plan is None and "own sweep on gpu1" in str(verdict.problems[0])
    assert sweep.observation(tried({"msg": "no GPU"})) is None


def test_a_torn_line_of_the_journal_costs_only_itself(tmp_path):
    journal = sweep.Journal(tmp_path / "one")
    journal.append({"kind": "result", "id": "a"})
    with journal.path.open("a") as file:
        file.write('{"kind": "result", "id": "b", "ou')
    journal.append({"kind": "result", "id": "c"})
    assert [entry["id"] for entry in journal.lines()] == ["a", "c"]


def test_the_budget_of_one_combination_bounds_its_start_and_its_smoke_check():
    planned = sweep.planned({"smoke_timeout": 30}, {"moe_backend": "auto"}, settings(sweep_combination_budget=120))
    assert planned.plan["settings"]["launch_timeout"] == 120 and planned.plan["settings"]["smoke_timeout"] == 30


def test_the_report_begins_with_what_is_worst_and_knows_the_nights_before(tmp_path):
    nights = [sweep.Journal(tmp_path / name) for name in ("1", "2")]
    nights[0].append(line(at="2026-03-01", numbers={}))
    os.utime(nights[0].path, (1, 1))
    nights[1].append(line(at="2026-03-02", numbers={}))
    nights[1].append(line("auto", "garbage", judged="regression", at="2026-03-02", numbers={}))
    made = sweep.report(nights[1])
    assert [entry["judged"] for entry in made["results"]] == ["regression", "expected"]
    assert made["past"][line()["id"]][0]["at"] == "2026-03-01"
    (grid,) = made["grids"]
    assert grid["rows"] == ["auto", "flashinfer_cutlass"] and grid["columns"] == ["auto"]
