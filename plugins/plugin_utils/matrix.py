# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdicts of every combination of MoE and FP4 GEMM backend under one stack, as rows and columns."""

from __future__ import annotations

import typing as t

from ansible_collections.blackwell.sglang.plugins.plugin_utils import catalogue, evidence, plan
from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import Problem, validate


def make(
    values: t.Mapping[str, t.Any], entries: t.Sequence[evidence.Observation]
) -> tuple[dict[str, t.Any], list[Problem]]:
    """The matrix for the stack, model and other backends that the variables name; or the problems with them.

    Backends are those that evidence of the architecture names and the release takes, and the asked ones.
    """
    deployment, problems, _wrong = validate(values)
    if problems:
        return {}, problems
    release, _warning = catalogue.release_for(deployment.sglang_version)
    stack = plan.stack_of(deployment, release, None)
    asked = plan.combination_of(deployment)

    def names(dimension: str, flag: str) -> list[str]:
        taken = release.flags.get(flag, {}).get("choices", []) if release else []
        known = {getattr(entry, dimension) for entry in entries if entry.arch == asked.arch}
        return sorted({getattr(asked, dimension), *(name for name in known if name in taken)})

    rows, columns = names("moe_backend", "--moe-runner-backend"), names("gemm_backend", "--fp4-gemm-backend")
    cells = [
        _cell(asked.but({"moe_backend": moe, "gemm_backend": gemm}), stack, entries) for moe in rows for gemm in columns
    ]
    return {
        "arch": asked.arch,
        "model": asked.model,
        "quantization": asked.quantization,
        "attention_backend": asked.attention_backend,
        "kv_cache_dtype": asked.kv_cache_dtype,
        "tp_size": asked.tp_size,
        "stack": stack,
        "moe_backends": rows,
        "gemm_backends": columns,
        "cells": cells,
        "asked": {
            **_cell(asked, stack, entries),
            "instead": evidence.suggest(asked, stack, entries),
        },
    }, []


def _cell(
    combination: evidence.Combination, stack: evidence.Stack, entries: t.Sequence[evidence.Observation]
) -> dict[str, t.Any]:
    verdict = evidence.judge(combination, stack, entries)
    return {
        "moe_backend": combination.moe_backend,
        "gemm_backend": combination.gemm_backend,
        "verdict": verdict.kind,
        "outcome": verdict.entries[0].outcome if verdict.entries else None,
        "because": verdict.because,
        "entries": [
            {"id": entry.id, "said": entry.brief(), "note": entry.note, "source": entry.source}
            for entry in verdict.entries
        ],
    }


def table(matrix: t.Mapping[str, t.Any]) -> list[str]:
    """The matrix as lines of text: a row a MoE backend, a column a GEMM backend."""
    words = {"known_good": "good", "conditional": "good if", "untested": "-"}
    cells = {(cell["moe_backend"], cell["gemm_backend"]): cell for cell in matrix["cells"]}

    def word(cell: t.Mapping[str, t.Any]) -> str:
        return words.get(cell["verdict"]) or f"BAD {cell['outcome']}"

    grid = [["moe \\ gemm", *matrix["gemm_backends"]]]
    for moe in matrix["moe_backends"]:
        grid.append([moe, *(word(cells[moe, gemm]) for gemm in matrix["gemm_backends"])])
    widths = [max(len(row[index]) for row in grid) for index in range(len(grid[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in grid]


def explanation(matrix: t.Mapping[str, t.Any]) -> list[str]:
    """Why the asked combination is what it is, in lines of text."""
    asked = matrix["asked"]
    lines = [f"moe {asked['moe_backend']}, gemm {asked['gemm_backend']}: {asked['verdict'].replace('_', ' ')}"]
    lines.append(f"  {asked['because']}")
    for entry in asked["entries"]:
        lines.append(f"  {entry['id']}: {entry['said']}" + (f" {entry['note']}" if entry["note"] else ""))
    if asked["verdict"] != "known_good" and asked["instead"]:
        lines.append("  known good: " + " ".join(f"-e {name}={value}" for name, value in asked["instead"].items()))
    return lines
