# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From Ansible's view of a host's variables to plain values. Knows Ansible's types by their behaviour only."""

from __future__ import annotations

import typing as t

from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import Deployment, listing


def plain(value: t.Any) -> t.Any:
    """Ansible's tagged values as Python's own, which is what pydantic and JSON take."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None if value is None else str(value)


def values(task_vars: t.Mapping[str, t.Any], template: t.Callable[[t.Any], t.Any]) -> dict[str, t.Any]:
    """The variables of a deployment that are set for the host, each with its templates filled in."""
    return {name: plain(template(task_vars[name])) for name in Deployment.model_fields if name in task_vars}


def evidence_dirs(task_vars: t.Mapping[str, t.Any], template: t.Callable[[t.Any], t.Any]) -> list[str]:
    """Folders with the site's own evidence."""
    return [str(folder) for folder in listing(plain(template(task_vars.get("evidence_dirs", []))))]


def refusal(problems: t.Sequence[t.Any]) -> dict[str, t.Any]:
    """A failed result that tells all problems at once."""
    count = len(problems)
    return {
        "changed": False,
        "failed": True,
        "msg": f"{count} problem{'s' if count > 1 else ''} with the variables; nothing was touched.\n"
        + "\n".join(f"- {problem}" for problem in problems),
        "problems": [dict(problem.__dict__) for problem in problems],
    }
