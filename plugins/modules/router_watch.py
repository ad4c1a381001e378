# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: router_watch
short_description: Watch the SGLang model gateway's error rate and latency for a while
version_added: 0.1.0
description:
  - Reads each router's counters, waits, reads them again, and fails when what came in between is out of bounds.
  - Latency is from the router's histogram, so it is an upper bound, as fine as its buckets are.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
options:
  metrics:
    description: Addresses of the routers' counters (the router's C(--prometheus-port)), without C(/metrics).
    type: list
    elements: str
    required: true
  seconds:
    description: How long to watch.
    type: float
    default: 60.0
  max_error_rate:
    description: Share of answers that may be of HTTP 5xx.
    type: float
    default: 0.01
  max_latency_p99:
    description: Seconds within which 99 % of the answers must come. Not judged if not given.
    type: float
"""
EXAMPLES = r"""
- name: A minute with fewer than one failure in a hundred
  blackwell.sglang.router_watch:
    metrics: [http://router1:29000]
    seconds: 60
"""
RETURN = r"""
seen:
  description: Per address; C(requests) to models, C(errors) of HTTP 5xx, C(latency_p99) in seconds or null.
  returned: when the counters could be read
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.gateway import Counters, GatewayError


def main():
    module = AnsibleModule(
        argument_spec={
            "metrics": {"type": "list", "elements": "str", "required": True},
            "seconds": {"type": "float", "default": 60.0},
            "max_error_rate": {"type": "float", "default": 0.01},
            "max_latency_p99": {"type": "float"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        before = {url: Counters.of(url) for url in params["metrics"]}
        time.sleep(params["seconds"])
        seen = {url: Counters.of(url).since(then) for url, then in before.items()}
    except (GatewayError, ValueError) as error:
        module.fail_json(msg=str(error))
    problems = []
    for url, counted in seen.items():
        rate = counted["errors"] / max(counted["requests"], counted["errors"], 1)
        if rate > params["max_error_rate"]:
            problems.append(
                f"{url}: {counted['errors']} of {counted['requests']} answers were HTTP 5xx, {rate:.1%} "
                f"(bound {params['max_error_rate']:.1%})"
            )
        bound, p99 = params["max_latency_p99"], counted["latency_p99"]
        if bound is not None and p99 is not None and p99 > bound:
            problems.append(f"{url}: 99 % of the answers took up to {p99:g} s (bound {bound:g} s)")
    if problems:
        module.fail_json(msg=f"In {params['seconds']:g} s of watching: " + "; ".join(problems), seen=seen)
    module.exit_json(changed=False, seen=seen)


if __name__ == "__main__":
    main()
