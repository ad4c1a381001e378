# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: router
short_description: Run the SGLang model gateway as a service
version_added: 0.1.0
description:
  - Starts C(sglang_router.launch_router) under systemd or as a process of its own, and waits until it answers.
  - Other arguments or another key restart it; another list of workers alone does not. They are what it begins with
    the next time, and M(blackwell.sglang.router_worker) takes them in and out while it runs.
  - A router that does not start is replaced by the one that ran before.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes
options:
  state:
    description: Running; stopped; or stopped with unit and key removed.
    type: str
    choices: [started, stopped, absent]
    default: started
  python:
    description: Interpreter of an environment that has C(sglang-router).
    type: str
    default: /opt/sglang/bin/python
  host:
    description: Address to listen on.
    type: str
    default: 0.0.0.0
  port:
    description: Port to listen on.
    type: int
    default: 30080
  policy:
    description: How a worker is chosen.
    type: str
    choices: [random, round_robin, cache_aware, power_of_two, manual]
    default: cache_aware
  metrics_port:
    description: Port of the counters, on O(host).
    type: int
    default: 29000
  workers:
    description: Addresses of the servers that it begins with. One that is down is tried again until it is up.
    type: list
    elements: str
    default: []
  api_key:
    description:
      - Key that clients and operators must send. The router sends it to the workers too, so it is theirs.
      - It is read from a file for the router's user alone, and stands in no process list.
    type: str
  extra_args:
    description: Further arguments, as words.
    type: list
    elements: str
    default: []
  user:
    description: User that it runs as; the connecting user if not given.
    type: str
  instance:
    description: Name of the service. The unit is C(sglang-NAME.service).
    type: str
    default: router
  state_dir:
    description: Folder under which it keeps its log and what it was started with.
    type: path
    default: /var/lib/sglang
  supervisor:
    description: What starts it.
    type: str
    choices: [systemd, process]
    default: systemd
  start_timeout:
    description: Seconds until it must answer.
    type: float
    default: 60.0
  stop_timeout:
    description: Seconds for running requests to end when it is stopped.
    type: float
    default: 180.0
  command_timeout:
    description: Seconds that one command may take.
    type: float
    default: 20.0
"""
EXAMPLES = r"""
- name: A router over two servers
  blackwell.sglang.router:
    workers: [http://gpu1:30000, http://gpu2:30000]
    api_key: "{{ api_key }}"
"""
RETURN = r"""
url:
  description: Where it answers, from its own host.
  returned: for V(started)
  type: str
log_tail:
  description: End of its log, without the key.
  returned: when it did not start
  type: list
  elements: str
"""

import hashlib
import json
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.blackwell.sglang.plugins.module_utils import startup_log
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient, HttpError
from ansible_collections.blackwell.sglang.plugins.module_utils.lifecycle import command_text
from ansible_collections.blackwell.sglang.plugins.module_utils.state import InstanceState, StateError
from ansible_collections.blackwell.sglang.plugins.module_utils.supervisor import (
    SupervisorError,
    account_ids,
    run_of,
    supervisor_for,
)

# The router takes its key from its command line only, which any user of the host can read while Python starts.
WITH_SECRETS = (
    "import json, runpy, sys; "
    "sys.argv[0:2] = ['launch_router']; "
    "sys.argv += json.load(open('arguments.json'))['words']; "
    "runpy.run_module('sglang_router.launch_router', run_name='__main__')"
)


class Router:
    """The service in the hands of one call."""

    def __init__(self, params, check_mode):
        self.params = params
        self.check_mode = check_mode
        self.state = InstanceState(params["state_dir"], params["instance"])
        self.server = supervisor_for(params["supervisor"], self.state, params["command_timeout"])
        self.changed = False
        address = "127.0.0.1" if params["host"] in ("0.0.0.0", "::") else params["host"]
        self.url = f"http://{address}:{params['port']}"

    def plan(self):
        """What is to run. The fingerprint is of all but the workers."""
        params = self.params
        argv = [
            params["python"], "-c", WITH_SECRETS, "--",
            "--host", params["host"], "--port", str(params["port"]), "--policy", params["policy"],
            "--prometheus-host", params["host"], "--prometheus-port", str(params["metrics_port"]),
            *params["extra_args"],
        ]  # fmt: skip
        run = {
            "argv": argv,
            "env": {"BLACKWELL_SGLANG_INSTANCE": self.state.directory, "PYTHONUNBUFFERED": "1"},
            "user": params["user"],
            "log_file": self.state.path("server.log"),
        }
        fingerprint = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
        workers = ["--worker-urls", *params["workers"]] if params["workers"] else []
        return {"run": {**run, "argv": argv + workers}, "fingerprint": fingerprint}

    def start(self):
        plan, stored = self.plan(), self.state.read("plan.json")
        before = {"plan": stored["plan"], "words": self._words()} if stored else None
        words = ["--api-key", self.params["api_key"]] if self.params["api_key"] else []
        running = self.server.status().running is not None
        same = running and before and before["plan"]["fingerprint"] == plan["fingerprint"] and before["words"] == words
        old, new = self.server.files(run_of(plan), self.params["stop_timeout"])
        now = before["plan"]["run"] if running and before else {}
        diff = {"before": command_text(now) + old, "after": command_text(plan["run"]) + new}
        self.changed = not same or old != new or now != plan["run"]
        if self.check_mode:
            return {"url": self.url, "diff": diff}
        if same:
            if self.changed:
                self.state.write("plan.json", {"plan": plan, "launched_at": stored["launched_at"]})
                self.server.write_files(run_of(plan), self.params["stop_timeout"])
        else:
            self.server.stop(self.params["stop_timeout"])
            self._launch(plan, words)
        problem = self._wait()
        if problem is None:
            self.server.settle()
            return {"url": self.url, "diff": diff}
        log, _cursor = self.server.log(None)
        secrets = tuple(words[1:])
        told = {"log_tail": startup_log.tail(log, secrets=secrets), "diff": diff}
        self.server.stop(2.0)
        if running and before and not same:
            self._launch(before["plan"], before["words"])
            problem += ". The router that ran before is started again"
        return {"failed": True, "msg": f"The router did not start: {problem}", **told}

    def _words(self):
        stored = self.state.read("arguments.json")
        return stored["words"] if stored else []

    def _launch(self, plan, words):
        owner = account_ids(plan["run"]["user"])
        self.state.write_text("arguments.json", json.dumps({"schema": 1, "words": words}), 0o600, owner)
        self.state.write("plan.json", {"plan": plan, "launched_at": time.time()})
        self.server.start(run_of(plan), self.params["stop_timeout"])

    def _wait(self):
        """None once it answers; else what was seen."""
        client = HttpClient(self.url)
        gives_up_at = time.monotonic() + self.params["start_timeout"]
        while True:
            status = self.server.status()
            if status.running is None:
                return status.exit_text
            try:
                if client.request("GET", "/liveness", timeout=2).status == 200:
                    return None
            except HttpError:
                pass
            if time.monotonic() > gives_up_at:
                return f"no answer at {self.url}/liveness after {self.params['start_timeout']:g} s"
            time.sleep(0.2)

    def end(self, remove):
        self.changed = self.server.status().running is not None or (remove and self.server.installed())
        if self.check_mode:
            return {}
        self.server.stop(self.params["stop_timeout"])
        if remove:
            removed = [self.server.remove(), self.state.remove("arguments.json"), self.state.remove("plan.json")]
            self.changed = self.changed or any(removed)
        return {}


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
            "python": {"type": "str", "default": "/opt/sglang/bin/python"},
            "host": {"type": "str", "default": "0.0.0.0"},
            "port": {"type": "int", "default": 30080},
            "policy": {
                "type": "str",
                "choices": ["random", "round_robin", "cache_aware", "power_of_two", "manual"],
                "default": "cache_aware",
            },
            "metrics_port": {"type": "int", "default": 29000},
            "workers": {"type": "list", "elements": "str", "default": []},
            "api_key": {"type": "str", "no_log": True},
            "extra_args": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str"},
            "instance": {"type": "str", "default": "router"},
            "state_dir": {"type": "path", "default": "/var/lib/sglang"},
            "supervisor": {"type": "str", "choices": ["systemd", "process"], "default": "systemd"},
            "start_timeout": {"type": "float", "default": 60.0},
            "stop_timeout": {"type": "float", "default": 180.0},
            "command_timeout": {"type": "float", "default": 20.0},
        },
        supports_check_mode=True,
    )
    router = Router(module.params, module.check_mode)
    try:
        if module.params["state"] == "started":
            result = router.start()
        else:
            result = router.end(remove=module.params["state"] == "absent")
    except (StateError, SupervisorError) as error:
        module.fail_json(msg=str(error), changed=router.changed)
    module.exit_json(changed=router.changed, **result)


if __name__ == "__main__":
    main()
