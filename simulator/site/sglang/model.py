# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in for the model: it can add, knows some capitals, and fails as the backends it is given fail on SM120.

Per backend, as the campaign saw it: MoE flashinfer_trtllm is killed while loading, flashinfer_cutedsl and auto
answer "!!!!", FP4 GEMM flashinfer_trtllm computes NaN, anything else is right.
"""

from __future__ import annotations

import argparse
import random
import re
import zlib

CAPITALS = {
    "france": "Paris", "japan": "Tokyo", "germany": "Berlin", "italy": "Rome", "spain": "Madrid",
    "portugal": "Lisbon", "egypt": "Cairo", "kenya": "Nairobi", "canada": "Ottawa", "norway": "Oslo",
}  # fmt: skip
WORDS = [
    "the",
    "server",
    "answers",
    "with",
    "plain",
    "words",
    "and",
    "this",
    "sentence",
    "stands",
    "in",
    "for",
    "what",
    "a",
    "real",
    "model",
    "would",
    "have",
    "said",
    "here",
]
NATURES = ("right", "garbage", "nan", "wrong", "empty", "error", "rots")
GARBAGE = "!"
_SUM = re.compile(r"(-?\d+)\s*([+*x×-])\s*(-?\d+)")


def dies_while_loading(args: argparse.Namespace) -> bool:
    return bool(args.moe_runner_backend == "flashinfer_trtllm")


def nature(args: argparse.Namespace, faults: dict, running: int, prompt: str) -> str:
    """What comes back for a request that runs beside C(running) others: one of NATURES.

    Faults: C(answers) always; C(garbage_from_concurrency) when that many run; C(nan_every) one row of
    logits in so many, see http_server; C(bad_rank) one tensor-parallel rank of that many computes wrong, which shows in some prompts; C(bad_replica)
    one of two data-parallel replicas, which gets every second of the requests at once; C(rots_after) right for so many tokens.
    """
    if "answers" in faults:
        return str(faults["answers"])
    if running >= faults.get("garbage_from_concurrency", 1 << 30):
        return "garbage"
    if "bad_rank" in faults and zlib.crc32(prompt.encode()) % faults["bad_rank"] == 0:
        return "wrong"
    if faults.get("bad_replica") and running % 2 == 0:
        return "garbage"
    if "rots_after" in faults:
        return "rots"
    if args.moe_runner_backend in ("flashinfer_cutedsl", "auto") and args.quantization:
        return "garbage"
    if args.fp4_gemm_runner_backend == "flashinfer_trtllm":
        return "nan"
    return "right"


def said(nature: str, prompt: str, seed: int | None, temperature: float, limit: int, faults: dict) -> list[str]:
    """The tokens of an answer of that nature."""
    pieces = tokens(answer(prompt, seed, temperature))
    if nature in ("garbage", "nan"):
        return [GARBAGE] * limit
    if nature == "empty":
        return []
    if nature == "wrong":
        return tokens(re.sub(r"\d+", lambda number: str(int(number.group()) + 1), "".join(pieces)) + " or Atlantis")
    if nature == "rots" and len(pieces) > faults["rots_after"]:
        return [*pieces[: faults["rots_after"]], *[" handle", "Tokio", ",0", ",0.1", " 112."] * 20][:limit]
    return pieces


def answer(prompt: str, seed: int | None, temperature: float) -> str:
    sums = list(_SUM.finditer(prompt))
    if sums:
        match = sums[-1]
        left, sign, right = int(match.group(1)), match.group(2), int(match.group(3))
        return str({"+": left + right, "-": left - right}.get(sign, left * right))
    if "Answer: NUMBER" in prompt:
        a, b, c = (int(number) for number in re.findall(r"\d+", prompt)[:3])
        solved = next(value for word, value in (
            ("gives away", a + b - c), ("last day", a * b + c), ("Each sack", (a + b) * c), ("", a * b - c),
        ) if word in prompt)  # fmt: skip
        return f"There are three numbers, {a}, {b} and {c}. Answer: {solved}"
    count = re.search(r"count from (\d+) to (\d+)", prompt, re.IGNORECASE)
    if count:
        return ", ".join(map(str, range(int(count.group(1)), int(count.group(2)) + 1)))
    capital = re.search(r"capital of (\w+)", prompt, re.IGNORECASE)
    if capital:
        return CAPITALS.get(capital.group(1).lower(), "I do not know.")
    dice = random.Random(f"{prompt}{seed if temperature else ''}")
    return " ".join(dice.choice(WORDS) for _ in range(24)).capitalize() + "."


def tokens(text: str) -> list[str]:
    """Pieces that make up the text again."""
    return re.findall(r"\s*\w{1,6}|\s*[^\w\s]|\s+$", text) or [text]
