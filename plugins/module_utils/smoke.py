# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a server, one by one and many at once, judge what comes back, and sum it up with the numbers on the way."""

from __future__ import annotations

import concurrent.futures
import json
import time
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils import answers, questions
from ansible_collections.blackwell.sglang.plugins.module_utils.answers import Finding
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient, HttpError, parse_json
from ansible_collections.blackwell.sglang.plugins.module_utils.questions import Question

# Verdicts from the most telling to the least: NaN explains garbage, garbage explains wrong answers.
VERDICTS = ("nan", "garbage", "error", "empty", "wrong", "slow")
# Share of answers of a round at once that may be wrong: a good model slips now and then, a broken one often.
MAX_WRONG_SHARE = 0.05
# Two seeds that give the same text of this length or more: the sampler does not sample.
MIN_SAME_LENGTH = 60


@dataclass
class Answer:
    """One exchange. Times in seconds; C(ttft) is the time to the first token of a streamed answer."""

    question: Question
    text: str = ""
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    ttft: float | None = None
    tokens: int = 0
    prompt_tokens: int = 0


@dataclass(frozen=True)
class Bounds:
    """What turns an C(ok) into another verdict. None: not asked for. Speeds in tokens per second, times in seconds."""

    max_ttft_p99: float | None = None
    min_tokens_per_second: float | None = None
    min_right: float = 0.9
    max_invalid: float = 0.02


def ask(client: HttpClient, model: str, question: Question, deadline: float) -> Answer:
    """One question. Nothing is raised: an error is a finding."""
    answer = Answer(question)
    payload: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": question.prompt}],
        "temperature": question.temperature,
        "max_tokens": question.max_tokens,
        "chat_template_kwargs": {"enable_thinking": question.thinking},
    }
    if question.seed is not None:
        payload["seed"] = question.seed
    if question.logprobs:
        payload["logprobs"] = True
    began = time.monotonic()
    left = deadline - began
    try:
        if left <= 0:
            raise HttpError("timeout", "the time for the whole check was over before it was asked")
        exchange = _streamed if question.stream else _whole
        choice = exchange(client, payload, left, answer)
    except HttpError as error:
        answer.findings.append(Finding("nan" if error.kind == "nan" else "error", str(error)[:300]))
    else:
        answer.text = (choice.get("message") or {}).get("content") or ""
        answer.findings += answers.judge(choice, question)
    answer.seconds = time.monotonic() - began
    return answer


def _count(answer: Answer, usage: Any) -> None:
    if isinstance(usage, dict):
        answer.tokens = int(usage.get("completion_tokens") or 0)
        answer.prompt_tokens = int(usage.get("prompt_tokens") or 0)


def _same_model(payload: dict[str, Any], body: dict[str, Any]) -> None:
    if body.get("model") not in (None, payload["model"]):
        raise HttpError("broken", f"asked of {payload['model']!r}, answered by {body['model']!r}")


def _whole(client: HttpClient, payload: dict[str, Any], timeout: float, answer: Answer) -> dict[str, Any]:
    response = client.request("POST", "/v1/chat/completions", payload, timeout)
    if response.status != 200:
        raise HttpError("status", f"HTTP {response.status}: {response.body[:200]!r}")
    body = response.json()
    try:
        _count(answer, body.get("usage"))
        choice = body["choices"][0]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise HttpError("broken", f"no choices in the answer: {response.body[:200]!r}") from error
    if not isinstance(choice, dict):
        raise HttpError("broken", f"no choice in the answer: {response.body[:200]!r}")
    _same_model(payload, body)
    return choice


def _streamed(client: HttpClient, payload: dict[str, Any], timeout: float, answer: Answer) -> dict[str, Any]:
    """Put the pieces of a stream together as the whole answer would have been."""
    content, reasoning, finish, done = "", "", None, False
    logprobs: list[Any] = []
    payload = {**payload, "stream": True, "stream_options": {"include_usage": True}}
    for seconds, data in client.stream("/v1/chat/completions", payload, timeout):
        if data == "[DONE]":
            done = True
            continue  # the end of the body follows: read to it, the connection serves the next question
        event = parse_json(data)
        if not isinstance(event, dict) or "error" in event:
            raise HttpError("broken", f"an error in the stream: {json.dumps(event)[:200]}")
        _same_model(payload, event)
        _count(answer, event.get("usage"))
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            logprobs += (choice.get("logprobs") or {}).get("content") or []
            if answer.ttft is None and (content or reasoning):
                answer.ttft = seconds
            finish = choice.get("finish_reason") or finish
    if not done:
        raise HttpError("broken", f"the stream ended without [DONE] after {content[-80:]!r}")
    message = {"content": content, "reasoning_content": reasoning}
    return {"message": message, "finish_reason": finish, "logprobs": {"content": logprobs}}


def compare_seeds(asked: list[Answer]) -> None:
    """Two seeds above temperature 0 that give the same long text are a finding of the second."""
    seen: dict[str, Answer] = {}
    for answer in asked:
        if answer.question.seed is None or answer.findings or len(answer.text) < MIN_SAME_LENGTH:
            continue
        if answer.text in seen and seen[answer.text].question.seed != answer.question.seed:
            detail = f"two seeds gave the same {len(answer.text)} characters: {answer.text[:48]!r}"
            answer.findings.append(Finding("garbage", detail))
        seen[answer.text] = answer


def verdict(asked: list[Answer]) -> tuple[str, str]:
    """(verdict, sentence). Wrong answers are tolerated up to MAX_WRONG_SHARE among many, nothing else is."""
    kinds: dict[str, list[Answer]] = {}
    for answer in asked:
        for kind in {finding.kind for finding in answer.findings}:
            kinds.setdefault(kind, []).append(answer)
    wrong = len(kinds.get("wrong", []))
    if set(kinds) == {"wrong"} and len(asked) >= 1 / MAX_WRONG_SHARE and wrong <= MAX_WRONG_SHARE * len(asked):
        kinds.clear()
    for kind in VERDICTS:
        if kind in kinds:
            worst = kinds[kind][0]
            detail = next(finding.detail for finding in worst.findings if finding.kind == kind)
            return kind, f"{len(kinds[kind])} of {len(asked)} answers: {detail}"
    return "ok", f"{len(asked) - wrong} of {len(asked)} answers right"


def gate(asked: list[Answer], bounds: Bounds) -> tuple[str, str]:
    """The accuracy gate: the share that is right, and the share that is no answer at all (invalid)."""
    invalid = [answer for answer in asked if any(finding.kind != "wrong" for finding in answer.findings)]
    right = sum(not answer.findings for answer in asked) / len(asked)
    share = len(invalid) / len(asked)
    told = f"{right:.1%} of {len(asked)} problems right, {share:.1%} invalid"
    if share > bounds.max_invalid:
        kind, detail = verdict(invalid)
        return kind, f"{told}, at most {bounds.max_invalid:.1%} may be invalid: {detail}"
    if right < bounds.min_right:
        return "wrong", f"{told}, at least {bounds.min_right:.1%} must be right"
    return "ok", told


def _percentile(values: list[float], share: float) -> float | None:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


def numbers(asked: list[Answer], seconds: float) -> dict[str, Any]:
    """Throughput and latency measured on the way. Seconds, tokens per second, shares of 1."""
    first_tokens = [answer.ttft for answer in asked if answer.ttft is not None]
    tokens = sum(answer.tokens for answer in asked)
    errors = sum(any(finding.kind == "error" for finding in answer.findings) for answer in asked)
    # The speed of one answer: its tokens after the first, over the time after the first.
    speeds = [
        (answer.tokens - 1) / (answer.seconds - answer.ttft)
        for answer in asked
        if answer.ttft is not None and answer.tokens > 1 and answer.seconds > answer.ttft
    ]
    return {
        "requests": len(asked),
        "seconds": round(seconds, 3),
        "output_tokens": tokens,
        "output_tokens_per_second": round(tokens / seconds, 1) if seconds > 0 else None,
        "output_tokens_per_second_each": _percentile(speeds, 0.5),
        "prompt_tokens_per_second": round(sum(a.prompt_tokens for a in asked) / seconds, 1) if seconds > 0 else None,
        "ttft_p50": _percentile(first_tokens, 0.5),
        "ttft_p99": _percentile(first_tokens, 0.99),
        "latency_p50": _percentile([answer.seconds for answer in asked], 0.5),
        "latency_p99": _percentile([answer.seconds for answer in asked], 0.99),
        "error_rate": round(errors / len(asked), 4) if asked else None,
    }


def too_slow(measured: dict[str, Any], bounds: Bounds) -> str | None:
    """Which bound on speed is missed, in a sentence."""
    ttft, speed = measured["ttft_p99"], measured["output_tokens_per_second"]
    if bounds.max_ttft_p99 is not None and ttft is not None and ttft > bounds.max_ttft_p99:
        return f"time to first token p99 is {ttft} s, at most {bounds.max_ttft_p99} s are wanted"
    if bounds.min_tokens_per_second is not None and (speed or 0) < bounds.min_tokens_per_second:
        return f"{speed} output tokens/s, at least {bounds.min_tokens_per_second} are wanted"
    return None


def check(
    client: HttpClient,
    model: str,
    level: str,
    timeout: float,
    concurrency: int = 64,
    rounds: int = 4,
    bounds: Bounds | None = None,
    problems: list[Question] | None = None,
) -> dict[str, Any]:
    """Run a level and sum it up: C(verdict), C(summary), C(numbers) and the worst C(samples).

    C(quick): one question. C(standard): known answers one by one, then C(rounds) of C(concurrency) at once.
    C(deep): these, then C(problems). Whatever is bad ends the check at once.
    """
    bounds = bounds or Bounds()
    began = time.monotonic()
    deadline = began + timeout
    first = questions.quick() if level == "quick" else questions.one_by_one()
    asked = [ask(client, model, question, deadline) for question in first]
    compare_seeds(asked)
    loaded_from = time.monotonic()
    loaded: list[Answer] = []
    result, summary = verdict(asked)
    if level != "quick" and result == "ok":
        with concurrent.futures.ThreadPoolExecutor(max_workers=concurrency) as pool:

            def all_at_once(batch: list[Question]) -> list[Answer]:
                return list(pool.map(lambda question: ask(client, model, question, deadline), batch))

            for number in range(rounds):
                loaded += all_at_once(questions.at_once(number, concurrency))
                result, summary = verdict(asked + loaded)
                if result != "ok":
                    break
            if level == "deep" and result == "ok":
                solved = all_at_once(problems or [])
                loaded += solved
                result, summary = gate(solved, bounds)
    # Speed is that of the load; of a quick check, that of its question.
    measured = numbers(loaded or asked, time.monotonic() - (loaded_from if loaded else began))
    slow = too_slow(measured, bounds)
    if result == "ok" and slow:
        result, summary = "slow", slow
    everything = asked + loaded
    bad = [answer for answer in everything if answer.findings]
    return {
        "verdict": result,
        "summary": summary,
        "numbers": {**measured, "requests": len(everything), "seconds": round(time.monotonic() - began, 3)},
        "answer": asked[0].text.strip()[:80],
        "question": asked[0].question.prompt[-200:],
        "samples": [
            {
                "prompt": answer.question.prompt[-120:],
                "answer": answer.text[:80] if len(answer.text) < 160 else f"{answer.text[:60]} ... {answer.text[-90:]}",
                "findings": [f"{finding.kind}: {finding.detail}" for finding in answer.findings],
            }
            for answer in bad[:3]
        ],
    }
