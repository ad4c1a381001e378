# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SGLang model gateway (sglang-router): its workers, and what its counters say.

As version 0.3.2 behaves: adding answers 202 before the worker is healthy, and for a dead address too; a
worker that is taken out gets nothing new at once while its running requests go on; there is no drain call,
and C(load) reads 0 under round robin while requests run. So what proves that a worker is drained is the
load that the server itself tells.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient, HttpError, Response

_SAMPLE = re.compile(r"^(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class GatewayError(Exception):
    """A router that did not do as asked, with what was seen and what to do."""


class Gateway:
    """One router, by its control plane. C(timeout) bounds each request."""

    def __init__(self, url: str, api_key: str | None, timeout: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._client = HttpClient(url, api_key)
        self._timeout = timeout

    def _ask(self, method: str, path: str, payload: Any = None, missing: bool = False) -> Any:
        try:
            response: Response = self._client.request(method, path, payload, timeout=self._timeout)
            if response.status == 404 and missing:
                return None
            if response.status in (401, 403):
                raise GatewayError(
                    f"The router {self.url} answered HTTP {response.status} to {path}: router_api_key is not its key"
                )
            if response.status not in (200, 202):
                raise GatewayError(
                    f"The router {self.url} answered HTTP {response.status} to {method} {path}: {response.body[:200]!r}"
                )
            return response.json()
        except HttpError as error:
            raise GatewayError(f"The router {self.url} can't be asked: {error}. Does it run there?") from error

    def find(self, worker_url: str) -> dict[str, Any] | None:
        """The worker of that address, healthy or not; None if there is none."""
        wanted = worker_url.rstrip("/")
        return next((w for w in self._ask("GET", "/workers")["workers"] if w["url"].rstrip("/") == wanted), None)

    def add(self, worker_url: str, worker_api_key: str | None, timeout: float, sleep: Callable[[float], None]) -> None:
        """Register the worker and wait until the router finds it healthy; taken out again if it does not."""
        body = {"url": worker_url, **({"api_key": worker_api_key} if worker_api_key else {})}
        accepted = self._ask("POST", "/workers", body)
        gives_up_at = time.monotonic() + timeout
        while True:
            worker = self.find(worker_url)
            if worker and worker["is_healthy"]:
                return
            job = (self._ask("GET", f"/workers/{accepted['worker_id']}", missing=True) or {}).get("job_status") or {}
            # "already exists" comes of a worker that the router still tries to reach: it is waited for.
            failed = job.get("status") == "failed" and "already exists" not in str(job.get("message"))
            if failed or time.monotonic() > gives_up_at:
                self.remove(worker_url, 5.0, sleep)
                raise GatewayError(
                    f"The router {self.url} accepted the worker {worker_url} but does not find it healthy after "
                    f"{timeout:g} s: {job.get('message') or 'no word of why'}. Can the router's host reach that address?"
                )
            sleep(0.5)

    def remove(self, worker_url: str, timeout: float, sleep: Callable[[float], None]) -> bool:
        """Take the worker out and wait until it is. False if it was not there."""
        worker = self.find(worker_url)
        if worker is None:
            return False
        gives_up_at = time.monotonic() + timeout
        self._ask("DELETE", f"/workers/{worker['id']}", missing=True)
        while self.find(worker_url):
            if time.monotonic() > gives_up_at:
                raise GatewayError(f"The router {self.url} still lists {worker_url} {timeout:g} s after its removal")
            sleep(0.2)
        return True


def server_load(client: HttpClient) -> int | None:
    """Requests that the server runs or has waiting, by its own word; None if it does not tell."""
    try:
        response = client.request("GET", "/v1/loads", timeout=10)
        if response.status == 200:
            rows = response.json()["loads"]
            return sum(int(row["num_running_reqs"]) + int(row["num_waiting_reqs"]) for row in rows)
        response = client.request("GET", "/get_load", timeout=10)  # releases before 0.5.20
        if response.status == 200:
            return sum(int(row["num_reqs"]) for row in response.json())
    except (HttpError, KeyError, TypeError, ValueError):
        pass
    return None


def drain(client: HttpClient, timeout: float, sleep: Callable[[float], None]) -> int | None:
    """Wait until the server has nothing left to do. Returns what it still had: 0, or the rest when the time was up.

    Twice in a row, since a request may be between router and server when the first look comes. None: it does not tell.
    """
    gives_up_at = time.monotonic() + timeout
    idle = 0
    while True:
        load = server_load(client)
        if load is None:
            return None
        idle = idle + 1 if load == 0 else 0
        if idle == 2 or time.monotonic() > gives_up_at:
            return load
        sleep(0.3)


class Counters:
    """What a router has counted up to a moment, by its Prometheus text."""

    def __init__(self, text: str) -> None:
        self.responses: dict[str, float] = {}
        self.buckets: dict[float, float] = {}
        for name, labels_text, value in _SAMPLE.findall(text):
            labels = dict(_LABEL.findall(labels_text))
            if name == "smg_http_responses_total":
                code = labels["status_code"]
                self.responses[code] = self.responses.get(code, 0.0) + float(value)
            elif name == "smg_http_request_duration_seconds_bucket" and labels["path"].startswith(
                ("/v1/", "/generate")
            ):
                bound = float(labels["le"])  # float("+Inf") is infinity
                self.buckets[bound] = self.buckets.get(bound, 0.0) + float(value)

    @classmethod
    def of(cls, url: str) -> Counters:
        try:
            response = HttpClient(url).request("GET", "/metrics", timeout=10)
        except HttpError as error:
            raise GatewayError(f"The router's counters at {url}/metrics can't be read: {error}") from error
        if response.status != 200:
            raise GatewayError(f"The router's counters at {url}/metrics answered HTTP {response.status}")
        return cls(response.body.decode("utf-8", "replace"))

    def since(self, before: Counters) -> dict[str, Any]:
        """Requests to the models in between, answers of 5xx in between, and the bound under which 99 % were answered.

        Counters that went back were started anew, with the router; they count from 0 then.
        """

        def gained(now: float, then: float) -> float:
            return now - then if now >= then else now

        errors = sum(
            gained(count, before.responses.get(code, 0.0)) for code, count in self.responses.items() if code[0] == "5"
        )
        buckets = {bound: gained(count, before.buckets.get(bound, 0.0)) for bound, count in self.buckets.items()}
        requests = buckets.get(float("inf"), 0.0)
        p99 = min((bound for bound, count in buckets.items() if requests and count >= 0.99 * requests), default=None)
        return {"requests": int(requests), "errors": int(errors), "latency_p99": p99}
