# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line, as the "installed" release's catalogue has it, with argparse's own abbreviations and errors."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from simulator.host import Host

# Of several names of a flag, the one that names its setting.
MAIN_NAMES = frozenset({"--model-path", "--tp-size", "--dp-size", "--pp-size", "--ep-size", "--dist-init-addr"})
# Flags whose destination is not their name.
DESTINATIONS = {
    "--fp4-gemm-backend": "fp4_gemm_runner_backend",
    "--fp8-gemm-backend": "fp8_gemm_runner_backend",
}
DEFAULTS = {
    "--host": "127.0.0.1",
    "--port": 30000,
    "--moe-runner-backend": "auto",
    "--fp4-gemm-backend": "auto",
}
TYPES = {"int": int, "human_readable_int": int, "float": float}


def host_of_this_environment() -> Host:
    return Host(Path(sys.prefix).resolve().parent)


def parse(words: list[str]) -> argparse.Namespace:
    host = host_of_this_environment()
    parser = argparse.ArgumentParser(prog="sglang serve")
    done = set()
    for flag, spec in host.flags.items():
        names = [flag, *spec.get("aliases", [])]
        if flag in done or flag == "--help":
            continue
        done.update(names)
        names.sort(key=lambda name: name not in MAIN_NAMES)
        dest = DESTINATIONS.get(names[0], names[0].lstrip("-").replace("-", "_"))
        if spec["type"] == "flag":
            parser.add_argument(*names, dest=dest, action="store_true")
            continue
        options: dict[str, Any] = {"type": TYPES.get(spec["type"], str), "dest": dest}
        if spec.get("choices"):
            options["choices"] = spec["choices"]
        if spec.get("nargs"):
            options["nargs"] = spec["nargs"]
        parser.add_argument(*names, default=DEFAULTS.get(names[0], spec.get("default")), **options)
    parsed = parser.parse_args(_with_config(words))
    if not parsed.model_path:
        parser.error("the following arguments are required: --model-path/--model")
    parsed.served_model_name = parsed.served_model_name or parsed.model_path
    return parsed


def _with_config(words: list[str]) -> list[str]:
    """--config FILE: its settings become flags before those of the command line."""
    if "--config" not in words:
        return words
    at = words.index("--config")
    merged: list[str] = []
    for line in Path(words[at + 1]).read_text(encoding="utf-8").splitlines():
        key, _sep, value = line.partition(":")
        value = value.strip()
        merged += [f"--{key.strip()}", json.loads(value) if value.startswith('"') else value]
    return [*merged, *words[:at], *words[at + 2 :]]
