# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTTP surface: paths, status codes and bodies of SGLang 0.5.23, as captured from the original."""

from __future__ import annotations

import json
import socket
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sglang import model
from sglang.processes import Server, log

OPEN_PATHS = ("/health", "/health_generate", "/ready", "/metrics")


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    look_alike: Server


def bind(server: Server) -> _HTTPServer:
    family = socket.AF_INET6 if ":" in server.args.host else socket.AF_INET
    kind = type("Bound", (_HTTPServer,), {"address_family": family})
    bound = kind((server.args.host, server.args.port), Handler)
    bound.look_alike = server
    return bound


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HTTPServer

    def log_message(self, text: str, *values: Any) -> None:
        if self.path not in OPEN_PATHS:
            log(f'INFO:     {self.client_address[0]}:{self.client_address[1]} - "{self.requestline}" {values[1]} OK')

    # -- answers

    def send(self, status: int, body: Any = None, kind: str = "application/json") -> None:
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def bad_request(self, message: str) -> None:
        self.send(
            400,
            {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400},
        )

    def unknown(self) -> None:
        self.send(404, {"detail": "Not Found"})

    def allowed(self) -> bool:
        key = self.server.look_alike.args.api_key
        if not key or self.path.split("?")[0] in OPEN_PATHS or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.send(401, {"error": "Unauthorized"})
        return False

    # -- requests

    def do_GET(self) -> None:  # noqa: N802
        look_alike = self.server.look_alike
        path = self.path.split("?")[0]
        if look_alike.nodes.rank > 0:
            return self.send(200) if path in ("/health", "/health_generate", "/ping") else self.unknown()
        if not self.allowed():
            return None
        if path in ("/health", "/health_generate"):
            if look_alike.status != "Up":
                return self.send(503)
            time.sleep(1.0)  # the original polls once a second
            return self.send(200 if look_alike.alive(20.0) else 503)
        if path == "/ready":
            return self.send(200 if look_alike.status == "Up" else 503)
        if path == "/metrics" and look_alike.args.enable_metrics:
            return self.send(
                200,
                f'sglang:num_running_reqs{{model_name="{look_alike.args.served_model_name}"}} {look_alike.in_flight}\n',
                "text/plain",
            )
        if path in ("/model_info", "/get_model_info"):
            return self.send(200, self.model_info())
        if path in ("/server_info", "/get_server_info"):
            return self.send(200, self.server_info())
        if path == "/v1/loads":
            load = {"dp_rank": 0, "num_running_reqs": look_alike.in_flight, "num_waiting_reqs": 0}
            return self.send(200, {"loads": [load]})
        if path == "/v1/models":
            return self.send(200, {"object": "list", "data": [self.model_card()]})
        if path.startswith("/v1/models/"):
            if path.rpartition("/v1/models/")[2] == look_alike.args.served_model_name:
                return self.send(200, self.model_card())
            name = path.rpartition("/v1/models/")[2]
            return self.send(
                404,
                {
                    "error": {
                        "message": f"The model '{name}' does not exist",
                        "type": "invalid_request_error",
                        "param": "model",
                        "code": "model_not_found",
                    }
                },
            )
        return self.unknown()

    def do_POST(self) -> None:  # noqa: N802
        look_alike = self.server.look_alike
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        if look_alike.nodes.rank > 0:
            return self.unknown()
        if not self.allowed():
            return None
        try:
            body = json.loads(raw)
        except ValueError:
            return self.bad_request("1 validation error: JSON decode error")
        if not isinstance(body, dict):
            return self.bad_request("1 validation error: Input should be a valid dictionary")
        with look_alike.flight:
            look_alike.in_flight += 1
            running = look_alike.in_flight
        try:
            if not look_alike.alive(60.0):
                return self.send(500, {"object": "error", "message": "scheduler does not answer", "code": 500})
            if self.path == "/v1/chat/completions":
                return self.chat(body, running)
            if self.path == "/generate":
                return self.generate(body, running)
            return self.unknown()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with look_alike.flight:
                look_alike.in_flight -= 1
                look_alike.flight.notify_all()

    def produce(self, prompt: str, body: dict, limit: int, running: int) -> tuple[str, list[str], str]:
        """(nature, tokens, finish reason)."""
        look_alike = self.server.look_alike
        faults = look_alike.host.faults
        nature = model.nature(look_alike.args, faults, running, prompt)
        temperature = float(body.get("temperature") or 0)
        pieces = model.said(nature, prompt, body.get("seed"), temperature, limit, faults)[:limit]
        every = faults.get("nan_every")
        if every:  # each token is a row; after a NaN row the KV cache is poisoned
            with look_alike.flight:
                rows, look_alike.rows = look_alike.rows, look_alike.rows + len(pieces)
            until_nan = every - rows % every
            if until_nan <= len(pieces):
                nature, pieces = "nan", pieces[: until_nan - 1] + [model.GARBAGE] * (limit - until_nan + 1)
        cut = len(pieces) > limit or nature in ("garbage", "nan", "empty", "rots")
        return nature, pieces[:limit], "length" if cut else "stop"

    def chat(self, body: dict, running: int) -> None:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            return self.bad_request("messages: Field required")
        prompt = str(messages[-1].get("content"))
        nature, pieces, finish = self.produce(prompt, body, int(body.get("max_tokens") or 128), running)
        if nature == "error":
            return self.send(500, {"object": "error", "message": "Internal server error", "code": 500})
        pause = self.server.look_alike.host.config["token_seconds"]
        usage = {"prompt_tokens": len(prompt) // 4 + 8, "completion_tokens": len(pieces)}
        usage["total_tokens"] = sum(usage.values())
        head = {"id": uuid.uuid4().hex, "created": int(time.time()), "model": body.get("model", "default")}
        if body.get("stream"):
            return self.stream(
                head,
                pieces,
                finish,
                usage,
                pause,
                bool((body.get("stream_options") or {}).get("include_usage")),
            )
        time.sleep(pause * len(pieces))
        logprobs = None
        if body.get("logprobs"):
            value = float("nan") if nature == "nan" else -0.01
            logprobs = {
                "content": [
                    {"token": piece, "bytes": list(piece.encode()), "logprob": value, "top_logprobs": []}
                    for piece in pieces
                ]
            }
        message = {"role": "assistant", "content": "".join(pieces), "reasoning_content": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": finish,
            "matched_stop": None,
        }
        return self.send(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def stream(self, head: dict, pieces: list[str], finish: str, usage: dict, pause: float, with_usage: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = {**head, "object": "chat.completion.chunk"}

        def event(data: Any) -> None:
            text = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

        def choice(delta: dict, reason: str | None = None) -> dict:
            return {
                **head,
                "choices": [
                    {
                        "index": 0,
                        "delta": delta,
                        "logprobs": None,
                        "finish_reason": reason,
                        "matched_stop": None,
                    }
                ],
            }

        event(choice({"role": "assistant", "content": ""}))
        for piece in pieces:
            time.sleep(pause)
            event(choice({"content": piece}))
        event(choice({}, finish))
        if with_usage:
            event({**head, "choices": [], "usage": usage})
        event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def generate(self, body: dict, running: int) -> None:
        prompt = str(body.get("text", ""))
        limit = int((body.get("sampling_params") or {}).get("max_new_tokens") or 128)
        nature, pieces, finish = self.produce(prompt, body, limit, running)
        value = None if nature == "nan" else -0.01
        info = {
            "id": uuid.uuid4().hex,
            "finish_reason": {"type": finish, "length": len(pieces)},
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": len(pieces),
            "output_token_logprobs": [[value, 0, None] for _ in pieces] if body.get("return_logprob") else [],
        }
        return self.send(200, {"text": "".join(pieces), "output_ids": [0] * len(pieces), "meta_info": info})

    # -- what it tells of itself

    def model_card(self) -> dict:
        args = self.server.look_alike.args
        length = args.context_length or 262144
        return {
            "id": args.served_model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": args.served_model_name,
            "parent": None,
            "max_model_len": length,
        }

    def model_info(self) -> dict:
        args = self.server.look_alike.args
        return {
            "model_path": args.model_path,
            "served_model_name": args.served_model_name,
            "tokenizer_path": args.model_path,
            "is_generation": True,
            "weight_version": "default",
        }

    def server_info(self) -> dict:
        look_alike = self.server.look_alike
        info = dict(vars(look_alike.args))
        info.update(look_alike.host.faults.get("server_info", {}))
        info.update(
            status="ready" if look_alike.status == "Up" else "starting",
            version=look_alike.host.config["sglang"],
            internal_states=[{"last_gen_throughput": 0.0}],
            max_total_num_tokens=1048576,
            max_req_input_len=262138,
            startup_time={"load_weight": look_alike.host.config["load_seconds"]},
        )
        return info
