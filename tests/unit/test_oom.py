# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who sent a SIGKILL, as far as log, kernel and systemd tell."""

from __future__ import annotations

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import oom
from ansible_collections.blackwell.sglang.plugins.module_utils.command import CommandError, Completed

KILL = "[  101.5] Out of memory: Killed process 4711 (sglang::schedul) total-vm:1kB"
OTHER = "[  101.5] Out of memory: Killed process 99 (firefox) total-vm:1kB"


@pytest.mark.parametrize(
    ("log", "kills", "unit", "says", "certain"),
    [
        ("", [KILL], False, "by the kernel's OOM killer ([  101.5]", True),
        ("", [], True, "as systemd saw", True),
        ("Received sigquit from a child process.", [OTHER], False, "by SGLang itself", False),
        ("", None, False, "not known", False),
        ("", [OTHER], False, "somebody else sent it", False),
    ],
)
def test_the_sender_is_told_and_not_guessed(log, kills, unit, says, certain):
    told, sure = oom.sender(log, kills, unit, set())
    assert says in told and sure is certain


def test_a_kill_is_ours_by_pid_too():
    assert oom.is_ours(OTHER, {99}) and not oom.is_ours(OTHER, {100}) and not oom.is_ours("no kill", {99})


def test_the_kernels_log_is_read_or_said_to_be_unreadable(monkeypatch):
    def run(argv, timeout):
        if argv[0] == "journalctl":
            return Completed(tuple(argv), 0, "-- No entries --\n", "", 0.0)
        if fails:
            raise CommandError("denied", "dmesg can't be run")
        return Completed(tuple(argv), 0, KILL + "\n[  1.0] usb\n", "", 0.0)

    monkeypatch.setattr(oom, "run", run)
    fails = False
    assert oom.kernel_kills(0.0, 1.0) == [KILL]
    assert oom.kernel_kills(4e9, 1.0) == [], "older than the start"
    fails = True
    assert oom.kernel_kills(0.0, 1.0) is None
