# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run at a time, whatever the clock does, and never for ever."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils.run_lock import LockedError, RunLock
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState


@pytest.fixture
def state(tmp_path):
    return InstanceState(str(tmp_path), "default")


def test_another_run_is_kept_out_until_the_first_lets_go(state):
    first, second = RunLock(state, "pid 1 on a"), RunLock(state, "pid 2 on a")
    first.take(60)
    first.take(60)
    with pytest.raises(LockedError) as locked:
        second.take(60)
    assert locked.value.holder == "pid 1 on a" and 0 < locked.value.seconds <= 60
    second.release()
    with pytest.raises(LockedError):
        second.take(60)
    first.release()
    second.take(60)


def test_the_lock_of_a_run_that_does_nothing_opens_by_itself(state):
    RunLock(state, "pid 1 on a").take(0.05)
    time.sleep(0.1)
    RunLock(state, "pid 2 on a").take(60)


def test_the_lock_of_a_dead_run_is_taken_over(state):
    RunLock(state, "pid 1 on a").take(60)
    RunLock(state, "pid 2 on a", steal="pid 1 on a").take(60)
    with pytest.raises(LockedError):
        RunLock(state, "pid 3 on a", steal="pid 1 on a").take(60)


def test_a_clock_that_jumps_changes_nothing(state, monkeypatch):
    RunLock(state, "pid 1 on a").take(60)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    with pytest.raises(LockedError):
        RunLock(state, "pid 2 on a").take(60)


@pytest.mark.parametrize(
    "content", ["", "{", "null", "[]", '{"run": "x"}', '{"run": "x", "until": "soon", "boot_id": "b"}']
)
def test_a_lock_file_that_says_nothing_or_of_another_boot_is_open(state, content):
    state.prepare()
    with open(state.path("lock"), "w", encoding="utf-8") as file:
        file.write(content)
    RunLock(state, "pid 2 on a").take(60)
    with open(state.path("lock"), encoding="utf-8") as file:
        assert json.load(file)["run"] == "pid 2 on a"


def test_a_call_without_a_run_takes_no_lock(state):
    RunLock(state, None).take(60)
    RunLock(state, "pid 2 on a").take(60)
