# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The look-alike is held against the original: whatever this project relies on must be the same in both.

Both are started by hand, with the same arguments, asked the same and killed the same. The table that is printed
shows what each did; a line that differs fails.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import startup_log
from ansible_collections.blackwell.sglang.plugins.plugin_utils.plan import READ_BACK

from tests.lab import FAST, REPOSITORY, free_port
from tests.real.conftest import REAL

KEY = "sentinel-key-of-the-contract"
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "What is 17 + 25?"}],
    "max_tokens": 8,
    "temperature": 0,
}
ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
OPTIONS = ["--device", "cpu", "--max-total-tokens", "8192", "--max-running-requests", "8", "--enable-metrics"]


class Launched:
    """One server, started without this project's help."""

    def __init__(self, python: Path, model: Path, folder: Path, *more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.folder = folder
        self.model = model
        (folder / "key.yaml").write_text(f'api-key: "{KEY}"\n')
        self.log = folder / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    str(python), "-m", "sglang.launch_server", "--model-path", str(model), "--served-model-name", "tiny",
                    "--port", str(self.port), "--config", str(folder / "key.yaml"), *OPTIONS, *more,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **ENVIRONMENT},
            )  # fmt: skip

    def ask(self, path: str, body: object = None, key: str | None = KEY, raw: bytes | None = None) -> tuple[int, str]:
        """(status, body); status 0 where nothing listens."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def codes_until_ready(self) -> list[int]:
        """What /ready says from the start on, each once."""
        codes: list[int] = []
        while not codes or codes[-1] != 200:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            code = self.ask("/ready")[0]
            codes += [code] if code not in codes else []
            time.sleep(0.02)
        return codes

    def family(self) -> dict[int, str]:
        """Living processes of its session, with their titles."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                stat = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(stat[3]) == self.process.pid and stat[0] != "Z":
                    title = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(directory.name)] = title.strip()
            except OSError:
                continue
        return found

    def end(self, number: int = signal.SIGKILL, title: str | None = None) -> int:
        """Send a signal to the launcher or to a child, and wait for the launcher's exit status."""
        pid = next((pid for pid, name in self.family().items() if name == title), self.process.pid)
        os.kill(pid, number)
        return self.process.wait(timeout=60)

    def gone(self) -> bool:
        deadline = time.monotonic() + 10
        while self.family() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.family()


@pytest.fixture(scope="module", params=["real", "simulated"])
def launch(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "real":
        python, model = REAL / "venv" / "bin" / "python", REAL / "models" / "knows-one"
    else:
        create = [sys.executable, "-m", "simulator", "create", str(folder / "host"), "--set", json.dumps(FAST)]
        subprocess.run(create, cwd=REPOSITORY, check=True)
        python, model = folder / "host" / "venv" / "bin" / "python", folder / "host" / "model"
    started: list[Launched] = []

    def start(*more: str, model: Path = model) -> Launched:
        started.append(Launched(python, model, folder / str(len(started)), *more))
        return started[-1]

    start.name = request.param
    yield start
    for server in started:
        for pid in server.family():
            os.kill(pid, signal.SIGKILL)


def shape(status_and_body: tuple[int, str], *path: object) -> str:
    """The status, and the keys of what lies under the path."""
    status, body = status_and_body
    try:
        value = json.loads(body)
        for step in path:
            value = value[step]
    except (ValueError, LookupError, TypeError):
        return f"{status}, no JSON there"
    return f"{status} {sorted(value)}" if isinstance(value, dict) else f"{status} {value}"


def subset(status_and_body: tuple[int, str], wanted: set[str], *path: object) -> str:
    """The status, and which of the keys that are relied on lie under the path."""
    status, body = status_and_body
    value = json.loads(body)
    for step in path:
        value = value[step]
    return f"{status} {sorted(wanted & set(value))}"


def events(server: Launched) -> list[str]:
    """The kinds of a stream's events, a kind that repeats once."""
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    kinds: list[str] = []
    for line in server.ask("/v1/chat/completions", body)[1].splitlines():
        if not line.startswith("data: "):
            continue
        data = line[6:]
        if data == "[DONE]":
            kind = data
        else:
            event = json.loads(data)
            choice = event["choices"][0] if event["choices"] else None
            if choice is None:
                kind = "usage " + str({"prompt_tokens", "completion_tokens"} <= set(event["usage"]))
            elif choice["finish_reason"]:
                kind = "finish"
            elif choice["delta"].get("role") and not choice["delta"].get("content"):
                kind = "role"
            else:
                kind = "content"
        kinds += [kind] if kinds[-1:] != [kind] else []
    return kinds


def http_surface(server: Launched) -> dict[str, str]:
    """Status codes and the keys that are read by this project."""
    ask, seen = server.ask, {}
    seen["/ready, /health"] = f"{ask('/ready')[0]} {ask('/health')[0]}"
    seen["/v1/models"] = subset(ask("/v1/models"), {"id", "max_model_len", "owned_by"}, "data", 0)
    seen["/v1/models/NOPE"] = shape(ask("/v1/models/NOPE"), "error", "code")
    seen["/server_info"] = subset(ask("/server_info"), {*READ_BACK, "version", "status", "internal_states"})
    seen["/server_info status"] = shape(ask("/server_info"), "status")
    seen["/get_server_info"] = str(ask("/get_server_info")[0])
    seen["/model_info"] = subset(ask("/model_info"), {"model_path", "tokenizer_path", "is_generation"})
    seen["/v1/loads"] = subset(ask("/v1/loads"), {"num_running_reqs", "num_waiting_reqs"}, "loads", 0)
    seen["/get_load, /nothing"] = f"{ask('/get_load')[0]} {ask('/nothing')[0]}"
    seen["/metrics"] = f"{ask('/metrics')[0]} {'sglang:num_running_reqs{' in ask('/metrics')[1]}"
    plain = ask("/v1/chat/completions", CHAT)
    seen["chat"] = subset(plain, {"id", "object", "created", "model", "choices", "usage"})
    seen["chat choice"] = subset(plain, {"index", "message", "logprobs", "finish_reason"}, "choices", 0)
    seen["chat message"] = subset(plain, {"role", "content", "reasoning_content"}, "choices", 0, "message")
    seen["chat usage"] = subset(plain, {"prompt_tokens", "completion_tokens", "total_tokens"}, "usage")
    with_logprobs = ask("/v1/chat/completions", {**CHAT, "logprobs": True})
    seen["chat logprobs"] = subset(with_logprobs, {"token", "logprob"}, "choices", 0, "logprobs", "content", 0)
    seen["chat stream"] = ", ".join(events(server))
    seen["chat, other model"] = shape(ask("/v1/chat/completions", {**CHAT, "model": "other"}), "model")
    seen["chat, no messages"] = str(ask("/v1/chat/completions", {"model": "tiny"})[0])
    seen["chat, no JSON"] = shape(ask("/v1/chat/completions", raw=b"{"))
    body = {"text": "What", "sampling_params": {"max_new_tokens": 4}, "return_logprob": True}
    seen["/generate"] = subset(ask("/generate", body), {"text", "output_ids", "meta_info"})
    for path in ("/ready", "/health", "/metrics", "/v1/models", "/server_info", "/v1/loads"):
        seen[f"{path}, no key"] = str(ask(path, key=None)[0])
    seen["chat, no key"] = shape(ask("/v1/chat/completions", CHAT, key=None))
    return seen


def observe(launch) -> dict[str, str]:
    """All that is relied on, of one of the two."""
    server = launch()
    seen = {"/ready while it starts": str(server.codes_until_ready())}
    seen["titles"] = ", ".join(sorted(name for name in server.family().values() if name.startswith("sglang::")))
    seen["environment of a titled child"] = str(
        b"HF_HUB_OFFLINE" in next(
            Path(f"/proc/{pid}/environ").read_bytes() for pid, name in server.family().items() if name.startswith("sglang::")
        )
    )  # fmt: skip
    seen.update(http_surface(server))
    stages, text = [], ""
    for line in server.log.read_text(errors="replace").splitlines():
        text += line + "\n"
        stage = startup_log.progress(text).stage
        stages += [stage] if stages[-1:] != [stage] and stage not in ("spawned", "cuda_graphs") else []
    seen["milestones of the log"] = ", ".join(stages)
    seen["key in the log"] = str(KEY in text)
    seen["key in a title"] = str(any(KEY in title for title in server.family().values()))
    seen["SIGTERM, idle"] = f"{server.end(signal.SIGTERM)} {server.gone()}"
    seen["its words"] = re.sub(
        r"signum=.*", "", *re.findall(r"SIGTERM received.*", server.log.read_text(errors="replace"))
    )
    for title in ("sglang::scheduler", "sglang::nobody"):
        server = launch()
        server.codes_until_ready()
        who = title if title in server.family().values() else "the launcher"
        seen[f"SIGKILL of {who}"] = f"{server.end(title=title)} {server.gone()}"
    seen["unknown flag"] = str(launch("--no-such-flag", "1").process.wait(timeout=120))
    missing = launch(model=Path("/no/such/checkpoint"))
    seen["no checkpoint"] = (
        f"{missing.process.wait(timeout=120)} {startup_log.diagnose(missing.log.read_text()).failure_class}"
    )
    return seen


OBSERVED: dict[str, dict[str, str]] = {}


def test_observe(launch):
    OBSERVED[launch.name] = observe(launch)


def test_both_are_alike(capsys):
    real, simulated = OBSERVED["real"], OBSERVED["simulated"]
    with capsys.disabled():
        print(f"\n{'what':32} {'':4} the real SGLang 0.5.23 | the simulator, where it differs")
        for what, did in real.items():
            same = simulated.get(what) == did
            print(f"{what:32} {'same' if same else 'NOT':4} {did}{'' if same else f' | {simulated.get(what)}'}")
    assert simulated == real
