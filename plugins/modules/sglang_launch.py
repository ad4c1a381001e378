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
      - V(claimed) keeps other runs out and tells whether the plan's own server is there and may go on.
      - V(started) makes the plan run. Another plan's server is stopped first; the same plan's is left as it is.
      - V(restarted) starts anew in any case.
      - V(promoted) records the running plan as known good and, under systemd, lets restarts begin.
      - V(rejected) writes into the history that the running plan failed its proof. It stops nothing.
      - V(stopped) ends every process of the instance.
      - V(absent) also removes the unit and the secrets; state and logs stay.
    type: str
    choices: [claimed, started, restarted, promoted, rejected, stopped, absent]
    default: started
  api_key:
    description:
      - Key that clients must send. Written to a file that only the server's user can read.
      - For a plan that is known good, or was before, the key that it was promoted with is used if none is given.
    type: str
  stack:
    description: Versions that were found on the host, by part. Recorded with V(promoted).
    type: dict
    default: {}
  failure_class:
    description: Why the plan is V(rejected), such as the smoke check's verdict.
    type: str
    default: ""
  cause:
    description: What was seen of it.
    type: str
    default: ""
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
  run:
    description:
      - Name of this run of ansible-playbook. While one run changes an instance, another is kept out.
      - Used by the action plugin.
    type: str
  steal:
    description: Name of a run that is known to be dead, whose lock counts for nothing. Used by the action plugin.
    type: str
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
  description: V(ready), V(starting) (as one call may return it), V(claimed), V(promoted), V(rejected), V(stopped) or V(absent).
  returned: success
  type: str
keep:
  description: Whether the plan's own server is there, promoted or still to be proven.
  returned: for V(claimed)
  type: bool
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
  description: >-
    Class of the failure, such as V(cuda_oom), V(bad_arguments), V(stalled), V(start_timeout); V(superseded) when
    another run replaced the server meanwhile.
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
  description: How the process ended and, after a SIGKILL, who sent it as far as can be told.
  returned: when it died
  type: str
verdict:
  description: V(nan), when the log of the server that was to be promoted tells of it.
  returned: when that is so
  type: str
locked_by:
  description: Name of the run that is changing the instance.
  returned: when another run does
  type: str
log_tail:
  description: End of the log, without secrets; for V(stalled) also stacks, if the server's environment has py-spy.
  returned: when the start failed
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.instance import INSTANCE_OPTIONS, open_instance
from ansible_collections.blackwell.sglang.plugins.module_utils.lifecycle import Failed, Lifecycle
from ansible_collections.blackwell.sglang.plugins.module_utils.run_lock import LockedError, RunLock
from ansible_collections.blackwell.sglang.plugins.module_utils.state import StateError
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import SupervisorError

STATES = ["claimed", "started", "restarted", "promoted", "rejected", "stopped", "absent"]


def main():
    module = AnsibleModule(
        argument_spec={
            **INSTANCE_OPTIONS,
            "state": {"type": "str", "choices": STATES, "default": "started"},
            "plan": {"type": "dict"},
            "api_key": {"type": "str", "no_log": True},
            "stack": {"type": "dict", "default": {}},
            "failure_class": {"type": "str", "default": ""},
            "cause": {"type": "str", "default": ""},
            "stop_timeout": {"type": "float", "default": 120.0},
            "watch_seconds": {"type": "float", "default": 20.0},
            "activity": {"type": "dict"},
            "last_progress": {"type": "str", "default": ""},
            "run": {"type": "str"},
            "steal": {"type": "str"},
        },
        required_if=[("state", state, ["plan"]) for state in ("claimed", "started", "restarted", "promoted")],
        supports_check_mode=True,
    )
    params = module.params
    state, server = open_instance(params)
    life = Lifecycle(
        params["plan"],
        state,
        server,
        RunLock(state, params["run"], params["steal"]),
        api_key=params["api_key"],
        stop_timeout=params["stop_timeout"],
        command_timeout=params["command_timeout"],
        check_mode=module.check_mode,
    )
    try:
        if params["state"] == "claimed":
            result = life.claim()
        elif params["state"] == "promoted":
            result = life.promote(params["stack"])
        elif params["state"] == "rejected":
            result = life.reject(params["failure_class"], params["cause"])
        elif params["state"] in ("stopped", "absent"):
            result = life.end(remove=params["state"] == "absent")
        else:
            anew = params["state"] == "restarted"
            result = life.start(anew, params["activity"], params["last_progress"], params["watch_seconds"])
    except LockedError as error:
        module.fail_json(msg=str(error), changed=life.changed, locked_by=error.holder)
    except Failed as error:
        module.fail_json(msg=str(error), changed=life.changed, killed=life.killed, **error.result)
    except (StateError, SupervisorError) as error:
        module.fail_json(msg=str(error), changed=life.changed, killed=life.killed)
    module.exit_json(changed=life.changed, killed=life.killed, **result)


if __name__ == "__main__":
    main()
