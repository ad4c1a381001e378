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
_SUM = re.compile(r"(-?\d+)\s*([+*x×-])\s*(-?\d+)")


def dies_while_loading(args: argparse.Namespace) -> bool:
    return bool(args.moe_runner_backend == "flashinfer_trtllm")


def nature(args: argparse.Namespace, faults: dict, running: int) -> str:
    """``right``, ``garbage`` or ``nan`` for a request that runs beside C(running) others."""
    if "answers" in faults:
        return str(faults["answers"])
    if running >= faults.get("garbage_from_concurrency", 1 << 30):
        return "garbage"
    if args.moe_runner_backend in ("flashinfer_cutedsl", "auto") and args.quantization:
        return "garbage"
    if args.fp4_gemm_runner_backend == "flashinfer_trtllm":
        return "nan"
    return "right"


def answer(prompt: str, seed: int | None, temperature: float) -> str:
    sums = list(_SUM.finditer(prompt))
    if sums:
        match = sums[-1]
        left, sign, right = int(match.group(1)), match.group(2), int(match.group(3))
        return str({"+": left + right, "-": left - right}.get(sign, left * right))
    capital = re.search(r"capital of (\w+)", prompt, re.IGNORECASE)
    if capital:
        return CAPITALS.get(capital.group(1).lower(), "I do not know.")
    dice = random.Random(f"{prompt}{seed if temperature else ''}")
    return " ".join(dice.choice(WORDS) for _ in range(24)).capitalize() + "."


def tokens(text: str) -> list[str]:
    """Pieces that make up the text again."""
    return re.findall(r"\s*\w{1,6}|\s*[^\w\s]|\s+$", text) or [text]
