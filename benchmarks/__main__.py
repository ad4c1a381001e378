# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure what is claimed about speed, each as a ratio to a baseline of the same run, on simulated hosts.

    python -m benchmarks

- notice: from a server's death, and from its readiness, to the report; against a play that asks with C(uri) every
  ten seconds, as is usual.
- smoke: the standard smoke check at 64 x 4 against what the server's own delays make necessary.
- no-op: a deploy that changes nothing, against C(ansible -m ping) on the same host.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.lab import REPOSITORY, Lab

sys.path.insert(0, str(REPOSITORY / "collections"))
sys.path.insert(0, str(REPOSITORY / "simulator" / "site"))

from ansible_collections.blackwell.sglang.plugins.module_utils import questions, smoke  # noqa: E402
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient  # noqa: E402
from sglang.model import answer, tokens  # noqa: E402

TOKEN_SECONDS = 0.01
LOAD_SECONDS = 4.0
USUAL = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.uri": {"url": "http://127.0.0.1:{{ port_asked }}/ready"},
                "register": "asked",
                "until": "asked.status | default(0) == 200",
                "retries": 3,
                "delay": 10,
            }
        ],
    }
]


def row(name: str, ours: float, baseline: float, what: str, unit: str = "s") -> None:
    print(f"{name:28} {ours:8.2f} {unit}   {baseline:8.2f} {unit}  {ours / baseline:6.2f} x   {what}", flush=True)


def usual(lab: Lab) -> float:
    """Unix time at which a play that polls is through."""
    playbook = lab.root / "usual.yml"
    playbook.write_text(yaml.safe_dump(USUAL))
    words = ["-i", "localhost,", str(playbook), "-e", f"port_asked={lab.ports['sim1']}"]
    ansible = str(Path(sys.executable).parent / "ansible-playbook")
    subprocess.run([ansible, *words], capture_output=True, env=lab.env(), cwd=REPOSITORY, timeout=120)
    return time.time()


def struck(lab: Lab) -> float:
    return float(json.loads((lab.root / "sim1" / "struck.json").read_text())["at"])


def history(lab: Lab, event: str) -> float:
    lines = (lab.root / "sim1" / "state" / "default" / "history.jsonl").read_text().splitlines()
    return [entry["at"] for entry in map(json.loads, lines) if entry["event"] == event][-1]


def notice(lab: Lab) -> None:
    config = lab.root / "sim1" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "load_seconds": LOAD_SECONDS}))
    for event, fault, name in (("failed", {"exit_at": "cuda_graphs"}, "death"), ("ready", {}, "ready")):
        lab.fault(**fault)
        run = subprocess.Popen(
            lab.command("deploy.yml"), cwd=REPOSITORY, env=lab.env(), stdout=subprocess.PIPE, text=True
        )
        for line in run.stdout or ():
            if "starting, " in line:
                break
        told = usual(lab)
        if run.stdout is not None:
            run.stdout.read()
        run.wait()
        moment = struck(lab) if name == "death" else ready_at(lab)
        row(f"notice of {name}", history(lab, event) - moment, told - moment, "baseline: uri, delay 10, 3 retries")
    lab.fault()


def ready_at(lab: Lab) -> float:
    """When the server itself says that it became ready, to the second of its log, as the file's time is too late."""
    for line in (lab.root / "sim1" / "state" / "default" / "server.log").read_text().splitlines():
        if "fired up and ready" in line:
            return time.mktime(time.strptime(line[1:20], "%Y-%m-%d %H:%M:%S"))
    raise AssertionError("the server never became ready")


def needed(asked: list[questions.Question]) -> list[float]:
    """Seconds that the server's own delay makes each answer take."""
    return [len(tokens(answer(item.prompt, item.seed, item.temperature))) * TOKEN_SECONDS for item in asked]


def smoke_check(lab: Lab) -> None:
    config = lab.root / "sim1" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "token_seconds": TOKEN_SECONDS}))
    least = sum(needed(questions.one_by_one())) + sum(max(needed(questions.at_once(n, 64))) for n in range(4))
    client = HttpClient(f"http://127.0.0.1:{lab.ports['sim1']}")
    result = smoke.check(client, "qwen3.5", "standard", timeout=300, concurrency=64, rounds=4)
    if result["verdict"] != "ok":
        raise AssertionError(result["summary"])
    row("smoke, standard, 64 x 4", result["numbers"]["seconds"], least, "baseline: the server's own delays")
    config.write_text(json.dumps({**json.loads(config.read_text()), "token_seconds": 0.0}))


def no_op(lab: Lab) -> None:
    ping = [
        str(Path(sys.executable).parent / "ansible"),
        "-i",
        str(lab.inventory),
        "gpu_hosts",
        "-m",
        "ansible.builtin.ping",
    ]
    times: dict[str, list[float]] = {"deploy": [], "ping": []}
    for _ in range(3):
        for name, words in (("deploy", lab.command("deploy.yml")), ("ping", ping)):
            began = time.monotonic()
            subprocess.run(words, cwd=REPOSITORY, env=lab.env(), capture_output=True, check=True, timeout=120)
            times[name].append(time.monotonic() - began)
    row("deploy that changes nothing", min(times["deploy"]), min(times["ping"]), "baseline: ansible -m ping")


def main() -> None:
    print(f"{'':28} {'ours':>10}   {'baseline':>10}   {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), ["sim1"], gpus=[0, 1], tp_size=2)
        try:
            notice(lab)
            smoke_check(lab)
            no_op(lab)
        finally:
            lab.end()


if __name__ == "__main__":
    main()
