# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sweep over combinations of backends: which there are, what became of each, what follows from it. No Ansible.

All that is known of a sweep stands in one file, a JSON object a line, appended by all hosts: what is in it is not run
again. C(kind) is C(found) (how a host was found), C(result), C(skipped) or C(restored).
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import typing as t
from pathlib import Path

from ansible_collections.blackwell.sglang.plugins.plugin_utils import deployment, matrix, plan
from ansible_collections.blackwell.sglang.plugins.plugin_utils._pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    yaml,
)
from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import OptInt, OptStr, Problem, StrList
from ansible_collections.blackwell.sglang.plugins.plugin_utils.evidence import DIMENSIONS, Observation

SHORT = {"moe_backend": "moe", "gemm_backend": "gemm", "attention_backend": "attention", "kv_cache_dtype": "kv"}
# Class of a failed start -> outcome as evidence has it; any other that the server is to blame for is a crash.
OUTCOMES = {
    **dict.fromkeys(
        [
            "kv_pool_too_small",
            "gpu_mem_unbalanced",
            "graph_capture_oom",
            "cuda_oom",
            "host_oom_kill",
            "nccl_buffer_oom",
        ],
        "oom",
    ),
    **dict.fromkeys(["stalled", "start_timeout", "nccl_timeout", "health_timeout"], "hang"),
    **dict.fromkeys(
        ["bad_arguments", "attn_kv_dtype", "torch_build_lacks_sm", "unsupported_arch", "mixed_precision_backend"],
        "refused",
    ),
    "nan_logits": "nan",
}
# Classes that say something of the host or of our variables, and nothing of the backends.
INFRASTRUCTURE = frozenset(
    ["weights_missing", "weights_mismatch", "hub_auth", "unknown_model", "bad_config", "bad_tokenizer", "port_in_use",
     "jit_toolchain", "nvml_mismatch", "gpu_lost", "xid", "superseded"]
)  # fmt: skip
# Verdict of the smoke check -> outcome, where they differ.
VERDICTS = {"empty": "garbage", "error": "crash"}
DEPTHS = {"quick": "answers", "standard": "concurrent", "deep": "accuracy"}


class Sweep(BaseModel):
    """What is swept, and within which bounds. Each field is an Ansible variable."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    sweep_moe_backends: StrList = []
    sweep_gemm_backends: StrList = []
    sweep_attention_backends: StrList = []
    sweep_kv_cache_dtypes: StrList = []
    sweep_campaign: OptStr = None
    sweep_dir: str = Field(min_length=1)
    sweep_every_host: bool = False
    sweep_order: t.Literal["listed", "shortest"] = "listed"
    sweep_budget: OptInt = Field(None, ge=0)
    sweep_combination_budget: OptInt = Field(None, ge=1)
    sweep_hopeless_after: OptInt = Field(None, ge=1)


class Journal:
    """The file with all that is known of a sweep."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / "results.jsonl"

    def lines(self) -> list[dict[str, t.Any]]:
        """All whole lines; one that a killed writer left torn counts for nothing."""
        found = []
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def append(self, entry: t.Mapping[str, t.Any]) -> None:
        """One write, so that lines of several processes do not mix; on disk before it returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" * torn + json.dumps(entry).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def past(self) -> list[Journal]:
        """The journals of earlier sweeps, which lie beside this one; the oldest first."""
        beside = sorted(self.path.parent.parent.glob("*/results.jsonl"), key=lambda path: path.stat().st_mtime)
        return [Journal(path.parent) for path in beside if path.parent.resolve() != self.path.parent.resolve()]


def settings_of(values: t.Mapping[str, t.Any]) -> tuple[Sweep | None, list[Problem]]:
    try:
        return Sweep(**values), []
    except ValidationError as failure:
        problems = []
        for error in failure.errors(include_input=False, include_url=False):
            name = str(error["loc"][0])
            problems.append(Problem(name, values.get(name), deployment.explain(error, values.get(name))))
        return None, problems


def misspelt(given_by_hand: t.Iterable[str]) -> list[Problem]:
    """Variables of a sweep, as their names tell, that it does not have."""
    wrong = sorted(name for name in given_by_hand if name.startswith("sweep_") and name not in Sweep.model_fields)
    return [
        Problem(name, None, f"there is no such variable; there are {', '.join(Sweep.model_fields)}") for name in wrong
    ]


def combinations(
    settings: Sweep, values: t.Mapping[str, t.Any], entries: t.Sequence[Observation]
) -> tuple[list[dict[str, t.Any]], list[Problem]]:
    """The variables that each combination sets: the product of the lists, or what the campaign file says.

    Without either, all backends that evidence names and the release takes.
    """
    if settings.sweep_campaign:
        return _campaign(Path(settings.sweep_campaign))
    moe, gemm = settings.sweep_moe_backends, settings.sweep_gemm_backends
    if not moe or not gemm:
        made, problems = matrix.make(values, entries)
        if problems:
            return [], problems
        moe, gemm = moe or made["moe_backends"], gemm or made["gemm_backends"]
    dimensions = {
        "moe_backend": moe,
        "gemm_backend": gemm,
        "attention_backend": settings.sweep_attention_backends,
        "kv_cache_dtype": settings.sweep_kv_cache_dtypes,
    }
    varied = {name: words for name, words in dimensions.items() if words}
    return [dict(zip(varied, words, strict=True)) for words in itertools.product(*varied.values())], []


def _campaign(path: Path) -> tuple[list[dict[str, t.Any]], list[Problem]]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        return [], [Problem("sweep_campaign", str(path), f"can't be read: {error}")]
    if not isinstance(content, list) or not content or not all(isinstance(item, dict) and item for item in content):
        return [], [Problem("sweep_campaign", str(path), "must be a list of dictionaries of variables")]
    unknown = {name for item in content for name in item if name not in deployment.Deployment.model_fields}
    complaints = deployment.misspelt(unknown, unknown) if unknown else []
    said = {problem.variable for problem in complaints}
    complaints += [Problem(name, None, "there is no such variable") for name in sorted(unknown - said)]
    secret = {name for item in content for name in item if name in deployment.SECRET_VARIABLES - {"sglang_env"}}
    complaints += [Problem(name, None, "is a secret and no matter of a campaign") for name in sorted(secret)]
    return content, complaints


def identify(changes: t.Mapping[str, t.Any]) -> str:
    """The name of a combination, the same every night."""

    def text(value: t.Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    return " ".join(f"{SHORT.get(name, name)}={text(value)}" for name, value in changes.items())


def ordered(listed: t.Sequence[dict[str, t.Any]], settings: Sweep, past: t.Sequence[Journal]) -> list[dict[str, t.Any]]:
    """The combinations as they are to be run; with C(shortest), by the time that each took last, new ones first."""
    if settings.sweep_order == "listed":
        return list(listed)
    took = {line["id"]: line["seconds"] for journal in past for line in journal.lines() if line.get("kind") == "result"}
    return sorted(listed, key=lambda changes: took.get(identify(changes), 0.0))


def hopeless(changes: t.Mapping[str, t.Any], settings: Sweep, lines: t.Sequence[dict[str, t.Any]]) -> str | None:
    """Why not to try it: its MoE backend has not come up with so many others."""
    if settings.sweep_hopeless_after is None or "moe_backend" not in changes:
        return None
    failed = [
        line["id"] for line in lines
        if line["kind"] == "result" and line["depth"] == "loads" and line["outcome"] not in ("ok", None)
        and line["combination"]["moe_backend"] == changes["moe_backend"]
    ]  # fmt: skip
    if len(failed) < settings.sweep_hopeless_after:
        return None
    return f"{changes['moe_backend']} did not come up with {len(failed)} others: {'; '.join(failed)}"


def planned(
    values: t.Mapping[str, t.Any], changes: t.Mapping[str, t.Any], settings: Sweep, **options: t.Any
) -> plan.Planned:
    """The plan of a combination, whatever is known of it, within the budget of one."""
    asked = {**values, **changes, "backend_policy": "any"}
    budget = settings.sweep_combination_budget
    if budget is not None:
        for name in ("launch_timeout", "smoke_timeout"):
            limit = values.get(name, deployment.Deployment.model_fields[name].default)
            asked[name] = min(int(limit), budget)
    return plan.make(asked, **options)


def judge(outcome: str | None, expected: str) -> str:
    """What a result means beside what evidence says: regression, news, expected, new or infrastructure."""
    if outcome is None:
        return "infrastructure"
    if expected == "known_good" and outcome != "ok":
        return "regression"
    if expected == "known_bad" and outcome == "ok":
        return "news"
    return "expected" if expected in ("known_good", "known_bad") else "new"


def result(
    made: t.Mapping[str, t.Any],
    changes: t.Mapping[str, t.Any],
    host: str,
    seconds: float,
    launch: t.Mapping[str, t.Any],
    smoke: t.Mapping[str, t.Any],
    failure: t.Mapping[str, t.Any],
) -> dict[str, t.Any]:
    """One line of the journal, of what the steps returned. C(failure) is what the failed step returned, or empty."""
    failure_class = str(failure.get("failure_class") or failure.get("verdict") or "")
    outcome: str | None
    if not failure:
        outcome, depth = "ok", DEPTHS[made["settings"]["smoke_level"]]
    elif failure.get("failure_class"):
        blameless = failure_class in INFRASTRUCTURE or failure.get("locked_by")
        outcome, depth = None if blameless else OUTCOMES.get(failure_class, "crash"), "loads"
    elif failure.get("verdict"):
        outcome, depth = VERDICTS.get(failure_class, failure_class), "answers"
    elif failure.get("drift"):
        outcome, depth, failure_class = "refused", "loads", "drift"
    else:
        outcome, depth, failure_class = None, "loads", "infrastructure"
    expected = made["evidence"]["verdict"]
    return {
        "kind": "result",
        "id": identify(changes),
        "host": host,
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        **_subject(made),
        "changes": dict(changes),
        "expected": expected,
        "because": made["evidence"]["because"],
        "outcome": outcome,
        "depth": depth,
        "failure_class": failure_class,
        "line": _printable(failure.get("cause") or failure.get("summary") or failure.get("msg") or ""),
        "ready_seconds": launch.get("seconds"),
        "numbers": smoke.get("numbers") or {},
        "judged": judge(outcome, expected),
    }


def skipped(reason: str, values: t.Mapping[str, t.Any], changes: t.Mapping[str, t.Any], host: str) -> dict[str, t.Any]:
    """The line of a combination that is not launched: the release or the rules refuse it, or it is hopeless."""
    asked = {**{name: values.get(name) for name in DIMENSIONS}, **changes}
    return {
        "kind": "skipped",
        "id": identify(changes),
        "host": host,
        "combination": {name: asked[name] for name in DIMENSIONS},
        "changes": dict(changes),
        "line": _printable(reason),
    }


def _printable(text: t.Any) -> str:
    """A line of a log as it may stand in XML, without colours and at a readable length."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))[:1000]


def _subject(made: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What was tried: the combination in full, and on what."""
    return {
        "arch": made["settings"]["gpu_arch"],
        "model": made["settings"]["model_name"],
        "stack": made["stack"],
        "combination": made["combination"],
    }


def observation(line: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """A result as an entry of evidence; None for one that says nothing of the backends."""
    if line["kind"] != "result" or line["outcome"] is None:
        return None
    words = "-".join(str(value) for value in line["changes"].values()).lower()
    name = "".join(
        letter if letter.isalnum() else "-" for letter in f"{line['host']}-{line['at'][:16]}-{words}".lower()
    )
    numbers = line["numbers"]
    told = [line["line"]] if line["line"] else []
    if numbers.get("output_tokens_per_second"):
        told.append(f"{numbers['output_tokens_per_second']} output tokens/s.")
    if numbers.get("ttft_p99"):
        told.append(f"First token {numbers['ttft_p50']} s (p50), {numbers['ttft_p99']} s (p99).")
    entry = {
        "id": name,
        "arch": line["arch"],
        "model": line["model"],
        **{key: value for key, value in line["combination"].items() if value is not None},
        "stack": {part: f"=={version}" for part, version in line["stack"].items()},
        "outcome": line["outcome"],
        "depth": line["depth"],
        "date": line["at"][:10],
        "source": f"own sweep on {line['host']}",
        "note": " ".join(told)[:600],
    }
    Observation(**entry)
    return entry


def report(journal: Journal, nights: int = 30) -> dict[str, t.Any]:
    """Everything that the reports show: the results by weight, the grids, and what earlier sweeps saw."""
    lines = journal.lines()
    results = [line for line in lines if line["kind"] == "result"]
    skipped = [line for line in lines if line["kind"] == "skipped"]
    past: dict[str, list[dict[str, t.Any]]] = {}
    for earlier in journal.past()[-nights:]:
        for line in earlier.lines():
            if line["kind"] == "result":
                past.setdefault(line["id"], []).append({name: line[name] for name in ("at", "outcome", "numbers")})
    weight = ("regression", "infrastructure", "news", "new", "expected")
    results.sort(key=lambda line: (weight.index(line["judged"]), line["id"], line["host"]))
    restored = {line["host"]: line for line in lines if line["kind"] == "restored"}
    return {
        "results": results,
        "skipped": skipped,
        "counts": {word: sum(line["judged"] == word for line in results) for word in weight},
        "restored": list(restored.values()),
        "hosts": sorted({line["host"] for line in lines}),
        "grids": _grids([*results, *skipped]),
        "past": past,
    }


def _grids(lines: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """MoE backends by GEMM backends, a grid for each setting of everything else that was varied."""
    grids: dict[str, dict[str, t.Any]] = {}
    for line in lines:
        rest = {name: value for name, value in line["changes"].items() if name not in ("moe_backend", "gemm_backend")}
        grid = grids.setdefault(identify(rest), {"title": identify(rest), "rows": [], "columns": [], "cells": {}})
        row, column = line["combination"]["moe_backend"], line["combination"]["gemm_backend"]
        if row not in grid["rows"]:
            grid["rows"].append(row)
        if column not in grid["columns"]:
            grid["columns"].append(column)
        grid["cells"].setdefault(row, {}).setdefault(column, []).append(line)
    for grid in grids.values():
        grid["rows"].sort(key=str)
        grid["columns"].sort(key=str)
    return [grids[title] for title in sorted(grids)]
