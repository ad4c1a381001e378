# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs that make files of this repository."""

from __future__ import annotations

import json
import zipfile

import pytest
from ansible_collections.blackwell.sglang.plugins.plugin_utils.evidence import EvidenceError, load_file

from tools import catalogue, evidence, variables

OLD_FORM = """
DTYPES = ["auto", "bfloat16"]
class ServerArgs:
    port: int = 30000
    @staticmethod
    def add_cli_args(parser):
        names = list(Parsers.Map.keys())
        parser.add_argument("--port", type=int, default=ServerArgs.port, help="x")
        parser.add_argument("--kv-cache-dtype", type=str, choices=DTYPES + ["fp8_e4m3"])
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=1)
        parser.add_argument("--enable-x", action="store_true")
        parser.add_argument("--cuda-graph-bs", type=int, nargs="+")
        parser.add_argument("--tool-call-parser", choices=["auto"] + names)
        parser.add_argument("--old", action=DeprecatedAction, help="gone")
        parser.add_argument("--computed", choices=[c.name for c in Enum])
        parser.add_argument("-q")
"""
NEW_FORM = """
BACKENDS = ["auto", *BASE]
BASE = {"triton", "cutlass"}
class ServerArgs:
    model_path: A[str, Arg(help="x", aliases=["--model"])]
    moe_runner_backend: A[str, Arg(choices=BACKENDS)] = "auto"
    context_length: A[Optional[int], Arg(type_parser=human_readable_int)] = None
    allowed: A[List[str], "help"] = field(default_factory=list)
    mode: A[Literal[1, 2], "help"] = 2
    trust: A[bool, "help"] = False
    overlap: A[bool, Arg(action=argparse.BooleanOptionalAction)] = True
    inner: A[str, Arg(no_cli=True)] = "x"
    not_a_flag: int = 3
"""


def test_flags_of_both_forms_are_read():
    old = catalogue.Reader(
        {"sglang/srt/server_args.py": OLD_FORM, "sglang/srt/x/parser.py": "class Parsers:\n  Map = {'qwen': Q}"}
    ).flags
    assert old == {
        "--port": {"type": "int", "default": 30000},
        "--kv-cache-dtype": {"type": "str", "choices": ["auto", "bfloat16", "fp8_e4m3"]},
        "--tensor-parallel-size": {"type": "int", "default": 1},
        "--tp-size": {"type": "int", "default": 1},
        "--enable-x": {"type": "flag"},
        "--cuda-graph-bs": {"type": "int", "nargs": "+"},
        "--tool-call-parser": {"type": "str", "choices": ["auto", "qwen"]},
        "--old": {"type": "flag"},
        "--computed": {"type": "str"},
    }
    new = catalogue.Reader({"sglang/srt/arg_groups/fields.py": NEW_FORM}).flags
    assert set(new.pop("--moe-runner-backend")["choices"]) == {"auto", "triton", "cutlass"}
    assert new == {
        "--model-path": {"type": "str"},
        "--model": {"type": "str"},
        "--context-length": {"type": "human_readable_int"},
        "--allowed": {"type": "str", "nargs": "+"},
        "--mode": {"type": "int", "choices": [1, 2], "default": 2},
        "--trust": {"type": "flag"},
        "--overlap": {"type": "flag"},
        "--no-overlap": {"type": "flag"},
    }


def test_pins_come_from_the_metadata_without_conditions(tmp_path):
    wheel = tmp_path / "sglang-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "sglang-1.dist-info/METADATA",
            'Requires-Dist: torch==2.14.1\nRequires-Dist: flashinfer_python[cu13]==0.7.2\nRequires-Dist: numpy==1\n'
            'Requires-Dist: torch==2.9; platform_machine == "x"\n',
        )  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        assert catalogue.pins_of(archive) == {"torch": "2.14.1", "flashinfer": "0.7.2"}


def test_a_catalogue_reads_back():
    text = catalogue.text_of("1.0", {"torch": "2"}, {"--b": {"type": "int"}, "--a": {"type": "flag"}})
    assert json.loads(text) == {
        "sglang": "1.0",
        "pins": {"torch": "2"},
        "flags": {"--a": {"type": "flag"}, "--b": {"type": "int"}},
    }


@pytest.mark.parametrize("made", ["readme", "schema"])
def test_the_table_and_the_schema_of_the_variables_are_current(made):
    if made == "readme":
        text = variables.README.read_text(encoding="utf-8")
        assert variables.readme(text) == text, "run python -m tools.variables"
    else:
        assert variables.schema() == variables.SCHEMA.read_text(encoding="utf-8"), "run python -m tools.variables"


def test_every_variable_is_described():
    for name, spec in variables.properties().items():
        assert len(spec["description"]) > 5, name


def test_reviewed_results_are_taken_over_once_and_a_broken_file_changes_nothing(tmp_path):
    entry = {
        "id": "gpu1-2026-12-07-a", "arch": "sm120", "moe_backend": "auto", "outcome": "garbage", "depth": "answers",
        "date": "2026-12-07", "source": "own sweep on gpu1",
    }  # fmt: skip
    results, site = tmp_path / "sweep.yml", tmp_path / "site.yml"
    results.write_text(json.dumps([entry]))
    assert (evidence.merge([results], site), evidence.merge([results], site)) == (1, 0)
    (own,) = load_file(site)
    assert own.id == entry["id"] and "stack" not in site.read_text()
    results.write_text(json.dumps([entry, {**entry, "id": "b", "outcome": "perhaps"}]))
    before = site.read_text()
    with pytest.raises(EvidenceError, match="outcome"):
        evidence.merge([results], site)
    assert site.read_text() == before
