# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a sweep in a real browser: every cell there, nothing complained of, readable at three widths."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab import Lab

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MOE, GEMM = ["auto", "flashinfer_cutlass", "flashinfer_trtllm"], ["auto", "flashinfer_cudnn", "flashinfer_trtllm"]
HOSTILE = "<script>alert('x')</script> & \"quoted\" \x1b[31m" + "long" * 60
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here")


def line(moe: str, gemm: str, night: int, **more) -> dict:
    numbers = {"output_tokens_per_second": 900.0 + 10 * night, "ttft_p50": 0.2, "ttft_p99": 0.9, "requests": 262}
    return {
        "kind": "result", "id": f"moe={moe} gemm={gemm}", "host": "sim1", "at": f"2026-03-{night:02}T02:10:00+00:00",
        "seconds": 61.0, "arch": "sm120", "model": "nvidia/Qwen3.5-397B-A17B-NVFP4", "stack": {"sglang": "0.5.23"},
        "combination": {"moe_backend": moe, "gemm_backend": gemm, "quantization": "modelopt_fp4", "tp_size": 8},
        "changes": {"moe_backend": moe, "gemm_backend": gemm}, "expected": "known_good", "because": "reported ok",
        "outcome": "ok", "depth": "concurrent", "failure_class": "", "line": "", "ready_seconds": 40.0,
        "numbers": numbers, "judged": "expected", **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("report")
    lab = Lab(root, ["sim1"], gpus=[0], tp_size=1)
    for night in range(1, 9):
        lines = [line(moe, gemm, night) for moe in MOE for gemm in GEMM]
        lines[4] = line(
            MOE[1], GEMM[1], night,
            outcome="garbage" if night == 8 else "ok", judged="regression" if night == 8 else "expected",
            failure_class="garbage", line=HOSTILE,
        )  # fmt: skip
        lines[8] = {
            **lines[8],
            "outcome": None,
            "judged": "infrastructure",
            "numbers": {},
            "line": "GPU 3 is not clean",
        }
        folder = root / "nights" / f"2026-03-{night:02}"
        folder.mkdir(parents=True)
        (folder / "results.jsonl").write_text("".join(json.dumps(item) + "\n" for item in lines))
    run = lab.run("sweep.yml", "-e", f"sweep_dir={folder}", "-e", "sweep_budget=0")
    assert run.rc == 0, run.out
    return folder / "report.html"


def browse(page: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *words, f"file://{page}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


def test_every_cell_and_night_is_there_and_nothing_is_complained_of(page):
    done = browse(page, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    assert len(re.findall(r'<td class="(?:good|bad|none)">', done.stdout)) == 9
    assert done.stdout.count("<rect") == 9 * 8 and done.stdout.count("<polyline") == 8
    assert "<script" not in done.stdout and "&lt;script&gt;" in done.stdout
    assert done.stdout.index("1 regression") < done.stdout.index("REGRESSION".lower() + "</span>")


@pytest.mark.parametrize("width", [500, 900, 1400])
def test_it_is_as_wide_as_the_window(page, tmp_path, width):
    """Only the table may be wider, and scrolls by itself. (A headless window is 500 pixels wide at least.)"""
    measured = tmp_path / "measured.html"
    script = (
        "<script>document.title = document.documentElement.scrollWidth + ' of ' + window.innerWidth</script></body>"
    )
    measured.write_text(page.read_text().replace("</body>", script))
    shot = tmp_path / "shot.png"
    done = browse(measured, f"--window-size={width},1200", f"--screenshot={shot}", "--dump-dom")
    wide, window = map(int, re.search(r"<title>(\d+) of (\d+)</title>", done.stdout).groups())
    assert wide <= window and shot.stat().st_size > 10_000
