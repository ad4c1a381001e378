# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Call the module again and again while the server starts, and show how far it has come.

A module can't speak before it ends. So it returns whenever there is progress, and this plugin prints one
line for the host and calls it again. If the run is interrupted in between, the server goes on starting.
"""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        arguments = dict(self._task.args)
        name = "blackwell.sglang.sglang_launch"
        result: dict[str, t.Any] = {}
        changed, first_diff = False, None
        while True:
            result = self._execute_module(module_name=name, module_args=arguments, task_vars=task_vars)
            changed = changed or bool(result.get("changed"))
            first_diff = first_diff or result.get("diff")
            if result.get("failed") or result.get("phase") != "starting" or self._task.check_mode:
                break
            if result["progress"] != arguments.get("last_progress"):
                self._display.display(
                    f"{task_vars['inventory_hostname']}: starting, {result['progress']}, {result['seconds']:.0f} s"
                )
            arguments["last_progress"] = result["progress"]
            arguments["activity"] = result["activity"]
        result["changed"] = changed
        if first_diff:
            result["diff"] = first_diff
        return result
