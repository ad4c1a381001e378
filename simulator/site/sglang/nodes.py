# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several nodes that serve one model: they wait for each other at the start, and hang without each other afterwards."""

from __future__ import annotations

import argparse
import select
import socket
import time

END = b"end"


class Nodes:
    """One connection from each node to rank 0, as the original's process group has them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.count = args.nnodes or 1
        self.rank = args.node_rank or 0
        self.address = (args.dist_init_addr or "").rpartition(":")
        self.connections: list[socket.socket] = []

    def meet(self) -> None:
        """Wait, as long as it takes, until all are there."""
        if self.count == 1:
            return
        where = (self.address[0], int(self.address[2]))
        if self.rank == 0:
            with socket.create_server(where) as listener:
                self.connections = [listener.accept()[0] for _node in range(self.count - 1)]
            for connection in self.connections:
                connection.sendall(b"all")
            return
        while not self.connections:
            try:
                connection = socket.create_connection(where)
                if connection.recv(3) == b"all":
                    self.connections = [connection]
            except OSError:
                pass
            time.sleep(0.05)

    def complete(self) -> bool:
        """Is none of them gone?"""
        return not select.select(self.connections, [], [], 0)[0]

    def end(self) -> None:
        """Rank 0 tells the others to stop."""
        for connection in self.connections:
            try:
                connection.sendall(END)
            except OSError:
                continue

    def wait_for_end(self) -> None:
        """Until rank 0 tells so. If it is gone without a word, for ever: a collective operation has no end without it."""
        while self.connections[0].recv(len(END)) != END:
            time.sleep(3600)
