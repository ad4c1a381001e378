# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one command: its own capture, its own time limit, its whole process group ended at the limit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Completed:
    """What a command that ended in time said. Streams are decoded as UTF-8, bad bytes replaced."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str
    seconds: float


class CommandError(Exception):
    """A command that gave no answer: C(kind) is C(missing), C(denied) or C(timeout)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def run(argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Completed:
    """Run C(argv) for C(timeout) seconds at most; raise :class:`CommandError` if it can't answer.

    A command that hangs in the kernel (nvidia-smi does) can't be waited for even after SIGKILL,
    so the wait after the kill is bounded too.
    """
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
    except FileNotFoundError as error:
        raise CommandError("missing", f"{argv[0]} is not on this host") from error
    except OSError as error:
        raise CommandError("denied", f"{argv[0]} can't be run: {error.strerror}") from error
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=1)
        except (OSError, subprocess.TimeoutExpired):
            pass
        raise CommandError("timeout", f"{argv[0]} gave no answer in {timeout:g} s") from None
    return Completed(
        argv=tuple(argv),
        rc=process.returncode,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        seconds=time.monotonic() - began,
    )
