# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smoke_check
short_description: Ask a server questions with known answers, alone and many at once
version_added: 0.1.0
description:
  - A server that loads and says that it is healthy may still answer garbage, and may do so only when many
    requests run together. So known answers are asked for one by one, then different prompts of mixed length at
    once, some streamed.
  - Fails unless the verdict is V(ok).
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
options:
  url:
    description: Address of the server, such as V(http://127.0.0.1:30000).
    type: str
    required: true
  model:
    description: Name of the model as served.
    type: str
    required: true
  api_key:
    description: Key to send.
    type: str
  api_key_file:
    description: File on the host that holds the key, as the plan's C(server.api_key_file) names it.
    type: path
  ca_file:
    description: Certificates to trust for C(https), instead of the system's.
    type: path
  level:
    description:
      - V(quick) is one short question, for a server that has passed V(standard) before.
      - V(standard) is four known answers, then O(rounds) of O(concurrency) different sums at once.
    type: str
    choices: [quick, standard]
    default: standard
  concurrency:
    description: Requests at once. Faults were reported from 16 at once, most from 64.
    type: int
    default: 64
  rounds:
    description: Rounds of them.
    type: int
    default: 4
  timeout:
    description: Seconds for the whole check.
    type: float
    default: 600.0
"""
EXAMPLES = r"""
- name: Judge the answers
  blackwell.sglang.smoke_check:
    url: http://127.0.0.1:30000
    model: qwen3.5
"""
RETURN = r"""
verdict:
  description: V(ok), V(nan), V(garbage), V(error), V(empty) or V(wrong).
  returned: always
  type: str
summary:
  description: The verdict in a sentence.
  returned: always
  type: str
question:
  description: The first question.
  returned: always
  type: str
answer:
  description: Its answer.
  returned: always
  type: str
numbers:
  description: >-
    Requests, seconds, output_tokens, output_tokens_per_second, and ttft_p50, ttft_p99 and latency_p50 in seconds.
  returned: always
  type: dict
samples:
  description: Up to three of the bad answers with what is wrong with each.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient
from ansible_collections.blackwell.sglang.plugins.module_utils.smoke import check
from ansible_collections.blackwell.sglang.plugins.module_utils.state import StateError, read_key_file


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "api_key": {"type": "str", "no_log": True},
            "api_key_file": {"type": "path"},
            "ca_file": {"type": "path"},
            "level": {"type": "str", "choices": ["quick", "standard"], "default": "standard"},
            "concurrency": {"type": "int", "default": 64},
            "rounds": {"type": "int", "default": 4},
            "timeout": {"type": "float", "default": 600.0},
        },
        mutually_exclusive=[("api_key", "api_key_file")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        key = params["api_key"] or read_key_file(params["api_key_file"])
        client = HttpClient(params["url"], key, params["ca_file"])
    except (ValueError, OSError, StateError) as error:
        module.fail_json(msg=f"The server can't be asked: {error}")
    result = check(client, params["model"], params["level"], params["timeout"], params["concurrency"], params["rounds"])
    if result["verdict"] != "ok":
        module.fail_json(msg=f"The smoke check's verdict is {result['verdict']}: {result['summary']}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
