# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a real server: start, read back, prove, nothing the second time, change, every way to die, stop."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
from pathlib import Path

import pytest

from tests.lab import module
from tests.real.conftest import KEY, REAL

QUESTION = "What is 17 + 25? Answer with the number only."


def answer(lab) -> str:
    """The known answer, by a client of our own."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8, "temperature": 0}
    return lab.ask("/v1/chat/completions", host="cpu1", key=KEY, body=body)["choices"][0]["message"]["content"]


def test_it_serves_and_the_second_run_changes_nothing(real):
    assert "42" in answer(real) and "42" in real.first.text
    before = real.of_the_instance()
    run = real.deploy()
    assert run.recap("cpu1")["changed"] == 0, run.out
    assert real.of_the_instance() == before


def test_the_key_is_out_of_sight(real):
    run = real.run("deploy.yml", "-vvv", "--diff")
    info = module(
        real.inventory, "cpu1", "sglang_info", state_dir=f"{real.root}/cpu1/state", supervisor="process", history=20
    )
    assert KEY not in run.out and KEY not in real.first.out and KEY not in str(info)
    for pid, title in real.of_the_instance().items():
        assert KEY not in title
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    state = real.root / "cpu1" / "state" / "default"
    with_key = {
        path.name: path.stat().st_mode & 0o777 for path in state.iterdir() if KEY in path.read_text(errors="replace")
    }
    # SGLang prints all its arguments into its log.
    assert with_key == dict.fromkeys(["secrets.yaml", "known_good.secrets.yaml", "server.log"], 0o600)
    for path in ("/v1/models", "/server_info"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            real.ask(path, host="cpu1")


def test_nonsense_is_called_nonsense_and_not_an_error(real):
    """It knows one answer; every other is made of the words that it was trained with."""
    judged = module(
        real.inventory, "cpu1", "smoke_check", level="standard", concurrency=16, rounds=2, url=f"http://127.0.0.1:{real.ports['cpu1']}",
        model="tiny", api_key_file=f"{real.root}/cpu1/state/default/secrets.yaml",
    )  # fmt: skip
    assert judged["verdict"] in ("wrong", "garbage"), judged
    assert judged["numbers"]["error_rate"] == 0 and judged["numbers"]["ttft_p50"] > 0, judged
    assert judged["numbers"]["output_tokens_per_second"] > 0


def test_a_checkpoint_that_answers_garbage_is_not_served(real):
    run = real.deploy(f"model_path={REAL}/models/knows-none")
    assert run.rc != 0 and ("verdict is garbage" in run.text or "verdict is wrong" in run.text), run.out
    assert "Back on the last known good" in run.text and "42" in answer(real)
    assert real.deploy().recap("cpu1")["changed"] == 0


@pytest.mark.parametrize(
    ("title", "number"),
    [
        ("sglang::scheduler", signal.SIGKILL),  # the launcher notices in a second and ends itself after six
        ("sglang::detokenizer", signal.SIGKILL),  # it lingers for more than a minute, port open, scheduler alive
        ("sglang::scheduler", signal.SIGSTOP),  # nothing ends at all
    ],
)
def test_what_was_hurt_serves_after_the_next_run(real, title, number):
    before = real.of_the_instance()
    os.kill(real.titled(title), number)
    time.sleep(1)
    run = real.deploy("smoke_timeout=30")
    assert run.rc == 0 and run.recap("cpu1")["changed"] > 0, run.out
    assert "42" in answer(real) and not set(before) & set(real.of_the_instance())


def test_a_launcher_that_was_killed_leaves_nothing_behind(real):
    before = real.of_the_instance()
    os.kill(real.launcher("cpu1"), signal.SIGKILL)
    assert real.deploy().rc == 0
    assert "42" in answer(real) and not set(before) & set(real.of_the_instance())


def test_a_change_of_one_argument_is_one_restart(real):
    before = real.launcher("cpu1")
    run = real.deploy("max_running_requests=32")
    assert run.rc == 0 and real.launcher("cpu1") != before, run.out
    info = real.ask("/server_info", host="cpu1", key=KEY)
    assert info["max_running_requests"] == 32


def test_stopping_is_bounded_though_the_servers_own_drain_is_not(real):
    """Its drain waits for the last token of every stream; ours for stop_timeout."""
    got: list[str] = []

    def long_stream():
        body = {
            "text": "the quick brown fox", "stream": True,
            "sampling_params": {"max_new_tokens": 1900, "ignore_eos": True, "temperature": 0},
        }  # fmt: skip
        try:
            got.extend(real.lines("/generate", host="cpu1", key=KEY, body=body))
        except OSError as error:
            got.append(f"cut: {error}")

    client = threading.Thread(target=long_stream)
    client.start()
    while not real.ask("/v1/loads", host="cpu1", key=KEY)["loads"][0]["num_running_reqs"]:
        time.sleep(0.1)
    run = real.run("teardown.yml", "-e", "stop_timeout=1")
    client.join(timeout=30)
    log = (real.root / "cpu1" / "state" / "default" / "server.log").read_text(errors="replace")
    assert run.rc == 0 and real.of_the_instance() == {}, run.out
    assert "Draining requests" in log and "data: [DONE]" not in got
