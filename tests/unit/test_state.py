# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state folder: whole files or the old ones, and plain words for the rest."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils.state import MAX_HISTORY, InstanceState, StateError


def test_written_whole_and_read_back(tmp_path):
    state = InstanceState(str(tmp_path), "a")
    assert state.read("plan.json") is None
    state.write("plan.json", {"plan": {"x": 1}})
    assert state.read("plan.json")["plan"] == {"x": 1}
    assert sorted(os.listdir(state.directory)) == ["plan.json"]


def test_a_secret_is_never_readable_by_others(tmp_path):
    state = InstanceState(str(tmp_path), "a")
    state.write_text("secrets.yaml", "api-key: x\n", 0o600)
    assert stat.S_IMODE(os.stat(state.path("secrets.yaml")).st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"schema": 99}', "\x00\x01", '{"schema": 1'])
def test_garbage_is_named_and_left_alone(tmp_path, content):
    state = InstanceState(str(tmp_path), "a")
    state.prepare()
    path = Path(state.path("plan.json"))
    path.write_text(content, encoding="utf-8")
    with pytest.raises(StateError, match="Move it away"):
        state.read("plan.json")
    assert path.read_text(encoding="utf-8") == content


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    state = InstanceState(str(tmp_path), "a")
    state.write("plan.json", {"old": True})

    def no_space(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StateError, match="No space left"):
        state.write("plan.json", {"old": False})
    monkeypatch.undo()
    assert state.read("plan.json")["old"] is True
    assert sorted(os.listdir(state.directory)) == ["plan.json"]


def test_history_keeps_its_last_lines_and_survives_garbage(tmp_path):
    state = InstanceState(str(tmp_path), "default")
    for number in range(MAX_HISTORY + 5):
        state.note({"event": "ready", "at": number})
    assert len(state.history()) == MAX_HISTORY and state.history()[-1]["at"] == MAX_HISTORY + 4
    with open(state.path("history.jsonl"), "a", encoding="utf-8") as file:
        file.write("{half a li")
    state.note({"event": "failed", "at": 0})
    assert state.history()[-1]["event"] == "failed"


def test_a_key_is_read_back_whatever_is_in_it(tmp_path):
    state = InstanceState(str(tmp_path), "default")
    for key in ("plain-key-0123456789", 'quo"te: # \\ {{ x }}', "umläut-0123456789"):
        state.write_key(key)
        assert state.read_key() == key
        assert os.stat(state.path("secrets.yaml")).st_mode & 0o777 == 0o600
    state.write_key(None)
    assert state.read_key() is None
