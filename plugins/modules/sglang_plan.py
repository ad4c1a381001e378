# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: sglang_plan
short_description: Turn the variables into a plan, or refuse them, before anything is touched
version_added: 0.1.0
description:
  - Runs on the controller alone and opens no connection, so it works for a host that can't be reached.
  - Collects the variables of the host, checks each and all together, holds the command line against the
    catalogue of the SGLang release, and the backends against the evidence. All problems are told at once.
  - The plan is the command line, environment, limits and a fingerprint of what makes a server another one. No
    secret stands in it.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes.read_only
options:
  stack:
    description:
      - Versions that were found on the host, by part (V(sglang), V(flashinfer), V(cudnn), V(cuda)).
      - They replace the declared ones, for a second look with what is really installed.
    type: dict
    default: {}
notes:
  - The variables are those of the host, see the table in the collection's README. A variable that looks like a
    misspelt one of them is an error, unless it is listed in the variable C(ignore_variables).
  - Folders in the variable C(evidence_dirs) hold further evidence.
"""
EXAMPLES = r"""
- name: Plan
  blackwell.sglang.sglang_plan:
  register: serve_plan
"""
RETURN = r"""
plan:
  description: The plan.
  returned: success
  type: dict
  contains:
    instance: {description: Name of the instance., type: str, returned: always}
    fingerprint: {description: SHA-256 of what the server's process is made of., type: str, returned: always}
    run: {description: "argv, env, user and supervisor.", type: dict, returned: always}
    server: {description: "url, port, model, and api_key_file (on the host; null without a key).", type: dict, returned: always}
    gpus: {description: Indices of the GPUs; all if empty., type: list, elements: int, returned: always}
    expect: {description: What /server_info must say., type: dict, returned: always}
    backends: {description: The backends asked for., type: dict, returned: always}
    stack: {description: Versions that evidence was looked up with., type: dict, returned: always}
    evidence: {description: "verdict, because, and the ids of the entries that decided.", type: dict, returned: always}
    settings: {description: Limits and paths., type: dict, returned: always}
problems:
  description: Everything that is wrong.
  returned: failure
  type: list
  elements: dict
  contains:
    variable: {description: Name of the variable., type: str, returned: always}
    value: {description: Its value; null for a secret., type: raw, returned: always}
    message: {description: What is wrong and what is allowed., type: str, returned: always}
"""
