# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: sglang_launch
short_description: Start, watch and stop an SGLang server
version_added: 0.1.0
description:
  - Brings the server that a plan describes up and watches process, own port, log and health together. It
    returns within a second of ready or of death, and names the cause of death with the line that proves it.
  - While it waits, the controller shows for each host how far the start has come. An interrupted wait does not
    end the server; the next run picks it up where it is.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes
  - blackwell.sglang.instance
options:
  state:
    description:
      - V(started) makes the plan run. Another plan's server is stopped first; the same plan's is left as it is.
      - V(restarted) starts anew in any case.
      - V(promoted) records the running plan as known good and, under systemd, lets restarts begin.
      - V(stopped) ends every process of the instance.
      - V(absent) also removes the unit and the secrets; state and logs stay.
    type: str
    choices: [started, restarted, promoted, stopped, absent]
    default: started
  api_key:
    description: Key that clients must send. Written to a file that only the server's user can read.
    type: str
  stop_timeout:
    description: Seconds for the server to drain before it is killed. SGLang's own drain has no bound.
    type: float
    default: 120.0
  watch_seconds:
    description:
      - Longest time that one call waits on the host. The action plugin calls again until the start is over.
      - Used by the action plugin.
    type: float
    default: 20.0
  activity:
    description:
      - Signs of life that the call before saw. A call that is given them only watches and never starts anything.
      - Used by the action plugin.
    type: dict
  last_progress:
    description: Progress that the call before told. Used by the action plugin.
    type: str
    default: ""
"""
EXAMPLES = r"""
- name: Start what the plan says
  blackwell.sglang.sglang_launch:
    plan: "{{ serve_plan.plan }}"
    api_key: "{{ api_key | default(omit) }}"

- name: Stop the instance
  blackwell.sglang.sglang_launch:
    state: stopped
    instance: default
"""
RETURN = r"""
phase:
  description: V(ready), V(starting) (as one call may return it), V(promoted), V(stopped) or V(absent).
  returned: success
  type: str
pid:
  description: Process id of the launcher.
  returned: while it runs
  type: int
progress:
  description: How far the start has come.
  returned: for V(started) and V(restarted)
  type: str
seconds:
  description: Age of the server's process.
  returned: for V(started) and V(restarted)
  type: float
activity:
  description: Signs of life, for the next call.
  returned: for V(started) and V(restarted), unless it failed
  type: dict
killed:
  description: PIDs that needed SIGKILL.
  returned: when something was stopped
  type: list
  elements: int
failure_class:
  description: Class of the failure, such as V(cuda_oom), V(bad_arguments), V(stalled), V(start_timeout).
  returned: when the start failed
  type: str
cause:
  description: The decisive line of the log.
  returned: when the start failed
  type: str
remedy:
  description: What to do, in one sentence.
  returned: when the start failed
  type: str
exit_text:
  description: How the process ended.
  returned: when it died
  type: str
log_tail:
  description: End of the log, without secrets.
  returned: when the start failed
  type: list
  elements: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils import launch, procfs, startup_log
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient
from ansible_collections.blackwell.sglang.plugins.module_utils.instance import INSTANCE_OPTIONS, open_instance
from ansible_collections.blackwell.sglang.plugins.module_utils.state import StateError
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import (
    SupervisorError,
    account_ids,
    secrets_text,
)


class Launcher:
    """The instance's server, brought to the state that was asked for."""

    def __init__(self, module):
        self.module = module
        self.plan = module.params["plan"]
        self.state, self.server = open_instance(module.params)
        self.stop_timeout = module.params["stop_timeout"]
        self.killed = []
        self.changed = False

    def exit(self, **result):
        self.module.exit_json(changed=self.changed, killed=self.killed, **result)

    def diff(self):
        """What runs against what is planned, and the unit's text where there is a unit."""
        stored = self.state.read("plan.json")
        running = self.server.status().running
        now = (stored or {}).get("plan", {}).get("run", {}) if running else {}
        unit_before, unit_after = self.server.files(self.plan["run"], self.plan["settings"]["stop_timeout"])
        return {
            "before": command_text(now) + unit_before,
            "after": command_text(self.plan["run"]) + unit_after,
            "before_header": f"server of instance {self.plan['instance']} (running)",
            "after_header": f"server of instance {self.plan['instance']} (planned)",
        }

    def start(self, anew):
        if self.module.params["activity"] is not None:
            self.watch(None)  # a start is under way: a server that died meanwhile is told, not started again
        running = self.server.status().running
        same = running is not None and running.fingerprint == self.plan["fingerprint"]
        before, after = self.server.files(self.plan["run"], self.plan["settings"]["stop_timeout"])
        diff = self.diff()
        begin = anew or not same
        self.changed = begin or before != after
        if self.module.check_mode:
            self.exit(phase="ready" if same else "starting", diff=diff)
        if begin:
            self.stop()
            self.changed = True
            self.write_secrets()
            self.state.write("plan.json", {"plan": self.plan, "launched_at": time.time()})
            environment = {**self.plan["run"]["env"], procfs.FINGERPRINT_MARK: self.plan["fingerprint"]}
            self.server.start({**self.plan["run"], "env": environment}, self.plan["settings"]["stop_timeout"])
        elif before != after:
            self.server.write_files(self.plan["run"], self.plan["settings"]["stop_timeout"])
        self.watch(diff)

    def write_secrets(self):
        key = self.module.params["api_key"]
        if key:
            owner = account_ids(self.plan["run"].get("user"))
            self.state.write_text("secrets.yaml", secrets_text(key), 0o600, owner)
        else:
            self.state.remove("secrets.yaml")

    def watch(self, diff):
        params, settings = self.module.params, self.plan["settings"]
        outcome = launch.watch(
            self.server,
            HttpClient(self.plan["server"]["url"], params["api_key"]),
            self.plan["server"]["port"],
            start_timeout=settings["launch_timeout"],
            stall_timeout=settings["stall_timeout"],
            watch_seconds=params["watch_seconds"],
            activity=launch.Activity(**params["activity"]) if params["activity"] else None,
            last_progress=params["last_progress"],
        )
        told = {
            "progress": outcome.progress,
            "seconds": round(outcome.seconds, 1),
            "activity": outcome.activity_dict(),
            **({"diff": diff} if diff else {}),
        }
        if outcome.phase in (launch.READY, launch.STARTING):
            self.exit(phase=outcome.phase, pid=outcome.status.running.pid, **told)
        self.fail(outcome, told)

    def fail(self, outcome, told):
        del told["activity"]
        found = launch.explain(outcome, self.plan["settings"])
        if outcome.phase != launch.DEAD:
            self.stop()
        self.module.fail_json(
            msg=f"The server did not start: {found.failure_class} after {outcome.seconds:.0f} s, at stage "
            f"{outcome.progress}. {found.line} {found.remedy}",
            changed=True,
            failure_class=found.failure_class,
            cause=found.line,
            remedy=found.remedy,
            exit_text=outcome.status.exit_text if outcome.phase == launch.DEAD else "",
            log_tail=startup_log.tail(outcome.text, secrets=(self.module.params["api_key"],)),
            killed=self.killed,
            **told,
        )

    def stop(self):
        there, killed = self.server.stop(self.stop_timeout)
        self.killed += killed
        self.changed = self.changed or there

    def end(self, remove):
        """Stop; with C(remove) also take away what the supervisor and the secrets left on the host."""
        if self.module.check_mode:
            there = self.server.status().running is not None or procfs.processes_of(self.server.instance)
            self.changed = bool(there) or (remove and self.server.installed())
            self.exit(phase="absent" if remove else "stopped")
        self.stop()
        if remove:
            removed = [
                self.server.remove(),
                self.state.remove("secrets.yaml"),
                self.state.remove("plan.json"),
            ]
            self.changed = self.changed or any(removed)
        self.exit(phase="absent" if remove else "stopped")

    def promote(self):
        """Record what runs as known good. Only the plan that was asked for may be promoted."""
        running = self.server.status().running
        if running is None or running.fingerprint != self.plan["fingerprint"]:
            self.module.fail_json(msg="The plan that was to be promoted does not run: something stopped or replaced it")
        known = self.state.read("known_good.json")
        self.changed = known is None or known["plan"]["fingerprint"] != self.plan["fingerprint"]
        if not self.module.check_mode:
            if self.changed:
                self.state.write("known_good.json", {"plan": self.plan, "promoted_at": time.time()})
            self.server.settle()
        self.exit(phase="promoted", pid=running.pid)


def command_text(run):
    """A run as lines that a diff can compare: one flag with its values, or one variable, a line."""
    if not run:
        return ""
    lines, words = [], list(run["argv"])
    while words:
        line = [words.pop(0)]
        while words and not words[0].startswith("--"):
            line.append(words.pop(0))
        lines.append(" ".join(line))
    lines += [f"{key}={value}" for key, value in sorted(run["env"].items())]
    return "\n".join(lines) + "\n"


def main():
    module = AnsibleModule(
        argument_spec={
            **INSTANCE_OPTIONS,
            "state": {
                "type": "str",
                "choices": ["started", "restarted", "promoted", "stopped", "absent"],
                "default": "started",
            },
            "plan": {"type": "dict"},
            "api_key": {"type": "str", "no_log": True},
            "stop_timeout": {"type": "float", "default": 120.0},
            "watch_seconds": {"type": "float", "default": 20.0},
            "activity": {"type": "dict"},
            "last_progress": {"type": "str", "default": ""},
        },
        required_if=[("state", state, ["plan"]) for state in ("started", "restarted", "promoted")],
        supports_check_mode=True,
    )
    state = module.params["state"]
    try:
        launcher = Launcher(module)
        if state in ("started", "restarted"):
            launcher.start(anew=state == "restarted")
        elif state == "promoted":
            launcher.promote()
        else:
            launcher.end(remove=state == "absent")
    except (StateError, SupervisorError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
