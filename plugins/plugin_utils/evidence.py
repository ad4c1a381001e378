# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was observed of backend combinations, and what follows from it.

The matrix is data (C(evidence/*.yml)): one observation an entry, with its source, contradictions
included. :func:`judge` is a pure function of a combination, a stack of versions and the entries.
"""

from __future__ import annotations

import datetime
import fnmatch
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.blackwell.sglang.plugins.plugin_utils._pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InvalidSpecifier,
    InvalidVersion,
    SpecifierSet,
    ValidationError,
    Version,
    field_validator,
    yaml,
)

Outcome = t.Literal["ok", "garbage", "nan", "wrong", "crash", "oom", "refused", "hang", "slow"]
Depth = t.Literal["loads", "answers", "concurrent", "accuracy"]
DEPTHS = ("loads", "answers", "concurrent", "accuracy")
STACK_PARTS = ("sglang", "flashinfer", "cudnn", "cuda")
# What a combination is made of, beside the architecture. The first two name what is tested.
DIMENSIONS = (
    "moe_backend",
    "gemm_backend",
    "attention_backend",
    "kv_cache_dtype",
    "quantization",
    "tp_size",
    "ep_size",
)
EVIDENCE_DIRECTORY = Path(__file__).resolve().parents[2] / "evidence"


class EvidenceError(Exception):
    """A broken evidence file: file, line and what is wrong."""


class Observation(BaseModel):
    """One observation. What is absent was not stated by its source."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    arch: str = Field(pattern=r"^(sm\d+|cpu)$")
    model: str | None = None
    quantization: str | None = None
    moe_backend: str | None = None
    gemm_backend: str | None = None
    attention_backend: str | None = None
    kv_cache_dtype: str | None = None
    tp_size: int | None = Field(None, ge=1)
    ep_size: int | None = Field(None, ge=1)
    stack: dict[str, str] = {}
    outcome: Outcome
    depth: Depth
    date: datetime.date
    source: str = Field(min_length=3)
    note: str = ""

    @field_validator("stack")
    @classmethod
    def _stack(cls, value: dict[str, str]) -> dict[str, str]:
        for part, specifier in value.items():
            if part not in STACK_PARTS:
                raise ValueError(f"{part!r} is no part of the stack: {', '.join(STACK_PARTS)}")
            try:
                SpecifierSet(specifier)
            except InvalidSpecifier as error:
                raise ValueError(f"{part}: {specifier!r} is no PEP 440 specifier") from error
        return value

    @property
    def bad(self) -> bool:
        return self.outcome != "ok"

    def stated(self) -> dict[str, t.Any]:
        return {name: getattr(self, name) for name in DIMENSIONS if getattr(self, name) is not None}

    def brief(self) -> str:
        what = ", ".join(f"{name}={value}" for name, value in self.stated().items())
        versions = ", ".join(f"{part} {specifier}" for part, specifier in self.stack.items())
        return (
            f"{self.outcome} ({what or 'any backend'}{'; ' + versions if versions else ''}; {self.date}; {self.source})"
        )


@dataclass(frozen=True)
class Combination:
    """What is asked for, as evidence is keyed."""

    arch: str
    model: str
    quantization: str | None
    moe_backend: str
    gemm_backend: str
    attention_backend: str
    kv_cache_dtype: str
    tp_size: int = 1
    ep_size: int = 1

    def but(self, changes: t.Mapping[str, t.Any]) -> Combination:
        return Combination(**{**self.__dict__, **changes})


Stack = t.Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """C(kind) and the entries that decided, the weightiest first; C(because) is the sentence for people."""

    kind: t.Literal["known_good", "known_bad", "conditional", "untested"]
    because: str
    entries: list[Observation] = field(default_factory=list)


def load(directories: t.Sequence[Path] = ()) -> list[Observation]:
    """All entries of our own folder and of C(directories); :class:`EvidenceError` names file and line."""
    entries: list[Observation] = []
    seen: dict[str, Path] = {}
    for directory in (EVIDENCE_DIRECTORY, *directories):
        if not directory.is_dir():
            raise EvidenceError(f"evidence_dirs names {directory}, which is no folder")
        for path in sorted(directory.glob("*.yml")):
            for entry in load_file(path):
                if entry.id in seen:
                    raise EvidenceError(f"{path}: the id {entry.id!r} is also in {seen[entry.id]}")
                seen[entry.id] = path
                entries.append(entry)
    return entries


def load_file(path: Path) -> list[Observation]:
    text = path.read_text(encoding="utf-8")
    try:
        # The C parser, where PyYAML has it, reads ten times as fast.
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise EvidenceError(f"{path}: {error}") from error
    if not isinstance(content, list):
        raise EvidenceError(f"{path}:1: must be a list of observations")
    entries = []
    for number, item in enumerate(content):
        try:
            if not isinstance(item, dict):
                raise TypeError("must be a dictionary")
            entries.append(Observation(**item))
        except (ValidationError, TypeError) as error:
            line = t.cast(t.Any, yaml.compose(text, Loader=yaml.SafeLoader)).value[number].start_mark.line + 1
            if isinstance(error, ValidationError):
                what = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
            else:
                what = str(error)
            raise EvidenceError(f"{path}:{line}: {what}") from error
    return entries


def _contains(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


@dataclass(frozen=True)
class _Match:
    entry: Observation
    versions: int  # parts of the stack that the entry states and that are as it states them
    stated: int  # dimensions that it states
    unknown: tuple[str, ...]  # parts that it states and that we do not know

    @property
    def weight(self) -> tuple[int, int, datetime.date, int, bool]:
        """Specific before general (versions first), newer before older, deeper before shallower, bad on a tie."""
        return (
            self.versions,
            self.stated,
            self.entry.date,
            DEPTHS.index(self.entry.depth),
            self.entry.bad,
        )


def _match(entry: Observation, combination: Combination, stack: Stack) -> _Match | None:
    if entry.arch != combination.arch:
        return None
    if entry.model is not None and not fnmatch.fnmatchcase(combination.model.lower(), entry.model.lower()):
        return None
    stated = entry.stated()
    if any(getattr(combination, name) != value for name, value in stated.items()):
        return None
    if not entry.bad and not {"moe_backend", "gemm_backend"} <= set(stated) and combination.arch != "cpu":
        return None  # a success that does not say with what vouches for nothing
    if not entry.bad and entry.model is None:
        return None  # nor does one that does not say of which model
    known = {part: specifier for part, specifier in entry.stack.items() if part in stack}
    if not all(_contains(specifier, stack[part]) for part, specifier in known.items()):
        return None
    unknown = tuple(part for part in entry.stack if part not in stack)
    return _Match(entry, len(known), len(stated) + (entry.model is not None), unknown)


def _overruled(bad: _Match, certain: t.Sequence[_Match]) -> bool:
    """Does a weightier success speak of everything that the failure speaks of? Silence answers nothing."""
    dimensions = set(bad.entry.stated())
    return any(
        not match.entry.bad and match.weight > bad.weight and dimensions <= set(match.entry.stated())
        for match in certain
    )


def judge(combination: Combination, stack: Stack, entries: t.Iterable[Observation]) -> Verdict:
    """What is known of a combination under a stack of versions. Pure; the order of entries does not matter.

    Entries that state a version which the stack does not name can't decide; if the weightiest of them
    says otherwise than the rest, the verdict is C(conditional) and names the version to look at.
    """
    matches = sorted(
        (match for match in (_match(entry, combination, stack) for entry in entries) if match is not None),
        key=lambda match: (match.weight, match.entry.id),
        reverse=True,
    )
    certain = [match for match in matches if not match.unknown]
    open_ones = [match for match in matches if match.unknown]
    if not certain:
        parts = ", ".join(sorted({part for match in open_ones for part in match.unknown}))
        entries_seen = [match.entry for match in open_ones]
        if any(not match.entry.bad for match in open_ones):
            return Verdict(
                "conditional",
                f"reported good with some versions of {parts}, which are not known here",
                entries_seen,
            )
        return Verdict("untested", "nobody reports this combination", entries_seen)
    standing = [match for match in certain if match.entry.bad and not _overruled(match, certain)]
    if standing:
        return Verdict("known_bad", f"reported {standing[0].entry.brief()}", [match.entry for match in standing])
    deciding = [match.entry for match in certain if not match.entry.bad]
    decisive = deciding[0]
    if combination.arch != "cpu" and "auto" in (combination.moe_backend, combination.gemm_backend):
        return Verdict(
            "conditional", "auto has meant three different backends within a year; name the backend", deciding
        )
    doubts = [match for match in open_ones if match.entry.bad]
    if doubts:
        conditions = "; ".join(doubt.entry.brief() for doubt in doubts)
        return Verdict("conditional", f"good unless {conditions}", [*deciding, *(doubt.entry for doubt in doubts)])
    return Verdict("known_good", f"reported {decisive.brief()}", deciding)


def suggest(combination: Combination, stack: Stack, entries: t.Sequence[Observation]) -> dict[str, t.Any] | None:
    """The changes that lead to the nearest known-good combination, or None if there is none."""
    best: tuple[tuple[t.Any, ...], dict[str, t.Any]] | None = None
    for entry in entries:
        if entry.bad or entry.arch != combination.arch:
            continue
        changes = {
            name: value
            for name, value in entry.stated().items()
            if name not in ("tp_size", "ep_size") and getattr(combination, name) != value
        }
        if judge(combination.but(changes), stack, entries).kind != "known_good":
            continue
        # Fewest changes; then the best tested, the newest, and the name so that the answer is always the same.
        key = (len(changes), -DEPTHS.index(entry.depth), -entry.date.toordinal(), entry.id)
        if best is None or key < best[0]:
            best = (key, changes)
    return best[1] if best else None
