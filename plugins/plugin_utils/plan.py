# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From variables to a plan: the command line, its environment, limits and a fingerprint. Nothing is touched.

The fingerprint covers what the server's process is made of (command, environment, user, key), not how
long we wait for it: a changed time limit restarts nothing.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.blackwell.sglang.plugins.plugin_utils import catalogue, evidence, rules
from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import (
    Deployment,
    Problem,
    misspelt,
    validate,
)

# Variable -> the flag that carries it. Full names: an abbreviation breaks when a release adds a flag.
FLAGS: t.Mapping[str, str] = {
    "effective_model_path": "--model-path",
    "effective_served_name": "--served-model-name",
    "sglang_host": "--host",
    "sglang_port": "--port",
    "quantization": "--quantization",
    "moe_backend": "--moe-runner-backend",
    "gemm_backend": "--fp4-gemm-backend",
    "attention_backend": "--attention-backend",
    "kv_cache_dtype": "--kv-cache-dtype",
    "tp_size": "--tp-size",
    "dp_size": "--dp-size",
    "pp_size": "--pp-size",
    "ep_size": "--ep-size",
    "nnodes": "--nnodes",
    "node_rank": "--node-rank",
    "dist_init_addr": "--dist-init-addr",
    "context_length": "--context-length",
    "mem_fraction_static": "--mem-fraction-static",
    "max_running_requests": "--max-running-requests",
    "reasoning_parser": "--reasoning-parser",
    "tool_call_parser": "--tool-call-parser",
    "speculative_algorithm": "--speculative-algorithm",
    "speculative_draft_model_path": "--speculative-draft-model-path",
    "speculative_num_steps": "--speculative-num-steps",
    "speculative_eagle_topk": "--speculative-eagle-topk",
    "speculative_num_draft_tokens": "--speculative-num-draft-tokens",
}
# Where the flag carries what a variable comes to, the variable itself.
VARIABLES: t.Mapping[str, str] = {
    "effective_model_path": "model_path",
    "effective_served_name": "served_model_name",
    "nnodes": "sglang_nodes",
    "node_rank": "sglang_nodes",
}
# Flags that only say what is so anyway are left out at this value.
SILENT_AT: t.Mapping[str, t.Any] = {"dp_size": 1, "pp_size": 1, "ep_size": 1, "nnodes": 1}
# Key of /server_info -> variable, for reading back what really runs. Names of 0.5.9 to 0.5.23.
READ_BACK: t.Mapping[str, str] = {
    "model_path": "effective_model_path",
    "served_model_name": "effective_served_name",
    "quantization": "quantization",
    "moe_runner_backend": "moe_backend",
    "fp4_gemm_runner_backend": "gemm_backend",
    "attention_backend": "attention_backend",
    "kv_cache_dtype": "kv_cache_dtype",
    "tp_size": "tp_size",
    "dp_size": "dp_size",
    "context_length": "context_length",
    "max_running_requests": "max_running_requests",
}
OWNED_ELSEWHERE: t.Mapping[str, str] = {
    "--api-key": "api_key",
    "--config": "api_key",
    "--model": "model_path",
    "--tensor-parallel-size": "tp_size",
    "--data-parallel-size": "dp_size",
    "--pipeline-parallel-size": "pp_size",
    "--expert-parallel-size": "ep_size",
    "--ep": "ep_size",
    "--nccl-init-addr": "dist_init_addr",
}


@dataclass
class Planned:
    """The plan, or why there is none. C(plan) is None exactly if there are problems."""

    plan: dict[str, t.Any] | None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def make(
    values: t.Mapping[str, t.Any],
    given_names: t.Iterable[str] = (),
    given_by_hand: t.Container[str] = (),
    ignored: t.Container[str] = (),
    evidence_dirs: t.Sequence[str] = (),
    found_stack: t.Mapping[str, str] | None = None,
) -> Planned:
    """Plan from the values of known variables.

    C(given_names) are all names in sight, to find misspelt ones. C(found_stack) holds the versions that
    are really installed, once a host has been looked at; without it the declared ones count.
    """
    problems = misspelt(given_names, given_by_hand, ignored)
    deployment, wrong_values, wrong = validate(values)
    problems += wrong_values
    problems += rules.problems(deployment, wrong)
    warnings: list[str] = []

    release = None
    if "sglang_version" not in wrong:
        version = (found_stack or {}).get("sglang") or deployment.sglang_version
        release, warning = catalogue.release_for(version)
        warnings += [warning] if warning else []
    problems += _extra_arguments(deployment, wrong)
    arguments = _arguments(deployment)
    if release is not None:
        problems += _refused_by_release(deployment, arguments, release, wrong)

    stack = stack_of(deployment, release, found_stack)
    backends = {
        "moe_backend",
        "gemm_backend",
        "attention_backend",
        "kv_cache_dtype",
        "quantization",
        "gpu_arch",
        "model_name",
    }
    verdict = None
    refused = {problem.variable.split("[")[0] for problem in problems}
    if not wrong & backends and not refused & backends:
        entries = evidence.load([Path(directory) for directory in evidence_dirs])
        verdict, complaint = _verdict(deployment, stack, entries)
        problems += [complaint] if complaint else []
        if verdict.kind == "conditional" and not complaint:
            warnings.append(f"this combination is known good only under conditions: {verdict.because}")
    if deployment.sglang_host in ("0.0.0.0", "::") and deployment.api_key is None:
        warnings.append(
            f"sglang_host {deployment.sglang_host} lets everyone who reaches port {deployment.sglang_port} use the server: set api_key"
        )
    if deployment.sglang_env.get("SGLANG_SANITIZE_NAN_LOGITS", "0") not in ("0", "", "false"):
        warnings.append(
            "SGLANG_SANITIZE_NAN_LOGITS turns NaN into random tokens, so the smoke check may not see it (sglang issue "
            "33187). SGLANG_ENABLE_ASYNC_ASSERT=1 ends the server instead"
        )
    if problems or verdict is None:
        return Planned(None, problems, warnings)
    return Planned(_plan(deployment, arguments, stack, verdict), [], warnings)


def _arguments(d: Deployment) -> list[str]:
    words: list[str] = []
    for name, flag in FLAGS.items():
        value = getattr(d, name)
        if value is None or SILENT_AT.get(name) == value:
            continue
        words += [flag, str(value)]
    return words


def _extra_arguments(d: Deployment, wrong: t.AbstractSet[str]) -> t.Iterator[Problem]:
    """Flags in sglang_extra_args that a variable owns."""
    owners = {**{flag: name for name, flag in FLAGS.items()}, **OWNED_ELSEWHERE}
    if "sglang_extra_args" in wrong:
        return
    for word in d.sglang_extra_args:
        flag = word.split("=", 1)[0]
        if flag in owners:
            owner = VARIABLES.get(owners[flag], owners[flag])
            yield Problem("sglang_extra_args", flag, f"is set with the variable {owner}")


def _refused_by_release(
    d: Deployment, arguments: t.Sequence[str], release: catalogue.Release, wrong: t.AbstractSet[str]
) -> t.Iterator[Problem]:
    """Complaints of the release's catalogue, in the name of the variable that each word came from."""
    owners = {flag: VARIABLES.get(name, name) for name, flag in FLAGS.items()}
    for complaint in catalogue.check(arguments, release):
        variable = owners[complaint.flag]
        if variable not in wrong:
            yield Problem(variable, complaint.value or "", f"{complaint.message} (SGLang {release.version})")
    if "sglang_extra_args" in wrong:
        return
    for complaint in catalogue.check(d.sglang_extra_args, release):
        shown = " ".join(filter(None, [complaint.flag, complaint.value]))
        yield Problem("sglang_extra_args", shown, f"{complaint.message} (SGLang {release.version})")


def stack_of(d: Deployment, release: catalogue.Release | None, found: t.Mapping[str, str] | None) -> dict[str, str]:
    """Versions that evidence is looked up with: found on the host, else declared, else pinned by the release."""
    stack = {"sglang": d.sglang_version}
    if release is not None and release.version == d.sglang_version:
        stack.update({part: version for part, version in release.pins.items() if part in evidence.STACK_PARTS})
    declared = {"flashinfer": d.flashinfer_version, "cudnn": d.cudnn_version, "cuda": d.cuda_version}
    stack.update({part: version for part, version in declared.items() if version})
    stack.update({part: version for part, version in (found or {}).items() if part in evidence.STACK_PARTS and version})
    return stack


def combination_of(d: Deployment) -> evidence.Combination:
    return evidence.Combination(
        arch=d.gpu_arch,
        model=d.model_name,
        quantization=d.quantization,
        moe_backend=d.moe_backend or "auto",
        gemm_backend=d.gemm_backend or "auto",
        attention_backend=d.attention_backend or "auto",
        kv_cache_dtype=d.kv_cache_dtype or "auto",
        tp_size=d.tp_size,
        ep_size=d.ep_size,
    )


def _verdict(
    d: Deployment, stack: evidence.Stack, entries: t.Sequence[evidence.Observation]
) -> tuple[evidence.Verdict, Problem | None]:
    """The verdict, and a problem if backend_policy does not let it pass. It names the backend that differs."""
    combination = combination_of(d)
    verdict = evidence.judge(combination, stack, entries)
    auto = verdict.kind == "conditional" and "auto" in (combination.moe_backend, combination.gemm_backend)
    allowed = {
        "known_good": verdict.kind in ("known_good", "conditional") and not auto,
        "untested": verdict.kind != "known_bad",
        "any": True,
    }[d.backend_policy]
    if allowed:
        return verdict, None
    changes = evidence.suggest(combination, stack, entries)
    accused = [*(changes or {}), *(verdict.entries[0].stated() if verdict.entries else ()), "moe_backend"]
    variable = next(name for name in accused if name != "quantization" and hasattr(d, name))
    versions = ", ".join(f"{part} {version}" for part, version in sorted(stack.items()))
    message = f"{verdict.kind.replace('_', ' ')} on {d.gpu_arch} with {versions}: {verdict.because}. "
    if changes:
        message += "Known good: " + " ".join(f"-e {name}={value}" for name, value in changes.items()) + ". "
    else:
        message += "No known-good combination is recorded for this model, architecture and stack. "
    lenient = "any" if verdict.kind == "known_bad" else "untested"
    message += f"To try it all the same: -e backend_policy={lenient}"
    return verdict, Problem(variable, getattr(d, variable), message)


def _plan(
    d: Deployment, arguments: t.Sequence[str], stack: evidence.Stack, verdict: evidence.Verdict
) -> dict[str, t.Any]:
    directory = f"{d.sglang_state_dir.rstrip('/')}/{d.sglang_instance}"
    environment = {"BLACKWELL_SGLANG_INSTANCE": directory, "PYTHONUNBUFFERED": "1", **d.sglang_env}
    if d.gpus:
        # nvidia-smi counts in the order of PCI bus ids; CUDA does so only when told.
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        environment.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, sorted(d.gpus))))
    argv = [d.sglang_python, "-m", "sglang.launch_server", *arguments, *d.sglang_extra_args]
    key = d.api_key.get_secret_value() if d.api_key is not None else None
    if key is not None:
        argv += ["--config", f"{directory}/secrets.yaml"]
    run = {
        "argv": argv,
        "env": environment,
        "user": d.sglang_user,
        "supervisor": d.sglang_supervisor,
        # SGLang prints all its arguments, the key too; the journal is read by more people than may know it.
        "log_file": f"{directory}/server.log" if key is not None or d.sglang_supervisor == "process" else None,
    }
    reach = "127.0.0.1" if d.sglang_host in ("0.0.0.0", "") else "::1" if d.sglang_host == "::" else d.sglang_host
    return {
        "instance": d.sglang_instance,
        "fingerprint": _fingerprint(run, key),
        "node": {"rank": d.node_rank or 0, "names": d.sglang_nodes or [d.inventory_hostname]},
        "run": run,
        "server": {
            "url": f"http://[{reach}]:{d.sglang_port}" if ":" in reach else f"http://{reach}:{d.sglang_port}",
            "port": d.sglang_port,
            "model": d.effective_served_name,
            "api_key_file": f"{directory}/secrets.yaml" if key is not None else None,
        },
        "gpus": sorted(d.gpus),
        "expect": {key: getattr(d, name) for key, name in READ_BACK.items() if getattr(d, name) not in (None, "auto")},
        "backends": {
            name: getattr(d, name) for name in ("moe_backend", "gemm_backend", "attention_backend", "kv_cache_dtype")
        },
        "combination": {name: getattr(combination_of(d), name) for name in evidence.DIMENSIONS},
        "stack": dict(stack),
        "evidence": {
            "verdict": verdict.kind,
            "because": verdict.because,
            "entries": [entry.id for entry in verdict.entries],
        },
        "settings": {
            name: getattr(d, name)
            for name in Deployment.model_fields
            if name.startswith(
                ("gpu_", "smoke_", "launch_", "stall_", "stop_", "command_", "sglang_state", "rollback_")
            )
            or name in ("nvidia_smi", "model_path", "model_name", "sglang_python", "sglang_version", "sglang_user")
        },
    }


def _fingerprint(run: t.Mapping[str, t.Any], key: str | None) -> str:
    """SHA-256 of what runs; the key counts by a slow hash, so that the fingerprint does not give it away."""
    material = dict(run)
    if key is not None:
        salt = run["env"]["BLACKWELL_SGLANG_INSTANCE"].encode()
        material["key"] = hashlib.pbkdf2_hmac("sha256", key.encode(), salt, 100_000).hex()
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()
