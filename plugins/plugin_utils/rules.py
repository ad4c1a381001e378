# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What several variables together must fulfil. Each rule with its source."""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.blackwell.sglang.plugins.plugin_utils._pydantic import Version
from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import Deployment, Problem

# Facts of models that rules need. Source: the model card and config.json (moe_intermediate_size, hidden_size).
MODELS: t.Mapping[str, t.Mapping[str, int]] = {
    "*qwen3.5-397b-a17b*": {"context_length": 262144, "moe_intermediate_size": 1024, "hidden_size": 4096},
}
NVFP4_ALIGNMENT = 32  # per-rank K of each NVFP4 linear must be a multiple (vllm issue 48898)

Rule = t.Callable[[Deployment], t.Iterator[Problem]]


def _model(deployment: Deployment) -> t.Mapping[str, int]:
    for pattern, facts in MODELS.items():
        if fnmatch.fnmatchcase(deployment.model_name.lower(), pattern):
            return facts
    return {}


def gpus_exist(d: Deployment) -> t.Iterator[Problem]:
    absent = [index for index in d.gpus if not 0 <= index < d.gpu_count]
    if absent:
        yield Problem(
            "gpus",
            d.gpus,
            f"{absent} are not among the host's GPUs 0 to {d.gpu_count - 1} (gpu_count = {d.gpu_count})",
        )
    if len(set(d.gpus)) != len(d.gpus):
        yield Problem("gpus", d.gpus, "names a GPU twice")


def enough_gpus(d: Deployment) -> t.Iterator[Problem]:
    if d.gpu_arch == "cpu":
        return
    have = len(d.gpus) or d.gpu_count
    # With dp attention the data parallel ranks share the tensor parallel group's GPUs.
    shared = any(word in d.sglang_extra_args for word in ("--enable-dp-attention", "--attn-dp-size"))
    need = d.tp_size * d.pp_size * (1 if shared else d.dp_size)
    if need > have * d.nnodes:
        terms = f"tp_size {d.tp_size} x dp_size {d.dp_size} x pp_size {d.pp_size}"
        nodes = f" on each of {d.nnodes} nodes" if d.nnodes > 1 else ""
        yield Problem(
            "tp_size", d.tp_size, f"{terms} needs {need} GPUs, the instance has {have}{nodes} (gpus, gpu_count)"
        )


def nodes_together(d: Deployment) -> t.Iterator[Problem]:
    """The splits that SGLang asserts (validation_hook.py of 0.5.23), and what makes the nodes find each other."""
    if len(set(d.sglang_nodes)) != len(d.sglang_nodes):
        yield Problem("sglang_nodes", d.sglang_nodes, "names a host twice")
    if d.sglang_nodes and d.inventory_hostname not in d.sglang_nodes:
        yield Problem("sglang_nodes", d.sglang_nodes, f"does not name this host, {d.inventory_hostname}")
    if d.nnodes == 1:
        return
    if d.dist_init_addr is None:
        message = f"must be set for several nodes: the address of {d.sglang_nodes[0]} and a free port, HOST:PORT"
        yield Problem("dist_init_addr", None, message)
    if d.tp_size * d.pp_size % d.nnodes:
        message = f"tp_size {d.tp_size} x pp_size {d.pp_size} does not split over {d.nnodes} nodes"
        yield Problem("tp_size", d.tp_size, message)
    if d.dp_size > 1 and "--enable-dp-attention" not in d.sglang_extra_args:
        message = "SGLang takes several nodes with data parallel only with --enable-dp-attention in sglang_extra_args"
        yield Problem("dp_size", d.dp_size, message)


def expert_parallel(d: Deployment) -> t.Iterator[Problem]:
    if d.ep_size not in (1, d.tp_size):
        yield Problem(
            "ep_size",
            d.ep_size,
            f"must be 1 or tp_size ({d.tp_size}): SGLang refuses anything else with flashinfer_cutlass",
        )
    elif d.ep_size > 1 and d.gpu_arch == "sm120" and d.backend_policy != "any":
        yield Problem(
            "ep_size",
            d.ep_size,
            "expert parallel over PCIe was measured at 1.4 to 2.6 tokens/s (discuss.vllm.ai 2536; "
            "rtx6kpro topology.md); set 1, or backend_policy=any to try",
        )


def nvfp4_alignment(d: Deployment) -> t.Iterator[Problem]:
    size = _model(d).get("moe_intermediate_size")
    if size and d.quantization == "modelopt_fp4" and d.ep_size == 1 and size % (d.tp_size * NVFP4_ALIGNMENT):
        yield Problem(
            "tp_size",
            d.tp_size,
            f"the experts' {size} columns do not split into multiples of {NVFP4_ALIGNMENT} over {d.tp_size} ranks; "
            "misaligned NVFP4 answers garbage (vllm issue 48898)",
        )


def context_within_model(d: Deployment) -> t.Iterator[Problem]:
    longest = _model(d).get("context_length")
    if longest and d.context_length and d.context_length > longest:
        yield Problem(
            "context_length",
            d.context_length,
            f"the model's own is {longest}; SGLang refuses a longer one at start",
        )


def speculative_complete(d: Deployment) -> t.Iterator[Problem]:
    numbers = (
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_draft_model_path",
    )
    if not d.speculative_algorithm:
        for name in numbers:
            if getattr(d, name) is not None:
                yield Problem(name, getattr(d, name), "means nothing without speculative_algorithm")
        return
    chain = d.speculative_eagle_topk == 1 and d.speculative_num_steps is not None
    if chain and d.speculative_num_draft_tokens not in (None, t.cast(int, d.speculative_num_steps) + 1):
        yield Problem(
            "speculative_num_draft_tokens",
            d.speculative_num_draft_tokens,
            f"with speculative_eagle_topk 1 it is the number of steps and one: {t.cast(int, d.speculative_num_steps) + 1}",
        )
    needs_v2 = Version("0.5.10") <= Version(d.sglang_version) < Version("0.5.11")
    if needs_v2 and d.sglang_env.get("SGLANG_ENABLE_SPEC_V2", "").lower() not in ("1", "true"):
        yield Problem(
            "sglang_env",
            None,
            f'SGLang {d.sglang_version} decodes speculatively on hybrid models only with SGLANG_ENABLE_SPEC_V2: "1" '
            "(and --mamba-scheduler-strategy extra_buffer)",
        )


def peer_to_peer_off(d: Deployment) -> t.Iterator[Problem]:
    if d.sglang_env.get("NCCL_P2P_DISABLE") == "1" and "--disable-custom-all-reduce" not in d.sglang_extra_args:
        yield Problem(
            "sglang_env",
            None,
            "NCCL_P2P_DISABLE=1 alone leaves custom all-reduce on the broken peer-to-peer path and the start hangs: "
            "add --disable-custom-all-reduce to sglang_extra_args (rtx6kpro issue 15; vllm issue 51513)",
        )


def nan_not_hidden(d: Deployment) -> t.Iterator[Problem]:
    if d.sglang_env.get("SGLANG_SANITIZE_NAN_LOGITS", "0").lower() in ("1", "true"):
        yield Problem(
            "sglang_env",
            None,
            "SGLANG_SANITIZE_NAN_LOGITS=1 turns NaN into random text, which hides it from every check "
            "(sglang issue 33187): leave it off",
        )


# Rule -> the variables that it reads; it is left out where one of them is wrong by itself.
RULES: tuple[tuple[Rule, frozenset[str]], ...] = (
    (gpus_exist, frozenset({"gpus", "gpu_count"})),
    (
        enough_gpus,
        frozenset({"gpus", "gpu_count", "tp_size", "dp_size", "pp_size", "sglang_nodes", "sglang_extra_args"}),
    ),
    (nodes_together, frozenset({"sglang_nodes", "dist_init_addr", "tp_size", "pp_size", "dp_size"})),
    (expert_parallel, frozenset({"ep_size", "tp_size"})),
    (nvfp4_alignment, frozenset({"tp_size", "model_name", "quantization"})),
    (context_within_model, frozenset({"context_length", "model_name"})),
    (speculative_complete, frozenset({"speculative_algorithm", "sglang_version", "sglang_env"})),
    (peer_to_peer_off, frozenset({"sglang_env", "sglang_extra_args"})),
    (nan_not_hidden, frozenset({"sglang_env"})),
)


def problems(deployment: Deployment, wrong: t.AbstractSet[str]) -> list[Problem]:
    """All broken rules, but for those that read a variable in C(wrong)."""
    return [problem for rule, reads in RULES if not reads & wrong for problem in rule(deployment)]
