# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: router_worker
short_description: Take a server into the SGLang model gateway, or out of it and let it drain
version_added: 0.1.0
description:
  - V(present) registers the server with each router and returns when each finds it healthy. A router accepts an
    address before it has looked at it; one that it does not find healthy in time is taken out again.
  - V(absent) takes it out of each router, then waits until the server itself tells that nothing runs or waits
    there. Requests that run go on meanwhile; none is cut.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes
options:
  state:
    description: In, or out and drained.
    type: str
    choices: [present, absent]
    default: present
  routers:
    description: Addresses of the routers, as seen from this host.
    type: list
    elements: str
    required: true
  router_api_key:
    description: Key of the routers.
    type: str
  url:
    description: Address of the server, as the routers see it.
    type: str
    required: true
  server_url:
    description: Address of the server, as this host sees it. O(url) if not given.
    type: str
  api_key_file:
    description: File on this host with the server's key, as M(blackwell.sglang.sglang_launch) writes it.
    type: path
  drain_timeout:
    description: Seconds that running requests get to end. What is left then is told as a warning.
    type: float
    default: 300.0
  healthy_timeout:
    description: Seconds for each router to find the server healthy.
    type: float
    default: 60.0
"""
EXAMPLES = r"""
- name: Take the server out of both routers
  blackwell.sglang.router_worker:
    state: absent
    routers: [http://router1:30080, http://router2:30080]
    url: http://gpu1:30000
    drain_timeout: 600
"""
RETURN = r"""
routers:
  description: Routers that were told something.
  returned: success
  type: list
  elements: str
left:
  description: >-
    Requests that the server still had when the time was up, 0 if it drained, null if it did not tell (a server that
    is down has none).
  returned: for V(absent)
  type: int
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils.gateway import Gateway, GatewayError, drain
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient
from ansible_collections.blackwell.sglang.plugins.module_utils.state import StateError, read_key_file


def present(module, routers, key):
    """Routers that did not have the server, or not healthy."""
    params = module.params
    told = []
    for router in routers:
        worker = router.find(params["url"])
        if worker and worker["is_healthy"]:
            continue
        told.append(router.url)
        if not module.check_mode:
            router.add(params["url"], key, params["healthy_timeout"], time.sleep)
    return {"routers": told}


def absent(module, routers, key):
    """Routers that had the server, and what it had left to do."""
    params = module.params
    if module.check_mode:
        return {"routers": [router.url for router in routers if router.find(params["url"])], "left": None}
    told = [router.url for router in routers if router.remove(params["url"], 30.0, time.sleep)]
    left = drain(HttpClient(params["server_url"] or params["url"], key), params["drain_timeout"], time.sleep)
    if left:
        module.warn(
            f"{params['url']} still had {left} requests {params['drain_timeout']:g} s after it was taken out of the "
            "routers. Stopping it gives them stop_timeout more; raise router_drain_timeout to wait longer"
        )
    return {"routers": told, "left": left}


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "routers": {"type": "list", "elements": "str", "required": True},
            "router_api_key": {"type": "str", "no_log": True},
            "url": {"type": "str", "required": True},
            "server_url": {"type": "str"},
            "api_key_file": {"type": "path", "no_log": False},
            "drain_timeout": {"type": "float", "default": 300.0},
            "healthy_timeout": {"type": "float", "default": 60.0},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        key = read_key_file(params["api_key_file"])
        routers = [Gateway(url, params["router_api_key"]) for url in params["routers"]]
        result = (present if params["state"] == "present" else absent)(module, routers, key)
    except (GatewayError, StateError, ValueError) as error:
        module.fail_json(msg=str(error))
    known_by = "".join(f"in {router}\n" for router in result["routers"])
    before, after = ("", known_by) if params["state"] == "present" else (known_by, "")
    module.exit_json(
        changed=bool(result["routers"]),
        diff={"before": before, "after": after, "before_header": params["url"], "after_header": params["url"]},
        **result,
    )


if __name__ == "__main__":
    main()
