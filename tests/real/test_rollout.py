# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolling deploys of simulated hosts behind the real router, under constant load: no request fails, none is cut."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.lab import Lab, free_port, module
from tests.real.conftest import REAL

HOSTS = ["gpu1", "gpu2", "gpu3", "gpu4"]
KEY = "sentinel-key-of-the-whole-fleet"
PER_SECOND = 24


class Fleet(Lab):
    """Four hosts and a router in front of them, which runs on the first one's machine, as all here do."""

    def __init__(self, root) -> None:
        self.router_port, self.metrics_port = free_port(), free_port()
        super().__init__(root, HOSTS, api_key=KEY, rollout_soak=2)

    def host_vars(self, host: str) -> dict:
        return {
            **super().host_vars(host),
            "rollout_worker_url": f"http://127.0.0.1:{self.ports[host]}",
            "rollout_routers": [f"http://127.0.0.1:{self.router_port}"],
            "rollout_router_metrics": [f"http://127.0.0.1:{self.metrics_port}"],
        }

    def groups(self) -> dict:
        router = {
            **super().host_vars(HOSTS[0]),
            "sglang_state_dir": str(self.root / "router"),
            "router_python": str(REAL / "venv" / "bin" / "python"),
            "router_host": "127.0.0.1",
            "router_port": self.router_port,
            "router_metrics_port": self.metrics_port,
            "router_policy": "round_robin",
            "router_workers": [f"http://127.0.0.1:{self.ports[host]}" for host in HOSTS],
            "router_extra_args": ["--worker-startup-check-interval", "1", "--health-check-interval-secs", "5"],
            "router_stop_timeout": 5,
        }
        return {**super().groups(), "routers": {"hosts": {"router": router}}}

    def workers(self) -> dict[str, bool]:
        """Address and health of what the router knows."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.router_port}/workers", headers={"Authorization": f"Bearer {KEY}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return {worker["url"]: worker["is_healthy"] for worker in json.load(response)["workers"]}


class Load:
    """PER_SECOND requests a second through the router, every second one streamed; each must be whole."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self.sent = self.streamed = 0
        self.failures: list[str] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(PER_SECOND)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.began = time.monotonic()
        return self

    def __exit__(self, *_error):
        self._end.set()
        for thread in self._threads:
            thread.join()
        self.seconds = time.monotonic() - self.began

    def _client(self, number: int) -> None:
        """One request a second, at its own moment of it."""
        due = time.monotonic() + number / PER_SECOND
        while not self._end.wait(max(0.0, due - time.monotonic())):
            stream = self.sent % 2 == 0
            self.sent += 1
            self.streamed += stream
            try:
                self._ask(stream)
            except Exception as error:
                self.failures.append(f"{'streamed' if stream else 'whole'}: {error!r}")
            due += 1.0

    def _ask(self, stream: bool) -> None:
        body = {"model": "qwen3.5", "max_tokens": 64, "stream": stream}
        body["messages"] = [{"role": "user", "content": "What is 17 + 25? Answer with the number only."}]
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read().decode()
        if stream:
            assert text.rstrip().endswith("data: [DONE]") and '"finish_reason":"stop"' in text.replace(": ", ":"), text
        else:
            assert "42" in json.loads(text)["choices"][0]["message"]["content"], text


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    router = made.run("router.yml")
    assert router.rc == 0, router.out
    made.first = made.run("rollout.yml")
    yield made
    module(
        made.inventory, "router", "router", state="absent", state_dir=str(made.root / "router"), supervisor="process"
    )
    made.end()


def test_the_fleet_comes_up_behind_the_router_and_the_second_run_changes_nothing(fleet):
    assert fleet.first.rc == 0, fleet.first.out
    assert fleet.workers() == {f"http://127.0.0.1:{port}": True for port in fleet.ports.values()}
    again = fleet.run("rollout.yml")
    assert again.rc == 0 and all(again.recap(host)["changed"] == 0 for host in HOSTS), again.out
    assert "gpu4: as it was" in again.text
    assert fleet.run("router.yml").recap("router")["changed"] == 0


def test_the_routers_key_is_out_of_sight(fleet):
    run = fleet.run("router.yml", "-vvv", "--diff")
    assert run.rc == 0 and KEY not in run.out
    titles = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert b"sglang::router" in b" ".join(titles) and KEY.encode() not in b" ".join(titles)


def test_gpu_reset_leaves_the_router_alone(fleet):
    """Its title is like those of SGLang's own children."""
    host = fleet.root / "gpu1"
    done = module(
        fleet.inventory, "gpu1", "gpu_reset", state_dir=str(host / "other"), nvidia_smi=str(host / "bin" / "nvidia-smi"),
        device_glob=[str(host / "dev" / "nvidia*")], check_mode=True,
    )  # fmt: skip
    assert "sglang::router" not in str(done) and all(fleet.workers().values())


def test_a_rolling_deploy_under_load_fails_no_request(fleet):
    with Load(fleet.router_port) as load:
        time.sleep(2)
        run = fleet.run("rollout.yml", "-e", "context_length=65536")
        time.sleep(2)
    print(f"\n{load.sent} requests in {load.seconds:.0f} s, {load.streamed} streamed, {len(load.failures)} failed")
    assert run.rc == 0, run.out
    assert load.failures == [] and load.sent / load.seconds > 20, load.failures[:5]
    assert len(fleet.workers()) == 4 and all(fleet.workers().values())
    assert "gpu1: deployed" in run.text and "gpu4: deployed" in run.text
    assert all(fleet.ask("/server_info", host, KEY)["context_length"] == 65536 for host in HOSTS)


def test_a_bad_backend_is_stopped_by_the_canary_and_fails_no_request(fleet):
    before = {host: fleet.launcher(host) for host in HOSTS}
    with Load(fleet.router_port) as load:
        run = fleet.run(
            "rollout.yml", "-e", "context_length=65536", "-e", "moe_backend=flashinfer_cutedsl",
            "-e", "backend_policy=any",
        )  # fmt: skip
    print(f"\n{load.sent} requests in {load.seconds:.0f} s, {load.streamed} streamed, {len(load.failures)} failed")
    assert run.rc != 0 and "verdict is garbage" in run.text, run.out
    assert load.failures == [] and load.sent / load.seconds > 20, load.failures[:5]
    assert "gpu1: back on its known good" in run.text
    assert all(f"{host}: not touched" in run.text for host in HOSTS[1:]), run.out
    assert {host: fleet.launcher(host) for host in HOSTS[1:]} == {host: before[host] for host in HOSTS[1:]}
    assert len(fleet.workers()) == 4 and all(fleet.workers().values())
    assert all(fleet.ask("/server_info", host, KEY)["moe_runner_backend"] == "flashinfer_cutlass" for host in HOSTS)


def test_a_batch_that_fails_goes_back_as_a_whole(fleet):
    """The second batch is gpu2 and gpu3; only gpu3 is bad, and gpu2 goes back with it. The canary stays deployed."""
    fleet.fault("gpu3", answers="wrong", only_with="32768")
    run = fleet.run("rollout.yml", "-e", "context_length=32768", "-e", json.dumps({"rollout_serial": [1, 2, "100%"]}))
    assert run.rc != 0, run.out
    lengths = {host: fleet.ask("/server_info", host, KEY)["context_length"] for host in HOSTS}
    assert lengths == {"gpu1": 32768, "gpu2": 65536, "gpu3": 65536, "gpu4": 65536}, run.out
    assert "gpu1: deployed" in run.text and "gpu4: not touched" in run.text, run.out
    assert "gpu2: back on its known good" in run.text and "gpu3: back on its known good" in run.text, run.out
    assert len(fleet.workers()) == 4 and all(fleet.workers().values())
    fleet.fault("gpu3")
    again = fleet.run("rollout.yml", "-e", "context_length=32768")
    assert again.rc == 0 and "gpu1: as it was" in again.text and "gpu3: deployed" in again.text, again.out
