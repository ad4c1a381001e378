# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of a host that can fail before anything is stopped. Each gives a row: what was seen, wanted, and why.

A check never raises and never passes on what it could not read: unknown is C(warn) or C(fail).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.command import CommandError, run
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_clear import sort_holders
from ansible_collections.blackwell.sglang.plugins.module_utils.gpu_state import (
    Owner,
    Snapshot,
    choose,
    observe,
)
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import NvidiaSmi, NvidiaSmiError

OK, WARN, FAIL, SKIPPED = "ok", "warn", "fail", "skipped"
COMPUTE_CAPS = {"sm90": "9.0", "sm100": "10.0", "sm103": "10.3", "sm120": "12.0", "sm121": "12.1"}
MIN_SHM_BYTES = 16 * 2**30
# Distribution -> part of the stack that evidence is keyed by.
DISTRIBUTIONS = {
    "sglang": "sglang",
    "flashinfer-python": "flashinfer",
    "flashinfer-cubin": "flashinfer_cubin",
    "flashinfer-jit-cache": "flashinfer_jit_cache",
    "nvidia-cudnn-cu13": "cudnn",
    "nvidia-cudnn-cu12": "cudnn",
    "torch": "torch",
    "sglang-kernel": "sglang_kernel",
}
_ASK_VERSIONS = """
import importlib.metadata, json, platform
found = {"python": platform.python_version()}
for name in %r:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Row:
    """One check's result. C(status): C(ok), C(warn), C(fail) or C(skipped)."""

    name: str
    status: str
    seen: str
    wanted: str
    why: str = ""
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def sentence(self) -> str:
        return f"{self.name}: seen {self.seen}, wanted {self.wanted}. {self.why}. {self.remedy}".replace("..", ".")


@dataclass(frozen=True)
class Wanted:
    """What the plan needs of the host."""

    instance: str
    owner: Owner
    gpus: list[int]
    gpu_count: int | None
    gpu_arch: str
    exclusive: bool
    device_patterns: list[str]
    port: int
    python: str
    sglang_version: str
    model_path: str
    state_dir: str
    user: str | None
    timeout: float


def check_gpus(wanted: Wanted, smi: NvidiaSmi) -> list[Row]:
    """GPUs there, of the planned architecture, and held by nobody but us."""
    if wanted.gpu_count is None:
        return [Row("gpus", SKIPPED, "not looked at", "none")]
    try:
        snapshot = observe(smi, wanted.device_patterns, wanted.owner, wanted.gpu_count)
        gpus = choose(wanted.gpus, snapshot.gpus)
    except (NvidiaSmiError, ValueError) as error:
        return [Row("gpus", FAIL, str(error), f"{wanted.gpu_count} GPUs that nvidia-smi can read")]
    names = sorted({gpu.name for gpu in snapshot.gpus})
    rows = [Row("gpus", OK, f"{len(snapshot.gpus)} x {', '.join(names)}", f"{wanted.gpu_count} GPUs")]
    rows.append(_architecture(wanted, snapshot, gpus))
    rows.append(_holders(wanted, snapshot, gpus))
    return rows


def _architecture(wanted: Wanted, snapshot: Snapshot, gpus: list[int]) -> Row:
    cap = COMPUTE_CAPS.get(wanted.gpu_arch)
    if cap is None:
        return Row("compute_capability", SKIPPED, "not looked at", f"none for {wanted.gpu_arch}")
    other = [f"GPU {g.index}: {g.compute_cap}" for g in snapshot.gpus if g.index in gpus and g.compute_cap != cap]
    if not other:
        return Row("compute_capability", OK, cap, cap)
    return Row(
        "compute_capability",
        FAIL,
        ", ".join(other),
        cap,
        f"The plan was judged for {wanted.gpu_arch}, and evidence of one architecture says nothing of another",
        "Set gpu_arch to what the host has",
    )


def _holders(wanted: Wanted, snapshot: Snapshot, gpus: list[int]) -> Row:
    _ours, others = sort_holders(snapshot, gpus)
    hidden = f"; {snapshot.hidden} processes hid their open files" if snapshot.hidden else ""
    if not others:
        return Row("gpu_holders", OK, f"no foreign process on GPUs {gpus}{hidden}", "none")
    return Row(
        "gpu_holders",
        WARN if wanted.exclusive else FAIL,
        "; ".join(holder.describe() for holder in others),
        "no foreign process",
        "gpu_exclusive is set, so they will be killed" if wanted.exclusive else "They are not ours to kill",
        ""
        if wanted.exclusive
        else "Stop them yourself, give the instance other GPUs with gpus, or set gpu_exclusive: true "
        "if this host is this instance's alone",
    )


def check_port(wanted: Wanted, _smi: NvidiaSmi) -> list[Row]:
    """SGLang tries its port only after the whole load, so a clash would cost minutes."""
    listening, owners = procfs.listening_pids(wanted.port)
    ours = {process.pid for process in procfs.processes_of(wanted.instance)}
    if not listening or owners & ours:
        return [Row("port", OK, "ours" if listening else "free", f"port {wanted.port} free or ours")]
    named = [procfs.read_process(pid) for pid in sorted(owners)]
    who = "; ".join(f"pid {p.pid} of user {p.user}: {p.title}" for p in named if p is not None)
    return [
        Row(
            "port",
            FAIL,
            f"port {wanted.port} held by {who or 'a process that this user may not see'}",
            "free or ours",
            "SGLang binds it only after the whole load",
            "Set sglang_port to a free one, or stop that process",
        )
    ]


def check_environment(wanted: Wanted, _smi: NvidiaSmi) -> tuple[list[Row], dict[str, str]]:
    """The server's interpreter runs and has the declared SGLang; also the versions found."""
    remedy = "Set sglang_python to the interpreter of the environment that SGLang is installed in"
    try:
        done = run([wanted.python, "-c", _ASK_VERSIONS % (list(DISTRIBUTIONS),)], wanted.timeout)
    except CommandError as error:
        return [Row("environment", FAIL, str(error), "an interpreter", "It starts the server", remedy)], {}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        said = (done.stderr or done.stdout).strip()[-200:]
        return [
            Row(
                "environment",
                FAIL,
                f"{wanted.python} ended with {done.rc}: {said}",
                "an interpreter",
                "",
                remedy,
            )
        ], {}
    versions = {DISTRIBUTIONS[name]: version for name, version in found.items() if name in DISTRIBUTIONS}
    rows = [Row("environment", OK, f"Python {found.get('python')} at {wanted.python}", "an interpreter")]
    sglang = versions.get("sglang")
    if sglang is None:
        rows.append(Row("sglang_version", FAIL, "no sglang package", wanted.sglang_version, "Nothing to start", remedy))
    elif sglang.split("+")[0] != wanted.sglang_version:
        rows.append(
            Row(
                "sglang_version",
                FAIL,
                sglang,
                wanted.sglang_version,
                "Flags and known-good backends were judged for the declared release",
                "Set sglang_version to what is installed, or install what is declared",
            )
        )
    else:
        rows.append(Row("sglang_version", OK, sglang, wanted.sglang_version))
    rows.append(_flashinfer_agreement(versions))
    return rows, versions


def _flashinfer_agreement(versions: dict[str, str]) -> Row:
    """A JIT cache or cubins of another FlashInfer give kernels of another FlashInfer."""
    parts = {
        name: re.split(r"[+]", versions[name])[0]
        for name in ("flashinfer", "flashinfer_cubin", "flashinfer_jit_cache")
        if name in versions
    }
    if not parts:
        return Row("flashinfer", SKIPPED, "not installed", "one version")
    seen = ", ".join(f"{name} {version}" for name, version in parts.items())
    if len(set(parts.values())) == 1:
        return Row("flashinfer", OK, seen, "one version")
    return Row(
        "flashinfer",
        FAIL,
        seen,
        "one version",
        "Mixed parts run kernels that were never tested together (flashinfer issue 4549)",
        "Install the parts at one version and wipe the JIT cache",
    )


def check_model(wanted: Wanted, _smi: NvidiaSmi) -> list[Row]:
    if not wanted.model_path.startswith("/"):
        return [
            Row(
                "model",
                WARN,
                f"{wanted.model_path} is a hub id",
                "a folder on the host",
                "Whether it is there shows only at launch",
            )
        ]
    config = os.path.join(wanted.model_path, "config.json")
    try:
        with open(config, encoding="utf-8") as file:
            json.load(file)
    except (OSError, ValueError) as error:
        return [
            Row(
                "model",
                FAIL,
                f"{config}: {error}",
                "a readable checkpoint",
                "A launch would find out only after the old server is stopped",
                "Set model_path, or copy the checkpoint there",
            )
        ]
    return [Row("model", OK, wanted.model_path, "a readable checkpoint")]


def check_state_dir(wanted: Wanted, _smi: NvidiaSmi) -> list[Row]:
    """The state folder, or the nearest folder above it that exists, can be written to and has room."""
    path = wanted.state_dir
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    if not os.access(path, os.W_OK | os.X_OK):
        return [
            Row(
                "state_dir",
                FAIL,
                f"{path} is not writable for this user",
                wanted.state_dir,
                "State and log are kept there",
                "Set sglang_state_dir, or become root",
            )
        ]
    try:
        room = os.statvfs(path)
    except OSError as error:
        return [Row("state_dir", FAIL, f"{path}: {error}", wanted.state_dir)]
    free = room.f_bavail * room.f_frsize // 2**20
    if free < 64:
        return [
            Row(
                "state_dir",
                FAIL,
                f"{free} MiB free at {path}",
                "64 MiB",
                "State could not be written",
                "Free space there",
            )
        ]
    return [Row("state_dir", OK, f"{free} MiB free", "64 MiB")]


def check_shared_memory(wanted: Wanted, _smi: NvidiaSmi) -> list[Row]:
    try:
        room = os.statvfs("/dev/shm")
    except OSError as error:
        return [
            Row(
                "dev_shm",
                WARN,
                str(error),
                "16 GiB",
                "NCCL and the ranks share memory there",
                "Mount a tmpfs at /dev/shm",
            )
        ]
    size = room.f_blocks * room.f_frsize
    return [
        Row(
            "dev_shm",
            OK if size >= MIN_SHM_BYTES else WARN,
            f"{size / 2**30:.1f} GiB",
            "16 GiB",
            "NCCL and the ranks share memory there (rtx6kpro wiki: 8 to 16 GiB)",
            "Enlarge the tmpfs at /dev/shm",
        )
    ]


CHECKS: tuple[Callable[[Wanted, NvidiaSmi], Any], ...] = (
    check_gpus,
    check_port,
    check_environment,
    check_model,
    check_state_dir,
    check_shared_memory,
)


def check_all(wanted: Wanted, smi: NvidiaSmi) -> tuple[list[Row], dict[str, str]]:
    """All rows, and the versions found in the server's environment."""
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for check in CHECKS:
        result = check(wanted, smi)
        if isinstance(result, tuple):
            result, versions = result
        rows += result
    return rows, versions
