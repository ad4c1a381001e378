# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""151 answers in many languages and forms: every broken one is found, no good one is flagged."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.blackwell.sglang.plugins.module_utils import answers
from ansible_collections.blackwell.sglang.plugins.module_utils.questions import Question

CORPUS = yaml.safe_load((Path(__file__).parent / "answers.yml").read_text(encoding="utf-8"))


def content(entry: dict) -> str | None:
    if "repeat" in entry:
        text, times = entry["repeat"]
        return entry.get("head", "") + text * times + entry.get("tail", "")
    return entry["content"]


def choice(entry: dict) -> dict:
    message = {"content": content(entry), "reasoning_content": entry.get("reasoning")}
    logprobs = entry.get("logprobs")
    return {
        "message": message,
        "finish_reason": entry.get("finish_reason", "stop"),
        "logprobs": None if logprobs is None else {"content": [{"logprob": value} for value in logprobs]},
    }


@pytest.mark.parametrize("entry", CORPUS, ids=[entry["id"] for entry in CORPUS])
def test_an_answer_is_judged(entry):
    found = answers.judge(choice(entry), Question(entry["prompt"]))
    assert bool(found) == entry["bad"], [finding.detail for finding in found] or content(entry)


def test_the_thresholds_have_margins(capsys):
    """How near the good ones come to each bound, and how far beyond it the bad ones that it finds are."""
    assert len(CORPUS) >= 150
    good = [content(entry) or "" for entry in CORPUS if not entry["bad"]]
    runs = max(answers.longest_run(text)[1] for text in good if answers.longest_run(text)[0] not in answers.DRAWING)
    drawn = max(answers.longest_run(text)[1] for text in good if answers.longest_run(text)[0] in answers.DRAWING)
    deflate = min(answers.deflate_ratio(text) for text in good if len(text) >= answers.MIN_LOOP_LENGTH)
    with capsys.disabled():
        print(
            f"\nmargins over {len(good)} good answers: run {runs} of {answers.MAX_RUN}, drawn run {drawn} of "
            f"{answers.MAX_DRAWN_RUN}, deflates to {deflate:.2f} (below {answers.MAX_DEFLATE} is a loop)"
        )
    assert runs * 1.5 < answers.MAX_RUN and drawn * 1.5 < answers.MAX_DRAWN_RUN and deflate > 1.5 * answers.MAX_DEFLATE
