# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold memory of a GPU by the CUDA driver alone: holder.py GPU MIB [--ignore-sigterm]. MIB 0: only /dev/nvidia-uvm.

Prints C(holding) once it does, and sleeps until it is ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time


def cuda(function: str, *arguments) -> None:
    status = getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments)
    if status:
        raise SystemExit(f"{function} returned {status}")


def allocate(gpu: int, mib: int) -> None:
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda("cuInit", 0)
    cuda("cuDeviceGet", ctypes.byref(device), gpu)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib << 20))


if __name__ == "__main__":
    if "--ignore-sigterm" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if int(sys.argv[2]):
        allocate(int(sys.argv[1]), int(sys.argv[2]))
    else:
        os.open("/dev/nvidia-uvm", os.O_RDWR)
    print("holding", flush=True)
    time.sleep(3600)
