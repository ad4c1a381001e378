# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: backend_matrix
short_description: What is known of every combination of MoE and FP4 GEMM backend
version_added: 0.1.0
description:
  - Judges each combination for the architecture, model, quantization and versions that the host's variables name,
    from the evidence of this collection and the folders in the variable C(evidence_dirs).
  - Runs on the controller and needs no connection.
author:
  - The blackwell.sglang authors (@blackwell-sglang)
extends_documentation_fragment:
  - blackwell.sglang.attributes
  - blackwell.sglang.attributes.read_only
"""
EXAMPLES = r"""
- name: Judge every combination
  blackwell.sglang.backend_matrix:
  register: matrix

- name: Show it
  ansible.builtin.debug:
    msg: "{{ (matrix.table + matrix.explanation) | join('\n') }}"
"""
RETURN = r"""
matrix:
  description:
    - C(moe_backends) (rows), C(gemm_backends) (columns), C(cells) (one a combination, with C(verdict), C(because)
      and the C(entries) that decided), C(stack), and C(asked), the combination that the variables name.
  returned: success
  type: dict
table:
  description: The matrix as lines of text.
  returned: success
  type: list
  elements: str
explanation:
  description: Why the asked combination is what it is, as lines of text.
  returned: success
  type: list
  elements: str
"""
