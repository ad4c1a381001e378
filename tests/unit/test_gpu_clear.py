# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose process it is, and what is ended for it. No GPU, no process: snapshots go in, decisions come out."""

from __future__ import annotations

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_clear import ClearError, clear
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import (
    FOREIGN,
    OWN,
    PROTECTED,
    SELF,
    STRAY,
    Holder,
    Owner,
    Snapshot,
    choose,
    combine,
)
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import ComputeApp, Gpu

OWNER = Owner("/var/lib/sglang/default", "sglang-default.service")


def gpu(index: int, used: int = 0) -> Gpu:
    return Gpu(index, f"GPU-{index}", f"00000000:{index + 1:02x}:00.0", "RTX", "580", 97887, used, "12.0")


def process(pid: int, **fields) -> procfs.Process:
    return procfs.Process(
        **{
            "pid": pid,
            "ppid": 1,
            "session": pid,
            "state": "S",
            "start_ticks": 1,
            "cpu_ticks": 0,
            "rss_pages": 0,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "role"),
    [
        ({"instance": "/var/lib/sglang/default", "cmdline": "python -c from multiprocessing.spawn"}, OWN),
        ({"cgroup": "0::/system.slice/sglang-default.service", "cmdline": "sglang::scheduler_TP0"}, OWN),
        ({"cmdline": "sglang::scheduler_TP3", "ppid": 1}, STRAY),
        ({"cmdline": "/opt/sglang/bin/python -m sglang.launch_server --model-path /m"}, STRAY),
        ({"cmdline": "/opt/sglang/bin/sglang serve --model-path /m"}, STRAY),
        ({"instance": "/var/lib/sglang/other", "cmdline": "sglang::scheduler_TP0"}, FOREIGN),
        ({"cmdline": "sglang::scheduler_TP0", "cgroup": "0::/docker/0123456789abcdef"}, FOREIGN),
        ({"cmdline": "python train.py"}, FOREIGN),
        ({"cmdline": "/usr/bin/nvidia-persistenced --verbose", "comm": "nvidia-persiste"}, PROTECTED),
        ({"cmdline": "nv-hostengine", "comm": "nv-hostengine"}, PROTECTED),
        ({"cmdline": "python ansible module"}, SELF),
    ],
)
def test_roles(fields, role):
    seen = process(77, **fields)
    assert OWNER.role_of(seen, {77} if role == SELF else set(), None) == role


def test_both_sources_are_joined_and_minor_numbers_mapped():
    gpus = [gpu(0), gpu(1)]
    minors = {"0000:01:00.0": 1, "0000:02:00.0": 0}  # /dev/nvidia0 is the GPU that nvidia-smi calls 1
    holders = combine(
        gpus,
        [ComputeApp("GPU-0", 5, "x", 100)],
        {6: {"/dev/nvidia0", "/dev/nvidiactl"}, 7: {"/dev/nvidia-uvm"}},
        minors,
    )
    assert {pid: holder.gpus for pid, holder in holders.items()} == {5: {0}, 6: {1}, 7: set()}


def test_choose_names_absent_gpus():
    assert choose([], [gpu(0), gpu(1)]) == [0, 1]
    with pytest.raises(ValueError, match=r"\[7\]"):
        choose([0, 7], [gpu(0)])


class World:
    """GPUs whose memory goes when the holders are gone, a few looks later."""

    def __init__(self, holders: list[Holder], looks_until_free: int = 2) -> None:
        self.holders, self.ended, self.looks = holders, [], looks_until_free

    def observe(self) -> Snapshot:
        busy = {index for holder in self.holders for index in holder.gpus}
        if not self.holders and self.looks > 0:
            self.looks -= 1
            busy = {0}
        return Snapshot([gpu(index, 80000 if index in busy else 0) for index in range(8)], list(self.holders), 0)

    def end(self, targets, term_timeout, kill_timeout):
        self.ended += [target.pid for target in targets]
        self.holders = [holder for holder in self.holders if holder.pid not in self.ended]
        return [], []

    def clear(self, gpus=range(8), exclusive=False, release_timeout=5.0):
        return clear(
            self.observe, list, list(gpus), exclusive, 64, 0.0, release_timeout, end=self.end, sleep=lambda _s: None
        )


def holder(pid: int, role: str, *gpus: int) -> Holder:
    return Holder(pid, process(pid), role, set(gpus))


def test_own_and_stray_are_ended_and_the_memory_is_waited_for():
    world = World([holder(10, OWN, 0), holder(11, STRAY, 3), holder(12, OWN)])
    result = world.clear()
    assert sorted(world.ended) == [10, 11, 12]
    assert result.changed and set(result.release_seconds) == set(range(8)) and set(result.used_mib.values()) == {0}


def test_a_foreign_holder_on_the_last_gpu_stops_everything():
    world = World([holder(10, OWN, 0), holder(666, FOREIGN, 7)])
    with pytest.raises(ClearError, match="pid 666") as error:
        world.clear()
    assert error.value.kind == "foreign_holder" and world.ended == []


def test_a_foreign_holder_elsewhere_is_left_alone():
    world = World([holder(10, OWN, 0), holder(666, FOREIGN, 7)])
    with pytest.raises(ClearError):
        world.clear(gpus=range(8))
    result = World([holder(10, OWN, 0), holder(666, FOREIGN, 7), holder(11, STRAY, 6)])
    result.clear(gpus=range(4))
    assert result.ended == [10]


def test_exclusive_ends_the_foreign_but_never_the_protected():
    world = World([holder(666, FOREIGN, 7), holder(2, PROTECTED, 0)])
    world.looks = 0
    world.observe = lambda: Snapshot([gpu(i) for i in range(8)], list(world.holders), 0)
    world.clear(exclusive=True)
    assert world.ended == [666]


def test_residue_without_a_process_is_named():
    with pytest.raises(ClearError, match="GPU 0 still has 80000 MiB.*No process") as error:
        World([], looks_until_free=10**9).clear(release_timeout=0.05)
    assert error.value.kind == "not_released"


def test_a_holder_that_is_restarted_again_and_again_is_named():
    world = World([holder(10, OWN, 0)])
    world.end = lambda *_: ([], [])
    with pytest.raises(ClearError, match="something restarts them"):
        world.clear(release_timeout=0.05)


def test_what_survives_sigkill_is_named():
    world = World([holder(10, OWN, 0)])
    world.end = lambda targets, *_: ([10], list(targets))
    with pytest.raises(ClearError, match="SIGKILL did not end pid 10") as error:
        world.clear()
    assert error.value.kind == "unkillable"


def test_a_process_that_only_nvidia_smi_sees_is_no_success():
    world = World([Holder(4242, None, FOREIGN, {1})])
    with pytest.raises(ClearError, match="another PID namespace"):
        world.clear(exclusive=True, release_timeout=0.05)
