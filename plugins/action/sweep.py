# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hand out the combinations of a sweep, and keep its journal, on the controller."""

from __future__ import annotations

import hashlib
import time
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.blackwell.sglang.plugins.plugin_utils import _pydantic


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(
        ("state", "until", "stack", "changes", "plan", "began", "launch", "smoke", "failure", "phase", "ok", "said")
    )

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        if _pydantic.MISSING:
            raise AnsibleError(_pydantic.MISSING)
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import collect, evidence, sweep

        arguments = collect.plain(self._task.args)
        self.host = task_vars["inventory_hostname"]
        template = self._templar.template
        self.values = collect.values(task_vars, template)
        self.directories = collect.evidence_dirs(task_vars, template)
        given = {
            name: collect.plain(template(task_vars[name])) for name in sweep.Sweep.model_fields if name in task_vars
        }
        settings, problems = sweep.settings_of(given)
        if settings is None:
            return collect.refusal(problems)
        self.settings = settings
        self.journal = sweep.Journal(settings.sweep_dir)
        try:
            entries = evidence.load([Path(directory) for directory in self.directories])
        except evidence.EvidenceError as error:
            raise AnsibleError(f"The evidence can't be read: {error}") from error
        listed, problems = sweep.combinations(settings, self.values, entries)
        self.listed = sweep.ordered(listed, settings, self.journal.past())
        state = arguments.pop("state")
        if state == "planned":
            return self._planned(problems)
        told: dict[str, t.Any] = getattr(self, f"_{state}")(**arguments)
        return {"changed": False, **told}

    def _planned(self, problems: list[t.Any]) -> dict[str, t.Any]:
        """Refuse what is wrong whatever the backends are, before anything is touched."""
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import collect, plan, sweep

        base = plan.make({**self.values, "backend_policy": "any"}, evidence_dirs=self.directories)
        by_hand = load_extra_vars(self._loader) if context.CLIARGS.get("extra_vars") else {}
        problems = [*problems, *sweep.misspelt(by_hand), *base.problems]
        if len(self.values.get("sglang_nodes") or []) > 1:
            problems.append(
                sweep.Problem("sglang_nodes", self.values["sglang_nodes"], "a sweep takes hosts that serve alone")
            )
        if problems:
            return collect.refusal(problems)
        done = self._done()
        left = [changes for changes in self.listed if self._key(changes) not in done]
        budget = self.settings.sweep_budget
        if budget == 0:
            left = []
        return {
            "changed": False,
            "plan": base.plan,
            "count": len(self.listed),
            "left": len(left),
            "until": None if budget is None else time.time() + budget,
        }

    def _key(self, changes: dict[str, t.Any]) -> tuple[str, str | None]:
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import sweep

        return sweep.identify(changes), self.host if self.settings.sweep_every_host else None

    def _done(self) -> set[tuple[str, str | None]]:
        every = self.settings.sweep_every_host
        return {
            (line["id"], line["host"] if every else None)
            for line in self.journal.lines()
            if line["kind"] in ("result", "skipped")
        }

    def _mine(self, key: tuple[str, str | None]) -> bool:
        """Is this host the first of this run to ask for it? The run's own folder goes with the run."""
        name = hashlib.sha256(repr((str(self.journal.path), key)).encode()).hexdigest()
        try:
            (Path(constants.DEFAULT_LOCAL_TMP) / f"sweep-{name}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _next(self, until: float | None, stack: dict[str, str]) -> dict[str, t.Any]:
        """The next combination that nobody has tried or is trying, with its plan; none if there is none, or no time."""
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import sweep

        done = self._done()
        for number, changes in enumerate(self.listed, 1):
            if until is not None and time.time() >= until:
                break
            key = self._key(changes)
            if key in done or not self._mine(key):
                continue
            reason = sweep.hopeless(changes, self.settings, self.journal.lines())
            planned = sweep.planned(
                self.values, changes, self.settings, evidence_dirs=self.directories, found_stack=stack
            )
            if reason or planned.plan is None:
                line = sweep.skipped(reason or "; ".join(map(str, planned.problems)), self.values, changes, self.host)
                self.journal.append(line)
                self._display.display(f"{self.host}: {line['id']}: skipped, {line['line']}")
                continue
            self._display.display(f"{self.host}: {number} of {len(self.listed)}, {key[0]}")
            return {"changes": changes, "plan": planned.plan, "began": time.time()}
        return {"changes": None, "plan": None}

    def _recorded(
        self,
        plan: dict[str, t.Any],
        changes: dict[str, t.Any],
        began: float,
        launch: dict[str, t.Any],
        smoke: dict[str, t.Any],
        failure: dict[str, t.Any],
    ) -> dict[str, t.Any]:
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import sweep

        line = sweep.result(plan, changes, self.host, time.time() - began, launch, smoke, failure)
        self.journal.append(line)
        mark = {"regression": " REGRESSION", "news": " NEWS"}.get(line["judged"], "")
        said = f"{line['outcome'] or 'could not be tried'}{mark} after {line['seconds']:.0f} s. {line['line'][:200]}"
        self._display.display(f"{self.host}: {line['id']}: {said}", color="red" if mark else None)
        return {"changed": True, "result": line}

    def _found(self, phase: str) -> dict[str, t.Any]:
        """How the host was before the sweep; a run that goes on with one believes the first."""
        for line in self.journal.lines():
            if line["kind"] == "found" and line["host"] == self.host:
                return {"phase": line["phase"]}
        self.journal.append({"kind": "found", "host": self.host, "phase": phase, "at": time.time()})
        return {"changed": True, "phase": phase}

    def _restored(self, ok: bool, said: str) -> dict[str, t.Any]:
        self.journal.append({"kind": "restored", "host": self.host, "ok": ok, "said": said, "at": time.time()})
        return {"changed": True}

    def _judged(self) -> dict[str, t.Any]:
        from ansible_collections.blackwell.sglang.plugins.plugin_utils import sweep

        done = self._done()
        made = sweep.report(self.journal)
        made["listed"] = len(self.listed)
        made["missing"] = [sweep.identify(changes) for changes in self.listed if self._key(changes) not in done]
        found = (sweep.observation(line) for line in made["results"])
        return {"report": made, "evidence": [entry for entry in found if entry is not None]}
