# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables: what may be asked for, of what type, with what default, and in whose words it is refused.

Every field of :class:`Deployment` is an Ansible variable of the same name. C(-e key=value) always
brings strings, so lists and dictionaries may come as JSON or comma-separated text.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.blackwell.sglang.plugins.plugin_utils._pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)

# Values that no message shows: the key, and an environment that may hold a token by mistake.
SECRET_VARIABLES = frozenset({"api_key", "sglang_env"})
_SECRET_NAME = re.compile(r"(?i)(token|secret|password|api_?key)$")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the variables. C(value) is None where there is none, or where it is a secret."""

    variable: str
    value: t.Any
    message: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {_short(self.value)}"
        return f"{self.variable}{shown}: {self.message}"


def _short(value: t.Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."


def listing(value: t.Any) -> t.Any:
    """Text to a list: JSON, or words between commas."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        return json.loads(text)
    return [word.strip() for word in text.split(",") if word.strip()]


def _words(value: t.Any) -> t.Any:
    """Text to the words of a command line: JSON, or as a shell would split it."""
    if not isinstance(value, str) or value.strip().startswith("["):
        return listing(value)
    return shlex.split(value)


def _mapping(value: t.Any) -> t.Any:
    return json.loads(value) if isinstance(value, str) else value


def _optional(value: t.Any) -> t.Any:
    """C(-e variable=) and C(null) both mean: not set."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "none", "null", "omit") else value


StrList = t.Annotated[list[str], BeforeValidator(listing)]
IntList = t.Annotated[list[int], BeforeValidator(listing)]
WordList = t.Annotated[list[str], BeforeValidator(_words)]
StrDict = t.Annotated[dict[str, str], BeforeValidator(_mapping)]
OptStr = t.Annotated[str | None, BeforeValidator(_optional)]
OptInt = t.Annotated[int | None, BeforeValidator(_optional)]
OptFloat = t.Annotated[float | None, BeforeValidator(_optional)]
OptSecret = t.Annotated[SecretStr | None, BeforeValidator(_optional)]
Arch = t.Literal["sm120", "sm121", "sm100", "sm103", "sm90", "cpu"]
Policy = t.Literal["known_good", "untested", "any"]


class Deployment(BaseModel):
    """What one instance on one host should serve. Unknown names are refused by the collector, not here."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=(), allow_inf_nan=False
    )

    # What is served
    model_name: str = Field(
        "nvidia/Qwen3.5-397B-A17B-NVFP4",
        min_length=1,
        description="The model, as its card names it; evidence is looked up by it",
    )
    model_path: OptStr = Field(
        None, description="Folder of the checkpoint on the host, or a hub id; model_name if not set"
    )
    served_model_name: OptStr = Field(None, description="Name that clients ask for; model_name if not set. No colon")
    quantization: OptStr = Field(
        "modelopt_fp4",
        description="Checkpoint format. Stated, since SGLang does not take it from the checkpoint on SM120",
    )
    reasoning_parser: OptStr = Field(None, description="Parser that separates reasoning from the answer, such as qwen3")
    tool_call_parser: OptStr = Field(None, description="Parser of tool calls, such as qwen3_coder")

    # Backends
    moe_backend: OptStr = Field("flashinfer_cutlass", description="MoE runner backend")
    gemm_backend: OptStr = Field("flashinfer_cudnn", description="FP4 GEMM backend")
    attention_backend: OptStr = Field("triton", description="Attention backend")
    kv_cache_dtype: OptStr = Field("auto", description="Data type of the KV cache")
    backend_policy: Policy = Field(
        "known_good",
        description="How much evidence a combination needs: known_good; untested (known bad is still refused); any",
    )

    # Parallelism and memory
    tp_size: int = Field(8, ge=1, le=1024, description="Tensor parallel size")
    dp_size: int = Field(1, ge=1, le=1024, description="Data parallel size")
    pp_size: int = Field(1, ge=1, le=1024, description="Pipeline parallel size")
    ep_size: int = Field(1, ge=1, le=1024, description="Expert parallel size")
    sglang_nodes: StrList = Field(
        [],
        max_length=64,
        description="Hosts that serve one model together, by inventory name, the first being rank 0; alone if empty",
    )
    inventory_hostname: str = Field("localhost", description="Ansible's own name of the host, as in sglang_nodes")
    dist_init_addr: OptStr = Field(
        None, pattern=r"^.+:\d{1,5}$", description="HOST:PORT at which the nodes reach the first of them"
    )
    context_length: OptInt = Field(
        None, ge=16, le=16_777_216, description="Longest context in tokens; the model's own if not set"
    )
    mem_fraction_static: OptFloat = Field(0.85, gt=0, lt=1, description="Share of GPU memory for weights and KV cache")
    max_running_requests: OptInt = Field(None, ge=1, description="Most requests decoded at once")

    # Speculative decoding
    speculative_algorithm: OptStr = Field(None, description="EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, ...")
    speculative_draft_model_path: OptStr = Field(None, description="Draft model, for the algorithms that need one")
    speculative_num_steps: OptInt = Field(None, ge=0, description="Draft steps")
    speculative_eagle_topk: OptInt = Field(None, ge=1, description="Candidates a step")
    speculative_num_draft_tokens: OptInt = Field(None, ge=1, description="Draft tokens a verification")

    # The server
    sglang_host: str = Field("127.0.0.1", min_length=1, description="Address to listen on")
    sglang_port: int = Field(30000, ge=1, le=65535, description="Port to listen on")
    api_key: OptSecret = Field(
        None,
        min_length=16,
        description="Key that clients must send; 16 characters or more; keep it in a vault",
    )
    sglang_instance: str = Field(
        "default", pattern=r"^[a-z0-9][a-z0-9_.-]{0,47}$", description="Name of the instance on its host"
    )
    sglang_version: str = Field(
        "0.5.23",
        pattern=r"^\d+(\.\d+)*([a-z0-9.]*)$",
        description="SGLang release in the server's environment",
    )
    sglang_python: str = Field(
        "/opt/sglang/bin/python", min_length=1, description="Interpreter of the server's environment"
    )
    sglang_extra_args: WordList = Field([], description="Further server arguments, as a list of words")
    sglang_env: StrDict = Field({}, description="Environment of the server")
    sglang_supervisor: t.Literal["systemd", "process"] = Field(
        "systemd", description="systemd; or process, for containers and hosts without it"
    )
    sglang_user: OptStr = Field(None, description="User that the server runs as; the connecting user if not set")
    sglang_state_dir: str = Field(
        "/var/lib/sglang", pattern=r"^/.+", description="Where the instance keeps its state on the host"
    )

    # The GPUs
    gpu_arch: Arch = Field("sm120", description="Architecture of the GPUs")
    gpu_count: int = Field(8, ge=1, le=64, description="GPUs that the host must have")
    gpus: IntList = Field([], description="Indices of the instance's GPUs; all if empty")
    gpu_exclusive: bool = Field(False, description="Kill foreign processes on the instance's GPUs instead of stopping")
    gpu_max_used_mib: int = Field(64, ge=0, description="A GPU with more MiB in use is not clean")
    gpu_device_glob: StrList = Field(
        ["/dev/nvidia*"], min_length=1, description="Device files whose holders are looked for"
    )
    nvidia_smi: str = Field("nvidia-smi", min_length=1, description="The nvidia-smi command")

    # Versions that evidence depends on, where they are not those that the release pins
    flashinfer_version: OptStr = Field(None, description="FlashInfer version; the release's pin if not set")
    cudnn_version: OptStr = Field(None, description="cuDNN version")
    cuda_version: OptStr = Field(None, description="CUDA version")

    # When a deploy fails
    rollback_on_failure: bool = Field(
        True, description="After a failure, go back to what last passed its smoke check; false leaves the GPUs empty"
    )

    # Time limits, in seconds
    launch_timeout: int = Field(3600, ge=1, description="From start to ready")
    stall_timeout: int = Field(900, ge=1, description="Without a log line, CPU time or memory growth while starting")
    stop_timeout: int = Field(120, ge=1, description="For the server to drain before it is killed")
    gpu_term_timeout: int = Field(10, ge=0, description="Between SIGTERM and SIGKILL for holders of GPUs")
    gpu_release_timeout: int = Field(100, ge=1, description="For the driver to give memory back")
    smoke_timeout: int = Field(600, ge=1, description="For a whole smoke check")
    command_timeout: int = Field(20, ge=1, description="For one command, such as nvidia-smi")

    # The smoke check after a launch
    smoke_level: t.Literal["quick", "standard", "deep"] = Field("standard", description="Smoke check after a launch")
    smoke_concurrency: int = Field(64, ge=1, le=1024, description="Different questions at once")
    smoke_rounds: int = Field(4, ge=1, le=64, description="Rounds of them")
    smoke_problems: int = Field(200, ge=1, le=10_000, description="Word problems of the deep level")
    smoke_gsm8k_file: OptStr = Field(None, description="File on the host in GSM8K's format to take them from")
    smoke_min_right: float = Field(0.9, ge=0, le=1, description="Share of them that must be right")
    smoke_max_invalid: float = Field(0.02, ge=0, le=1, description="Share of them that may have no answer at all")
    smoke_max_ttft_p99: OptFloat = Field(None, gt=0, description="Slower first tokens (p99, seconds) fail the check")
    smoke_min_tokens_per_second: OptFloat = Field(None, gt=0, description="Fewer output tokens/s fail the check")

    @field_validator("served_model_name")
    @classmethod
    def _no_colon(cls, value: str | None) -> str | None:
        if value and ":" in value:
            raise ValueError("SGLang refuses a served model name with a colon")
        return value

    @field_validator("sglang_env")
    @classmethod
    def _environment(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{name!r} is no name of an environment variable")
            if _SECRET_NAME.search(name):
                raise ValueError(
                    f"{name} looks like a secret, and an environment can be read on the host; "
                    "give a file instead, such as HF_TOKEN_PATH"
                )
        return value

    @property
    def effective_model_path(self) -> str:
        return self.model_path or self.model_name

    @property
    def effective_served_name(self) -> str:
        return self.served_model_name or self.model_name

    @property
    def nnodes(self) -> int:
        return len(self.sglang_nodes) or 1

    @property
    def node_rank(self) -> int | None:
        """Place among the nodes; None for a host that serves alone, or that is not among them."""
        if self.nnodes == 1 or self.inventory_hostname not in self.sglang_nodes:
            return None
        return self.sglang_nodes.index(self.inventory_hostname)


# Names of the roles' own knobs that are no part of a deployment.
OTHER_VARIABLES = frozenset({"ignore_variables", "evidence_dirs"})
# Roles with variables of their own, which resemble those of a deployment.
OTHER_ROLES = ("sweep_", "rollout_", "router_")


def known_names() -> list[str]:
    return sorted([*Deployment.model_fields, *OTHER_VARIABLES])


def misspelt(names: t.Iterable[str], given_by_hand: t.Container[str], ignored: t.Container[str] = ()) -> list[Problem]:
    """Names that are no variable of ours but look like one.

    A name given on the command line need only resemble one (C(moe_backnd)); one from the inventory,
    which serves other playbooks too, must be nearly the same, or begin with C(sglang_) or C(gpu_).
    """
    known = known_names()
    found = []
    for name in sorted(set(names)):
        if name in known or name in ignored or name.startswith(OTHER_ROLES):
            continue
        by_hand = name in given_by_hand
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.75 if by_hand else 0.88)
        if by_hand and name == "port":  # SGLang's own word for it, which Ansible reserves for itself
            close = ["sglang_port"]
        if close:
            hint = f"there is no such variable; did you mean {close[0]}?"
        elif name.startswith(("sglang_", "gpu_")):
            hint = "there is no such variable"
        else:
            continue
        found.append(Problem(name, None, f"{hint} If it is meant for another playbook, list it in ignore_variables"))
    return found


def explain(error: t.Mapping[str, t.Any], given: t.Any) -> str:
    """pydantic's error in the words of someone who types variables."""
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "literal_error":
        return f"allowed: {context['expected'].replace(' or ', ', ')}"
    if kind in ("int_parsing", "int_type", "int_from_float"):
        return "must be a whole number"
    if kind in ("float_parsing", "float_type", "finite_number"):
        return "must be a number"
    if kind in ("bool_parsing", "bool_type"):
        return "must be true or false"
    if kind in ("string_type",):
        return "must be text" if not isinstance(given, bool) else "must be text: put it in quotes"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    if kind == "too_long":
        return f"must have {context['max_length']} entries or fewer"
    if kind in ("string_too_short", "too_short"):
        return (
            "must not be empty"
            if context["min_length"] == 1
            else f"must have {context['min_length']} characters or more"
        )
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        word = {
            "greater_than": "above",
            "greater_than_equal": "at least",
            "less_than": "below",
            "less_than_equal": "at most",
        }[kind]
        return f"must be {word} {next(iter(context.values()))}"
    if kind in ("list_type", "dict_type"):
        return f"must be a {'list' if kind == 'list_type' else 'dictionary'}"
    message: str = error["msg"]
    return message.removeprefix("Value error, ")


def validate(values: t.Mapping[str, t.Any]) -> tuple[Deployment, list[Problem], set[str]]:
    """A deployment of whatever is right, the problems of the rest, and the names that were wrong.

    Wrong values are replaced by their defaults, so that rules over several variables can still be
    checked where they do not touch a wrong one.
    """
    try:
        return Deployment(**values), [], set()
    except ValidationError as failure:
        problems, wrong = [], set()
        for error in failure.errors(include_input=False, include_url=False):
            name = str(error["loc"][0])
            shown = None if name in SECRET_VARIABLES else values.get(name)
            where = "".join(f"[{part!r}]" for part in error["loc"][1:])
            problems.append(Problem(name + where, shown, explain(t.cast("t.Mapping[str, t.Any]", error), shown)))
            wrong.add(name)
        return (
            Deployment(**{key: value for key, value in values.items() if key not in wrong}),
            problems,
            wrong,
        )
