# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The flags and choices that each SGLang release accepts, and a command line held against them.

C(catalogue/sglang-VERSION.json) is made from the release's own wheel (C(make catalogue VERSION=...)).
"""

from __future__ import annotations

import difflib
import json
import re
import typing as t
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ansible_collections.blackwell.sglang.plugins.plugin_utils._pydantic import InvalidVersion, Version

CATALOGUE_DIRECTORY = Path(__file__).resolve().parents[2] / "catalogue"
_INTEGER = re.compile(r"^-?\d+$")
# human_readable_int of sglang/srt/server_args.py takes 8k, 1M and the like
_READABLE = re.compile(r"^\d+(\.\d+)?[kKmMgG]?i?$")


@dataclass(frozen=True)
class Release:
    """What one release's command line takes, and the versions it pins."""

    version: str
    pins: t.Mapping[str, str]
    flags: t.Mapping[str, t.Mapping[str, t.Any]]


@dataclass(frozen=True)
class Complaint:
    """One word of a command line that the release would not take."""

    flag: str
    value: str | None
    message: str


def versions() -> list[str]:
    """The releases that there is a catalogue of, oldest first."""
    names = [path.stem.removeprefix("sglang-") for path in CATALOGUE_DIRECTORY.glob("sglang-*.json")]
    return sorted(names, key=Version)


@cache
def _read(version: str) -> Release:
    content = json.loads((CATALOGUE_DIRECTORY / f"sglang-{version}.json").read_text(encoding="utf-8"))
    return Release(version, content["pins"], content["flags"])


def release_for(version: str) -> tuple[Release | None, str | None]:
    """The catalogue of C(version), else of the nearest older release with a warning that says so."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return None, f"{version} is no version number"
    older = [known for known in versions() if Version(known) <= wanted]
    if not older:
        return None, f"no catalogue of SGLang {version} or older: flags are not checked"
    release = _read(older[-1])
    if Version(release.version) == wanted:
        return release, None
    return release, f"no catalogue of SGLang {version}: flags are checked against {release.version}"


def successor(flag: str, release: Release) -> str | None:
    """The flag that took the place of one that is gone: the likeliest name that its first release lacked."""
    for version in versions():
        old = _read(version).flags
        if flag in old:
            added = [name for name in release.flags if name not in old]
            close = difflib.get_close_matches(flag, added, n=1, cutoff=0.7)
            return close[0] if close else None
    return None


def _was_known(flag: str, release: Release) -> str | None:
    """The last release before this one that had the flag."""
    for version in reversed(versions()):
        if Version(version) < Version(release.version) and flag in _read(version).flags:
            return version
    return None


def _bad_value(spec: t.Mapping[str, t.Any], value: str) -> str | None:
    if spec.get("choices") and value not in [str(choice) for choice in spec["choices"]]:
        return f"allowed: {', '.join(map(str, spec['choices']))}"
    if spec["type"] == "int" and not _INTEGER.match(value):
        return "must be a whole number"
    if spec["type"] == "human_readable_int" and not _READABLE.match(value):
        return "must be a whole number, or one like 8k"
    if spec["type"] == "float":
        try:
            float(value)
        except ValueError:
            return "must be a number"
    return None


def _words(argv: t.Sequence[str]) -> t.Iterator[tuple[str, list[str]]]:
    """Split a command line into (flag, its values). A word before any flag comes as ('', [word])."""
    flag: str | None = None
    values: list[str] = []
    for word in argv:
        if word.startswith("--"):
            if flag is not None:
                yield flag, values
            name, equals, value = word.partition("=")
            flag, values = name, [value] if equals else []
        elif flag is None:
            yield "", [word]
        else:
            values.append(word)
    if flag is not None:
        yield flag, values


def check(argv: t.Sequence[str], release: Release) -> list[Complaint]:
    """Everything in C(argv) (without the interpreter and module) that the release would not take."""
    found = []
    for flag, values in _words(argv):
        if not flag:
            found.append(Complaint(values[0], None, "is no flag and belongs to none"))
            continue
        spec = release.flags.get(flag)
        if spec is None:
            found.append(Complaint(flag, None, _unknown(flag, release)))
            continue
        several = spec.get("nargs") in ("+", "*")
        if spec["type"] == "flag":
            if values:
                found.append(Complaint(flag, values[0], "takes no value"))
        elif not values:
            if spec.get("nargs") not in ("*", "?"):
                found.append(Complaint(flag, None, "needs a value"))
        elif len(values) > 1 and not several:
            found.append(Complaint(flag, values[1], "takes one value only"))
        else:
            for value in values:
                bad = _bad_value(spec, value)
                if bad:
                    found.append(Complaint(flag, value, bad))
    return found


def _unknown(flag: str, release: Release) -> str:
    last = _was_known(flag, release)
    if last:
        new = successor(flag, release)
        return f"SGLang {release.version} no longer has it ({last} did)" + (f"; its successor is {new}" if new else "")
    longer = sorted(name for name in release.flags if name.startswith(flag) and name != flag)
    if longer:
        return f"is no full name; write {longer[0]}, since an abbreviation breaks when a release adds a flag"
    close = difflib.get_close_matches(flag, release.flags, n=1, cutoff=0.75)
    return f"SGLang {release.version} has no such flag" + (f"; did you mean {close[0]}?" if close else "")
