# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real SGLang on a real GPU: served by the deploy playbook, killed in every way, and cleaned up after.

C(SGLANG_GPU_PYTHON) is a Python that has SGLang for CUDA, C(SGLANG_GPU_MODEL) the checkpoint that knows one answer,
as tests/real/server/model.py makes it. Skipped without them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.device.conftest import GPUS, MEASURED, Device, smi, used
from tests.lab import REPOSITORY, Run, free_port

PYTHON, MODEL = os.environ.get("SGLANG_GPU_PYTHON"), os.environ.get("SGLANG_GPU_MODEL")
ARCHITECTURES = {"9.0": "sm90", "10.0": "sm100", "10.3": "sm103", "12.0": "sm120", "12.1": "sm121"}

pytestmark = pytest.mark.skipif(not (PYTHON and MODEL), reason="SGLANG_GPU_PYTHON and SGLANG_GPU_MODEL are not set")


def play(device: Device, name: str, *words: str) -> Run:
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(device.inventory), name, *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    return Run(done.returncode, done.stdout + done.stderr)


def processes(device: Device) -> dict[int, str]:
    """Living processes in the instance's folder, by an observer of our own."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if (directory / "cwd").readlink() == device.root / "state" / "default":
                title = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if title:
                    found[int(directory.name)] = title
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    version = subprocess.check_output(
        [PYTHON, "-c", "import importlib.metadata as m; print(m.version('sglang'))"], text=True
    )
    made = Device(tmp_path_factory.mktemp("served"))
    made.write(
        model_name="tiny-qwen3",
        model_path=MODEL,
        served_model_name="tiny",
        quantization=None,
        moe_backend=None,
        gemm_backend=None,
        backend_policy="any",
        gpu_arch=ARCHITECTURES[smi("--query-gpu=compute_cap")[0][0]],
        gpu_count=len(GPUS),
        gpus=[GPUS[0]],
        tp_size=1,
        mem_fraction_static=0.5,
        sglang_version=version.strip(),
        sglang_python=PYTHON,
        sglang_state_dir=str(made.root / "state"),
        sglang_supervisor="process",
        sglang_extra_args=["--sampling-backend", "pytorch", "--grammar-backend", "none"],
        smoke_level="quick",
        stop_timeout=30,
        sglang_port=free_port(),
    )
    made.first = play(made, "playbooks/deploy.yml")  # type: ignore[attr-defined]
    yield made
    play(made, "playbooks/teardown.yml")
    made.end()


def deployed(device: Device) -> None:
    start = time.monotonic()
    run = play(device, "playbooks/deploy.yml")
    assert run.rc == 0 and "42" in run.text, run.out
    MEASURED.append(f"deploy over what is left: {time.monotonic() - start:.0f} s")


def test_it_is_brought_to_serving_and_the_second_run_changes_nothing(served):
    assert served.first.rc == 0 and "42" in served.first.text, served.first.out
    info = served.ask("gpu_info", gpus=[GPUS[0]])
    assert {row["role"] for row in info["holders"] if GPUS[0] in row["gpus"]} == {"own"}, info
    MEASURED.append(
        "holders when ready: " + ", ".join(f"{row['command']} {row['used_mib']}" for row in info["holders"])
    )
    before = processes(served)
    run = play(served, "playbooks/deploy.yml")
    assert run.recap("device")["changed"] == 0, run.out
    assert processes(served) == before


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("sglang.launch_server", signal.SIGTERM),
        ("sglang.launch_server", signal.SIGKILL),
        ("sglang::scheduler", signal.SIGKILL),
        ("sglang::scheduler", signal.SIGSTOP),
        ("sglang::detokenizer", signal.SIGKILL),
    ],
)
def test_whatever_is_killed_gpu_reset_leaves_the_gpu_empty(served, victim, number):
    if not processes(served):
        deployed(served)
    os.kill(next(pid for pid, title in processes(served).items() if victim in title), number)
    start = time.monotonic()
    done = served.ask("gpu_reset", gpus=[GPUS[0]], term_timeout=5)
    MEASURED.append(
        f"{victim} {number.name}: cleaned in {time.monotonic() - start:.1f} s, "
        f"ended {[row['command'][:40] for row in done['ended']]}, released {done['release_seconds']}"
    )
    assert used()[GPUS[0]] <= 64 and processes(served) == {}, done
    assert served.ask("gpu_memory_assert", gpus=[GPUS[0]])["used_mib"]


def test_the_orphans_of_a_launcher_killed_while_it_started_are_ended(served):
    """They hold 4 MiB, are not among the compute processes, and are titled like any Python at first."""
    run = subprocess.Popen(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(served.inventory), "playbooks/deploy.yml"],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while len(processes(served)) < 3 or used()[GPUS[0]] == 0:
        assert time.monotonic() < deadline, processes(served)
        time.sleep(0.2)
    os.kill(next(pid for pid, title in processes(served).items() if "sglang.launch_server" in title), signal.SIGKILL)
    out, _ = run.communicate(timeout=200)
    assert run.returncode != 0 and "GPUs are clean" in out, out
    assert processes(served) == {} and used()[GPUS[0]] <= 64
    deployed(served)
