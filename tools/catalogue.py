# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make catalogue/sglang-VERSION.json from SGLang's wheel: the flags, choices and pins of one release.

    python -m tools.catalogue 0.5.23            # fetches the wheel with pip
    python -m tools.catalogue 0.5.23 --wheel sglang-0.5.23-*.whl

The source is read, never imported. Two forms of declaration are known: C(parser.add_argument) calls
(releases up to 0.5.9 have only those) and annotated fields, C(name: A[type, Arg(choices=..., ...)] = default).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import typing as t
import zipfile
from pathlib import Path

CATALOGUE = Path(__file__).resolve().parents[1] / "catalogue"
# A flag of a pin's own distribution -> its name in the catalogue. cuDNN is pinned by torch, not by SGLang.
PINS = {"torch": "torch", "flashinfer-python": "flashinfer"}
DECLARES = re.compile(r"sglang/srt/(server_args|arg_groups/.*)\.py$")
NAMES = re.compile(r"sglang/srt/(utils/common|\w+/\w*parser(_names)?)\.py$")
VALUELESS = ("store_true", "store_false", "store_const", "DeprecatedAction", "StoreTrue", "StoreConst")
COLLECTIONS = ("list", "tuple", "set", "frozenset", "sorted")
Spec = dict[str, t.Any]


class Unknown(Exception):
    """An expression that can't be read without running it."""


class Reader:
    """Flags of one release, gathered file by file."""

    def __init__(self, sources: t.Mapping[str, str]) -> None:
        trees = {name: ast.parse(text) for name, text in sorted(sources.items())}
        self.constants: dict[str, t.Any] = {}
        self.flags: dict[str, Spec] = {}
        for _ in range(3):  # a constant may be made of others, from a file read later
            for tree in trees.values():
                self._note_constants(tree, "")
        nodes = [node for name, tree in trees.items() if DECLARES.match(name) for node in ast.walk(tree)]
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                self._fields(node)
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                self._call(node)

    def _note_constants(self, scope: ast.AST, prefix: str) -> None:
        """Names of the file, of its classes (C(Class.name)) and of its functions."""
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.ClassDef):
                self._note_constants(node, node.name + ".")
            elif isinstance(node, ast.FunctionDef):
                self._note_constants(node, "")
                if node.body and isinstance(node.body[-1], ast.Return):
                    self._note(node.name + "()", node.body[-1].value)
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name):
                self._note(prefix + target.id, node.value)

    def _note(self, name: str, node: ast.expr | None) -> None:
        try:
            self.constants[name] = self.value(node)
        except (Unknown, TypeError):
            return

    def value(self, node: ast.expr | None) -> t.Any:
        """The value of a display of literals, of constants, and of sums of them."""
        if node is None:
            return None
        if isinstance(node, (ast.Name, ast.Attribute)) or (isinstance(node, ast.Call) and not node.args):
            name = ast.unparse(node)
            if name in self.constants:
                return self.constants[name]
            if name.endswith(".keys()"):
                return self.value(t.cast(ast.Attribute, t.cast(ast.Call, node).func).value)
            raise Unknown(name)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [value for item in node.elts for value in self._items(item)]
        if isinstance(node, ast.Dict):  # only its keys can be a choice
            return [self.value(key) for key in node.keys]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.value(node.left) + self.value(node.right)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in COLLECTIONS:
            return list(self.value(node.args[0]))
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise Unknown(ast.unparse(node)) from error

    def _items(self, node: ast.expr) -> list[t.Any]:
        return list(self.value(node.value)) if isinstance(node, ast.Starred) else [self.value(node)]

    def maybe(self, node: ast.expr | None) -> t.Any:
        try:
            return self.value(node)
        except Unknown:
            return None

    def _add(self, names: t.Sequence[str], spec: Spec, negated: bool) -> None:
        spec = {key: value for key, value in spec.items() if value not in (None, [], False)}
        for name in names:
            self.flags.setdefault(name, spec)
            if negated:
                self.flags.setdefault("--no-" + name[2:], spec)

    def _fields(self, cls: ast.ClassDef) -> None:
        for field in cls.body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            annotation = field.annotation
            if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) not in ("A", "Annotated"):
                continue
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            words: dict[str, ast.expr] | None = None
            for part in parts[1:]:
                if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Arg":
                    words = {word.arg: word.value for word in part.keywords if word.arg}
                elif isinstance(part, (ast.Constant, ast.JoinedStr, ast.BinOp)) and words is None:
                    words = {}  # a bare help text
            if words is None or self.maybe(words.get("no_cli")):
                continue
            name = self.maybe(words.get("cli_name")) or "--" + field.target.id.replace("_", "-")
            self._declare([name, *(self.maybe(words.get("aliases")) or [])], words, field.value, parts[0])

    def _call(self, call: ast.Call) -> None:
        names = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        names = [name for name in names if name.startswith("--")]
        words = {word.arg: word.value for word in call.keywords if word.arg}
        if names:
            self._declare(names, words, words.get("default"), None)

    def _declare(
        self, names: list[str], words: dict[str, ast.expr], default: ast.expr | None, hint: ast.expr | None
    ) -> None:
        action = ast.unparse(words["action"]) if "action" in words else ""
        kind, nargs, choices = _of_annotation(hint) if hint is not None else ("str", None, None)
        parser = words.get("type_parser") or words.get("type")
        if parser is not None:
            kind, nargs = ast.unparse(parser).rpartition(".")[2], None
        if "choices" in words:
            choices = self.maybe(words["choices"]) or choices
        more = words.get("action_kwargs")
        if isinstance(more, ast.Dict):
            words = {**words, **{self.value(key): value for key, value in zip(more.keys, more.values)}}
        if "nargs" in words:
            nargs = self.maybe(words["nargs"])
        negated = "BooleanOptionalAction" in action
        valueless = negated or any(word in action for word in VALUELESS) and "nargs" not in words
        if valueless or (kind == "bool" and parser is None and not action):
            kind, nargs, choices, default = "flag", None, None, None
        self._add(names, {"type": kind, "nargs": nargs, "choices": choices, "default": self.maybe(default)}, negated)


def _of_annotation(hint: ast.expr) -> tuple[str, str | None, list[t.Any] | None]:
    """(type, nargs, choices) of C(Optional[int]), C(List[str]), C(Literal["a", "b"]) and so on."""
    text = ast.unparse(hint)
    nargs = "+" if re.search(r"\b[Ll]ist\[", text) else None
    choices = None
    for node in ast.walk(hint):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            choices = [ast.literal_eval(item) for item in items]
    if choices and isinstance(choices[0], int):
        return "int", nargs, choices
    for kind in ("bool", "int", "float"):
        if choices is None and re.search(rf"\b{kind}\b", text):
            return kind, nargs, choices
    return "str", nargs, choices


def sources_of(wheel: zipfile.ZipFile) -> dict[str, str]:
    """The files that declare flags, and those that name choices."""
    wanted = [name for name in wheel.namelist() if DECLARES.match(name) or NAMES.match(name)]
    return {name: wheel.read(name).decode("utf-8") for name in wanted}


def pins_of(wheel: zipfile.ZipFile) -> dict[str, str]:
    """Exact pins that the wheel's metadata states without a condition."""
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    found = {}
    for line in wheel.read(metadata).decode("utf-8").splitlines():
        match = re.match(r"Requires-Dist: ([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^;\s]+)\s*$", line)
        name = match.group(1).replace("_", "-").lower() if match else ""
        if match and name in PINS:
            found[PINS[name]] = match.group(2)
    return found


def fetch(version: str, into: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(into),
        f"sglang=={version}",
    ]
    subprocess.run(command, check=True, timeout=600)
    return next(into.glob("sglang-*.whl"))


def text_of(version: str, pins: t.Mapping[str, str], flags: t.Mapping[str, Spec]) -> str:
    """One flag a line, so that the difference between two releases reads well."""
    lines = [f"{json.dumps(name)}: {json.dumps(flags[name], sort_keys=True)}" for name in sorted(flags)]
    head = f'{{\n"sglang": {json.dumps(version)},\n"pins": {json.dumps(pins)},\n"flags": {{\n'
    return head + ",\n".join(lines) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the catalogue of one SGLang release")
    parser.add_argument("version")
    parser.add_argument("--wheel", type=Path, help="a wheel at hand; fetched with pip if not given")
    parser.add_argument("--cudnn", help="cuDNN that the pinned torch brings: its metadata names it")
    parser.add_argument("--cuda", help="CUDA that the pinned torch is built for")
    parser.add_argument("--output", type=Path, help="default: catalogue/sglang-VERSION.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or fetch(options.version, Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            flags, pins = Reader(sources_of(archive)).flags, pins_of(archive)
    if not flags:
        parser.error(f"{wheel} declares no flags in a form that this program knows")
    output = options.output or CATALOGUE / f"sglang-{options.version}.json"
    if output.exists():  # what only torch's metadata tells stays as it was found
        pins = {**json.loads(output.read_text(encoding="utf-8"))["pins"], **pins}
    pins.update({name: value for name, value in (("cudnn", options.cudnn), ("cuda", options.cuda)) if value})
    output.write_text(text_of(options.version, pins, flags), encoding="utf-8")
    print(f"{output}: {len(flags)} flags; pins {pins}")


if __name__ == "__main__":
    main()
