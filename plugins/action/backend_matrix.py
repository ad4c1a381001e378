# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge every combination of backends under the host's stack, on the controller."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.blackwell.sglang.plugins.plugin_utils import _pydantic


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(())

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        if _pydantic.MISSING:
            raise AnsibleError(_pydantic.MISSING)
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import collect, evidence, matrix

        template = self._templar.template
        directories = collect.evidence_dirs(task_vars, template)
        try:
            entries = evidence.load([Path(directory) for directory in directories])
        except evidence.EvidenceError as error:
            raise AnsibleError(f"The evidence can't be read: {error}") from error
        made, problems = matrix.make(collect.values(task_vars, template), entries)
        if problems:
            return collect.refusal(problems)
        return {
            "changed": False,
            "matrix": made,
            "table": matrix.table(made),
            "explanation": matrix.explanation(made),
        }
