# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sweep unattended, and tell by the exit status what became of it.

0  as expected; what evidence knows as bad and now passes is news, and no failure
1  a regression: known good, and it failed
2  the sweep could not be done, or not to its end; the same command goes on with it
3  wrong usage; nothing was done
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
import typing as t
from pathlib import Path

import ansible_runner
from rich.console import Console

from nightly.progress import Watch, sentence

REPOSITORY = Path(__file__).resolve().parents[1]
AS_EXPECTED, REGRESSION, INFRASTRUCTURE, USAGE = 0, 1, 2, 3
# Values of these never go onto a command line, which stays in ansible-runner's files.
SECRET = re.compile(r"(?i)(api_?key|token|password|secret)[\"']?\s*[=:]")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> t.NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def arguments(words: t.Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="sglang-nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", type=Path, default=REPOSITORY / "inventories" / "sim")
    parser.add_argument("-l", "--limit", help="hosts, as ansible-playbook takes them")
    parser.add_argument(
        "-e", "--extra-vars", action="append", default=[], metavar="VARS",
        help="as ansible-playbook takes them, but for secrets, which must come as @FILE (or from a vault)",
    )  # fmt: skip
    parser.add_argument("--vault-password-file", type=Path)
    parser.add_argument(
        "--dir", type=Path, default=Path("reports/nightly"), help="a folder for each night, and the lock"
    )
    parser.add_argument("--keep-days", type=float, default=30, help="for how long a night's folder stays")
    parser.add_argument("--timeout", type=float, default=8 * 3600, help="seconds, putting the hosts back not included")
    parser.add_argument("--plain", action="store_true", help="lines, and no bar, on a terminal too")
    given = parser.parse_args(words)
    given.inventory, given.dir = given.inventory.absolute(), given.dir.absolute()
    if not given.inventory.exists():
        parser.error(f"--inventory {given.inventory}: there is no such file or folder")
    for item in given.extra_vars:
        secret = None if item.startswith("@") else SECRET.search(item)
        if secret:
            parser.error(f"--extra-vars {secret.group(1)}=...: a secret must come as @FILE, or from a vault")
        if item.startswith("@") and not Path(item[1:]).is_file():
            parser.error(f"--extra-vars {item}: there is no such file")
    return given


@contextlib.contextmanager
def alone(directory: Path) -> t.Iterator[bool]:
    """Is no other run at work in the folder? The lock goes with the process, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def night(directory: Path) -> Path:
    """The folder of a sweep that was begun and not ended, or a new one with today's date."""
    for path in sorted(directory.glob("[0-9]*")):
        if path.is_dir() and not (path / "ended.json").exists():
            return path
    today = datetime.date.today().isoformat()
    names = [today, *(f"{today}-{number}" for number in range(2, 1000))]
    return next(directory / name for name in names if not (directory / name).exists())


def prune(directory: Path, keep_days: float) -> None:
    for path in directory.glob("[0-9]*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > keep_days * 86400:
            shutil.rmtree(path)


class Run:
    """One run of the playbook by ansible-runner; ends by itself, at its deadline, or when told."""

    def __init__(self, given: argparse.Namespace, folder: Path, watch: Watch) -> None:
        self.given = given
        self.folder = folder
        self.watch = watch
        self.told = ""

    def stop(self, number: int, _frame: object) -> None:
        self.told = f"ended by {signal.Signals(number).name}"

    def play(self, *more: str, deadline: float | None = None) -> int:
        """Its exit status. C(more) are further variables."""

        def over() -> bool:
            if deadline is not None and time.monotonic() > deadline:
                self.told = self.told or f"not done within --timeout {self.given.timeout:.0f} s"
            return bool(self.told) and deadline is not None

        words = [word for item in self.given.extra_vars for word in ("-e", _absolute(item))]
        words += [word for item in more for word in ("-e", item)]
        if self.given.vault_password_file:
            words += ["--vault-password-file", str(self.given.vault_password_file.absolute())]
        private = self.folder / "runner"
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = ansible_runner.RunnerConfig(
            private_data_dir=str(private),
            project_dir=str(REPOSITORY),
            artifact_dir=str(private),
            ident=f"{time.time():.3f}",
            playbook=str(REPOSITORY / "playbooks" / "sweep.yml"),
            inventory=str(self.given.inventory),
            limit=self.given.limit,
            cmdline=shlex.join(words),
            envvars={
                "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            },
            suppress_env_files=True,
            quiet=True,
        )
        config.prepare()
        runner = ansible_runner.Runner(config, event_handler=self._event, cancel_callback=over)
        runner.run()
        return int(runner.rc)

    def _event(self, event: t.Mapping[str, t.Any]) -> bool:
        _forget_environment(self.folder / "runner")
        self.watch.take(event)
        return True


def _absolute(item: str) -> str:
    return f"@{Path(item[1:]).absolute()}" if item.startswith("@") else item


def _forget_environment(private: Path) -> None:
    """ansible-runner writes the whole environment beside the command; a CI job's holds tokens."""
    for file in private.glob("*/command"):
        content = json.loads(file.read_text(encoding="utf-8"))
        if content.pop("env", None) is not None:
            file.write_text(json.dumps(content), encoding="utf-8")


def verdict(folder: Path, run: Run, status: int) -> tuple[int, str]:
    """(exit status, the sentence that goes with it)."""
    try:
        report = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        told = run.told or "; ".join(run.watch.failures[-3:]) or f"ansible-playbook ended with {status}"
        return INFRASTRUCTURE, f"the sweep could not be done: {told}"
    counts = report["counts"]
    if counts["regression"]:
        worst = [line for line in report["results"] if line["judged"] == "regression"]
        return REGRESSION, "\n".join([f"{counts['regression']} regression(s)", *map(sentence, worst)])
    if run.told:
        return INFRASTRUCTURE, run.told
    broken = [line["said"] for line in report["restored"] if not line["ok"]]
    if broken or status != 0:
        return INFRASTRUCTURE, "; ".join(broken or run.watch.failures[-3:] or [f"ansible-playbook ended with {status}"])
    if counts["infrastructure"] or report["missing"]:
        return (
            INFRASTRUCTURE,
            f"{counts['infrastructure']} could not be tried, {len(report['missing'])} are not tried yet",
        )
    return AS_EXPECTED, f"as expected; {counts['news']} known bad that passed, {counts['new']} not known before"


def main(words: t.Sequence[str] | None = None) -> int:
    given = arguments(words)
    console = Console(soft_wrap=True)
    with alone(given.dir) as mine:
        if not mine:
            console.print(f"another run is at work in {given.dir}", highlight=False)
            return INFRASTRUCTURE
        prune(given.dir, given.keep_days)
        folder = night(given.dir)
        folder.mkdir(parents=True, exist_ok=True)
        console.print(
            f"{'goes on with' if (folder / 'results.jsonl').exists() else 'begins'} {folder}", highlight=False
        )
        with Watch(console, drawn=console.is_terminal and not given.plain) as watch:
            run = Run(given, folder, watch)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, run.stop)
            where = json.dumps({"sweep_dir": str(folder)})
            status = run.play(where, deadline=time.monotonic() + given.timeout)
            if run.told:  # the hosts are as the sweep left them
                console.print(f"{run.told}; putting the hosts back", highlight=False)
                status = run.play(where, json.dumps({"sweep_budget": 0}))
        code, told = verdict(folder, run, status)
        done = code != INFRASTRUCTURE
        if done or not run.told:
            (folder / "ended.json").write_text(json.dumps({"exit": code, "told": told}), encoding="utf-8")
        console.print(f"{told}\n{folder / 'report.html'}", highlight=False, markup=False)
        return code


if __name__ == "__main__":
    sys.exit(main())
