# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every way in which the real server refuses to start has its name, and none leaves a process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.lab import REPOSITORY


def spoil_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


SPOILT = {
    "weights_missing": lambda folder: (folder / "model.safetensors").unlink(),
    "weights_mismatch": lambda folder: truncate(folder / "model.safetensors"),
    "unknown_model": lambda folder: spoil_config(folder, architectures=["NopeForCausalLM"]),
    "bad_tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "bad_config": lambda folder: (folder / "config.json").write_text("{"),
}


class Another(BaseHTTPRequestHandler):
    """A server that says yes to everything, as another SGLang would to a warm-up."""

    def do_GET(self):  # noqa: N802
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_words):
        """Not a word."""


def failed(lab, expected, *words):
    run = lab.play("start.yml", *words)
    told = lab.result()
    assert told.get("failure_class") == expected, f"{told}\n{run.out}"
    assert told["cause"] and told["remedy"] and told["log_tail"]
    assert lab.of_the_instance() == {}
    return told


@pytest.mark.parametrize("expected", SPOILT)
def test_a_spoilt_checkpoint(bare, checkpoint, expected):
    SPOILT[expected](checkpoint)
    failed(bare, expected, "-e", f"model_path={checkpoint}")


def test_a_flag_that_it_does_not_know(bare):
    told = failed(bare, "bad_arguments", "-e", json.dumps({"more": ["--no-such-flag", "1"]}))
    assert "--no-such-flag" in told["cause"] and told["exit_text"] == "it exited with status 2"


def test_a_context_longer_than_the_models(bare):
    failed(bare, "bad_arguments", "-e", "context_length=100000")


def test_a_port_that_another_holds(bare):
    """It is tried only after the whole load, and the ready line is printed all the same."""
    with HTTPServer(("127.0.0.1", bare.ports["cpu1"]), Another) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        failed(bare, "port_in_use")
        other.shutdown()


def test_a_launcher_that_is_killed_while_it_starts_leaves_orphans_that_the_next_run_ends(bare):
    first = subprocess.Popen(
        bare.command("../tests/real/start.yml", "-e", f"result={bare.root}/result.json"),
        cwd=REPOSITORY, stdout=subprocess.DEVNULL, env=bare.env(),
    )  # fmt: skip
    while not any("multiprocessing.spawn" in title for title in bare.of_the_instance().values()):
        assert first.poll() is None
        time.sleep(0.2)
    os.kill(bare.launcher("cpu1"), signal.SIGKILL)
    first.wait(timeout=120)
    told = bare.result()
    assert told["exit_text"].startswith("it was ended by SIGKILL"), told
    orphans = bare.of_the_instance()
    assert orphans  # children that are still importing have not yet asked to die with their parent
    assert bare.deploy().rc == 0
    assert not set(orphans) & set(bare.of_the_instance())
