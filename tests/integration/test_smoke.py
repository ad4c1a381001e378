# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the smoke check sees of faults that one greedy request does not show."""

from __future__ import annotations

import json

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import questions, smoke
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient


@pytest.fixture(scope="module")
def server(serving):
    """A function that runs a level against the server as it is now."""

    def check(level: str, **options):
        client = HttpClient(f"http://127.0.0.1:{serving.ports['sim1']}")
        return smoke.check(client, "qwen3.5", level, timeout=120, **options)

    check.fault = serving.fault
    yield check
    serving.fault()


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ({"garbage_from_concurrency": 16}, "garbage"),
        ({"nan_every": 500}, "nan"),
        ({"bad_rank": 8}, "wrong"),
        ({"bad_replica": True}, "garbage"),
        ({"rots_after": 100}, "wrong"),
    ],
)
def test_standard_sees_what_quick_can_not(server, fault, verdict):
    server.fault(**fault)
    assert server("quick")["verdict"] == "ok"
    result = server("standard")
    # A poisoned row says "!!!!" where no probabilities were asked for.
    assert result["verdict"] in (verdict, "garbage"), result
    assert result["samples"] and result["samples"][0]["findings"]


def test_a_right_server_passes_every_level_with_its_numbers(server):
    server.fault()
    assert server("quick")["summary"] == "1 of 1 answers right"
    result = server("standard", concurrency=32, rounds=2)
    assert result["verdict"] == "ok", result
    measured = result["numbers"]
    assert measured["requests"] == 6 + 64 and measured["error_rate"] == 0
    assert 0 < measured["ttft_p50"] <= measured["ttft_p99"] and measured["output_tokens_per_second"] > 0
    deep = server("deep", concurrency=32, rounds=1, problems=questions.word_problems(60))
    assert deep["verdict"] == "ok" and deep["summary"].startswith("100.0% of 60 problems right, 0.0% invalid")


def test_the_accuracy_gate_tells_wrong_from_invalid(server):
    server.fault(answers="wrong")
    client_side = [questions.Question("What is 1 + 1?", "2")]
    assert server("deep", problems=client_side)["verdict"] == "wrong"
    server.fault()
    missed = [questions.Question(f"What is {n} + 1?", str(n)) for n in range(20)]
    result = server("deep", concurrency=8, rounds=1, problems=missed)
    assert result["verdict"] == "wrong" and "0.0% of 20 problems right, 0.0% invalid" in result["summary"]


def test_bounds_on_speed_turn_ok_into_slow(server):
    server.fault()
    result = server("standard", concurrency=8, rounds=1, bounds=smoke.Bounds(min_tokens_per_second=1e9))
    assert result["verdict"] == "slow" and "at least 1000000000.0 are wanted" in result["summary"]


def test_gsm8k_files_are_read_or_named(tmp_path):
    good = {"question": "How many?", "answer": "So 1,200 it is.\n#### 1,200"}
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps(good) + "\n")
    assert [question.expected for question in questions.from_gsm8k(str(path), 1)] == ["1200"]
    path.write_text(json.dumps(good) + "\n{}\n")
    with pytest.raises(ValueError, match=":2 is no line of GSM8K"):
        questions.from_gsm8k(str(path), 5)
