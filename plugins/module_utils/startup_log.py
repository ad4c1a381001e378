# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a server's log: how far the start has come, and what it died of.

Text in, value out. Rules are for the kind of failure, not for one line of one release: prefixes,
colours, progress bars and interleaved ranks are taken off first. A first cause beats its consequences, and
a complaint that the server lived through is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.blackwell.sglang.plugins.module_utils.failure_rules import (
    BENIGN,
    GOES_ON,
    RULES,
    STOPPED,
    Rule,
)

CONSEQUENCE = 2  # rules of this rank and above
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GLUED = re.compile(r"(?<=[^\s])(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")  # a line that began behind a progress bar
_PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]\s*")
_SECRET = re.compile(
    r"(?i)((?:admin[-_])?api[-_]key['\"]?\s*[:=]?\s*|hf_token['\"]?\s*[:=]\s*|bearer\s+)('[^']*'|\"[^\"]*\"|[^\s,})]+)"
)
_HF_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")

# Stage -> what the log says when it begins. Texts of 0.5.9 to 0.5.23; the ready line is in all of them.
STAGES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("arguments", re.compile(r"server_args=")),
    ("distributed", re.compile(r"Init (torch distributed|parallel) begin")),
    (
        "weights",
        re.compile(r"Load weight begin|Loading safetensors checkpoint shards|Multi-thread loading shards"),
    ),
    ("memory_pool", re.compile(r"Load weight end|(Mamba|KV) Cache is allocated")),
    ("cuda_graphs", re.compile(r"Capture .*cuda graph.* begin|Capturing batches", re.IGNORECASE)),
    ("http", re.compile(r"max_total_num_tokens=|Uvicorn running on|Application startup complete")),
    ("ready", re.compile(r"The server is fired up and ready to roll!")),
)
_SHARDS = re.compile(
    r"(?:Loading safetensors checkpoint shards|Multi-thread loading shards):\s+(\d+)% Completed \| (\d+)/(\d+)"
)


@dataclass(frozen=True)
class Progress:
    """How far the start has come. C(shards) is (loaded, of) while the weights load."""

    stage: str
    shards: tuple[int, int] | None

    def __str__(self) -> str:
        if self.stage == "weights" and self.shards:
            return f"weights {self.shards[0]}/{self.shards[1]} shards"
        return self.stage


@dataclass(frozen=True)
class Diagnosis:
    """What the log says the server died of: the class, its decisive line, and one sentence of what to do."""

    failure_class: str
    line: str
    remedy: str


def lines_of(text: str) -> list[str]:
    """The log's lines: colours off, what a carriage return overwrote counted as lines of its own."""
    plain = _GLUED.sub("\n", _ANSI.sub("", text).replace("\r", "\n"))
    return [line.strip() for line in plain.split("\n") if line.strip()]


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Take out API keys and hub tokens: known values, and whatever follows their names."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "********")
    return _HF_TOKEN.sub("********", _SECRET.sub(lambda match: match.group(1) + "********", text))


def progress(text: str) -> Progress:
    """The furthest stage that the log shows; C(spawned) before it says anything."""
    stage, shards = -1, None
    for line in lines_of(text):
        for number, (_name, pattern) in enumerate(STAGES):
            if number > stage and pattern.search(line):
                stage = number
        for match in _SHARDS.finditer(line):
            shards = (int(match.group(2)), int(match.group(3)))
    return Progress(STAGES[stage][0] if stage >= 0 else "spawned", shards)


def diagnose(text: str) -> Diagnosis:
    """Name the first cause in the log; class C(unknown) with the last line if no rule knows it."""
    best: tuple[int, int, Rule, str] | None = None
    last = ""
    for number, line in enumerate(lines_of(text)):
        if "server_args=" in line or BENIGN.search(line):
            continue  # the dump of all arguments holds half of all keywords
        last = line
        if best is not None and best[0] >= CONSEQUENCE and GOES_ON.search(line):
            best = None
        if STOPPED.search(line):
            break
        for rule in RULES:
            if best is not None and (rule.rank, number) >= best[:2]:
                continue
            if rule.pattern.search(line):
                best = (rule.rank, number, rule, line)
    if best is None:
        return Diagnosis("unknown", scrub(_PREFIX.sub("", last))[:500], "Read the end of the log.")
    return Diagnosis(best[2].name, scrub(_PREFIX.sub("", best[3]))[:500], best[2].remedy)


def line_of(name: str, text: str) -> str | None:
    """The first line that the rule C(name) knows, scrubbed; None if there is none."""
    patterns = [rule.pattern for rule in RULES if rule.name == name]
    for line in lines_of(text):
        if "server_args=" not in line and not BENIGN.search(line) and any(p.search(line) for p in patterns):
            return scrub(_PREFIX.sub("", line))[:500]
    return None


def tail(text: str, lines: int = 20, secrets: tuple[str, ...] = ()) -> list[str]:
    """The last lines, scrubbed and cut to 300 characters each; the dump of all arguments is left out."""
    kept = [line for line in lines_of(text) if "server_args=" not in line]
    return [scrub(line, secrets)[:300] for line in kept[-lines:]]
