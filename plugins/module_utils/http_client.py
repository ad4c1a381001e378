# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP to an inference server with the standard library: bounded in time and in bytes, no redirects followed."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 16 * 1024 * 1024


class HttpError(Exception):
    """No usable answer. C(kind): C(refused), C(timeout), C(broken), C(too_large), C(not_json), C(nan), C(status)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    seconds: float

    def json(self) -> Any:
        return parse_json(self.body)


def parse_json(text: str | bytes) -> Any:
    """JSON as the standard has it. NaN and Infinity, which Python would take, are C(nan): a number that is none."""

    def refuse(word: str) -> None:
        raise HttpError("nan", f"{word} stands where the answer should have a number")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise HttpError("not_json", f"the answer is not JSON ({error}): {text[:200]!r}") from error


class HttpClient:
    """Requests to one server. C(timeout) bounds each request as a whole, not only each read.

    C(url) is C(http://HOST:PORT) or C(https://...); C(api_key) goes as a bearer token; C(ca_file)
    replaces the system's certificates.
    """

    def __init__(self, url: str, api_key: str | None = None, ca_file: str | None = None) -> None:
        self.url = url.rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http:// or https:// address")
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._headers = {"Accept-Encoding": "identity", "Connection": "close"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def request(
        self, method: str, path: str, payload: Any = None, timeout: float = 10.0, limit: int = MAX_BYTES
    ) -> Response:
        """One request, one whole answer; :class:`HttpError` if there is none."""
        began = time.monotonic()
        try:
            sock, response = self._open(method, path, payload, timeout)
            with sock, response:
                body = b"".join(self._chunks(sock, response, began + timeout, limit))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._explain(error, timeout) from error
        return Response(response.status, body, time.monotonic() - began)

    def stream(self, path: str, payload: Any, timeout: float = 60.0) -> Iterator[tuple[float, str]]:
        """POST and yield (seconds since the request, data) of each server-sent event, C([DONE]) included."""
        began = time.monotonic()
        try:
            sock, response = self._open("POST", path, payload, timeout)
            with sock, response:
                chunks = self._chunks(sock, response, began + timeout, MAX_BYTES)
                if response.status != 200:
                    raise HttpError("status", f"HTTP {response.status}: {b''.join(chunks)[:200]!r}")
                pending = b""
                for chunk in chunks:
                    pending += chunk
                    while b"\n" in pending:
                        line, _sep, pending = pending.partition(b"\n")
                        if line.startswith(b"data:"):
                            yield time.monotonic() - began, line[5:].strip().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._explain(error, timeout) from error

    def _open(
        self, method: str, path: str, payload: Any, timeout: float
    ) -> tuple[socket.socket, http.client.HTTPResponse]:
        if self._tls is not None:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        headers, body = dict(self._headers), None
        if payload is not None:
            body = json.dumps(payload).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.connect()
            # getresponse() takes the socket away from the connection when the server will close it
            sock = connection.sock
            connection.request(method, self._prefix + path, body=body, headers=headers)
            return sock, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _chunks(
        self, sock: socket.socket, response: http.client.HTTPResponse, deadline: float, limit: int
    ) -> Iterator[bytes]:
        total = 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise HttpError("timeout", f"{self.url} did not finish its answer in time")
            sock.settimeout(left)
            chunk = response.read1(65536)
            if not chunk:
                if response.length:  # read1() ends quietly where a counted body is cut short
                    raise HttpError("broken", f"{self.url} closed the connection in the middle of its answer")
                return
            total += len(chunk)
            if total > limit:
                raise HttpError("too_large", f"{self.url} sent more than {limit} bytes")
            yield chunk

    def _explain(self, error: BaseException, timeout: float) -> HttpError:
        if isinstance(error, TimeoutError):
            return HttpError("timeout", f"{self.url} gave no answer in {timeout:g} s")
        if isinstance(error, ConnectionRefusedError):
            return HttpError("refused", f"nothing listens at {self.url}")
        return HttpError("broken", f"{self.url}: {type(error).__name__}: {error}")
