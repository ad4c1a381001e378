# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Good answers pass, bad ones of each kind are found."""

from __future__ import annotations

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils.answers import counts, garbage, holds, judge
from ansible_collections.blackwell.sglang.plugins.module_utils.questions import Question

GOOD = [
    "42",
    "Hello!",
    "Hello!!! Great to see you!!",
    "Paris.",
    "# Title\n\n---\n\nSome text under a rule.\n\n" + "-" * 80 + "\n",
    "| a | b |\n|-----|-----|\n| 1 | 2 |\n| 3 | 4 |\n",
    "1. Wash the apples.\n2. Cut them into slices.\n3. Bake for 40 minutes.\n4. Serve warm.\n",
    "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\n",
    "Die Hauptstadt von Frankreich ist Paris, und sie liegt an der Seine.",
    "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002\u5b83\u4f4d\u4e8e\u534e\u5317\u5e73\u539f\u7684\u5317\u90e8\u3002",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0644\u063a\u0629 \u062c\u0645\u064a\u0644\u0629.",
    ", ".join(str(number) for number in range(1, 101)),
    "  /\\_/\\\n ( o.o )\n  > ^ <\n",
    "10, 9, 8, 7, 6, 5, 4, 3, 2, 1, liftoff!",
]
BAD = [
    "!" * 32,
    "Sure" + "!" * 60,
    "+" * 40,
    '" , , (' + "!" * 40,
    "43210/.-,+*)('&%$#\"!" + "4" * 30,
    "1. 2. 3. 4. 5. 6. 7. 8. 9. 10. 11. 12. 13.",
    "the the the the the the the the the the the the the the the the",
    "Answer: \ufffd\ufffd",
    "text <|reserved_token_163|> more",
    "It is <|endoftext|> over",
    "*   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *   *",
    "I think that I know. I think that I know. " * 20,
]


@pytest.mark.parametrize("text", GOOD)
def test_an_answer_is_no_garbage(text):
    assert garbage(text) == []


@pytest.mark.parametrize("text", BAD)
def test_garbage_is_found(text):
    assert {finding.kind for finding in garbage(text)} == {"garbage"}


@pytest.mark.parametrize(
    ("text", "expected", "right"),
    [
        ("42", "42", True),
        ("The answer is 42.", "42", True),
        ("**1,204**", "1204", True),
        ("142", "42", False),
        ("42.5", "42", False),
        ("paris", "Paris", True),
        ("Parisian", "Paris", False),
        ("", "42", False),
    ],
)
def test_whole_words_and_numbers(text, expected, right):
    assert holds(text, expected) is right


def kinds(choice, expected=None):
    return {finding.kind for finding in judge(choice, Question("a question", expected))}


def test_the_shapes_of_a_bad_choice():
    assert kinds({"message": {"content": "42"}}, "42") == set()
    assert kinds({"message": {"content": None, "reasoning_content": "long thoughts"}, "finish_reason": "length"}) == {
        "empty"
    }
    assert kinds({"message": {"content": ""}}) == {"empty"}
    assert kinds({}) == {"empty"}
    assert kinds({"message": {"content": "41"}}, "42") == {"wrong"}
    nan = {"message": {"content": "42"}, "logprobs": {"content": [{"logprob": float("nan")}]}}
    assert kinds(nan, "42") == {"nan"}
    null = {"message": {"content": "42"}, "logprobs": {"content": [{"logprob": None}]}}
    assert kinds(null, "42") == {"nan"}


def test_a_count_must_be_whole_and_in_order():
    assert counts("Here you go: " + ", ".join(map(str, range(5, 66))), 5, 65)
    assert not counts(", ".join(map(str, range(5, 65))), 5, 65)
    assert not counts(", ".join(str(number) for number in range(5, 66) if number != 31), 5, 65)
