# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP to an inference server with the standard library: bounded in time and in bytes, no redirects followed."""

from __future__ import annotations

import contextlib
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
        self._headers = {"Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        # Connections kept alive and not in use; append() and pop() of a list are safe between threads
        self._idle: list[http.client.HTTPConnection] = []

    def reachable(self, timeout: float = 1.0) -> bool:
        """Does anybody listen there? Costs next to nothing where nobody does."""
        port = self._port or (443 if self._tls else 80)
        try:
            socket.create_connection((self._host, port), timeout).close()
        except OSError:
            return False
        return True

    def request(
        self, method: str, path: str, payload: Any = None, timeout: float = 10.0, limit: int = MAX_BYTES
    ) -> Response:
        """One request, one whole answer; :class:`HttpError` if there is none."""
        began = time.monotonic()
        with self._exchange(method, path, payload, began + timeout, timeout) as (sock, response):
            body = b"".join(self._chunks(sock, response, began + timeout, limit))
        return Response(response.status, body, time.monotonic() - began)

    def stream(self, path: str, payload: Any, timeout: float = 60.0) -> Iterator[tuple[float, str]]:
        """POST and yield (seconds since the request, data) of each server-sent event, C([DONE]) included."""
        began = time.monotonic()
        with self._exchange("POST", path, payload, began + timeout, timeout) as (sock, response):
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

    @contextlib.contextmanager
    def _exchange(
        self, method: str, path: str, payload: Any, deadline: float, timeout: float
    ) -> Iterator[tuple[socket.socket, http.client.HTTPResponse]]:
        """Send, and give the answer to be read. Its connection is kept if it was read to the end."""
        connection, response = None, None
        try:
            connection, sock, response = self._open(method, path, payload, deadline)
            yield sock, response
            if connection.sock is sock and (response.isclosed() or response.length == 0):
                self._idle.append(connection)
                connection = None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._explain(error, timeout) from error
        finally:
            if response is not None:
                response.close()
            if connection is not None:
                connection.close()

    def _open(
        self, method: str, path: str, payload: Any, deadline: float
    ) -> tuple[http.client.HTTPConnection, socket.socket, http.client.HTTPResponse]:
        headers, body = dict(self._headers), None
        if payload is not None:
            body = json.dumps(payload).encode()
            headers["Content-Type"] = "application/json"
        while True:
            connection, kept = self._connection()
            try:
                connection.timeout = self._left(deadline)
                if connection.sock is None:
                    connection.connect()
                # getresponse() takes the socket away from the connection when the server will close it
                sock = connection.sock
                sock.settimeout(self._left(deadline))
                connection.request(method, self._prefix + path, body=body, headers=headers)
                return connection, sock, connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine):
                connection.close()
                if not kept:  # a server may close an idle connection at any time: that is no answer, ask again
                    raise
            except BaseException:
                connection.close()
                raise

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it was used before."""
        try:
            return self._idle.pop(), True
        except IndexError:
            pass
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, context=self._tls), False
        return http.client.HTTPConnection(self._host, self._port), False

    def _left(self, deadline: float) -> float:
        """Seconds that the next step may take."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise HttpError("timeout", f"{self.url} did not finish its answer in time")
        return left

    def _chunks(
        self, sock: socket.socket, response: http.client.HTTPResponse, deadline: float, limit: int
    ) -> Iterator[bytes]:
        total = 0
        while True:
            sock.settimeout(self._left(deadline))
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
