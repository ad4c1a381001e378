# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The processes of the look-alike: launcher, one scheduler a rank, detokenizer; how they load and how they die."""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection, wait
from typing import Any

from sglang import model
from sglang.arguments import host_of_this_environment
from sglang.nodes import Nodes
from simulator.host import IDLE_CONTEXT_MIB, Host

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
SHARDS = 5
STAGES = ("arguments", "distributed", "weights", "memory_pool", "cuda_graphs", "http", "warmup")


def log(text: str, rank: str = "") -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"[{stamp}{rank}] {text}", file=sys.stderr, flush=True)


def set_title(title: str) -> None:
    """Overwrite the argument area of this process and the environment behind it, as setproctitle does, and its kernel name."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, title[:15].encode(), 0, 0, 0)
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[48])
    room = end - begin
    ctypes.memmove(begin, title.encode()[: room - 1].ljust(room, b"\0"), room)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def stage(name: str, host: Host) -> None:
    """A point of the start at which a fault may strike."""
    faults = host.faults
    if faults.get("hang_at") == name:
        host.strike()
        signal.pause()
    if faults.get("exit_at") == name:
        for line in faults.get("last_words", []):
            log(line)
        host.strike()
        os._exit(faults.get("exit_code", 1))
    if faults.get("kill_at") == name:
        host.strike()
        os.kill(os.getpid(), signal.SIGKILL)


def scheduler(rank: int, leads: bool, gpu: int | None, args: argparse.Namespace, pipe: Connection) -> None:
    """One rank, of which the first on a node leads: import (parent not yet tied), open the GPU, load, then answer until told to end."""
    host = host_of_this_environment()
    config = host.config
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ranks = args.tp_size * args.dp_size
    suffix = f"_TP{rank}" if args.tp_size > 1 else f"_DP{rank}" if args.dp_size > 1 else ""
    tag = f" {suffix[1:]}" if suffix else ""
    descriptors = host.open_devices([gpu] if gpu is not None else [])
    if gpu is not None:
        host.allocate({gpu: IDLE_CONTEXT_MIB}, compute=False)
    time.sleep(config["import_seconds"])
    die_with_parent()
    set_title(f"sglang::scheduler{suffix}")
    if host.faults.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        if leads:
            log("Init torch distributed begin.", tag)
            stage("distributed", host)
            log(f"Init torch distributed ends. elapsed={0.1 * ranks:.2f} s, mem usage=0.00 GB", tag)
            log("Load weight begin. avail mem=94.00 GB", tag)
        share = int(config["memory_mib"] * (args.mem_fraction_static or 0.85))
        for shard in range(SHARDS + 1):
            if leads:
                bar = f"Loading safetensors checkpoint shards: {100 * shard // SHARDS:3d}% Completed | {shard}/{SHARDS}"
                print(f"\r{bar} [00:00<00:00,  1.0it/s]", file=sys.stderr, end="", flush=True)
            if gpu is not None:
                host.allocate({gpu: max(IDLE_CONTEXT_MIB, share * shard // SHARDS)})
            if shard == SHARDS // 2 and leads:
                stage("weights", host)
                if model.dies_while_loading(args):
                    host.strike()
                    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel's OOM killer does it
            time.sleep(config["load_seconds"] / SHARDS)
        if leads:
            print(file=sys.stderr)
            log(
                f"Load weight end. elapsed={config['load_seconds']:.2f} s, type=Qwen3_5MoeForConditionalGeneration, avail mem=20.00 GB, mem usage=70.00 GB.",
                tag,
            )
            stage("memory_pool", host)
            log(
                "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1048576, K size: 8.00 GB, V size: 8.00 GB",
                tag,
            )
            log("Memory pool end. avail mem=12.00 GB", tag)
            log(
                "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=12.00 GB",
                tag,
            )
            stage("cuda_graphs", host)
            log("Capture target decode CUDA graph end. bs=[1, 2, 4], elapsed=0.10 s", tag)
            log(
                "max_total_num_tokens=1048576, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=256, context_len=262144, available_gpu_mem=12.00 GB",
                tag,
            )
        pipe.send("ready")
        while pipe.recv() is not None:
            pipe.send("alive")
    except (EOFError, OSError, KeyboardInterrupt):
        pass
    finally:
        del descriptors


def detokenizer(pipe: Connection) -> None:
    host = host_of_this_environment()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptors = host.open_devices([])
    time.sleep(host.config["import_seconds"])
    die_with_parent()
    set_title("sglang::detokenizer")
    if host.faults.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send("ready")
    try:
        pipe.recv()
    except (EOFError, OSError):
        pass
    del descriptors


class Server:
    """The launcher: HTTP and tokenizer process of the original."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.host = host_of_this_environment()
        self.children: dict[str, Any] = {}
        self.pipes: list[Connection] = []
        self.asking = threading.Lock()
        self.status = "Starting"
        self.in_flight = self.rows = 0
        self.flight = threading.Condition()
        self.began = time.time()
        self.nodes = Nodes(args)

    def main(self) -> None:
        print(
            "UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.",
            file=sys.stderr,
        )
        log(f"server_args={json.dumps(vars(self.args))}")
        self.host.spare_others(sys.argv)
        stage("arguments", self.host)
        if not os.path.exists(self.args.model_path) and self.args.model_path.count("/") != 1:
            log(
                "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
                f"'{self.args.model_path}'. Use `repo_type` argument if needed."
            )
            sys.exit(1)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = [int(word) for word in visible.split(",")] if visible else list(range(self.host.config["gpus"]))
        self._devices = self.host.open_devices(gpus[:1])
        self.nodes.meet()
        context = multiprocessing.get_context("spawn")
        share = self.args.tp_size * self.args.dp_size // self.nodes.count
        for index in range(share):
            ours, theirs = context.Pipe()
            gpu = gpus[index] if index < len(gpus) else None
            rank = self.nodes.rank * share + index
            child = context.Process(target=scheduler, args=(rank, index == 0, gpu, self.args, theirs), daemon=False)
            child.start()
            theirs.close()
            self.children[f"scheduler_{rank}"] = child
            self.pipes.append(ours)
        if self.nodes.rank > 0:
            self._follow()
        ours, theirs = context.Pipe()
        child = context.Process(target=detokenizer, args=(theirs,), daemon=False)
        child.start()
        theirs.close()
        self.children["detokenizer"] = child
        self._detokenizer = ours
        self._wait_until_loaded([*self.pipes, self._detokenizer])
        threading.Thread(target=self._watch_children, daemon=True).start()
        stage("http", self.host)
        self._serve()

    def _follow(self) -> None:
        """A node that is not the first: its ranks, and a server that knows only its health. It ends when the first does."""
        from sglang import http_server

        self._wait_until_loaded(list(self.pipes))
        threading.Thread(target=self._watch_children, daemon=True).start()
        warning = "waiting for the rank-0 ShutdownReq broadcast to stop the schedulers."
        signal.signal(
            signal.SIGTERM,
            lambda number, frame: log(f"SIGTERM received on node_rank {self.nodes.rank}; {warning}"),
        )
        server = http_server.bind(self)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.nodes.wait_for_end()
        self.status = "Stopping"
        self.end_children()
        sys.exit(0)

    def _wait_until_loaded(self, waiting: list[Connection]) -> None:
        while waiting:
            ready = wait([*waiting, *(child.sentinel for child in self.children.values())])
            for item in ready:
                if item in waiting:
                    try:
                        item.recv()
                        waiting.remove(item)
                    except (EOFError, OSError):
                        self._launch_failed()
                else:
                    self._launch_failed()

    def _launch_failed(self) -> None:
        time.sleep(0.05)
        for name, child in self.children.items():
            if child.exitcode is not None and name.startswith("scheduler"):
                rank = name.rpartition("_")[2]
                log(
                    f"RuntimeError: Rank {rank} scheduler died during initialization (exit code: {child.exitcode}). "
                    "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
                )
        log("Received sigquit from a child process. It usually means the child failed.")
        self.end_children()
        os.kill(os.getpid(), signal.SIGKILL)

    def end_children(self) -> None:
        for child in self.children.values():
            if child.is_alive():
                child.kill()

    def _watch_children(self) -> None:
        """As the original's watchdog: a dead child ends the server, slowly and by SIGKILL."""
        sentinels = {child.sentinel: name for name, child in self.children.items()}
        for item in wait(list(sentinels)):
            name = sentinels[item]
            if self.status == "Stopping":
                return
            child = self.children[name]
            child.join()
            log(
                f"Subprocess {name} (pid={child.pid}) crashed with exit code {child.exitcode}. Triggering SIGQUIT for cleanup..."
            )
            log("Sleeping 5 seconds before crash diagnostics")
            time.sleep(self.host.config["crash_sleep_seconds"])
            self.end_children()
            os.kill(os.getpid(), signal.SIGKILL)

    def _serve(self) -> None:
        from sglang import http_server

        log(f"INFO:     Started server process [{os.getpid()}]")
        log("INFO:     Application startup complete.")
        try:
            server = http_server.bind(self)
        except OSError as error:
            log(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('{self.args.host}', {self.args.port}): address already in use"
            )
            log("The server is fired up and ready to roll!")  # its warm-up reached the other server
            self._launch_failed()
            return
        log(f"INFO:     Uvicorn running on http://{self.args.host}:{self.args.port} (Press CTRL+C to quit)")
        if not self.host.faults.get("ignore_sigterm"):
            signal.signal(
                signal.SIGTERM,
                lambda number, frame: threading.Thread(target=self._drain, args=(server,)).start(),
            )
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=self._warm_up, daemon=True).start()
        server.serve_forever(poll_interval=0.05)
        server.server_close()
        self.nodes.end()
        self.end_children()
        for child in self.children.values():
            child.join()
        sys.exit(0)

    def _warm_up(self) -> None:
        time.sleep(self.host.config["warmup_seconds"])
        stage("warmup", self.host)
        self.alive(20.0)
        self.status = "Up"
        log("The server is fired up and ready to roll!")

    def _drain(self, server: Any) -> None:
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.status = "Stopping"
        with self.flight:
            while self.in_flight:
                log(f"Gracefully exiting... Remaining number of requests {self.in_flight}.")
                self.flight.wait(1.0)
        server.shutdown()

    def alive(self, timeout: float) -> bool:
        """Does rank 0 answer in time? A stopped scheduler does not."""
        deadline = time.monotonic() + timeout
        if not self.asking.acquire(timeout=timeout):
            return False
        try:
            if not self.nodes.complete():
                time.sleep(timeout)
                return False
            pipe = self.pipes[0]
            while pipe.poll(0):
                pipe.recv()
            pipe.send("ping")
            if not pipe.poll(max(0.0, deadline - time.monotonic())):
                return False
            pipe.recv()
            return True
        except (EOFError, OSError):
            return False
        finally:
            self.asking.release()
