# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated hosts, and playbooks run against them as an operator runs them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
FAST = {
    "import_seconds": 0.05,
    "load_seconds": 0.2,
    "warmup_seconds": 0.05,
    "release_delay": 0.1,
    "crash_sleep_seconds": 0.3,
}


@dataclass
class Run:
    """What ansible-playbook said."""

    rc: int
    out: str

    def recap(self, host: str = "sim1") -> dict[str, int]:
        line = re.search(rf"^{host} +: (.*)$", self.out, re.MULTILINE)
        assert line, self.out
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line.group(1))}

    @property
    def text(self) -> str:
        """The output with line breaks folded, since YAML breaks long messages anywhere."""
        return re.sub(r"\s+", " ", self.out)


def free_port() -> int:
    """A port below those that outgoing connections get: while a server is down, none of them may take its place."""
    while True:
        port = random.randint(15000, 29000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def module(inventory: Path, host: str, name: str, **arguments) -> dict:
    """One module of the collection on one host; what it returned."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible"), "-i", str(inventory), host,
            "-m", f"blackwell.sglang.{name}", "-a", json.dumps(arguments),
        ],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
        env={**os.environ, "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline"},
    )  # fmt: skip
    return json.loads(done.stdout.partition(" => ")[2])


class Lab:
    """An inventory of simulated hosts in a folder of its own."""

    def __init__(self, root: Path, hosts: list[str], **variables) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.hosts = hosts
        self.ports = {host: free_port() for host in hosts}
        self.inventory = root / "hosts.yml"
        self.extra = variables
        for host in hosts:
            subprocess.run(
                [sys.executable, "-m", "simulator", "create", str(root / host), "--set", json.dumps(FAST)],
                check=True,
                cwd=REPOSITORY,
            )
        self.write_inventory()

    def write_inventory(self, **variables) -> None:
        self.extra.update(variables)
        self.inventory.write_text(yaml.safe_dump(self.groups()))

    def groups(self) -> dict:
        return {"gpu_hosts": {"hosts": {host: self.host_vars(host) for host in self.hosts}}}

    def host_vars(self, host: str) -> dict:
        root = self.root / host
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "nvidia_smi": f"{root}/bin/nvidia-smi",
            "gpu_device_glob": [f"{root}/dev/nvidia*"],
            "sglang_python": f"{root}/venv/bin/python",
            "sglang_supervisor": "process",
            "sglang_state_dir": f"{root}/state",
            "model_path": f"{root}/model",
            "served_model_name": "qwen3.5",
            "sglang_port": self.ports[host],
            "launch_timeout": 60,
            "stall_timeout": 20,
            "stop_timeout": 5,
            "gpu_term_timeout": 2,
            "gpu_release_timeout": 5,
            "command_timeout": 5,
            "smoke_concurrency": 16,
            "smoke_rounds": 2,
            **self.extra,
        }

    def run(self, playbook: str, *words: str, env: dict[str, str] | None = None, cwd: Path = REPOSITORY) -> Run:
        done = subprocess.run(
            self.command(playbook, *words), cwd=cwd, capture_output=True, text=True, timeout=400, env=self.env(env)
        )
        return Run(done.returncode, done.stdout + done.stderr)

    def command(self, playbook: str, *words: str) -> list[str]:
        return [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            str(self.inventory),
            str(REPOSITORY / "playbooks" / playbook),
            *words,
        ]

    def env(self, more: dict[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", **(more or {})}

    def deploy(self, *words: str, **options) -> Run:
        extra = [item for word in words for item in (["-e", word] if not word.startswith("-") else [word])]
        return self.run("deploy.yml", *extra, **options)

    def fault(self, host: str = "sim1", **faults) -> None:
        (self.root / host / "faults.json").write_text(json.dumps(faults))

    def ask(self, path: str, host: str = "sim1", key: str | None = None, body: dict | None = None):
        return json.loads("\n".join(self.lines(path, host, key, body)))

    def lines(self, path: str, host: str = "sim1", key: str | None = None, body: dict | None = None) -> list[str]:
        """The lines of the answer to a GET, or to a POST of C(body), by a client that is not the product's."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[host]}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return [line.decode().rstrip("\n") for line in response]

    def pids(self, host: str = "sim1") -> list[int]:
        """Living processes that have a device file of the host open: an observer of our own, not the product's."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if any(
                    str(link.readlink()).startswith(str(self.root / host / "dev"))
                    for link in (directory / "fd").iterdir()
                ):
                    found.append(int(directory.name))
            except OSError:
                continue
        return sorted(found)

    def used_mib(self, host: str = "sim1") -> list[int]:
        query = [self.root / host / "bin" / "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return [int(line) for line in subprocess.check_output(query, text=True).split()]

    def launcher(self, host: str = "sim1") -> int:
        state = json.loads((self.root / host / "state" / "default" / "process.json").read_text())
        return int(state["pid"])

    def hold(self, gpu: int, *words: str, host: str = "sim1", mib: int = 1500) -> subprocess.Popen:
        """A process of somebody else on a GPU."""
        process = subprocess.Popen(
            [sys.executable, "-m", "simulator", "hold", str(self.root / host), str(gpu), str(mib), *words],
            cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None and process.stdout.readline().strip() == "holding"
        return process

    def end(self) -> None:
        for host in self.hosts:
            for pid in self.pids(host):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
