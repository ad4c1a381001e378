# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a sweep is doing, as a bar on a terminal or as plain lines for a CI job."""

from __future__ import annotations

import typing as t

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Event = t.Mapping[str, t.Any]


class Watch:
    """Takes ansible-runner's events. One line a result; where `drawn`, also a bar and what each host tries."""

    def __init__(self, console: Console, drawn: bool) -> None:
        self.console = console
        self.failures: list[str] = []
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not drawn,
        )
        self._all = self._progress.add_task("sweep", total=None)
        self._hosts: dict[str, t.Any] = {}

    def __enter__(self) -> Watch:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def take(self, event: Event) -> None:
        data = event.get("event_data", {})
        host, answer = data.get("host", ""), data.get("res") or {}
        if event.get("event") in ("runner_on_failed", "runner_on_unreachable"):
            self.failures.append(f"{host}: {data.get('task')}: {answer.get('msg', '')}")
        if event.get("event") != "runner_on_ok" or not str(data.get("task_action", "")).endswith("sweep"):
            return
        if "left" in answer:
            self._progress.update(self._all, total=max(answer["left"], self._progress.tasks[0].total or 0))
        elif answer.get("changes"):
            self._host(host, " ".join(str(value) for value in answer["changes"].values()))
        elif "result" in answer:
            self._progress.advance(self._all)
            self._host(host, "")
            self.console.print(sentence(answer["result"]), highlight=False, markup=False, soft_wrap=True)

    def _host(self, host: str, doing: str) -> None:
        if host not in self._hosts:
            self._hosts[host] = self._progress.add_task(host, total=None)
        self._progress.update(self._hosts[host], description=f"  {host} {doing}", visible=bool(doing))


def sentence(line: t.Mapping[str, t.Any]) -> str:
    """A result in one line; what was not expected stands first."""
    mark = {"regression": "REGRESSION ", "news": "NEWS ", "infrastructure": "NOT TRIED "}.get(line["judged"], "")
    speed = line["numbers"].get("output_tokens_per_second")
    told = (
        f", {speed:.0f} tokens/s" if speed and line["outcome"] == "ok" else f". {line['line']}" if line["line"] else ""
    )
    return f"{mark}{line['host']}: {line['id']}: {line['outcome'] or 'not tried'} after {line['seconds']:.0f} s{told}"
