# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts, with what the sources say as the expectation; and what must hold whatever the entries are."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from ansible_collections.blackwell.sglang.plugins.plugin_utils import catalogue, evidence
from ansible_collections.blackwell.sglang.plugins.plugin_utils.evidence import Combination, Observation, judge, suggest
from hypothesis import given, settings
from hypothesis import strategies as st

ENTRIES = evidence.load()
QWEN = "nvidia/Qwen3.5-397B-A17B-NVFP4"
CUTLASS, CUDNN, TRT, DSL, AUTO = (
    "flashinfer_cutlass",
    "flashinfer_cudnn",
    "flashinfer_trtllm",
    "flashinfer_cutedsl",
    "auto",
)
GOOD, BAD, COND, NONE = "known_good", "known_bad", "conditional", "untested"


def pins(version: str) -> dict[str, str]:
    release, _warning = catalogue.release_for(version)
    return {"sglang": version, **{part: v for part, v in release.pins.items() if part in evidence.STACK_PARTS}}


def ask(version: str, moe: str, gemm: str, **other) -> Combination:
    fields = {
        "arch": "sm120",
        "model": QWEN,
        "quantization": "modelopt_fp4",
        "attention_backend": "triton",
        "kv_cache_dtype": "auto",
        "tp_size": 8,
    }
    return Combination(moe_backend=moe, gemm_backend=gemm, **{**fields, **other})


# (SGLang release, MoE runner, FP4 GEMM, what else, verdict, why: the source)
TABLE = [
    # The campaign's six rows, on the newest release with its own pins
    ("0.5.23", TRT, CUDNN, {}, BAD, "campaign: killed during load"),
    ("0.5.23", DSL, CUDNN, {}, BAD, "campaign: !!!!"),
    ("0.5.23", AUTO, AUTO, {}, BAD, "campaign: garbage"),
    ("0.5.23", CUTLASS, AUTO, {}, COND, "campaign: correct, but auto is never known good"),
    ("0.5.23", CUTLASS, TRT, {}, BAD, "campaign: NaN; flashinfer has trtllm for 100 and 103 only"),
    ("0.5.23", CUTLASS, CUDNN, {}, GOOD, "campaign: stayed in production"),
    # The production pair, release by release: good depends on FlashInfer
    ("0.5.22", CUTLASS, CUDNN, {}, GOOD, "no report against FlashInfer 0.7.1"),
    ("0.5.20", CUTLASS, CUDNN, {}, GOOD, "no report against FlashInfer 0.6.18"),
    ("0.5.18", CUTLASS, CUDNN, {}, GOOD, "no report against FlashInfer 0.6.17"),
    ("0.5.16", CUTLASS, CUDNN, {}, GOOD, "no report against FlashInfer 0.6.14"),
    ("0.5.14", CUTLASS, CUDNN, {}, GOOD, "FlashInfer 0.6.12: only cutlass is reported"),
    ("0.5.13.post1", CUTLASS, CUDNN, {}, GOOD, "as 0.5.14"),
    ("0.5.12.post1", CUTLASS, CUDNN, {}, GOOD, "no report against FlashInfer 0.6.11"),
    ("0.5.11", CUTLASS, CUDNN, {}, GOOD, "FlashInfer 0.6.8: after pull 3192"),
    ("0.5.10.post1", CUTLASS, CUDNN, {}, BAD, "FlashInfer 0.6.7: between pulls 2910 and 3192, NaN"),
    ("0.5.9", CUTLASS, CUDNN, {}, BAD, "FlashInfer 0.6.3: no execution plan (issue 2577)"),
    ("0.5.8.post1", CUTLASS, CUDNN, {}, BAD, "SGLang 0.5.8: NaN, does not know the model"),
    # Other tensor parallel sizes, KV caches and attention of the production pair
    ("0.5.23", CUTLASS, CUDNN, {"tp_size": 4}, GOOD, "rtx6kpro wiki, 4 cards"),
    ("0.5.23", CUTLASS, CUDNN, {"kv_cache_dtype": "fp8_e4m3"}, GOOD, "rtx6kpro wiki, 8 cards"),
    ("0.5.23", CUTLASS, CUDNN, {"tp_size": 4, "kv_cache_dtype": "fp8_e4m3"}, GOOD, "campaign and wiki together"),
    (
        "0.5.23",
        CUTLASS,
        CUDNN,
        {"attention_backend": "flashinfer"},
        GOOD,
        "campaign did not state attention; nobody against it",
    ),
    ("0.5.14", CUTLASS, CUDNN, {"attention_backend": "trtllm_mha"}, BAD, "refused on SM120 up to 0.5.18"),
    ("0.5.18", CUTLASS, CUDNN, {"attention_backend": "trtllm_mha"}, BAD, "refused on SM120 up to 0.5.18"),
    (
        "0.5.23",
        CUTLASS,
        CUDNN,
        {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"},
        BAD,
        "no FP8 prefill kernel (issue 39807)",
    ),
    ("0.5.23", CUTLASS, CUDNN, {"attention_backend": "fa3"}, BAD, "hybrid models refuse it on Blackwell"),
    ("0.5.23", CUTLASS, CUDNN, {"attention_backend": "fa4"}, BAD, "hybrid models refuse it from 0.5.16"),
    ("0.5.14", CUTLASS, CUDNN, {"attention_backend": "fa4"}, GOOD, "allowed 0.5.10 to 0.5.14, pair is good"),
    ("0.5.23", CUTLASS, CUDNN, {"attention_backend": "torch_native"}, BAD, "hybrid models refuse it"),
    ("0.5.23", CUTLASS, CUDNN, {"attention_backend": "trtllm_mla"}, BAD, "SM100, 103, 107 only"),
    (
        "0.5.23",
        CUTLASS,
        CUDNN,
        {"attention_backend": "flashinfer", "kv_cache_dtype": "nvfp4"},
        BAD,
        "no nvfp4 KV on family 120",
    ),
    # MoE runners that are never right on SM120
    ("0.5.14", TRT, CUDNN, {}, BAD, "trtllm-gen MoE is SM100-only"),
    ("0.5.11", TRT, CUTLASS, {}, BAD, "trtllm-gen MoE is SM100-only"),
    ("0.5.23", "flashinfer_trtllm_routed", CUDNN, {}, BAD, "cubins for SM100 only"),
    ("0.5.23", "flashinfer_megamoe", CUDNN, {}, BAD, "SM100 only"),
    ("0.5.23", "megamoe", CUDNN, {}, BAD, "DeepGEMM MegaMoE requires SM100"),
    ("0.5.23", "deep_gemm", CUDNN, {}, BAD, "UE8M0 scales: NaN"),
    ("0.5.12.post1", AUTO, CUDNN, {}, BAD, "auto takes FLASHINFER_TRTLLM"),
    ("0.5.11", AUTO, AUTO, {}, BAD, "auto takes FLASHINFER_TRTLLM"),
    ("0.5.23", AUTO, CUDNN, {}, BAD, "issue 39807 and campaign"),
    ("0.5.14", DSL, AUTO, {}, BAD, "campaign"),
    # cutlass, by release
    ("0.5.23", "cutlass", CUDNN, {}, BAD, "refused for NVFP4 from 0.5.16"),
    ("0.5.16", "cutlass", AUTO, {}, BAD, "refused for NVFP4 from 0.5.16"),
    ("0.5.14", "cutlass", CUDNN, {}, BAD, "NotImplementedError 0.5.11 to 0.5.14"),
    ("0.5.11", "cutlass", AUTO, {}, BAD, "NotImplementedError 0.5.11 to 0.5.14"),
    (
        "0.5.10.post1",
        "cutlass",
        AUTO,
        {"tp_size": 4, "kv_cache_dtype": "fp8_e4m3"},
        COND,
        "wiki says ok, but auto GEMM",
    ),
    # Never tried
    ("0.5.23", "triton", CUDNN, {}, NONE, "no report for this model"),
    ("0.5.23", "marlin", CUDNN, {}, NONE, "vLLM only"),
    ("0.5.23", "humming", CUDNN, {}, NONE, "no report"),
    ("0.5.23", CUTLASS, "marlin", {}, NONE, "vLLM only"),
    # FP4 GEMM
    ("0.5.23", CUTLASS, CUTLASS, {}, BAD, "NaN under concurrency (pull 20047)"),
    ("0.5.14", CUTLASS, CUTLASS, {}, BAD, "FlashInfer 0.6.12: zeros (issue 3398)"),
    ("0.5.9", CUTLASS, CUTLASS, {}, BAD, "FlashInfer 0.6.3: all zeros"),
    ("0.5.9", CUTLASS, TRT, {}, BAD, "does not support capability 120"),
    ("0.5.20", CUTLASS, DSL, {}, BAD, "cute-dsl for 100 and 103 only before FlashInfer 0.7"),
    ("0.5.23", CUTLASS, DSL, {}, NONE, "allowed in FlashInfer 0.7.2, nobody tried"),
    # Other models and quantizations on SM120
    ("0.5.23", CUTLASS, CUDNN, {"model": "acme/Unheard-NVFP4"}, NONE, "a good report is of its model only"),
    ("0.5.23", TRT, CUDNN, {"model": "acme/Unheard-NVFP4"}, BAD, "SM100-only kernels fail with any model"),
    ("0.5.23", CUTLASS, CUDNN, {"model": "shadowlilac/MiMo-V2.5-NVFP4"}, BAD, "garbage with every backend"),
    (
        "0.5.23",
        "triton",
        AUTO,
        {"model": "nvidia/Kimi-K2.5-NVFP4", "kv_cache_dtype": "fp8_e4m3"},
        COND,
        "ok, but auto GEMM",
    ),
    ("0.5.23", CUTLASS, CUDNN, {"model": "zai/GLM-5-NVFP4", "kv_cache_dtype": "fp8_e4m3"}, BAD, "FP8 KV garbles GLM-5"),
    (
        "0.5.23",
        CUTLASS,
        CUDNN,
        {"model": "nvidia/GLM-5.2-NVFP4", "attention_backend": "dsa"},
        BAD,
        "unsupported architecture in warm-up",
    ),
    ("0.5.23", AUTO, CUTLASS, {"model": "nvidia/Qwen3.8-27B-NVFP4"}, COND, "measured right, but auto MoE"),
    (
        "0.5.23",
        "triton",
        AUTO,
        {"model": "Qwen/Qwen3.5-397B-A17B-FP8", "quantization": "fp8"},
        COND,
        "ok, but auto GEMM",
    ),
    # Other architectures: what holds there, and that it says nothing of SM120
    (
        "0.5.23",
        TRT,
        CUTLASS,
        {"arch": "sm100", "attention_backend": "trtllm_mha", "tp_size": 4},
        GOOD,
        "SGLang CI on B200",
    ),
    (
        "0.5.18",
        TRT,
        CUTLASS,
        {"arch": "sm100", "attention_backend": "trtllm_mha", "tp_size": 4},
        BAD,
        "FlashInfer 0.6.17: NaN (issue 34629)",
    ),
    ("0.5.23", CUTLASS, CUDNN, {"arch": "sm100"}, NONE, "no report"),
    ("0.5.23", CUTLASS, TRT, {"arch": "sm121"}, BAD, "trtllm for 100 and 103 only"),
    ("0.5.10.post1", CUTLASS, CUDNN, {"arch": "sm121"}, BAD, "NaN between pulls 2910 and 3192"),
    ("0.5.23", TRT, CUDNN, {"arch": "sm90"}, BAD, "Blackwell cubins only"),
    ("0.5.23", AUTO, AUTO, {"arch": "cpu", "model": "tiny", "quantization": None}, GOOD, "nothing to choose on a CPU"),
]


@pytest.mark.parametrize(("version", "moe", "gemm", "other", "kind", "why"), TABLE)
def test_verdicts_are_those_of_the_sources(version, moe, gemm, other, kind, why):
    verdict = judge(ask(version, moe, gemm, **other), pins(version), ENTRIES)
    assert verdict.kind == kind, f"{why}; got: {verdict.because}"
    assert verdict.because
    if kind in (GOOD, BAD):
        assert verdict.entries


def test_unknown_versions_make_it_conditional():
    verdict = judge(ask("0.5.23", CUTLASS, CUDNN), {"sglang": "0.5.23"}, ENTRIES)
    assert verdict.kind == COND and "flashinfer" in verdict.because


def test_the_nearest_known_good_changes_least():
    assert suggest(ask("0.5.23", TRT, CUDNN), pins("0.5.23"), ENTRIES) == {"moe_backend": CUTLASS}
    assert suggest(ask("0.5.23", CUTLASS, TRT), pins("0.5.23"), ENTRIES) == {"gemm_backend": CUDNN}
    assert suggest(ask("0.5.23", AUTO, AUTO), pins("0.5.23"), ENTRIES) == {
        "moe_backend": CUTLASS,
        "gemm_backend": CUDNN,
    }
    assert suggest(ask("0.5.9", CUTLASS, CUDNN), pins("0.5.9"), ENTRIES) is None


def test_every_suggestion_is_known_good():
    for version, moe, gemm, other, _kind, _why in TABLE:
        combination = ask(version, moe, gemm, **other)
        changes = suggest(combination, pins(version), ENTRIES)
        if changes is not None:
            assert judge(combination.but(changes), pins(version), ENTRIES).kind == GOOD


# -- whatever the entries are

NAMES = st.sampled_from([CUTLASS, CUDNN, TRT, AUTO])
OBSERVATIONS = st.builds(
    Observation,
    id=st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
    arch=st.sampled_from(["sm120", "sm100"]),
    model=st.none() | st.sampled_from(["*Qwen3.5*", "other/*"]),
    quantization=st.none() | st.just("modelopt_fp4"),
    moe_backend=st.none() | NAMES,
    gemm_backend=st.none() | NAMES,
    stack=st.dictionaries(
        st.sampled_from(["sglang", "flashinfer"]), st.sampled_from(["<0.5.10", ">=0.5.10", "==0.7.2"]), max_size=2
    ),
    outcome=st.sampled_from(["ok", "ok", "garbage", "nan", "crash"]),
    depth=st.sampled_from(evidence.DEPTHS),
    date=st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 4)),
    source=st.just("test"),
)
UNIQUE = st.lists(OBSERVATIONS, max_size=8, unique_by=lambda entry: entry.id)
STACKS = st.sampled_from([{}, {"sglang": "0.5.23"}, {"sglang": "0.5.9", "flashinfer": "0.7.2"}])
ASKED = st.builds(ask, st.just("x"), NAMES, NAMES)


@settings(max_examples=300)
@given(ASKED, STACKS, UNIQUE, st.randoms())
def test_the_order_of_entries_never_matters(asked, stack, entries, dice):
    shuffled = list(entries)
    dice.shuffle(shuffled)
    assert judge(asked, stack, entries) == judge(asked, stack, shuffled)


@settings(max_examples=300)
@given(ASKED, STACKS, UNIQUE, OBSERVATIONS)
def test_a_success_on_other_hardware_changes_nothing(asked, stack, entries, entry):
    other = entry.model_copy(update={"arch": "sm90", "outcome": "ok", "id": "zz-other"})
    assert judge(asked, stack, entries) == judge(asked, stack, [*entries, other])


@settings(max_examples=500)
@given(ASKED, STACKS, UNIQUE)
def test_a_matching_bad_entry_needs_a_better_good_one(asked, stack, entries):
    verdict = judge(asked, stack, entries)
    matches = [
        match for match in (evidence._match(entry, asked, stack) for entry in entries) if match and not match.unknown
    ]
    good = [match.weight for match in matches if not match.entry.bad]
    bad = [match.weight for match in matches if match.entry.bad]
    if verdict.kind == GOOD:
        assert good and (not bad or max(good) > max(bad))
        assert "auto" not in (asked.moe_backend, asked.gemm_backend)
    if bad and (not good or max(bad) > max(good)):
        assert verdict.kind == BAD


# -- broken files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- id: a\n  arch: sm120\n", ":1: "),
        (
            "- {id: a, arch: sm120, outcome: ok, depth: loads, date: 2026-01-01, source: abc}\n- id: b\n  arch: tpu\n",
            ":2: ",
        ),
        (
            "---\n# note\n- {id: a, arch: sm120, outcome: great, depth: loads, date: 2026-01-01, source: abc}\n",
            ":3: outcome",
        ),
        (
            "- {id: a, arch: sm120, outcome: ok, depth: loads, date: 2026-01-01, source: abc, stack: {sglang: new}}\n",
            "PEP 440",
        ),
        (
            "- {id: a, arch: sm120, outcome: ok, depth: loads, date: 2026-01-01, source: abc, stack: {vllm: '>1'}}\n",
            "no part of the stack",
        ),
        ("- {id: a, arch: sm120, outcome: ok, depth: loads, date: 2026-01-01, source: abc, moe: x}\n", "moe"),
        ("x: 1\n", "list of observations"),
        ("- [\n", "line"),
        (
            "- {id: campaign-cutlass-cudnn, arch: sm120, outcome: ok, depth: loads, date: 2026-01-01, source: abc}\n",
            "is also in",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, text, message):
    (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(evidence.EvidenceError, match="mine.yml") as error:
        evidence.load([tmp_path])
    assert message in str(error.value)


def test_a_folder_of_ones_own_counts(tmp_path):
    (tmp_path / "mine.yml").write_text(
        "- {id: mine, arch: sm120, model: '*Qwen3.5*', moe_backend: triton, gemm_backend: flashinfer_cudnn,"
        " outcome: ok, depth: accuracy, date: 2026-11-30, source: our host}\n"
    )
    asked = ask("0.5.23", "triton", CUDNN)
    assert judge(asked, pins("0.5.23"), evidence.load()).kind == NONE
    assert judge(asked, pins("0.5.23"), evidence.load([tmp_path])).kind == GOOD


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(evidence.EvidenceError, match="no folder"):
        evidence.load([Path(tmp_path / "absent")])
