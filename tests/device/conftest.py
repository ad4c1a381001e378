# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real NVIDIA GPUs of this machine, one or more. Nothing is reset and no setting is changed; without GPUs all is skipped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lab

HOLDER = Path(__file__).with_name("holder.py")
MEASURED: list[str] = []


def smi(query: str) -> list[list[str]]:
    """Rows of nvidia-smi, asked by hand."""
    out = subprocess.check_output(["nvidia-smi", query, "--format=csv,noheader,nounits"], text=True)
    return [[word.strip() for word in line.split(",")] for line in out.splitlines()]


GPUS = [int(row[0]) for row in smi("--query-gpu=index")] if shutil.which("nvidia-smi") else []


def used() -> list[int]:
    return [int(row[0]) for row in smi("--query-gpu=memory.used")]


def pytest_collection_modifyitems(items):
    if not GPUS:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


def pytest_terminal_summary(terminalreporter):
    if MEASURED:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(MEASURED))


class Device:
    """This machine as the host of a playbook, and what holds its GPUs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inventory = root / "hosts.yml"
        self.held: list[subprocess.Popen] = []
        self.write()

    def write(self, **variables) -> None:
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **variables}
        self.inventory.write_text(json.dumps({"gpu_hosts": {"hosts": {"device": host}}}))

    def ask(self, name: str, **arguments) -> dict:
        """One of the modules that look at GPUs, for an instance of this test alone."""
        return lab.module(self.inventory, "device", name, state_dir=str(self.root / "state"), **arguments)

    def hold(self, gpu: int, mib: int, *words: str, instance: str | None = None) -> subprocess.Popen:
        command = [sys.executable, str(HOLDER), str(gpu), str(mib), *words]
        mark = {"BLACKWELL_SGLANG_INSTANCE": str(self.root / "state" / instance)} if instance else None
        return self.start(command, mark)

    def start(self, command: list[str], more: dict[str, str] | None = None) -> subprocess.Popen:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(more or {})}, start_new_session=True
        )
        self.held.append(process)
        process.first_line = process.stdout.readline()  # type: ignore[attr-defined, union-attr]
        assert process.first_line, f"{command} told nothing"
        return process

    def end(self) -> None:
        for process in self.held:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()


@pytest.fixture
def device(tmp_path):
    made = Device(tmp_path)
    yield made
    made.end()
