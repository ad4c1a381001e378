# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process a GPU in one NCCL group, as a tensor parallel server is: group.py GPUS MIB. Needs torch.

Rank 1 ignores SIGTERM; rank 2 and this process's own end leave orphans behind. Prints the PIDs when all hold.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing


def rank(number: int, gpus: list[int], mib: int, port: int, ready) -> None:
    if number == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.cuda.set_device(gpus[number])
    torch.distributed.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=len(gpus)
    )
    held = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    total = torch.ones(1, device="cuda")
    torch.distributed.all_reduce(total)
    assert int(total.item()) == len(gpus)
    ready.put((number, os.getpid(), held.device.index))
    time.sleep(3600)


if __name__ == "__main__":
    wanted, size = [int(word) for word in sys.argv[1].split(",")], int(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]
    spawn = torch.multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    for index in range(len(wanted)):
        spawn.Process(target=rank, args=(index, wanted, size, chosen, queue)).start()
    told = sorted(queue.get(timeout=300) for _ in wanted)
    print(json.dumps({str(gpu): pid for _, pid, gpu in told}), flush=True)
    os._exit(0)  # the ranks are orphans now, with parent 1
