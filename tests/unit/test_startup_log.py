# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The log's story: how far, what of, and what must not be taken for a cause."""

from __future__ import annotations

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import startup_log

# Made-up lines of each kind, with the prefixes, colours and bars that real logs have.
CASES = [
    (
        "kv_pool_too_small",
        "[2026-01-01 00:00:00 TP3] RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    (
        "gpu_mem_unbalanced",
        "RuntimeError: The memory capacity is unbalanced. min_per_gpu_memory=16.28, local_gpu_memory=46.81",
    ),
    ("graph_capture_oom", "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB."),
    ("graph_capture_other", "Exception: Capture cuda graph failed: something else"),
    (
        "cudnn_no_plan",
        "Exception: Capture cuda graph failed: cuDNN FP4 requires backend version >= 91002, found 90701.",
    ),
    (
        "cuda_oom",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 6 has a total capacity of 44.53 GiB",
    ),
    ("nccl_buffer_oom", "NCCL error: Failed to CUDA calloc 10485760 bytes"),
    ("host_oom_kill", "A process of this unit has been killed by the OOM killer."),
    ("host_oom_kill", "Killed"),
    ("nccl_timeout", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)"),
    ("nccl_peer_gone", "RuntimeError: NCCL error: remote process exited or there was a network error"),
    ("unsupported_arch", "BackendSupportedError: mm_fp4 does not support backend 'trtllm' with capability 120"),
    ("unsupported_arch", "tvm.error.InternalError: Assertion error (/deepgemm/x.hpp:56): Unsupported architecture"),
    ("unsupported_arch", "CUDA error: no kernel image is available for execution on the device"),
    (
        "smem_overflow",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
    ),
    ("cutlass_init_fail", "Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal"),
    (
        "port_in_use",
        "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30100): address already in use",
    ),
    ("weights_missing", "RuntimeError: Cannot find any model weights with `/models/x`"),
    (
        "weights_mismatch",
        "SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    ),
    ("hub_auth", "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    ("jit_toolchain", "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
    ("nan_logits", "Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed."),
    ("illegal_access", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("device_assert", "torch.AcceleratorError: CUDA error: device-side assert triggered"),
    ("attn_kv_dtype", "NotImplementedError: TritonMLA V1 with FP8 KV cache not yet supported"),
    ("mixed_precision_backend", "moe_backend='flashinfer_b12x' is not supported for FP8 MoE"),
    ("nvml_mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
    ("gpu_lost", "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost."),
    ("xid", "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed"),
    ("health_timeout", "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."),
    ("bad_arguments", "sglang serve: error: unrecognized arguments: --no-such-flag 1"),
    ("bad_tokenizer", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
    ("bad_config", "OSError: It looks like the config file at '/m/config.json' is not a valid JSON file."),
    ("unknown_model", "ValueError: Cannot find model module. 'NopeForCausalLM' is not a registered model"),
    ("child_failed_generic", "Received sigquit from a child process. It usually means the child failed."),
]


@pytest.mark.parametrize(("name", "line"), CASES)
def test_each_kind_is_named_whatever_stands_around_it(name, line):
    noise = [
        "[2026-01-01 00:00:00] server_args={'x': 'CUDA out of memory Killed address already in use NaN detected'}",
        "Config file not found at /x/E=512,N=128,device_name=NVIDIA.json. Falling back",
        "\x1b[33mwarning\x1b[0m skipping tactic 14: Failed to initialize cutlass",
        "Loading safetensors checkpoint shards:  20% Completed | 1/5\rLoading safetensors checkpoint shards:  40% Completed | 2/5",
    ]
    after = [
        "Scheduler hit an exception: Traceback",
        "Received sigquit from a child process. It usually means the child failed.",
    ]
    found = startup_log.diagnose("\n".join([*noise, f"\x1b[31m{line}\x1b[0m", *after]))
    assert found.failure_class == name
    assert found.remedy


def test_the_first_cause_beats_its_consequences():
    log = "\n".join(
        [
            "Received sigquit from a child process. It usually means the child failed.",
            "[2026-01-01 00:00:00 TP1] RuntimeError: NCCL error: remote process exited or there was a network error",
            "[2026-01-01 00:00:00 TP0] torch.OutOfMemoryError: CUDA out of memory.",
            "[2026-01-01 00:00:00 TP0] RuntimeError: Not enough memory. Please try to increase --mem-fraction-static",
        ]
    )
    assert startup_log.diagnose(log).failure_class == "kv_pool_too_small"


def test_a_clean_start_has_no_cause():
    log = "\n".join(
        [
            "[2026-01-01 00:00:00] server_args={'api_key': None}",
            "Ignore import error when loading sglang.srt.models.grok: no attribute",
            "Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",
            "The server is fired up and ready to roll!",
        ]
    )
    assert startup_log.diagnose(log).failure_class == "unknown"


def test_progress():
    assert str(startup_log.progress("")) == "spawned"
    log = "[x] server_args={}\nLoad weight begin\nLoading safetensors checkpoint shards:  10% Completed | 5/50 [00:01<00:09]"
    assert str(startup_log.progress(log)) == "weights 5/50 shards"
    assert str(startup_log.progress(log + "\nCapture target decode CUDA graph begin.")) == "cuda_graphs"


@pytest.mark.parametrize(
    "line",
    [
        "server_args={'api_key': 'sentinel-value', 'admin_api_key': 'sentinel-value'}",
        "ServerArgs(api_key='sentinel-value', x=1)",
        "launch_command: --api-key sentinel-value --port 1",
        "Authorization: Bearer sentinel-value",
        '{"api_key": "sentinel-value"}',
    ],
)
def test_secrets_are_scrubbed(line):
    assert "sentinel-value" not in startup_log.scrub(line)
    assert "hf_abcdefghij" not in startup_log.scrub("token hf_abcdefghij")
    assert "other" not in startup_log.scrub("x other y", ("other",))
