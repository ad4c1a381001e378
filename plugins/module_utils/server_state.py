# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an instance serves at this moment: one look at process, port, readiness and what is recorded."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils import procfs
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient, HttpError
from ansible_collections.blackwell.sglang.plugins.module_utils.launch import answers, owns_port
from ansible_collections.blackwell.sglang.plugins.module_utils.startup_log import scrub
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState, read_key_file
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import Supervisor, run_of

SERVING, STARTING, STOPPED = "serving", "starting", "stopped"
# Words that SGLang takes for the same thing.
ALIASES = {"bf16": "bfloat16"}


def look(state: InstanceState, server: Supervisor, plan: dict[str, Any] | None) -> dict[str, Any]:
    """C(phase), identity and age of what runs; whether it is the plan; what is recorded as known good.

    The server is asked with the key that it was started with.
    """
    stored, known, previous = (state.read(f"{name}.json") for name in ("plan", "known_good", "previous_good"))
    status = server.status()
    running = status.running
    told = plan or (stored or {}).get("plan")
    result: dict[str, Any] = {
        "phase": STOPPED,
        "pid": None,
        "seconds": None,
        "fingerprint": None,
        "known_good": _promoted(known),
        "previous_good": _promoted(previous),
        "last_plan": _summary(stored["plan"], stored["launched_at"]) if stored else None,
        "exit_text": status.exit_text if stored and running is None else "",
        "url": told["server"]["url"] if told else None,
        "files_changed": False,
    }
    if running is not None:
        result.update(
            phase=STARTING,
            pid=running.pid,
            seconds=round(procfs.age_seconds(running), 1),
            fingerprint=running.fingerprint,
        )
        if told is not None:
            ours = owns_port(procfs.processes_of(server.instance), told["server"]["port"])
            if ours and answers(HttpClient(told["server"]["url"], state.read_key())):
                result["phase"] = SERVING
    if plan is not None:
        before, after = server.files(run_of(plan), plan["settings"]["stop_timeout"])
        result["files_changed"] = before != after
        result["runs_plan"] = running is not None and running.fingerprint == plan["fingerprint"]
        promoted = known is not None and known["plan"]["fingerprint"] == plan["fingerprint"]
        serving = result["phase"] == SERVING
        result["as_planned"] = serving and result["runs_plan"] and promoted and not result["files_changed"]
        # One that was ready and answers no more is busy or broken; it is not starting.
        result["lost"] = result["runs_plan"] and not serving and _was_ready(state, result["seconds"])
        # An interrupted run left the plan's own server starting, or serving but not yet judged.
        young = running is not None and result["seconds"] < plan["settings"]["launch_timeout"] and not result["lost"]
        result["resumable"] = result["runs_plan"] and not result["as_planned"] and (serving or young)
    return result


def _was_ready(state: InstanceState, age: float) -> bool:
    """Was the process, C(age) seconds old, seen ready before?"""
    started = time.time() - age
    return any(entry["event"] == "ready" and entry["at"] >= started for entry in state.history())


def _promoted(known: dict[str, Any] | None) -> dict[str, Any] | None:
    return {**_summary(known["plan"], known["promoted_at"]), "stack": known["stack"]} if known else None


def _summary(plan: dict[str, Any], at: float) -> dict[str, Any]:
    return {
        "fingerprint": plan["fingerprint"],
        "at": at,
        "model": plan["server"]["model"],
        "backends": plan["backends"],
        "stack": plan["stack"],
        "plan": plan,
    }


def drift(expect: dict[str, Any], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Where what the server says it runs is not what was asked. A key that it does not tell counts as drift."""

    def plain(value: Any) -> str:
        return ALIASES.get(str(value), str(value))

    return [
        {"key": key, "asked": asked, "found": found.get(key)}
        for key, asked in sorted(expect.items())
        if plain(found.get(key)) != plain(asked)
    ]


def read_back(plan: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """(drift, SGLang's version) as C(/server_info) tells; HttpError if it does not answer."""
    client = HttpClient(plan["server"]["url"], read_key_file(plan["server"]["api_key_file"]))
    response = client.request("GET", "/server_info", timeout=20)
    if response.status == 404:
        response = client.request("GET", "/get_server_info", timeout=20)
    if response.status != 200:
        raise HttpError("status", f"/server_info answered HTTP {response.status}: {scrub(str(response.body[:200]))}")
    info = response.json()
    if not isinstance(info, dict):
        raise HttpError("broken", "/server_info answered something that is no object")
    return drift(plan["expect"], info), str(info.get("version", "unknown"))
