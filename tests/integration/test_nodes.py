# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts that serve one model together: launched together, judged by the first, and none left alone."""

from __future__ import annotations

import os
import signal
import urllib.error

import pytest

from tests.lab import Lab, free_port

CHAT = {"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 8}


@pytest.fixture
def pair(tmp_path):
    pair = Lab(
        tmp_path, ["sim1", "sim2"],
        sglang_nodes=["sim1", "sim2"], tp_size=16, dist_init_addr=f"127.0.0.1:{free_port()}", backend_policy="any",
    )  # fmt: skip
    yield pair
    pair.end()


def both(run, **expected):
    return all({key: run.recap(host)[key] for key in expected} == expected for host in ("sim1", "sim2"))


def test_two_nodes_serve_one_model(pair):
    run = pair.deploy()
    assert run.rc == 0, run.out
    assert pair.ask("/v1/chat/completions", "sim1", body=CHAT)["choices"][0]["message"]["content"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        pair.ask("/v1/models", "sim2")
    assert pair.ask("/server_info")["nnodes"] == 2
    pids = pair.launcher("sim1"), pair.launcher("sim2")

    again = pair.deploy()
    assert again.rc == 0 and both(again, changed=0), again.out
    assert (pair.launcher("sim1"), pair.launcher("sim2")) == pids

    os.kill(pids[1], signal.SIGKILL)  # at night: the first has all its processes and answers nothing
    mended = pair.deploy("smoke_timeout=5")
    assert mended.rc == 0, mended.out
    assert pair.launcher("sim1") != pids[0] and pair.launcher("sim2") != pids[1]
    assert both(pair.deploy(), changed=0)

    alone = pair.deploy("--limit=sim2", "context_length=8192")
    assert alone.rc != 0 and "Node sim1 of the instance failed or is not in this run" in alone.text
    assert pair.ask("/v1/chat/completions", body=CHAT)

    down = pair.run("teardown.yml")
    assert down.rc == 0 and not pair.pids("sim1") + pair.pids("sim2"), down.out


@pytest.mark.parametrize("victim", ["sim1", "sim2"])
def test_the_death_of_one_is_the_death_of_all_and_both_go_back(pair, victim):
    assert pair.deploy().rc == 0
    pair.fault(victim, kill_at="weights", only_with="8192")
    run = pair.deploy("context_length=8192")
    assert run.rc != 0
    assert f"Node {victim} of the instance failed" in run.text and "SIGKILL" in run.text
    assert run.text.count("Back on the last known good: qwen3.5 at") == 4
    assert pair.ask("/v1/chat/completions", body=CHAT)
    assert both(pair.deploy(), changed=0)


def test_wrong_answers_of_the_first_send_both_back(pair):
    assert pair.deploy().rc == 0
    pair.fault("sim1", answers="garbage", only_with="8192")
    run = pair.deploy("context_length=8192")
    assert run.rc != 0 and run.text.count("Back on the last known good: qwen3.5 at") == 4, run.out
    assert both(pair.deploy(), changed=0)


def test_gpus_that_do_not_get_clean_on_one_node(pair):
    """The other one must not wait at the rendezvous."""
    pair.fault("sim2", residue_mib={"3": 900})
    run = pair.deploy()
    assert run.rc != 0 and "GPU 3" in run.text
    assert not pair.pids("sim1")
