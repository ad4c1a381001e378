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
    _VALID_ARGS = frozenset(("stack", "evidence_dirs"))

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _result, arguments = self.validate_argument_spec(
            argument_spec={
                "stack": {"type": "dict", "default": {}},
                "evidence_dirs": {"type": "list", "elements": "path", "default": []},
            }
        )
        if _pydantic.MISSING:
            raise AnsibleError(_pydantic.MISSING)
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import deployment, evidence, plan

        names = [name for name in task_vars if not name.startswith("ansible_") and name not in get_reserved_names()]
        by_hand = set(load_extra_vars(self._loader)) if context.CLIARGS.get("extra_vars") else set()
        values = {
            name: _plain(self._templar.template(task_vars[name]))
            for name in deployment.Deployment.model_fields
            if name in task_vars
        }
        try:
            planned = plan.make(
                values,
                given_names=names,
                given_by_hand=by_hand,
                ignored=_plain(self._templar.template(task_vars.get("ignore_variables", []))),
                evidence_dirs=[
                    *arguments["evidence_dirs"],
                    *_plain(self._templar.template(task_vars.get("evidence_dirs", []))),
                ],
                found_stack=_plain(arguments["stack"]),
            )
        except evidence.EvidenceError as error:
            raise AnsibleError(f"The evidence can't be read: {error}") from error
        result: dict[str, t.Any] = {"changed": False}
        if not arguments["stack"]:
            for warning in planned.warnings:
                self._display.warning(f"{task_vars['inventory_hostname']}: {warning}")
        if planned.plan is None:
            count = len(planned.problems)
            return {
                **result,
                "failed": True,
                "msg": f"{count} problem{'s' if count > 1 else ''} with the variables; nothing was touched.\n"
                + "\n".join(f"- {problem}" for problem in planned.problems),
                "problems": [problem.__dict__ for problem in planned.problems],
            }
        return {**result, "plan": planned.plan}


def _plain(value: t.Any) -> t.Any:
    """Ansible's tagged values as Python's own, which is what pydantic and JSON take."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None if value is None else str(value)
