# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The matrix for people: rows, columns, and why."""

from __future__ import annotations

import json

from ansible_collections.blackwell.sglang.plugins.plugin_utils import evidence, matrix


def made(**values):
    content, problems = matrix.make(values, evidence.load())
    assert not problems
    return content


def test_the_campaign_stands_in_the_table():
    lines = {line.split()[0]: line for line in matrix.table(made())}
    header = matrix.table(made())[0]
    assert header.split()[2:] == ["gemm", *made()["gemm_backends"]]
    column = header.index("flashinfer_cudnn")
    assert lines["flashinfer_cutlass"][column:].startswith("good ")
    assert lines["flashinfer_trtllm"][column:].startswith("BAD oom")
    assert lines["flashinfer_cutedsl"][column:].startswith("BAD garbage")
    assert lines["flashinfer_cutlass"][header.index("flashinfer_trtllm") :].startswith("BAD")


def test_what_is_asked_stands_in_the_table_though_no_evidence_names_it():
    content = made(moe_backend="aiter")
    assert "aiter" in content["moe_backends"] and content["asked"]["verdict"] == "untested"


def test_the_explanation_names_reason_source_and_remedy():
    text = "\n".join(matrix.explanation(made(moe_backend="flashinfer_trtllm")))
    assert "known bad" in text and "operator campaign" in text and "-e moe_backend=flashinfer_cutlass" in text
    assert "-e " not in "\n".join(matrix.explanation(made()))


def test_it_is_plain_json():
    content = made()
    assert json.loads(json.dumps(content)) == content
    assert len(content["cells"]) == len(content["moe_backends"]) * len(content["gemm_backends"])


def test_wrong_variables_are_told():
    assert matrix.make({"tp_size": "eight"}, evidence.load())[1][0].variable == "tp_size"
