# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make and spoil simulated hosts.

python -m simulator create DIR...       make hosts, or leave them as they are
python -m simulator fault DIR JSON      set what goes wrong ({} for nothing)
python -m simulator hold DIR GPU MIB    be a process that holds a GPU, until killed
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import venv
from pathlib import Path

from simulator.host import DEFAULTS, IDLE_CONTEXT_MIB, Host

REPOSITORY = Path(__file__).resolve().parents[1]
# What the environment says is installed, beside SGLang; the pins of its release.
DISTRIBUTIONS = {"flashinfer": "flashinfer-python", "cudnn": "nvidia-cudnn-cu13", "torch": "torch"}


def create(root: Path, settings: dict[str, object]) -> None:
    host = Host(root)
    config = {**DEFAULTS, **host._json("config.json"), **settings}
    host.write("config.json", config)
    catalogue = json.loads((REPOSITORY / "catalogue" / f"sglang-{config['sglang']}.json").read_text(encoding="utf-8"))
    host.write("flags.json", catalogue["flags"])
    (root / "dev").mkdir(exist_ok=True)
    (root / "memory").mkdir(exist_ok=True)
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(config["gpus"]))]:
        host.device(name).touch()
    environment = root / "venv"
    if not (environment / "bin" / "python").exists():
        venv.create(environment, symlinks=True)
    packages = next((environment / "lib").glob("python3.*")) / "site-packages"
    (packages / "sglang_simulator.pth").write_text(f"{REPOSITORY / 'simulator' / 'site'}\n{REPOSITORY}\n")
    versions = {"sglang": config["sglang"]}
    versions.update({name: catalogue["pins"][part] for part, name in DISTRIBUTIONS.items()})
    for old in packages.glob("*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    for name, version in versions.items():
        info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    model = root / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text('{"architectures": ["Qwen3_5MoeForConditionalGeneration"]}\n')
    command(root / "bin" / "nvidia-smi", "from simulator.nvidia_smi import main", f"main({str(root.resolve())!r})")
    command(
        environment / "bin" / "sglang",
        "from sglang.cli.main import main",
        "main()",
        environment / "bin" / "python",
    )


def command(path: Path, imports: str, call: str, python: Path | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    interpreter = (python or Path(sys.executable)).absolute()
    path.write_text(f"#!{interpreter}\nimport sys\n\nsys.path.insert(0, {str(REPOSITORY)!r})\n{imports}\n\n{call}\n")
    path.chmod(0o755)


def hold(root: Path, gpu: int, mib: int, ignore_term: bool) -> None:
    """A process like any other that computes on a GPU."""
    host = Host(root)
    if ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    host.open_devices([gpu])
    host.allocate({gpu: mib}, compute=mib > IDLE_CONTEXT_MIB)
    print("holding", flush=True)
    signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="simulator", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("create")
    making.add_argument("dirs", nargs="+", type=Path)
    making.add_argument("--set", default="{}", help="JSON of settings, see simulator/host.py")
    spoiling = verbs.add_parser("fault")
    spoiling.add_argument("dir", type=Path)
    spoiling.add_argument("faults")
    holding = verbs.add_parser("hold")
    holding.add_argument("dir", type=Path)
    holding.add_argument("gpu", type=int)
    holding.add_argument("mib", type=int)
    holding.add_argument("--ignore-term", action="store_true")
    words = parser.parse_args()
    if words.verb == "create":
        for root in words.dirs:
            root.mkdir(parents=True, exist_ok=True)
            create(root, json.loads(words.set))
    elif words.verb == "fault":
        Host(words.dir).write("faults.json", json.loads(words.faults))
    else:
        hold(words.dir, words.gpu, words.mib, words.ignore_term)


if __name__ == "__main__":
    main()
