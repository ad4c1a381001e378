# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: sweep
short_description: Hand out the combinations of a sweep, and keep its journal
version_added: 0.1.0
description:
  - Reads the variables of the role P(blackwell.sglang.sweep#role) and those of a deployment. Several hosts may share one
    sweep; none of them gets a combination that another tries or that the journal already has.
  - Runs on the controller and needs no connection.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes
  - blackwell.sglang.attributes.read_only
options:
  state:
    description:
      - V(planned) refuses wrong variables and counts what is left to try.
      - V(next) takes the next combination and makes its plan. What the release refuses is recorded as skipped.
      - V(recorded) appends a result to the journal.
      - V(found) appends how the host was found, unless the journal has it, and returns it.
      - V(restored) appends how the host was left.
      - V(judged) returns everything that the reports show.
    type: str
    choices: [planned, next, recorded, found, restored, judged]
    required: true
  until:
    description: Unix time after which nothing is handed out. For V(next).
    type: float
  stack:
    description: Versions that were found on the host, by part. For V(next).
    type: dict
  plan:
    description: The plan that was tried. For V(recorded).
    type: dict
  changes:
    description: The variables that the combination sets. For V(recorded).
    type: dict
  began:
    description: Unix time at which it was taken. For V(recorded).
    type: float
  launch:
    description: What M(blackwell.sglang.sglang_launch) returned. For V(recorded).
    type: dict
  smoke:
    description: What M(blackwell.sglang.smoke_check) returned. For V(recorded).
    type: dict
  failure:
    description: What the step that failed returned, or nothing. For V(recorded).
    type: dict
  phase:
    description: What M(blackwell.sglang.sglang_info) returned of the host. For V(found).
    type: str
  ok:
    description: Whether the host serves what it served. For V(restored).
    type: bool
  said:
    description: What it serves, in a sentence. For V(restored).
    type: str
"""
EXAMPLES = r"""
- name: Take the next combination
  blackwell.sglang.sweep:
    state: next
    until: null
    stack: {}
  register: sweep_now
"""
RETURN = r"""
plan:
  description: The plan of the combination; for V(planned), of the variables as they are.
  returned: for V(planned) and V(next)
  type: dict
count:
  description: Combinations in all.
  returned: for V(planned)
  type: int
left:
  description: Combinations that the journal does not have yet.
  returned: for V(planned)
  type: int
until:
  description: Unix time at which the budget is spent, or null.
  returned: for V(planned)
  type: float
changes:
  description: The variables that the combination sets, or null if there is none.
  returned: for V(next)
  type: dict
began:
  description: Unix time.
  returned: for V(next), if there is one
  type: float
result:
  description: The line of the journal, with C(outcome), C(depth), C(expected), C(judged) and the numbers.
  returned: for V(recorded)
  type: dict
phase:
  description: How the host was found.
  returned: for V(found)
  type: str
report:
  description: C(results), the weightiest first, C(skipped), C(missing), C(counts), C(grids), C(past) and C(restored).
  returned: for V(judged)
  type: dict
evidence:
  description: The results as entries of evidence.
  returned: for V(judged)
  type: list
  elements: dict
"""
