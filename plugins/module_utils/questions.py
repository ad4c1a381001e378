# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions with known answers: for one look, for a smoke test under load, and for an accuracy gate.

Reported faults decide what is asked: NaN only in mixed concurrent batches (3 to 5 rows of about 2000, within 1 to
4 rounds of 64 requests, sglang pull 20047), so different prompts of mixed length; answers that start right and rot
after 100 to 200 tokens, so some that are long; 30 of 32 concurrent answers C(!) (flashinfer issue 4569), so at once.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

FILLER = "The following notes are only for context and change nothing about the question. "
CAPITALS = (
    ("France", "Paris"), ("Japan", "Tokyo"), ("Germany", "Berlin"), ("Italy", "Rome"), ("Spain", "Madrid"),
    ("Portugal", "Lisbon"), ("Egypt", "Cairo"), ("Kenya", "Nairobi"), ("Canada", "Ottawa"), ("Norway", "Oslo"),
)  # fmt: skip
LONGEST_COUNT = 60  # numbers; two tokens or more each, so that an answer that rots after 100 tokens is seen to


@dataclass(frozen=True)
class Question:
    """C(expected) must stand in the answer; C(counts) (first, last) must stand there as a sequence.

    C(temperature) and C(seed) are for open questions, whose answers are compared, not known.
    """

    prompt: str
    expected: str | None = None
    counts: tuple[int, int] | None = None
    stream: bool = False
    logprobs: bool = False
    max_tokens: int = 256
    thinking: bool = False
    temperature: float = 0.0
    seed: int | None = None


def quick() -> list[Question]:
    return [Question("What is 17 + 25? Answer with the number only.", "42")]


def one_by_one() -> list[Question]:
    """Known answers short and long, and one open question with two seeds, whose answers must differ."""
    open_question = "Write four sentences about a morning at the harbour."
    return [
        Question(_capital("France"), "Paris", logprobs=True),
        Question("What is 17 + 25? Answer with the number only.", "42", logprobs=True),
        Question(_capital("Japan"), "Tokyo", stream=True),
        _count(1, LONGEST_COUNT, stream=False),
        Question(open_question, temperature=0.9, seed=1),
        Question(open_question, temperature=0.9, seed=2),
    ]


def at_once(round_number: int, count: int) -> list[Question]:
    """C(count) different questions: sums behind a line to a few thousand characters, long counts, capitals.

    Every fourth is streamed, every fifth asks for log probabilities.
    """
    dice = random.Random(round_number)
    questions = []
    for position in range(count):
        stream, logprobs = position % 4 == 3, position % 5 == 0
        if position % 8 == 5:
            first = dice.randint(2, 900)
            questions.append(_count(first, first + dice.randint(LONGEST_COUNT // 2, LONGEST_COUNT), stream))
            continue
        filler = FILLER * dice.choice((0, 0, 1, 4, 16, 40))
        if position % 8 == 7:
            country, city = dice.choice(CAPITALS)
            questions.append(Question(f"{filler}{_capital(country)}", city, stream=stream))
            continue
        left, right = dice.randint(100, 999), dice.randint(100, 999)
        prompt = f"{filler}What is {left} + {right}? Answer with the number only."
        questions.append(Question(prompt, str(left + right), stream=stream, logprobs=logprobs))
    return questions


def _capital(country: str) -> str:
    return f"What is the capital of {country}? Answer with one word."


def _count(first: int, last: int, stream: bool) -> Question:
    prompt = f"Count from {first} to {last}, separated by commas. Give the numbers only."
    return Question(prompt, counts=(first, last), stream=stream, max_tokens=1024)


# Word problems of the accuracy gate: text, and the answer from its numbers a, b, c.
_PROBLEMS: tuple[tuple[str, Callable[[int, int, int], int]], ...] = (
    ("A shop sells {a} boxes with {b} pens in each. {c} pens are returned. How many pens are sold in the end?",
     lambda a, b, c: a * b - c),
    ("{who} has {a} coins, finds {b} more and gives away {c}. How many coins are left?", lambda a, b, c: a + b - c),
    ("A train has {a} carriages with {b} seats in each, and {c} seats are taken. How many seats are free?",
     lambda a, b, c: a * b - c),
    ("{who} reads {a} pages a day for {b} days and then {c} pages on the last day. How many pages is that?",
     lambda a, b, c: a * b + c),
    ("A field gives {a} sacks of grain and another {b} sacks. Each sack weighs {c} kg. How many kg is that?",
     lambda a, b, c: (a + b) * c),
)  # fmt: skip
_NAMES = ("Anna", "Bilal", "Chen", "Dana", "Emre", "Fatima", "Goran", "Hana")
_FINAL = " Think it through, and end with a line that says: Answer: NUMBER"


def word_problems(count: int, seed: int = 0) -> list[Question]:
    """Generated problems with computable answers, thinking on: nobody has trained on these very ones."""
    dice = random.Random(seed)
    questions: list[Question] = []
    for number in range(count):
        text, solve = _PROBLEMS[number % len(_PROBLEMS)]
        a, b, c = dice.randint(12, 60), dice.randint(3, 40), dice.randint(2, 30)
        prompt = text.format(a=a, b=b, c=c, who=dice.choice(_NAMES)) + _FINAL
        questions.append(Question(prompt, str(solve(a, b, c)), max_tokens=16000, thinking=True))
    return questions


def from_gsm8k(path: str, count: int) -> list[Question]:
    """The first C(count) of a file in GSM8K's format: JSON lines with C(question) and C(answer), C(#### 42) last."""
    questions: list[Question] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if len(questions) == count:
                break
            try:
                entry = json.loads(line)
                answer = re.sub(r"[,$]", "", entry["answer"].rpartition("####")[2]).strip()
                questions.append(Question(entry["question"] + _FINAL, answer, max_tokens=16000, thinking=True))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise ValueError(f"{path}:{number} is no line of GSM8K's format: {error}") from error
    return questions
