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
      - V(quick) is one short question, for a server that has passed V(standard) before. It can't see what shows
        under load or in long answers only.
      - V(standard) is known answers one by one, short and long, and one open question with two seeds; then
        O(rounds) of O(concurrency) different questions at once.
      - V(deep) is V(standard), then an accuracy gate of O(problems) word problems with thinking on.
    type: str
    choices: [quick, standard, deep]
    default: standard
  concurrency:
    description: Requests at once. Faults were reported from 16 at once, most from 64.
    type: int
    default: 64
  rounds:
    description: Rounds of them.
    type: int
    default: 4
  problems:
    description: Word problems of the accuracy gate. They are generated, so that no model has seen them.
    type: int
    default: 200
  gsm8k_file:
    description: File on the host in GSM8K's format, whose first O(problems) lines are asked instead.
    type: path
  min_right:
    description: Share of the problems that must be right.
    type: float
    default: 0.9
  max_invalid:
    description:
      - Share of the problems that may have no answer at all. A broken server shows here first, with 0.05 to 0.93
        where a right one has 0.002 (vllm pull 48898).
    type: float
    default: 0.02
  max_ttft_p99:
    description: Seconds to the first token, at the 99th percentile, above which the verdict is V(slow).
    type: float
  min_tokens_per_second:
    description: Output tokens per second in all, below which the verdict is V(slow).
    type: float
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
  description: V(ok), V(nan), V(garbage), V(error), V(empty), V(wrong) or V(slow).
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
    What was measured under the load (for V(quick), of its question). C(requests), C(seconds), C(output_tokens),
    C(output_tokens_per_second) in all and C(output_tokens_per_second_each), C(prompt_tokens_per_second), C(ttft_p50),
    C(ttft_p99), C(latency_p50) and C(latency_p99) in seconds, and C(error_rate).
  returned: always
  type: dict
samples:
  description: Up to three of the bad answers with what is wrong with each.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils import questions
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient
from ansible_collections.blackwell.sglang.plugins.module_utils.smoke import Bounds, check
from ansible_collections.blackwell.sglang.plugins.module_utils.state import StateError, read_key_file


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "api_key": {"type": "str", "no_log": True},
            "api_key_file": {"type": "path"},
            "ca_file": {"type": "path"},
            "level": {"type": "str", "choices": ["quick", "standard", "deep"], "default": "standard"},
            "concurrency": {"type": "int", "default": 64},
            "rounds": {"type": "int", "default": 4},
            "problems": {"type": "int", "default": 200},
            "gsm8k_file": {"type": "path"},
            "min_right": {"type": "float", "default": 0.9},
            "max_invalid": {"type": "float", "default": 0.02},
            "max_ttft_p99": {"type": "float"},
            "min_tokens_per_second": {"type": "float", "no_log": False},
            "timeout": {"type": "float", "default": 600.0},
        },
        mutually_exclusive=[("api_key", "api_key_file")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        key = params["api_key"] or read_key_file(params["api_key_file"])
        client = HttpClient(params["url"], key, params["ca_file"])
        problems = None
        if params["level"] == "deep" and params["gsm8k_file"]:
            problems = questions.from_gsm8k(params["gsm8k_file"], params["problems"])
        elif params["level"] == "deep":
            problems = questions.word_problems(params["problems"])
    except (ValueError, OSError, StateError) as error:
        module.fail_json(msg=f"The server can't be asked: {error}")
    result = check(
        client,
        params["model"],
        params["level"],
        params["timeout"],
        params["concurrency"],
        params["rounds"],
        Bounds(
            max_ttft_p99=params["max_ttft_p99"],
            min_tokens_per_second=params["min_tokens_per_second"],
            min_right=params["min_right"],
            max_invalid=params["max_invalid"],
        ),
        problems,
    )
    if result["verdict"] != "ok":
        module.fail_json(msg=f"The smoke check's verdict is {result['verdict']}: {result['summary']}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
