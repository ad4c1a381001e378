# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the table of variables into README.md and their JSON Schema into docs/, both from the model.

python -m tools.variables           # write
python -m tools.variables --check   # only say whether both are current (exit status 1 if not)
"""

from __future__ import annotations

import argparse
import json
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.blackwell.sglang.plugins.plugin_utils.deployment import OTHER_VARIABLES, Deployment  # noqa: E402

README = ROOT / "README.md"
SCHEMA = ROOT / "docs" / "variables.schema.json"
BEGIN, END = "<!-- variables: begin -->", "<!-- variables: end -->"


def properties() -> dict[str, dict[str, t.Any]]:
    found: dict[str, dict[str, t.Any]] = Deployment.model_json_schema(mode="validation")["properties"]
    return found


def table() -> str:
    lines = ["| variable | default | what it is |", "| --- | --- | --- |"]
    for name, spec in properties().items():
        default = spec.get("default")
        shown = "" if default is None else f"`{json.dumps(default)}`".replace('"', "")
        choices = spec.get("enum")
        allowed = f" ({', '.join(f'`{choice}`' for choice in choices)})" if choices else ""
        lines.append(f"| `{name}` | {shown} | {spec['description']}{allowed} |")
    return "\n".join(lines)


def schema() -> str:
    """For editors: a vars file may hold other playbooks' variables too, so more names are allowed."""
    relaxed = {}
    for name, spec in properties().items():
        spec = {key: value for key, value in spec.items() if key != "title"}
        text = {"type": "string", "pattern": r"\{\{"}  # a template comes to its value later
        relaxed[name] = {"description": spec.pop("description"), "anyOf": [spec, text]}
        if "default" in spec:
            relaxed[name]["default"] = spec.pop("default")
    for name in sorted(OTHER_VARIABLES):
        relaxed[name] = {"type": "array", "items": {"type": "string"}}
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Variables of blackwell.sglang",
        "type": "object",
        "properties": relaxed,
    }
    return json.dumps(content, indent=1) + "\n"


def readme(text: str) -> str:
    head, rest = text.split(BEGIN)
    _old, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    for path, made in ((README, readme(README.read_text(encoding="utf-8"))), (SCHEMA, schema())):
        if not path.exists() or path.read_text(encoding="utf-8") != made:
            stale += 1
            print(f"{path.relative_to(ROOT)} {'is not current: run python -m tools.variables' if check else 'written'}")
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(made, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
