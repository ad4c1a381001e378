# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Call the module again and again while the server starts, and show how far it has come.

A module can't speak before it ends. So it returns whenever there is progress, and this plugin prints one
line for the host and calls it again. If the run is interrupted in between, the server goes on starting.

While one run changes an instance, another waits here; the lock of a run of this controller that is dead is taken over.

Of several nodes that serve one model, each has a worker here. One whose launch failed says so in a file of the run's own
folder, and the others give up too, since they would wait for it until their time is over.
"""

from __future__ import annotations

import os
import socket
import time
import typing as t
from pathlib import Path
from urllib.parse import quote

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

# Longest wait for another run, in seconds. Its lock opens by itself if it does nothing for a minute or two.
WAIT = 900.0
PAUSE = 2.0
# Longest time between two looks at the other nodes, in seconds.
PEERS_WATCH = 2.0


def this_run() -> str:
    """The ansible-playbook process, of which this worker is a child."""
    return f"pid {os.getppid()} on {socket.gethostname()}"


def is_dead(run: str) -> bool:
    """Is it a run of this controller whose process is gone, or waits as a zombie for whoever started it to look?

    Of another controller's runs nothing is known.
    """
    pid, _on, host = run.removeprefix("pid ").partition(" on ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


class Peers:
    """The other nodes of the instance in this run. What one said holds until its next task of this kind."""

    def __init__(self, plan: t.Mapping[str, t.Any], host: str) -> None:
        names = plan.get("node", {}).get("names", [])
        folder = Path(constants.DEFAULT_LOCAL_TMP)
        files = {
            name: folder / quote(f"failed {plan['instance']} {name}", safe=" ") for name in names if len(names) > 1
        }
        self._own = files.pop(host, None)
        self._others = files

    def __bool__(self) -> bool:
        return bool(self._others)

    def say(self, failure: str | None) -> None:
        if self._own is not None and failure is not None:
            self._own.write_text(failure, encoding="utf-8")
        elif self._own is not None:
            self._own.unlink(missing_ok=True)

    def failure(self) -> str | None:
        for name, file in self._others.items():
            if file.exists():
                return f"Node {name} of the instance failed, and none can serve without it. {file.read_text(encoding='utf-8')}"
        return None


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        arguments = {**self._task.args, "run": this_run()}
        host = task_vars["inventory_hostname"]
        peers = Peers(arguments.get("plan") or {}, host)
        if peers:
            arguments.setdefault("watch_seconds", PEERS_WATCH)
        peers.say(None)
        failure: str | None = "It can't be reached any more."
        try:
            result = self._until_told(arguments, task_vars, host, peers)
            failure = str(result.get("msg")) if result.get("failed") else None
        finally:
            if failure is not None:
                peers.say(failure)
        return result

    def _until_told(
        self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any], host: str, peers: Peers
    ) -> dict[str, t.Any]:
        changed, first_diff, told, gives_up_at = False, None, "", time.monotonic() + WAIT
        while True:
            if this_run() != arguments["run"]:
                raise AnsibleError("The run that started this has ended")
            result: dict[str, t.Any] = self._execute_module(
                module_name="blackwell.sglang.sglang_launch", module_args=arguments, task_vars=task_vars
            )
            changed = changed or bool(result.get("changed"))
            first_diff = first_diff or result.get("diff")
            holder = result.get("locked_by")
            if holder and is_dead(holder):
                arguments["steal"] = holder
            elif holder and time.monotonic() < gives_up_at:
                if holder != told:
                    self._display.display(f"{host}: waiting for another run, {holder}")
                    told = holder
                time.sleep(PAUSE)
            elif result.get("failed") or result.get("phase") != "starting" or self._task.check_mode:
                break
            else:
                if result["progress"] != arguments.get("last_progress"):
                    self._display.display(f"{host}: starting, {result['progress']}, {result['seconds']:.0f} s")
                arguments["last_progress"] = result["progress"]
                arguments["activity"] = result["activity"]
                peers_failure = peers.failure()
                if peers_failure is not None:
                    result.update(failed=True, failure_class="peer_failed", msg=peers_failure)
                    break
        result["changed"] = changed
        if first_diff:
            result["diff"] = first_diff
        return result
