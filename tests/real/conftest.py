# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose server is the real SGLang, on this machine's CPU; its GPUs, which it does not use, are simulated."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.lab import REPOSITORY, Lab

REAL = Path(os.environ.get("REAL") or "~/.cache/blackwell-sglang").expanduser()
KEY = "sentinel-key-of-the-real-server"


class RealLab(Lab):
    """Its variables are those of inventories/cpu, so that what is tested is what is shown to the user."""

    def __init__(self, root: Path, hosts: list[str], **variables) -> None:
        super().__init__(root, hosts, **variables)
        shutil.copytree(REPOSITORY / "inventories" / "cpu" / "group_vars", root / "group_vars")

    def host_vars(self, host: str) -> dict:
        return {"sim_dir": str(self.root / host), "sglang_port": self.ports[host], "stop_timeout": 10, **self.extra}

    def play(self, name: str, *words: str):
        """A play that lies beside the tests."""
        return self.run(f"../tests/real/{name}", "-e", f"result={self.root / 'result.json'}", *words)

    def result(self) -> dict:
        return json.loads((self.root / "result.json").read_text())

    def of_the_instance(self, host: str = "cpu1") -> dict[int, str]:
        """Living processes of the instance, with their titles: what runs in its folder, since a title covers marks."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                stat = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if (directory / "cwd").readlink() == self.root / host / "state" / "default" and stat[0] != "Z":
                    title = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(directory.name)] = title.strip()
            except OSError:
                continue
        return found

    def titled(self, title: str) -> int:
        return next(pid for pid, name in self.of_the_instance().items() if name.startswith(title))

    def end(self) -> None:
        self.pids = lambda host="cpu1": list(self.of_the_instance(host))  # type: ignore[method-assign]
        super().end()


def pytest_collection_modifyitems(items):
    if not (REAL / "venv" / "bin" / "python").exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the real SGLang is not installed: make test-real installs it"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """One host that serves the checkpoint that knows one answer, with an API key; its tests leave it so."""
    made = RealLab(tmp_path_factory.mktemp("real"), ["cpu1"], api_key=KEY)
    made.first = made.deploy()
    assert made.first.rc == 0, made.first.out
    yield made
    made.end()


@pytest.fixture
def bare(tmp_path):
    """One host, nothing running."""
    made = RealLab(tmp_path, ["cpu1"])
    yield made
    made.end()


@pytest.fixture
def checkpoint(tmp_path):
    """A copy of the checkpoint, to be spoilt."""
    return Path(shutil.copytree(REAL / "models" / "knows-one", tmp_path / "checkpoint"))
