# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge what a model answered. Text in, findings out.

A server that loads may still answer garbage, and garbage has shapes: token 0 for ever (C(!!!!)), ASCII
running backwards, one phrase in a loop, reserved tokens, NaN where a probability should be (sources:
ninfer-3090 issue 23, sglang issues 10138 and 24321, flashinfer issue 4569). A legitimate "Hello!", a
markdown rule or a long list of numbers is none of them: runs are matched, not presence.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils.questions import Question

# One character this often in a row is no answer; drawing characters may be repeated longer.
MAX_RUN, MAX_DRAWN_RUN = 16, 160
DRAWING = frozenset("-=_*#~.| \t\n\u2500\u2550\u2588")
# One character making up more than this share of an answer of MIN_SHARE_LENGTH characters or more.
MAX_SHARE, MIN_SHARE_LENGTH = 0.75, 24
# A text of MIN_LOOP_LENGTH characters or more that deflates below this ratio repeats itself.
MAX_DEFLATE, MIN_LOOP_LENGTH = 0.12, 240
# Letters of scripts that the question has nothing to do with, as a share of an answer with so many letters or more.
MAX_STRANGE_SHARE, MIN_SCRIPT_LETTERS = 0.3, 4
_LANGUAGE = re.compile(
    r"(?i)\b(translat|transliterat|language|alphabet|script|word for|chinese|japanese|korean|arabic|hebrew|hindi|thai|"
    r"russian|ukrainian|bulgarian|greek|persian|urdu|bengali|tamil|georgian|armenian|emoji|glossary|haiku|kanji)"
)
_THINK_TAG = re.compile(r"</?think(ing)?>|^\s*Thinking Process:", re.IGNORECASE)
_THOUGHTS = re.compile(
    r"\s*(Okay|Ok|Alright|Hmm|Let me|First|So|The user|We need|I need)\b.{0,80}?\b(user|think|figure|let me|need to|asks?|wants?)\b",
    re.IGNORECASE | re.DOTALL,
)
_RULE = re.compile(r"([-=_*#~.|\u2500\u2550\u2588])\1{3,}")  # a drawn line, however long, is one sign
_RESERVED = re.compile(r"<\|(reserved[^|>]*|endoftext|im_start|im_end|pad)\|?>?|<unk>|\[UNK\]")
_COUNTING = re.compile(r"^\W*(?:\d{1,4}[.)]\s+){8,}")
_WORD_LOOP = re.compile(r"(?s)(.{1,40}?)\1{11,}$")


@dataclass(frozen=True)
class Finding:
    """C(kind): C(garbage), C(nan), C(empty), C(wrong), C(error); C(detail): what was seen."""

    kind: str
    detail: str


def longest_run(text: str) -> tuple[str, int]:
    best, count = ("", 0), 0
    for position, char in enumerate(text):
        count = count + 1 if position and text[position - 1] == char else 1
        if count > best[1] and not char.isspace():
            best = (char, count)
    return best


def _falling(text: str) -> str:
    """The longest piece in which each character is the one before it in ASCII, as token ids 19, 18, 17 ... spell."""
    best = start = 0
    best_piece = ""
    for position in range(1, len(text) + 1):
        if position == len(text) or ord(text[position]) != ord(text[position - 1]) - 1:
            if position - start > best:
                best, best_piece = position - start, text[start:position]
            start = position
    return best_piece


def deflate_ratio(text: str) -> float:
    return len(zlib.compress(text.encode())) / len(text.encode())


def garbage(text: str) -> list[Finding]:
    """What makes the text no language at all; nothing if it might be an answer."""
    found = []
    char, count = longest_run(text)
    if count >= (MAX_DRAWN_RUN if char in DRAWING else MAX_RUN):
        found.append(Finding("garbage", f"{char!r} {count} times in a row"))
    text = _RULE.sub(r"\1\1\1", text)
    stripped = "".join(text.split())
    if len(stripped) >= MIN_SHARE_LENGTH:
        commonest = max(set(stripped), key=stripped.count)
        share = stripped.count(commonest) / len(stripped)
        if share > MAX_SHARE:
            found.append(Finding("garbage", f"{share:.0%} of the answer is {commonest!r}"))
    piece = _falling(text)
    if len(piece) >= 8 and not piece.isalnum():
        found.append(Finding("garbage", f"ASCII running backwards: {piece[:24]!r}"))
    if "\ufffd" in text:
        found.append(Finding("garbage", f"{text.count(chr(0xFFFD))} characters that are no text (U+FFFD)"))
    reserved = _RESERVED.search(text)
    if reserved:
        found.append(Finding("garbage", f"the reserved token {reserved.group(0)!r} in the answer"))
    if _COUNTING.match(text) or _WORD_LOOP.search(text.strip()):
        found.append(Finding("garbage", f"a loop: {text.strip()[-48:]!r}"))
    elif len(text) >= MIN_LOOP_LENGTH and deflate_ratio(text) < MAX_DEFLATE:
        found.append(Finding("garbage", f"the answer repeats itself: {text.strip()[-48:]!r}"))
    return found


def scripts(text: str) -> dict[str, int]:
    """Letters by script, as the first word of their Unicode names: LATIN, CJK, CYRILLIC, HANGUL ..."""
    found: dict[str, int] = {}
    for char in text:
        if char.isalpha():
            script = "LATIN" if char.isascii() else unicodedata.name(char, "UNNAMED").split()[0]
            script = "CJK" if script in ("HIRAGANA", "KATAKANA", "FULLWIDTH", "HALFWIDTH") else script
            found[script] = found.get(script, 0) + 1
    return found


def wrong_script(content: str, prompt: str) -> list[Finding]:
    """An answer in scripts that the question neither uses nor asks for by the name of a language."""
    asked, got = set(scripts(prompt)), scripts(content)
    letters = sum(got.values())
    # A prompt that is all Latin may ask for another language by its name; MATHEMATICAL letters are no script.
    if letters < MIN_SCRIPT_LETTERS or _LANGUAGE.search(prompt):
        return []
    strange = {name: count for name, count in got.items() if name not in asked | {"LATIN", "MATHEMATICAL", "GREEK"}}
    share = sum(strange.values()) / letters
    if len(strange) >= 3 and sum(strange.values()) >= 3:
        return [Finding("garbage", f"letters of {len(got)} scripts mixed: {', '.join(sorted(got))}")]
    if share > MAX_STRANGE_SHARE:
        most = max(strange, key=lambda name: strange[name])
        return [Finding("garbage", f"{share:.0%} of the letters are {most}, which the question did not ask for")]
    return []


def leaked_reasoning(content: str, finish: str | None) -> list[Finding]:
    """Thoughts that stand where the answer should: the reasoning parser is wrong for this model."""
    leak = _THINK_TAG.search(content)
    if leak:
        return [Finding("wrong", f"reasoning inside the answer ({leak.group(0)!r}): check reasoning_parser")]
    if finish == "length" and _THOUGHTS.match(content):
        return [Finding("wrong", f"reasoning used up the whole answer: {content.strip()[:48]!r}")]
    return []


def not_finite(logprobs: Any) -> list[Finding]:
    """NaN, infinities and nulls among the log probabilities of an answer."""
    entries = (logprobs or {}).get("content") or []
    values = [entry.get("logprob") for entry in entries if isinstance(entry, dict)]
    bad = [value for value in values if not isinstance(value, (int, float)) or not math.isfinite(value)]
    if not bad:
        return []
    return [Finding("nan", f"{len(bad)} of {len(values)} log probabilities are {bad[0]!r}")]


def holds(text: str, expected: str) -> bool:
    """Does the answer hold the expected word or number, whole and whatever its case? 1,204 counts as 1204."""
    plain = re.sub(r"(?<=\d)[,\u00a0\u202f](?=\d{3})", "", text)
    return re.search(rf"(?<![\w.]){re.escape(expected)}(?![\w]|\.\d)", plain, re.IGNORECASE) is not None


def counts(text: str, first: int, last: int) -> bool:
    """Do the numbers first, first + 1, ... last stand in the answer in this order, without a gap?"""
    found = [int(number) for number in re.findall(r"\d+", text)]
    wanted = list(range(first, last + 1))
    return any(found[at : at + len(wanted)] == wanted for at in range(len(found) - len(wanted) + 1))


def judge(choice: dict[str, Any], question: Question) -> list[Finding]:
    """All that is wrong with one choice of a chat completion, as an answer to the question."""
    message = choice.get("message") or {}
    content = message.get("content") or ""
    reasoning = message.get("reasoning_content") or ""
    found = not_finite(choice.get("logprobs"))
    found += garbage(content) or garbage(reasoning)
    found += [] if found else wrong_script(content, question.prompt)
    if not content.strip():
        cause = "all of it went into reasoning" if reasoning.strip() else "no text at all"
        found.append(Finding("empty", f"empty answer, finish_reason {choice.get('finish_reason')!r}: {cause}"))
    elif question.expected is not None and not holds(content, question.expected):
        found.append(Finding("wrong", f"expected {question.expected!r}, got {content.strip()[:80]!r}"))
    elif question.counts is not None and not counts(content, *question.counts):
        first, last = question.counts
        found.append(Finding("wrong", f"expected the numbers {first} to {last}, got {content.strip()[-80:]!r}"))
    if content.strip() and not found:
        found += leaked_reasoning(content, choice.get("finish_reason"))
    return found
