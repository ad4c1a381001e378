# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What servers say when they fail: one table of kinds, each with what to do about it and where it was reported.

The patterns are for the kind, not for one line: other releases word the same failure otherwise. Ranks: 0 is a cause,
1 a cause that may follow from another, 2 and 3 are consequences; the lowest rank in a log wins, then the first line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Lines that look fatal and are not.
BENIGN = re.compile(
    r"Ignore import error when loading"  # optional model files of a trimmed environment
    r"|Config file not found at .*\.json"  # a missing tuned MoE configuration costs speed only (sglang issue 10521)
    r"|Fail to set RLIMIT_NOFILE"
    r"|(?i:skipping tactic)|Skipped \d+ unsupported tactic"  # autotuning tries kernels that do not fit
    r"|No available shared memory broadcast block"  # a rank is busy compiling
    r"|Custom allreduce is disabled"
    r"|Exception ignored in"
    r"|nanobind: leaked"
    r"|thrown while requesting|listen_for_disconnect|Retrying in \d+s"  # a client or the hub, and it went on
    r"|self\.soft=True"  # a watchdog that only speaks
    r"|Finish: obj=|Receive: obj="  # logged requests, which may talk about anything
    r"|If you see \""
    r"|_fix_v5_\w+: "
)

# The server does its work: what it complained of before, a consequence at most, it has lived through.
GOES_ON = re.compile(r"Decode batch|Prefill batch|HTTP/1\.1\" 200 OK")
# The server was told to stop: its children's ends are no failure.
STOPPED = re.compile(r"SIGTERM received\. signum|Waiting for application shutdown|Finished server process")


@dataclass(frozen=True)
class Rule:
    """A kind of failure: what betrays it, how near to the cause it is, what to do about it."""

    name: str
    rank: int
    pattern: re.Pattern[str]
    remedy: str
    source: str


def _rule(name: str, rank: int, pattern: str, remedy: str, source: str) -> Rule:
    return Rule(name, rank, re.compile(pattern, re.IGNORECASE), remedy, source)


RULES: tuple[Rule, ...] = (
    _rule(
        "bad_arguments",
        0,
        r"error: (unrecognized arguments|argument --|the following arguments are required|ambiguous option)"
        r"|Unknown speculative algorithm|is greater than the derived context_length"
        r"|Invalid quantization '|must be divisible by number of nodes|parallel size must be|not compatible with radix cache"
        r"|do not support overlap schedule",
        "Correct the variable that the line names; sglang_version must be the release that is installed.",
        "sglang 0.5.23 on CPU: exit 2 with usage, or 1 with a ValueError",
    ),
    _rule(
        "kv_pool_too_small",
        0,
        r"Not enough memory\. Please try to increase --mem-fraction-static|Not enough memory to allocate KV cache"
        r"|Loaded weights leave no GPU memory for the KV cache|Not enough GPU memory for hybrid"
        r"|Not enough space for mamba cache|exceeds available Mamba cache blocks",
        "Raise mem_fraction_static, or lower context_length or max_running_requests.",
        "sglang issues 4330, 23181; recipes pull 831",
    ),
    _rule(
        "gpu_mem_unbalanced",
        0,
        r"Error: The memory capacity is unbalanced",
        "Another process holds a GPU: run the deploy again, whose clean step names it.",
        "sglang 0.5.9 to 0.5.23, model_runner",
    ),
    _rule(
        "graph_capture_oom",
        0,
        r"Capture .*cuda graph failed:.*(out of memory|OutOfMemory)",
        "Lower mem_fraction_static, or the largest captured batch with --cuda-graph-max-bs-decode in sglang_extra_args.",
        "sglang issue 5285",
    ),
    _rule(
        "cudnn_no_plan",
        0,
        r"cudnnGraphNotSupported|No execution plans support the graph|cuDNN FP4 requires backend version|Plan index \d+ is invalid"
        r"|Unsupported CuDNN version",
        "The installed cuDNN or FlashInfer has no kernel for this: update them, or set gemm_backend.",
        "flashinfer issues 2577, 3566; sglang issue 8519",
    ),
    _rule(
        "graph_capture_other",
        1,
        r"Capture .*cuda graph failed",
        "The line names what failed; --disable-cuda-graph in sglang_extra_args shows whether it is the capture alone.",
        "sglang, cuda_graph_runner",
    ),
    _rule(
        "attn_kv_dtype",
        0,
        r"does not support fp8_e4m3 KV cache|with FP8 KV cache not yet supported|supports_kv_cache_dtype\[\w+\] ?: ?false"
        r"|KV4 MHA expects attention_backend",
        "Set kv_cache_dtype to bf16, or another attention_backend.",
        "sglang issue 39807; vllm issues 35577, 47790",
    ),
    _rule(
        "torch_build_lacks_sm",
        0,
        r"failed with error code no kernel image|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|is not compatible with the current PyTorch installation",
        "The installed torch or kernel build lacks this GPU's architecture: SM120 needs builds for CUDA 12.8 or newer.",
        "vllm issue 30855; sglang issue 12178",
    ),
    _rule(
        "smem_overflow",
        0,
        r"out of resource: shared memory|overflow SMEM|uses too much shared data"
        r"|set the allowed dynamic shared memory size",
        "The kernel wants more shared memory than SM120's 99 KiB: choose another moe_backend or attention_backend.",
        "sglang issues 8513, 5995; flashinfer issue 2786",
    ),
    _rule(
        "cutlass_init_fail",
        0,
        r"Failed to initialize cutlass|raised from runGemm",
        "A CUTLASS kernel does not fit this GPU: update FlashInfer and wipe its JIT cache, or set moe_backend.",
        "flashinfer issue 2723; vllm pull 38423",
    ),
    _rule(
        "mixed_precision_backend",
        0,
        r"(moe|gemm)_backend='?\w+'? is not supported for \w+ MoE|Unsupported runner backend"
        r"|moe_runner_backend=\w+ is not supported for",
        "Set moe_backend to one that takes this checkpoint's precision; playbooks/deploy.yml -e moe_backend=X explains X.",
        "home-ops pull 14047; sglang modelopt_quant",
    ),
    _rule(
        "unsupported_arch",
        0,
        r"no kernel image is available|Unsupported architecture|only supported on Blackwell|not supported on Blackwell"
        r"|Only SM [\d.x]+ and [\d.x]+ are supported|does not support backend '\w+' with capability|requires SM\d+ GPUs"
        r"|expects arch to be one of|does not support current device|kernel requires \S+ ?\d*\.?x? architecture"
        r"|expected sm\d+ or sm\d+|No supported CUDA architectures found(?!.*\[12\])|requires Blackwell|not supported? for SM120"
        r"|Only \{.*\} backends are supported on Blackwell|supported only on NVIDIA Blackwell SM100"
        r"|Current platform does not support NVFP4|No valid attention backend found",
        "This backend has no kernel for the GPU's architecture: choose the known-good moe_backend, gemm_backend and attention_backend.",
        "flashinfer issue 2577; sglang issues 25877, 39807; recipes pull 760",
    ),
    _rule(
        "weights_missing",
        0,
        r"Cannot find any model weights with|No such file or directory: .*(safetensors|model\.safetensors\.index\.json)"
        r"|Repo id must be in the form|no file named .*(safetensors|pytorch_model)",
        "Check that model_path holds the complete checkpoint on this host.",
        "sglang 0.5.23 on CPU",
    ),
    _rule(
        "weights_mismatch",
        0,
        r"Tried to load weights of size|size mismatch for|not found in params_dict|SafetensorError|The size of tensor a \(\d+\) must match"
        r"|KeyError: '(model|layers|lm_head)\.[\w.]+(weight|bias|scale)\w*'"
        r"|incomplete metadata, file not fully covered",
        "The checkpoint does not fit or is damaged: compare its files with their source, and sglang_version with the model's needs.",
        "rtx6kpro common-issues; sglang 0.5.23 on CPU",
    ),
    _rule(
        "hub_auth",
        0,
        r"401 Client Error|403 Client Error|HfHubHTTPError: 40[13]|Cannot access gated repo|GatedRepoError"
        r"|couldn't connect to '?https?://huggingface|offline mode is enabled",
        "Set model_path to a local folder, or give the service a hub token and network.",
        "sglang 0.5.23 on CPU, hub id while offline",
    ),
    _rule(
        "unknown_model",
        0,
        r"Cannot find model module|is not a registered model|architecture not supported"
        r"|does not recognize this architecture|Model architectures .* are not supported",
        "This SGLang does not know the model's architecture: Qwen3.5 needs 0.5.9 or newer.",
        "sglang 0.5.23 on CPU",
    ),
    _rule(
        "bad_config",
        0,
        r"config file at '.*' is not a valid JSON|Cannot find any of \[.*quant"
        r"|Unrecognized model in .*model_type|Unrecognized configuration class"
        r"|does not appear to have a file named config\.json",
        "config.json in model_path is missing or damaged: fetch it again.",
        "sglang 0.5.23 on CPU",
    ),
    _rule(
        "bad_tokenizer",
        1,
        r"json\.decoder\.JSONDecodeError: (?!Unterminated)|Tokenizer class \w+ does not exist"
        r"|data did not match any variant|Can't load tokenizer"
        r"|index is out of bounds for dimension with size 0|Couldn't instantiate the backend tokenizer",
        "The tokenizer's files in model_path are missing or damaged: fetch them again.",
        "sglang 0.5.23 on CPU",
    ),
    _rule(
        "port_in_use",
        0,
        r"address already in use|port_base is used by a process already|port_base at \d+ is not available",
        "Another process has the port: set sglang_port to a free one, or stop that process.",
        "sglang 0.5.23 on CPU; sglang issue 31645",
    ),
    _rule(
        "jit_toolchain",
        0,
        r"No such file or directory: '(ninja|nvcc|g\+\+|gcc|c\+\+)'|Ninja build failed|ninja: build stopped"
        r"|CUDA_HOME (environment variable )?(is not set|is unset)|Could not find CUDA|requires CUDA >= 12\.\d|nvcc fatal"
        r"|Could not find nvcc|Failed to find C compiler|PTXAS error|is not defined for option 'gpu-name'"
        r"|fatal error: Python\.h|No supported CUDA architectures found for major versions \[12\]",
        "Kernels are compiled at start: put nvcc 12.9 or newer, ninja and g++ on the service's PATH with sglang_env.",
        "fak issue 923; flashinfer issue 1166",
    ),
    _rule(
        "nan_logits",
        0,
        r"NaN detected|probability tensor contains either|NaN in the logits|NaN happened|not JSON compliant: nan",
        "These backends compute NaN on this GPU: choose a known-good moe_backend and gemm_backend.",
        "sglang issues 34629, 20047",
    ),
    _rule(
        "nvml_mismatch",
        0,
        r"Driver/library version mismatch|NVML/RM version mismatch|NVRM: API mismatch",
        "The driver was updated under the running kernel module: reboot the host.",
        "many reports",
    ),
    _rule(
        "gpu_lost",
        0,
        r"GPU is lost|fallen off the bus|Unable to determine the device handle",
        "A GPU is gone from the bus: reboot, then check power, cooling and seating.",
        "open-gpu-kernel-modules issue 1151",
    ),
    _rule(
        "xid",
        0,
        r"NVRM: Xid|GPU is probably locked",
        "The driver reports a GPU fault: the Xid number says what to do; often a reboot.",
        "NVIDIA forum 364958",
    ),
    _rule(
        "nccl_buffer_oom",
        0,
        r"Failed to CUDA calloc|NCCL WARN Cuda failure \d* ?'out of memory'",
        "NCCL found no GPU memory for its buffers: lower mem_fraction_static.",
        "rtx6kpro common-issues",
    ),
    _rule(
        "nccl_timeout",
        1,
        r"Watchdog caught collective operation timeout|NCCL watchdog thread terminated|watchdog got stuck for|Timed out after \d+ seconds waiting for clients"
        r"|Timed out.*(allreduce|all_reduce|barrier)",
        "A collective hung: set sglang_env NCCL_P2P_DISABLE=1 with --disable-custom-all-reduce, and check IOMMU and ACS.",
        "rtx6kpro issue 15",
    ),
    _rule(
        "illegal_access",
        1,
        r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|misaligned address|cudaErrorIllegalInstruction"
        r"|illegal instruction was encountered",
        "A kernel is broken on this GPU: choose another moe_backend, gemm_backend or attention_backend.",
        "rtx6kpro common-issues; vllm pull 38423",
    ),
    _rule(
        "device_assert",
        1,
        r"device-side assert triggered",
        "A kernel's own check failed; the first line of its kind in the log names it.",
        "sglang issue 21460",
    ),
    _rule(
        "cuda_oom",
        1,
        r"CUDA out of memory|Triton Error \[CUDA\]: out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError"
        r"|cudaErrorMemoryAllocation",
        "The GPU is full: lower mem_fraction_static or context_length, and check that nothing else holds it.",
        "vllm issue 15598",
    ),
    _rule(
        "host_oom_kill",
        1,
        r"killed by the OOM killer|DefaultCPUAllocator: can't allocate|Out of memory: Killed process|oom-kill"
        r"|exit(ed with)? code:? -9|^Killed$",
        "The host ran out of memory while loading, or the weights were doubled by a shuffle: free host memory, or choose another moe_backend.",
        "llama.cpp issue 20509; campaign row flashinfer_trtllm",
    ),
    _rule(
        "nccl_peer_gone",
        2,
        r"remote process exited or there was a network error|Connection closed by peer|Connection reset by peer",
        "Another rank died first: its own error stands earlier in the log.",
        "public reports of torch's NCCL errors",
    ),
    _rule(
        "health_timeout",
        3,
        r"Health check failed\. Server couldn't get a response|watchdog timeout \(self\.watchdog_timeout",
        "The scheduler gave no sign of life: look at the GPUs' state and the last lines before it.",
        "sglang issues 10856, 22511",
    ),
    _rule(
        "child_failed_generic",
        3,
        r"Received sigquit from a child process|scheduler died during initialization|scheduler is dead|Scheduler hit an exception"
        r"|SIGQUIT received|Triggering SIGQUIT|Initialization failed\. warmup error",
        "A child of the server failed: its own lines before this one say why.",
        "all releases",
    ),
)
