# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP with servers that misbehave: every fault is a named error within the time that was given."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpClient, HttpError, parse_json

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@contextmanager
def answering(*pieces, keep_open=False):
    """A server that answers each connection with the pieces; a number among them is a pause in seconds."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve():
        while not stop.is_set():
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    for piece in pieces:
                        if isinstance(piece, (int, float)):
                            stop.wait(piece)
                        else:
                            connection.sendall(piece)
                except OSError:
                    continue
                if keep_open:
                    stop.wait(5)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        stop.set()
        listener.close()


def fails(client: HttpClient, timeout: float = 0.6, **options) -> str:
    began = time.monotonic()
    with pytest.raises(HttpError) as error:
        client.request("GET", "/", timeout=timeout, **options)
    assert time.monotonic() - began < timeout * 3 + 1
    return error.value.kind


def test_a_whole_answer():
    with answering(HEAD + b"content-length: 2\r\n\r\n{}") as client:
        assert client.request("GET", "/").json() == {}


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert fails(HttpClient(f"http://127.0.0.1:{port}")) == "refused"


@pytest.mark.parametrize(
    ("pieces", "keep_open", "kind"),
    [
        ((), True, "timeout"),
        ((HEAD,), True, "timeout"),
        ((HEAD + b"content-length: 100\r\n\r\n{",), True, "timeout"),
        ((HEAD + b"\r\n", *([b"x", 0.1] * 50)), False, "timeout"),
        ((HEAD + b"content-length: 100\r\n\r\n{",), False, "broken"),
        ((HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nab",), False, "broken"),
        ((HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nab\r\n",), False, "broken"),
        ((b"not http at all\r\n\r\n",), False, "broken"),
        ((), False, "broken"),
        ((HEAD + b"\r\n" + b"x" * 5000,), False, "too_large"),
    ],
)
def test_every_fault_is_named_in_time(pieces, keep_open, kind):
    with answering(*pieces, keep_open=keep_open) as client:
        assert fails(client, limit=4096) == kind


def test_a_redirect_is_not_followed():
    with answering(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n") as client:
        assert client.request("GET", "/").status == 302


@pytest.mark.parametrize(
    ("text", "kind"), [("{", "not_json"), ('{"x": NaN}', "nan"), ("-Infinity", "nan"), ("[" * 100000, "not_json")]
)
def test_json_is_strict(text, kind):
    with pytest.raises(HttpError) as error:
        parse_json(text)
    assert error.value.kind == kind


def test_a_stream_comes_event_by_event_and_its_end_is_seen():
    body = b"transfer-encoding: chunked\r\n\r\n" + b"b\r\ndata: one\n\n\r\n" + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    with answering(HEAD + body) as client:
        assert [data for _seconds, data in client.stream("/", {})] == ["one", "[DONE]"]


@contextmanager
def kept_alive(answers_each: int):
    """A server that closes each connection after so many answers, without a word. Yields (client, connections)."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def serve():
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            connections.append(connection)
            with connection:
                for _answer in range(answers_each):
                    if not connection.recv(65536):
                        break
                    connection.sendall(HEAD + b"content-length: 2\r\n\r\n{}")

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}"), connections
    finally:
        listener.close()


def test_a_connection_is_kept_alive():
    with kept_alive(answers_each=10) as (client, connections):
        for _request in range(5):
            assert client.request("POST", "/", {"x": 1}).json() == {}
        assert len(connections) == 1


def test_a_kept_connection_that_the_server_closed_is_no_error():
    with kept_alive(answers_each=1) as (client, connections):
        for _request in range(3):
            assert client.request("GET", "/").json() == {}
            time.sleep(0.05)
        assert len(connections) == 3


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", ""])
def test_no_address(url):
    with pytest.raises(ValueError, match="http"):
        HttpClient(url)
