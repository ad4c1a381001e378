# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules say of real GPUs and their holders, and what they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.device.conftest import GPUS, MEASURED, smi, used

MIB = 20_000
LAST = GPUS[-1] if GPUS else 0


def seconds_to_release(kill, gpu: int) -> float:
    """From the kill until nvidia-smi says that nothing is held."""
    start = time.monotonic()
    kill()
    while used()[gpu] > 64:
        assert time.monotonic() - start < 100, used()
    return round(time.monotonic() - start, 2)


def test_gpu_info_says_what_nvidia_smi_says(device):
    info = device.ask("gpu_info")
    seen = smi("--query-gpu=index,uuid,name,memory.total,compute_cap,driver_version")
    told = [
        [g["index"], g["uuid"], g["name"], g["memory_total_mib"], g["compute_cap"], g["driver_version"]]
        for g in info["gpus"]
    ]
    assert [[str(word) for word in row] for row in told] == seen
    assert all(gpu["memory_used_mib"] <= 64 and gpu["holders"] == [] for gpu in info["gpus"]), info


def test_a_wrong_number_of_gpus_is_an_error(device):
    assert device.ask("gpu_info", gpu_count=len(GPUS) + 1)["error_kind"] == "gpu_missing"


def test_a_holder_is_found_and_named(device):
    holder = device.hold(LAST, MIB)
    info = device.ask("gpu_info")
    (found,) = [row for row in info["holders"] if row["pid"] == holder.pid]
    assert found["role"] == "foreign" and found["gpus"] == [LAST] and "holder.py" in found["command"], found
    assert found["used_mib"] >= MIB and f"/dev/nvidia{LAST}" in found["devices"], found
    MEASURED.append(f"a holder of {MIB} MiB: compute-apps {found['used_mib']} MiB, memory.used {used()[LAST]} MiB")
    failed = device.ask("gpu_memory_assert", timeout=1)
    assert failed["error_kind"] == "gpu_not_clean" and f"GPU {LAST}" in failed["msg"], failed


def test_a_foreign_holder_is_not_killed(device):
    holder = device.hold(GPUS[0], MIB)
    refused = device.ask("gpu_reset")
    assert refused["error_kind"] == "foreign_holder" and str(holder.pid) in refused["msg"], refused
    assert holder.poll() is None and used()[GPUS[0]] > MIB


@pytest.mark.parametrize("words", [[], ["--ignore-sigterm"]])
def test_its_own_holder_is_ended_and_the_memory_comes_back(device, words):
    other = device.hold(GPUS[0], 500, instance="other")
    assert device.ask("gpu_reset")["error_kind"] == "foreign_holder"
    other.kill()
    other.wait()
    holder = device.hold(LAST, MIB, *words, instance="default")
    done = device.ask("gpu_reset", term_timeout=2)
    assert done["changed"] and [row["pid"] for row in done["ended"]] == [holder.pid], done
    assert done["killed"] == ([holder.pid] if words else [])
    assert used()[LAST] <= 64 and not device.ask("gpu_reset")["changed"]
    assert device.ask("gpu_memory_assert")["used_mib"]
    MEASURED.append(f"gpu_reset of {MIB} MiB {words}: released {done['release_seconds']} s after the kill")


def test_an_exclusive_host_ends_whatever_holds_its_gpus(device):
    holder = device.hold(GPUS[0], MIB, "--ignore-sigterm")
    done = device.ask("gpu_reset", exclusive=True, term_timeout=1)
    assert done["killed"] == [holder.pid] and used()[GPUS[0]] <= 64, done


def test_a_child_that_holds_nothing_but_unified_memory_is_found(device):
    if not Path("/dev/nvidia-uvm").exists():
        pytest.skip("no /dev/nvidia-uvm here")
    holder = device.hold(GPUS[0], 0, instance="default")
    (found,) = [row for row in device.ask("gpu_info")["holders"] if row["pid"] == holder.pid]
    assert found["role"] == "own" and found["gpus"] == [] and found["devices"] == ["/dev/nvidia-uvm"], found
    assert [row["pid"] for row in device.ask("gpu_reset")["ended"]] == [holder.pid]


def test_how_long_the_driver_takes(device):
    for mib in (1_000, MIB, 60_000):
        for number in (signal.SIGTERM, signal.SIGKILL):
            holder = device.hold(LAST, mib)
            seconds = seconds_to_release(lambda: holder.send_signal(number), LAST)  # noqa: B023
            holder.wait()
            MEASURED.append(f"{mib} MiB, {number.name}: {seconds} s until nvidia-smi says 0")
    start = time.monotonic()
    for _ in range(20):
        used()
    MEASURED.append(f"one nvidia-smi query of {len(GPUS)} GPUs: {(time.monotonic() - start) / 20 * 1000:.0f} ms")


def with_torch() -> str | None:
    """A Python that has torch with CUDA."""
    for python in (os.environ.get("SGLANG_GPU_PYTHON"), sys.executable, shutil.which("python3")):
        if (
            python
            and subprocess.run([python, "-c", "import torch; torch.cuda.init()"], capture_output=True).returncode == 0
        ):
            return python
    return None


@pytest.mark.skipif(len(GPUS) < 2, reason="needs two GPUs or more")
def test_the_instances_gpus_are_cleared_and_the_others_left_alone(device):
    """A tensor parallel group, orphaned, on the first half; somebody else on the second."""
    python = with_torch()
    if python is None:
        pytest.skip("no Python with torch")
    half = max(2, len(GPUS) // 2) if len(GPUS) > 2 else 1
    mine, theirs = GPUS[:half], GPUS[half:]
    mark = {"BLACKWELL_SGLANG_INSTANCE": str(device.root / "state" / "default")}
    group = device.start([python, str(Path(__file__).with_name("group.py")), ",".join(map(str, mine)), str(MIB)], mark)
    pids = {int(gpu): pid for gpu, pid in json.loads(group.first_line).items()}
    others = {gpu: device.hold(gpu, MIB) for gpu in theirs}
    group.wait()

    info = device.ask("gpu_info")
    for gpu, pid in pids.items():
        (found,) = [row for row in info["holders"] if row["pid"] == pid]
        assert gpu in found["gpus"] and found["role"] == "own", found
    failed = device.ask("gpu_memory_assert", gpus=mine, timeout=1)
    assert all(f"GPU {gpu}" in failed["msg"] for gpu in mine), failed

    done = device.ask("gpu_reset", gpus=mine, term_timeout=2)
    assert set(pids.values()) <= {row["pid"] for row in done["ended"]}, done
    if len(mine) > 1:
        assert pids[mine[1]] in done["killed"], done
    assert all(used()[gpu] <= 64 for gpu in mine)
    assert all(holder.poll() is None and used()[gpu] > MIB for gpu, holder in others.items())
    assert device.ask("gpu_memory_assert", gpus=mine)["used_mib"]
    whole = device.ask("gpu_memory_assert", timeout=1)
    assert all(f"GPU {gpu}" in whole["msg"] for gpu in theirs), whole
    MEASURED.append(f"a group on {len(mine)} GPUs of {MIB} MiB each: {done['release_seconds']} s after the last kill")
