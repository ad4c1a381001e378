# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring an instance's server to a state: started, promoted, rejected, stopped, absent; and keep its history."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils import launch, oom, procfs, startup_log
from ansible_collections.blackwell.sglang.plugins.module_utils.command import CommandError, run
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient
from ansible_collections.blackwell.sglang.plugins.module_utils.run_lock import RunLock
from ansible_collections.blackwell.sglang.plugins.module_utils.server_state import look
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import Supervisor, account_ids, run_of

# Seconds that a run may let pass between two calls before its lock opens, beside what it told us to expect.
BETWEEN_CALLS = 60.0
CLEANING = 300.0
# A server that was ready and does not answer may be busy: it gets as long as SGLang's own health check (20 s).
PATIENCE = 20.0


class Failed(Exception):
    """A state that was not reached: the message, and C(result) for programs."""

    def __init__(self, message: str, **result: Any) -> None:
        super().__init__(message)
        self.result = result


class Lifecycle:
    """One instance in the hands of one call. C(changed) and C(killed) tell what was done so far."""

    def __init__(
        self,
        plan: dict[str, Any] | None,
        state: InstanceState,
        server: Supervisor,
        lock: RunLock,
        api_key: str | None,
        stop_timeout: float,
        command_timeout: float,
        check_mode: bool,
    ) -> None:
        self.plan = plan or {}
        self.state = state
        self.server = server
        self.lock = lock
        self.api_key = api_key
        self.stop_timeout = stop_timeout
        self.command_timeout = command_timeout
        self.check_mode = check_mode
        self.killed: list[int] = []
        self.changed = False

    def claim(self) -> dict[str, Any]:
        """Keep other runs out, and see whether the plan's own server is there and may go on."""
        if not self.check_mode:
            self.lock.take(CLEANING)
        gives_up_at = time.monotonic() + (0 if self.check_mode else PATIENCE)
        seen = look(self.state, self.server, self.plan)
        while seen["lost"] and time.monotonic() < gives_up_at:
            time.sleep(1)
            seen = look(self.state, self.server, self.plan)
        return {"phase": "claimed", "keep": seen["as_planned"] or seen["resumable"]}

    def start(
        self, anew: bool, activity: dict[str, Any] | None, last_progress: str, watch_seconds: float
    ) -> dict[str, Any]:
        """Make the plan run and watch until there is something to tell. With C(activity), only watch."""
        if activity is not None:
            return self._watch(None, launch.Activity(**activity), last_progress, watch_seconds)
        running = self.server.status().running
        same = running is not None and running.fingerprint == self.plan["fingerprint"]
        stop_timeout = self.plan["settings"]["stop_timeout"]
        before, after = self.server.files(run_of(self.plan), stop_timeout)
        diff = self._diff(running is not None, before, after)
        begin = anew or not same
        self.changed = begin or before != after
        if self.check_mode:
            return {"phase": "ready" if same else "starting", "diff": diff}
        self.lock.take(CLEANING)
        if begin:
            key = self._key()
            self.stop()
            self.changed = True
            self.state.write_key(key, owner=account_ids(self.plan["run"].get("user")))
            self.state.write("plan.json", {"plan": self.plan, "launched_at": time.time()})
            self.server.start(run_of(self.plan), stop_timeout)
        elif before != after:
            self.server.write_files(run_of(self.plan), stop_timeout)
        return self._watch(diff, None, last_progress, watch_seconds)

    def _key(self) -> str | None:
        """The key that was given; for a known good, the key that it was promoted with."""
        if not self.plan["server"]["api_key_file"]:
            return None
        if self.api_key:
            return self.api_key
        for name in ("known_good", "previous_good"):
            known = self.state.read(f"{name}.json")
            if known is not None and known["plan"]["fingerprint"] == self.plan["fingerprint"]:
                key = self.state.read_key(f"{name}.secrets.yaml")
                if key:
                    return key
        raise Failed("The plan needs an API key, and none was given. Set api_key")

    def _diff(self, running: bool, before: str, after: str) -> dict[str, str]:
        """What runs against what is planned, and the unit's text where there is a unit."""
        stored = self.state.read("plan.json") if running else None
        now = stored["plan"]["run"] if stored else {}
        return {
            "before": command_text(now) + before,
            "after": command_text(self.plan["run"]) + after,
            "before_header": f"server of instance {self.plan['instance']} (running)",
            "after_header": f"server of instance {self.plan['instance']} (planned)",
        }

    def _watch(
        self, diff: dict[str, str] | None, activity: launch.Activity | None, last_progress: str, seconds: float
    ) -> dict[str, Any]:
        self.lock.take(seconds + BETWEEN_CALLS)
        settings = self.plan["settings"]
        running = self.server.status().running
        if running is not None and running.fingerprint != self.plan["fingerprint"]:
            raise Failed(
                "Another run has replaced the server while it was starting. Nothing more is done here",
                failure_class="superseded",
            )
        outcome = launch.watch(
            self.server,
            HttpClient(self.plan["server"]["url"], self.state.read_key()),
            self.plan["server"]["port"],
            start_timeout=settings["launch_timeout"],
            stall_timeout=settings["stall_timeout"],
            watch_seconds=seconds,
            activity=activity,
            last_progress=last_progress,
        )
        told = {
            "progress": outcome.progress,
            "seconds": round(outcome.seconds, 1),
            **({"diff": diff} if diff else {}),
        }
        if outcome.phase == launch.STARTING:
            return {"phase": outcome.phase, "pid": self._pid(outcome), "activity": outcome.activity_dict(), **told}
        if outcome.phase == launch.READY:
            self.lock.take(settings["smoke_timeout"] + BETWEEN_CALLS)
            self._note("ready", seconds=round(outcome.seconds, 1))
            return {"phase": outcome.phase, "pid": self._pid(outcome), "activity": outcome.activity_dict(), **told}
        raise self._failure(outcome, told)

    @staticmethod
    def _pid(outcome: launch.Outcome) -> int | None:
        return outcome.status.running.pid if outcome.status.running else None

    def _failure(self, outcome: launch.Outcome, told: dict[str, Any]) -> Failed:
        """Name the cause, end what is left, write it down."""
        stored = self.state.read("plan.json") or {}
        found = launch.explain(outcome, self.plan["settings"])
        exit_text, failure_class, stacks = "", found.failure_class, []
        if outcome.phase == launch.DEAD:
            exit_text = outcome.status.exit_text
            if outcome.status.exit in (-9, 137):
                kills = oom.kernel_kills(stored.get("launched_at", 0.0), self.command_timeout)
                who, certain = oom.sender(outcome.text, kills, outcome.status.oom, set())
                exit_text += f", sent {who}"
                if certain and failure_class in ("unknown", "child_failed_generic"):
                    failure_class = "host_oom_kill"
        else:
            if outcome.phase == launch.STALLED:
                stacks = self._stacks()
            self.stop()
        shown = f" ({exit_text})" if exit_text else ""
        self._note("failed", seconds=round(outcome.seconds, 1), failure_class=failure_class, cause=found.line)
        self.changed = True
        return Failed(
            f"The server did not start: {failure_class} after {outcome.seconds:.0f} s, at stage "
            f"{outcome.progress}. {found.line}{shown}. {found.remedy}",
            failure_class=failure_class,
            cause=found.line,
            remedy=found.remedy,
            exit_text=exit_text,
            log_tail=startup_log.tail(outcome.text, secrets=(self.state.read_key() or "",)) + stacks,
            **told,
        )

    def _stacks(self) -> list[str]:
        """Where the launcher and the first scheduler stand, if the server's environment has py-spy."""
        tool = os.path.join(os.path.dirname(self.plan["run"]["argv"][0]), "py-spy")
        if not os.access(tool, os.X_OK):
            return []
        lines: list[str] = []
        for process in procfs.processes_of(self.server.instance)[:2]:
            try:
                told = run([tool, "dump", "--nonblocking", "--pid", str(process.pid)], self.command_timeout)
            except CommandError as error:
                lines.append(str(error))
                continue
            lines += [f"stack of {process.title}:", *(told.stdout or told.stderr).splitlines()[:20]]
        return lines

    def _note(self, event: str, **more: Any) -> None:
        """One line of history; the same event of the same launch is told once."""
        stored = self.state.read("plan.json")
        plan = stored["plan"] if stored else self.plan
        launched_at = stored["launched_at"] if stored else None
        last = next((entry for entry in reversed(self.state.history()) if entry["event"] == event), None)
        if last is not None and launched_at is not None and last.get("launched_at") == launched_at:
            return
        self.state.note(
            {
                "event": event,
                "at": time.time(),
                "launched_at": launched_at,
                "fingerprint": plan.get("fingerprint"),
                "model": plan.get("server", {}).get("model"),
                "backends": plan.get("backends"),
                "stack": plan.get("stack"),
                **more,
            }
        )

    def stop(self) -> None:
        there, killed = self.server.stop(self.stop_timeout)
        self.killed += killed
        self.changed = self.changed or there

    def end(self, remove: bool) -> dict[str, Any]:
        """Stop; with C(remove) also take away what the supervisor and the secrets left on the host."""
        phase = "absent" if remove else "stopped"
        if self.check_mode:
            there = self.server.status().running is not None or procfs.processes_of(self.server.instance)
            self.changed = bool(there) or (remove and self.server.installed())
            return {"phase": phase}
        self.lock.take(self.stop_timeout + CLEANING)
        self.stop()
        if self.changed:
            self._note("stopped")
        if remove:
            removed = [
                self.server.remove(),
                *(self.state.remove(f"{name}secrets.yaml") for name in ("", "known_good.", "previous_good.")),
                self.state.remove("plan.json"),
            ]
            self.changed = self.changed or any(removed)
            self.lock.release()
        return {"phase": phase}

    def promote(self, stack: dict[str, str]) -> dict[str, Any]:
        """Record what runs as known good, with the versions it ran with. Only the plan that was asked for."""
        running = self.server.status().running
        if running is None or running.fingerprint != self.plan["fingerprint"]:
            raise Failed("The plan that was to be promoted does not run: something stopped or replaced it")
        text, _cursor = self.server.log(None)
        line = startup_log.line_of("nan_logits", text)
        if line:
            raise Failed(f"The answers passed, but the server's log tells of NaN: {line}", verdict="nan")
        known = self.state.read("known_good.json")
        self.changed = known is None or known["plan"]["fingerprint"] != self.plan["fingerprint"]
        if not self.check_mode:
            if self.changed:
                owner = account_ids(self.plan["run"].get("user"))
                if known is not None:  # a rollout that stops later on goes back to it
                    self.state.write_key(self.state.read_key("known_good.secrets.yaml"), "previous_good.secrets.yaml")
                    self.state.write("previous_good.json", known)
                self.state.write_key(self.state.read_key(), "known_good.secrets.yaml", owner)
                self.state.write("known_good.json", {"plan": self.plan, "promoted_at": time.time(), "stack": stack})
            self._note("promoted")
            self.server.settle()
            self.lock.release()
        return {"phase": "promoted", "pid": running.pid}

    def reject(self, failure_class: str, cause: str) -> dict[str, Any]:
        """Write down that what ran failed its proof."""
        if not self.check_mode:
            self._note("rejected", failure_class=failure_class, cause=cause[:500])
        return {"phase": "rejected"}


def command_text(run_plan: dict[str, Any]) -> str:
    """A run as lines that a diff can compare: one flag with its values, or one variable, a line."""
    if not run_plan:
        return ""
    lines, words = [], list(run_plan["argv"])
    while words:
        line = [words.pop(0)]
        while words and not words[0].startswith("--"):
            line.append(words.pop(0))
        lines.append(" ".join(line))
    lines += [f"{key}={value}" for key, value in sorted(run_plan["env"].items())]
    return "\n".join(lines) + "\n"
