# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nvidia-smi prints, read or refused; never guessed."""

from __future__ import annotations

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils.nvidia_smi import (
    NvidiaSmi,
    NvidiaSmiError,
    expect_count,
    parse_compute_apps,
    parse_gpus,
)
from hypothesis import given
from hypothesis import strategies as st


def row(index: int, used: str = "0", total: str = "97887") -> str:
    uuid = f"GPU-5b1ac000-0000-4000-8000-{index:012x}"
    return f"{index}, {uuid}, 00000000:{index + 1:02X}:00.0, NVIDIA RTX PRO 6000, 580.126.09, {total}, {used}, 12.0"


EIGHT = "".join(row(index) + "\n" for index in range(8))


def test_eight_idle_gpus():
    gpus = parse_gpus(EIGHT)
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert {gpu.memory_used_mib for gpu in gpus} == {0}
    assert gpus[7].bus_id == "00000000:08:00.0"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("39865 398650, 0 MiB\n", "bad_row"),
        ("398650, 0 MiB\n", "bad_row"),
        ("39865 39866 " + EIGHT, "bad_row"),
        (row(398650) + "\n", "bad_row"),
        (row(0) + "\n" + row(0) + "\n", "bad_row"),
        (row(0) + "\n" + row(2) + "\n", "bad_row"),
        (row(0, used="[N/A]"), "no_value"),
        (row(0, used="ERR!"), "no_value"),
        (row(0, used="[Unknown Error]"), "no_value"),
        (row(0, used="[Not Supported]"), "no_value"),
        (row(0, used="0 MiB"), "bad_row"),
        (row(0, used="-1"), "bad_row"),
        (row(0, used="\u0661"), "bad_row"),
        (row(0, used=""), "bad_row"),
        (row(0).replace("GPU-", "MIG-"), "bad_row"),
        ("No devices were found\n", "bad_row"),
        ('Field "bogus" is not a valid field to query.\n', "bad_row"),
    ],
)
def test_a_row_that_is_not_understood_is_an_error(text, kind):
    with pytest.raises(NvidiaSmiError) as error:
        parse_gpus(text)
    assert error.value.kind == kind


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_missing_gpu_is_an_error(count):
    gpus = parse_gpus("".join(row(index) + "\n" for index in range(count)))
    with pytest.raises(NvidiaSmiError) as error:
        expect_count(gpus, 8)
    assert error.value.kind == "gpu_missing"


@given(st.text(max_size=300))
def test_any_text_gives_gpus_or_a_named_error(text):
    try:
        gpus = parse_gpus(text)
    except NvidiaSmiError as error:
        assert error.kind in ("bad_row", "no_value")
    else:
        assert len(gpus) == sum(bool(line.strip()) for line in text.splitlines())


@given(st.integers(0, len(EIGHT) - 1), st.text(alphabet="0123456789, \n[]", min_size=1, max_size=6))
def test_anything_glued_into_the_output_never_adds_a_gpu(at, glue):
    spoilt = EIGHT[:at] + glue + EIGHT[at:]
    try:
        gpus = parse_gpus(spoilt)
    except NvidiaSmiError:
        return
    assert [gpu.index for gpu in gpus] == list(range(8))


def test_a_process_name_may_hold_commas():
    uuid = "GPU-5b1ac000-0000-4000-8000-000000000007"
    apps = parse_compute_apps(f"{uuid}, 4242, python, odd name, 62050\n{uuid}, 17, [Not Found], [N/A]\n")
    assert [(app.pid, app.name, app.used_mib) for app in apps] == [
        (4242, "python, odd name", 62050),
        (17, "[Not Found]", None),
    ]


def script(tmp_path, body: str) -> str:
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("exit 9", "exit"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "nvml_mismatch"),
        ("echo 'Field \"x\" is not a valid field to query.'; exit 2", "exit"),
        ("sleep 60", "timeout"),
        ("true", "gpu_missing"),
    ],
)
def test_exit_status_and_silence_count(tmp_path, body, kind):
    with pytest.raises(NvidiaSmiError) as error:
        NvidiaSmi(script(tmp_path, body), timeout=0.5).gpus(8)
    assert error.value.kind == kind


def test_a_missing_command_says_what_to_do(tmp_path):
    with pytest.raises(NvidiaSmiError, match="set nvidia_smi") as error:
        NvidiaSmi(str(tmp_path / "absent")).gpus()
    assert error.value.kind == "missing"
