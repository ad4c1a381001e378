# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect the host's variables and make the plan of them, on the controller."""

from __future__ import annotations

import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible.vars.reserved import get_reserved_names
from ansible_collections.blackwell.sglang.plugins.plugin_utils import _pydantic


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("stack",))

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _result, arguments = self.validate_argument_spec(argument_spec={"stack": {"type": "dict", "default": {}}})
        if _pydantic.MISSING:
            raise AnsibleError(_pydantic.MISSING)
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import collect, evidence, plan

        template = self._templar.template
        names = [name for name in task_vars if not name.startswith("ansible_") and name not in get_reserved_names()]
        by_hand = set(load_extra_vars(self._loader)) if context.CLIARGS.get("extra_vars") else set()
        directories = collect.evidence_dirs(task_vars, template)
        try:
            planned = plan.make(
                collect.values(task_vars, template),
                given_names=by_hand.union(names),
                given_by_hand=by_hand,
                ignored=collect.plain(template(task_vars.get("ignore_variables", []))),
                evidence_dirs=directories,
                found_stack=collect.plain(arguments["stack"]),
            )
        except evidence.EvidenceError as error:
            raise AnsibleError(f"The evidence can't be read: {error}") from error
        if not arguments["stack"]:
            for warning in planned.warnings:
                self._display.warning(f"{task_vars['inventory_hostname']}: {warning}")
        if planned.plan is None:
            return collect.refusal(planned.problems)
        return {"changed": False, "plan": planned.plan}
