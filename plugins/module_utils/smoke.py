# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a server questions with known answers, one by one and many at once, and sum up what came back.

One greedy request is no smoke test: reported faults show only in mixed batches (NaN in 3 to 5 of 2000
rows within 1 to 4 rounds of 64 requests, sglang pull 20047; 30 of 32 concurrent answers C(!) while
serial ones are right, flashinfer issue 4569). Hence different prompts of mixed length, at once.
"""

from __future__ import annotations

import concurrent.futures
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils.answers import Finding, judge
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import (
    HttpClient,
    HttpError,
    parse_json,
)

# Verdicts from the most telling to the least: NaN explains garbage, garbage explains wrong answers.
VERDICTS = ("nan", "garbage", "error", "empty", "wrong", "slow")
# Share of answers of a round at once that may be wrong: a good model slips now and then, a broken one often.
MAX_WRONG_SHARE = 0.05
KNOWN = (
    ("What is the capital of France? Answer with one word.", "Paris"),
    ("What is 17 + 25? Answer with the number only.", "42"),
    ("What is the capital of Japan? Answer with one word.", "Tokyo"),
    ("What is 12 * 12? Answer with the number only.", "144"),
)
FILLER = "The following notes are only for context and change nothing about the question. "


@dataclass(frozen=True)
class Question:
    prompt: str
    expected: str
    stream: bool = False
    logprobs: bool = False


@dataclass
class Answer:
    """One exchange. Times in seconds; C(ttft) is the time to the first token of a streamed answer."""

    question: Question
    text: str = ""
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    ttft: float | None = None
    tokens: int = 0


def serial_questions(level: str) -> list[Question]:
    if level == "quick":
        return [Question(*KNOWN[1])]
    return [Question(prompt, expected, logprobs=True) for prompt, expected in KNOWN]


def round_questions(number: int, count: int) -> list[Question]:
    """C(count) different sums, with prompts from a line to a few thousand characters; every fourth streamed."""
    dice = random.Random(number)
    questions = []
    for position in range(count):
        left, right = dice.randint(100, 999), dice.randint(100, 999)
        filler = FILLER * dice.choice((0, 0, 1, 4, 16, 40))
        prompt = f"{filler}What is {left} + {right}? Answer with the number only."
        questions.append(Question(prompt, str(left + right), stream=position % 4 == 3))
    return questions


def ask(client: HttpClient, model: str, question: Question, deadline: float, max_tokens: int = 256) -> Answer:
    """One question. Nothing is raised: an error is a finding."""
    answer = Answer(question)
    timeout = max(0.1, deadline - time.monotonic())
    payload: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": question.prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    began = time.monotonic()
    try:
        if question.stream:
            choice = _streamed(client, payload, timeout, answer)
        else:
            if question.logprobs:
                payload["logprobs"] = True
            choice = _whole(client, payload, timeout, answer)
    except HttpError as error:
        answer.findings.append(Finding("nan" if error.kind == "nan" else "error", str(error)[:300]))
    else:
        answer.text = ((choice.get("message") or {}).get("content") or "")[:400]
        answer.findings += judge(choice, question.expected)
    answer.seconds = time.monotonic() - began
    return answer


def _whole(client: HttpClient, payload: dict[str, Any], timeout: float, answer: Answer) -> dict[str, Any]:
    response = client.request("POST", "/v1/chat/completions", payload, timeout)
    if response.status != 200:
        raise HttpError("status", f"HTTP {response.status}: {response.body[:200]!r}")
    body = response.json()
    try:
        answer.tokens = int((body.get("usage") or {}).get("completion_tokens") or 0)
        choice = body["choices"][0]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise HttpError("broken", f"no choices in the answer: {response.body[:200]!r}") from error
    if not isinstance(choice, dict):
        raise HttpError("broken", f"no choice in the answer: {response.body[:200]!r}")
    return choice


def _streamed(client: HttpClient, payload: dict[str, Any], timeout: float, answer: Answer) -> dict[str, Any]:
    """Put the pieces of a stream together as the whole answer would have been."""
    content, reasoning, finish, done = "", "", None, False
    payload = {**payload, "stream": True, "stream_options": {"include_usage": True}}
    for seconds, data in client.stream("/v1/chat/completions", payload, timeout):
        if data == "[DONE]":
            done = True
            break
        event = parse_json(data)
        if not isinstance(event, dict) or "error" in event:
            raise HttpError("broken", f"an error in the stream: {json.dumps(event)[:200]}")
        if event.get("usage"):
            answer.tokens = int(event["usage"].get("completion_tokens") or 0)
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            if answer.ttft is None and (content or reasoning):
                answer.ttft = seconds
            finish = choice.get("finish_reason") or finish
    if not done:
        raise HttpError("broken", f"the stream ended without [DONE] after {content[-80:]!r}")
    return {"message": {"content": content, "reasoning_content": reasoning}, "finish_reason": finish}


def verdict(answers: list[Answer]) -> tuple[str, str]:
    """(verdict, sentence). Wrong answers are tolerated up to MAX_WRONG_SHARE, nothing else is."""
    kinds: dict[str, list[Answer]] = {}
    for answer in answers:
        for kind in {finding.kind for finding in answer.findings}:
            kinds.setdefault(kind, []).append(answer)
    wrong = kinds.get("wrong", [])
    if wrong and set(kinds) == {"wrong"} and len(answers) > len(KNOWN) and len(wrong) <= MAX_WRONG_SHARE * len(answers):
        kinds.pop("wrong")
    for kind in VERDICTS:
        if kind in kinds:
            worst = kinds[kind][0]
            detail = next(finding.detail for finding in worst.findings if finding.kind == kind)
            return kind, f"{len(kinds[kind])} of {len(answers)} answers: {detail}"
    return "ok", f"{len(answers)} of {len(answers)} answers right" if not wrong else (
        f"{len(answers) - len(wrong)} of {len(answers)} answers right"
    )


def _percentile(values: list[float], share: float) -> float | None:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


def numbers(answers: list[Answer], seconds: float) -> dict[str, Any]:
    """Throughput and latency measured on the way. Seconds, tokens per second."""
    first_tokens = [answer.ttft for answer in answers if answer.ttft is not None]
    tokens = sum(answer.tokens for answer in answers)
    return {
        "requests": len(answers),
        "seconds": round(seconds, 3),
        "output_tokens": tokens,
        "output_tokens_per_second": round(tokens / seconds, 1) if seconds > 0 else None,
        "ttft_p50": _percentile(first_tokens, 0.5),
        "ttft_p99": _percentile(first_tokens, 0.99),
        "latency_p50": _percentile([answer.seconds for answer in answers], 0.5),
    }


def check(
    client: HttpClient, model: str, level: str, timeout: float, concurrency: int = 64, rounds: int = 4
) -> dict[str, Any]:
    """Run a level and sum it up: C(verdict), C(summary), C(numbers) and the worst C(samples)."""
    began = time.monotonic()
    deadline = began + timeout
    answers = [ask(client, model, question, deadline) for question in serial_questions(level)]
    if level != "quick" and verdict(answers)[0] == "ok":
        with concurrent.futures.ThreadPoolExecutor(max_workers=concurrency) as pool:
            for number in range(rounds):
                batch = round_questions(number, concurrency)
                answers += pool.map(lambda question: ask(client, model, question, deadline), batch)
                if verdict(answers)[0] != "ok" or time.monotonic() > deadline:
                    break
    result, summary = verdict(answers)
    bad = [answer for answer in answers if answer.findings]
    return {
        "verdict": result,
        "summary": summary,
        "numbers": numbers(answers, time.monotonic() - began),
        "answer": answers[0].text.strip()[:80],
        "question": answers[0].question.prompt[-200:],
        "samples": [
            {
                "prompt": answer.question.prompt[-120:],
                "answer": answer.text[:80],
                "findings": [f"{finding.kind}: {finding.detail}" for finding in answer.findings],
            }
            for answer in bad[:3]
        ],
    }
