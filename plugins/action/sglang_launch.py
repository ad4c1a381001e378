# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Call the module again and again while the server starts, and show how far it has come.

A module can't speak before it ends. So it returns whenever there is progress, and this plugin prints one
line for the host and calls it again. If the run is interrupted in between, the server goes on starting.

While one run changes an instance, another waits here; the lock of a run of this controller that is dead is taken over.
"""

from __future__ import annotations

import os
import socket
import time
import typing as t

from ansible.plugins.action import ActionBase

# Longest wait for another run, in seconds. Its lock opens by itself if it does nothing for a minute or two.
WAIT = 900.0
PAUSE = 2.0


def this_run() -> str:
    """The ansible-playbook process, of which this worker is a child."""
    return f"pid {os.getppid()} on {socket.gethostname()}"


def is_dead(run: str) -> bool:
    """Is it a run of this controller whose process is gone? Of another controller's runs nothing is known."""
    pid, _on, host = run.removeprefix("pid ").partition(" on ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        arguments = {**self._task.args, "run": this_run()}
        host = task_vars["inventory_hostname"]
        changed, first_diff, told, gives_up_at = False, None, "", time.monotonic() + WAIT
        while True:
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
        result["changed"] = changed
        if first_diff:
            result["diff"] = first_diff
        return result
