# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: sglang_info
short_description: Tell what an instance serves, since when, and whether it is what was planned
version_added: 0.1.0
description:
  - One look, which changes nothing. C(/ready) is asked, which costs the server milliseconds, where C(/health)
    generates a token and costs a second.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
  - blackwell.sglang.instance
options:
  history:
    description: How many entries of the instance's history to return, the newest last.
    type: int
    default: 0
  read_back:
    description:
      - Also ask C(/server_info) what really runs and compare it with the plan.
      - Fails if anything differs, since a silent fallback of a backend is a failure.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Look
  blackwell.sglang.sglang_info:
    plan: "{{ serve_plan.plan }}"
  register: serve_look

- name: Read back what really runs
  blackwell.sglang.sglang_info:
    plan: "{{ serve_plan.plan }}"
    read_back: true
"""
RETURN = r"""
phase:
  description: V(serving), V(starting) (it runs and does not answer yet) or V(stopped).
  returned: success
  type: str
pid:
  description: Process id of the launcher or null.
  returned: success
  type: int
seconds:
  description: Age of the process or null.
  returned: success
  type: float
fingerprint:
  description: Fingerprint of the plan that runs or null.
  returned: success
  type: str
url:
  description: Address of the server or null.
  returned: success
  type: str
runs_plan:
  description: Whether the process that runs is the plan's.
  returned: with a plan
  type: bool
as_planned:
  description: Whether the plan runs, serves, has passed its smoke check, and its unit file is as written.
  returned: with a plan
  type: bool
resumable:
  description: >-
    Whether the plan's own server is there and not yet proven, so that a launch can go on with it: it is still
    starting, or it serves and was never judged.
  returned: with a plan
  type: bool
files_changed:
  description: Whether the supervisor's files differ from what the plan would write.
  returned: success
  type: bool
known_good:
  description: What last passed its smoke check or null.
  returned: success
  type: dict
previous_good:
  description: What was known good before that or null.
  returned: success
  type: dict
last_plan:
  description: What was last launched or null.
  returned: success
  type: dict
exit_text:
  description: How the last server ended, if it did.
  returned: success
  type: str
history:
  description: >-
    What became of the launches, the newest last. Each has C(event) (V(ready), V(failed), V(rejected), V(promoted),
    V(stopped)), C(at) and C(launched_at) (Unix time), C(fingerprint), C(model), C(backends), C(stack) and, for
    failures, C(failure_class) and C(cause).
  returned: success
  type: list
  elements: dict
version:
  description: SGLang's version as the server tells.
  returned: with read_back
  type: str
drift:
  description: What differs between plan and server; key, asked and found.
  returned: with read_back
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils import server_state
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpError
from ansible_collections.blackwell.sglang.plugins.module_utils.instance import INSTANCE_OPTIONS, open_instance
from ansible_collections.blackwell.sglang.plugins.module_utils.state import StateError
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import SupervisorError


def main():
    module = AnsibleModule(
        argument_spec={
            **INSTANCE_OPTIONS,
            "plan": {"type": "dict"},
            "history": {"type": "int", "default": 0},
            "read_back": {"type": "bool", "default": False},
        },
        required_if=[("read_back", True, ["plan"])],
        supports_check_mode=True,
    )
    plan = module.params["plan"]
    try:
        state, server = open_instance(module.params)
        result = server_state.look(state, server, plan)
        count = module.params["history"]
        result["history"] = state.history()[-count:] if count else []
        if module.params["read_back"]:
            result["drift"], result["version"] = server_state.read_back(plan)
    except (StateError, SupervisorError) as error:
        module.fail_json(msg=str(error))
    except HttpError as error:
        module.fail_json(
            msg=f"The server can't be read back: {error}. It may have died since it was ready; look at its log"
        )
    if result.get("drift"):
        module.fail_json(
            msg="The server does not run what was asked: "
            + "; ".join(f"{d['key']} is {d['found']!r}, asked was {d['asked']!r}" for d in result["drift"])
            + ". SGLang fell back by itself; state what it can run, or find out why it can't",
            **result,
        )
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
