# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs of many forms and releases: each failure is named by its class, and no clean log gets a cause."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from ansible_collections.blackwell.sglang.plugins.module_utils.failure_rules import RULES
from ansible_collections.blackwell.sglang.plugins.module_utils.startup_log import diagnose

LOGS = Path(__file__).parent / "logs"
FAILED = yaml.safe_load((LOGS / "failed.yml").read_text(encoding="utf-8"))
CLEAN = sorted((LOGS / "clean").glob("*.log"))


def raw(path: Path) -> str:
    """With its carriage returns."""
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


@pytest.mark.parametrize("entry", FAILED, ids=[entry["id"] for entry in FAILED])
def test_a_failed_start_is_named(entry):
    text = entry.get("log") or raw(LOGS / entry["file"])
    found = diagnose(text)
    assert found.failure_class == entry["class"], found.line
    assert found.line and found.remedy


@pytest.mark.parametrize("path", CLEAN, ids=[path.stem for path in CLEAN])
def test_a_clean_log_has_no_cause(path):
    found = diagnose(raw(path))
    assert found.failure_class == "unknown", found.line


def test_every_rule_has_examples_and_a_source():
    examples = Counter(entry["class"] for entry in FAILED)
    for rule in RULES:
        assert examples[rule.name] >= 3, rule.name
        assert rule.source and rule.remedy.endswith(".")
    assert len(CLEAN) >= 30
