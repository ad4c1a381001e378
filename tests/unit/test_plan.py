# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From variables to a plan, or to all problems at once."""

from __future__ import annotations

import json

import pytest
from ansible_collections.blackwell.sglang.plugins.plugin_utils import catalogue, plan
from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import Deployment

KEY = "sentinel-key-0123456789"


def make(**values):
    known = {name: value for name, value in values.items() if name in Deployment.model_fields}
    return plan.make(known, given_names=values, given_by_hand=values)


def problems(**values) -> list[str]:
    planned = make(**values)
    assert planned.plan is None
    return [str(problem) for problem in planned.problems]


def argv(**values) -> list[str]:
    planned = make(**values)
    assert planned.plan is not None, [str(problem) for problem in planned.problems]
    return planned.plan["run"]["argv"]


def test_the_default_is_the_production_configuration():
    words = argv()
    for flag, value in {
        "--moe-runner-backend": "flashinfer_cutlass",
        "--fp4-gemm-backend": "flashinfer_cudnn",
        "--attention-backend": "triton",
        "--quantization": "modelopt_fp4",
        "--tp-size": "8",
    }.items():
        assert words[words.index(flag) + 1] == value


def test_strings_of_the_command_line_become_what_they_mean():
    texts = make(
        tp_size="4",
        gpus="0,1,2,3",
        mem_fraction_static="0.8",
        gpu_exclusive="true",
        context_length="",
        sglang_env='{"A": "b"}',
    )
    typed = make(tp_size=4, gpus=[0, 1, 2, 3], mem_fraction_static=0.8, gpu_exclusive=True, sglang_env={"A": "b"})
    assert texts.plan == typed.plan
    assert texts.plan["gpus"] == [0, 1, 2, 3]
    assert texts.plan["run"]["env"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_twelve_faults_are_twelve_problems_and_no_secret_is_shown():
    found = problems(
        moe_backend="flashinfer_cutlas",
        gemm_backend="cudnn",
        attention_backend="tritn",
        kv_cache_dtype="fp8",
        tp_size="eight",
        sglang_port=70000,
        mem_fraction_static=1.5,
        gpu_arch="sm999",
        sglang_supervisor="initd",
        api_key="short-sentinel",
        gpus="0,1,99",
        sglang_extra_args=["--tp", "8"],
        sglang_env={"HF_TOKEN": "sentinel-token"},
        moe_backnd="x",
    )
    names = [line.split(" = ")[0].split(":")[0] for line in found]
    for name in ("moe_backend", "gemm_backend", "attention_backend", "kv_cache_dtype", "tp_size", "sglang_port", "mem_fraction_static",
                 "gpu_arch", "sglang_supervisor", "api_key", "gpus", "sglang_extra_args", "sglang_env", "moe_backnd"):  # fmt: skip
        assert names.count(name) == 1, (name, found)
    text = "\n".join(found)
    assert "sentinel" not in text
    assert "did you mean moe_backend?" in text
    assert "allowed: auto, flashinfer_cudnn" in text
    assert "must be a whole number" in text and "must be at most 65535" in text and "must be below 1" in text


@pytest.mark.parametrize(
    ("backend", "value", "names"),
    [
        ("moe_backend", "flashinfer_trtllm", ("operator campaign", "-e moe_backend=flashinfer_cutlass")),
        ("moe_backend", "flashinfer_cutedsl", ("garbage", "-e moe_backend=flashinfer_cutlass")),
        ("moe_backend", "auto", ("garbage", "-e moe_backend=flashinfer_cutlass")),
        ("gemm_backend", "flashinfer_trtllm", ("flashinfer 0.7.2", "-e gemm_backend=flashinfer_cudnn")),
    ],
)
def test_a_bad_backend_is_refused_with_reason_source_and_remedy(backend, value, names):
    (line,) = problems(**{backend: value})
    assert line.startswith(f'{backend} = "{value}"')
    for name in names:
        assert name in line
    assert make(**{backend: value, "backend_policy": "any"}).plan is not None
    assert make(**{backend: value, "backend_policy": "untested"}).plan is None


def test_untested_needs_a_policy():
    assert "untested" in problems(moe_backend="triton")[0]
    assert make(moe_backend="triton", backend_policy="untested").plan is not None


@pytest.mark.parametrize(
    ("values", "variable", "says"),
    [
        ({"tp_size": 16}, "tp_size", "needs 16 GPUs, the instance has 8"),
        ({"tp_size": 8, "dp_size": 2}, "tp_size", "needs 16 GPUs"),
        ({"gpus": [0, 1]}, "tp_size", "the instance has 2"),
        ({"gpus": [0, 0]}, "gpus", "twice"),
        ({"tp_size": 8, "ep_size": 4}, "ep_size", "1 or tp_size"),
        ({"tp_size": 8, "ep_size": 8}, "ep_size", "1.4 to 2.6 tokens/s"),
        ({"tp_size": 64, "gpu_count": 64}, "tp_size", "multiples of 32"),
        ({"context_length": 300000}, "context_length", "262144"),
        ({"speculative_num_steps": 3}, "speculative_num_steps", "speculative_algorithm"),
        (
            {
                "speculative_algorithm": "NEXTN",
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 9,
            },
            "speculative_num_draft_tokens",
            "4",
        ),
        (
            {"sglang_version": "0.5.10.post1", "flashinfer_version": "0.6.8", "speculative_algorithm": "NEXTN"},
            "sglang_env",
            "SGLANG_ENABLE_SPEC_V2",
        ),
        ({"sglang_env": {"NCCL_P2P_DISABLE": "1"}}, "sglang_env", "--disable-custom-all-reduce"),
        ({"sglang_env": {"SGLANG_SANITIZE_NAN_LOGITS": "1"}}, "sglang_env", "hides it"),
        ({"served_model_name": "a:b"}, "served_model_name", "colon"),
        ({"sglang_extra_args": ["--moe-runner-backend", "auto"]}, "sglang_extra_args", "variable moe_backend"),
        ({"sglang_extra_args": ["--api-key", "x"]}, "sglang_extra_args", "variable api_key"),
        ({"sglang_extra_args": ["--no-such-flag"]}, "sglang_extra_args", "no such flag"),
        ({"sglang_extra_args": ["--enable-metrics", "yes"]}, "sglang_extra_args", "takes no value"),
        ({"sglang_extra_args": ["--page-size"]}, "sglang_extra_args", "needs a value"),
        ({"sglang_extra_args": ["--page-size", "big"]}, "sglang_extra_args", "whole number"),
        ({"sglang_extra_args": ["stray"]}, "sglang_extra_args", "stray"),
        (
            {"sglang_version": "0.5.20", "sglang_extra_args": ["--mamba-scheduler-strategy", "auto"]},
            "sglang_extra_args",
            "successor is --mamba-radix-cache-strategy",
        ),
        (
            {"sglang_version": "0.5.23", "sglang_extra_args": ["--cuda-graph-max-bs", "4"]},
            "sglang_extra_args",
            "--cuda-graph-max-bs-decode",
        ),
    ],
)
def test_rules_over_several_variables(values, variable, says):
    found = problems(**values)
    assert any(line.startswith(variable) and says in line for line in found), found


def test_peer_to_peer_off_is_fine_with_its_flag():
    assert (
        argv(sglang_env={"NCCL_P2P_DISABLE": "1"}, sglang_extra_args=["--disable-custom-all-reduce"])[-1]
        == "--disable-custom-all-reduce"
    )


@pytest.mark.parametrize(
    ("name", "by_hand", "found"),
    [
        ("moe_backnd", True, True),
        ("tp_sizes", True, True),
        ("port", True, True),
        ("port", False, False),
        ("env", True, False),
        ("gpu_exclusiv", False, True),
        ("sglang_verison", False, True),
        ("sglang_no_idea", False, True),
        ("my_app_version", False, False),
        ("ntp_server", False, False),
        ("environment_name", True, False),
        ("target", True, False),
    ],
)
def test_misspelt_names(name, by_hand, found):
    planned = plan.make({}, [name], [name] if by_hand else [])
    assert bool(planned.problems) is found
    assert plan.make({}, [name], [name], ignored=[name]).problems == []


def test_the_key_is_in_no_plan_but_changes_the_fingerprint():
    without, one, other = make(), make(api_key=KEY), make(api_key=KEY + "x")
    assert KEY not in json.dumps(one.plan)
    assert len({planned.plan["fingerprint"] for planned in (without, one, other)}) == 3
    assert one.plan["run"]["argv"][-2:] == ["--config", "/var/lib/sglang/default/secrets.yaml"]


def test_only_what_the_process_is_made_of_changes_the_fingerprint():
    base = make().plan["fingerprint"]
    assert make(launch_timeout=10, smoke_level="quick", gpu_exclusive=True).plan["fingerprint"] == base
    assert make(context_length=8192).plan["fingerprint"] != base
    assert make(sglang_env={"A": "b"}).plan["fingerprint"] != base


def test_what_is_installed_decides_in_the_second_look():
    assert plan.make({}, found_stack={"sglang": "0.5.23", "flashinfer": "0.7.2"}).plan is not None
    refused = plan.make({}, found_stack={"sglang": "0.5.23", "flashinfer": "0.6.3"})
    assert refused.plan is None and "flashinfer 0.6.3" in str(refused.problems[0])


def test_a_release_without_catalogue_takes_the_nearest_older_one():
    planned = make(sglang_version="0.5.21", flashinfer_version="0.7.1", cudnn_version="9.24", cuda_version="13.0")
    assert planned.plan is not None
    assert planned.warnings == ["no catalogue of SGLang 0.5.21: flags are checked against 0.5.20"]


def test_an_open_port_without_a_key_warns():
    assert any("set api_key" in warning for warning in make(sglang_host="0.0.0.0").warnings)
    assert make(sglang_host="0.0.0.0", api_key=KEY).warnings == []


@pytest.mark.parametrize("version", [version for version in catalogue.versions() if version not in ("0.5.8.post1",)])
def test_every_plan_is_accepted_by_the_catalogue_of_its_release(version):
    release, _warning = catalogue.release_for(version)
    values = {
        "sglang_version": version, "backend_policy": "any", "context_length": 8192, "max_running_requests": 8,
        "reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder", "speculative_algorithm": "NEXTN", "speculative_num_steps": 3,
        "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4, "sglang_env": {"SGLANG_ENABLE_SPEC_V2": "1"}, "dp_size": 2, "tp_size": 4,
    }  # fmt: skip
    assert catalogue.check(argv(**values)[3:], release) == []


def test_values_with_odd_characters_stay_what_they_are():
    odd = "/models/{{ x }} %n $HOME \"q\" 'a' \u00e9\nnew"
    assert odd in argv(model_path=odd)


def test_every_variable_is_described():
    assert all(field.description for field in Deployment.model_fields.values())


PAIR = {
    "sglang_nodes": "gpu1,gpu2",
    "dist_init_addr": "10.0.0.11:20000",
    "tp_size": 16,
    "backend_policy": "any",
    "model_name": "acme/large",
}


def test_nodes_get_their_rank_and_where_to_meet():
    words = argv(**PAIR, inventory_hostname="gpu2")
    for flag, value in {"--nnodes": "2", "--node-rank": "1", "--dist-init-addr": "10.0.0.11:20000"}.items():
        assert words[words.index(flag) + 1] == value
    first = make(**PAIR, inventory_hostname="gpu1").plan
    assert first["node"] == {"rank": 0, "names": ["gpu1", "gpu2"]} and "--node-rank" in first["run"]["argv"]
    alone = make(inventory_hostname="gpu1").plan
    assert alone["node"] == {"rank": 0, "names": ["gpu1"]} and "--nnodes" not in alone["run"]["argv"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"inventory_hostname": "gpu3"}, "does not name this host, gpu3"),
        ({"sglang_nodes": "gpu1,gpu1"}, "names a host twice"),
        ({"dist_init_addr": ""}, "the address of gpu1 and a free port"),
        ({"dist_init_addr": "10.0.0.11"}, "must match"),
        ({"tp_size": 15}, "does not split over 2 nodes"),
        ({"tp_size": 32}, "the instance has 8 on each of 2 nodes"),
        ({"dp_size": 2, "tp_size": 8}, "only with --enable-dp-attention"),
        ({"sglang_extra_args": "--node-rank 0"}, "is set with the variable sglang_nodes"),
    ],
)
def test_nodes_that_could_not_serve_together(wrong, said):
    assert any(said in line for line in problems(**{**PAIR, "inventory_hostname": "gpu1", **wrong}))
