# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the text of the instance's systemd unit, escaped so that the server gets byte for byte what was asked.

Rules of escaping: systemd.service(5) "Command lines" and systemd.syntax(7) "Quoting".
"""

from __future__ import annotations

import re
from typing import Any

_PLAIN = re.compile(r"^[A-Za-z0-9_./:=,@+-]+$")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote(text: str, command_line: bool = True) -> str:
    """One word of a unit file. C(%) is doubled everywhere, C($) on command lines only, where it expands."""
    if "\0" in text:
        raise ValueError("a NUL byte can't stand in a unit file")
    if _PLAIN.match(text):
        return text
    quoted = "".join(
        _ESCAPES.get(char, f"\\x{ord(char):02x}" if ord(char) < 32 or ord(char) == 127 else char) for char in text
    )
    quoted = quoted.replace("%", "%%")
    if command_line:
        quoted = quoted.replace("$", "$$")
    return f'"{quoted}"'


def unit_name(instance: str) -> str:
    return f"sglang-{instance}.service"


def render(instance: str, run: dict[str, Any], state_directory: str, stop_timeout: float) -> str:
    """The unit for C(run), the part of the plan that says what to start.

    Hardened as far as CUDA bears it: no PrivateDevices (hides /dev/nvidia*), no MemoryDenyWriteExecute
    (LLVM's JIT dies), no RemoveIPC (NCCL and CUDA share memory in /dev/shm), no DevicePolicy (its filter has kept
    CUDA from devices that came later). NCCL lists interfaces by AF_NETLINK; torch hands memory between processes by
    pidfd_getfd and process_vm_readv; a call that is refused fails, it does not kill. A clean stop of
    SGLang up to 0.5.18 ends in SIGKILL to itself, hence SuccessExitStatus.
    """
    lines = [
        "# Written by blackwell.sglang; a change by hand is overwritten by the next deploy.",
        "[Unit]",
        f"Description=SGLang, instance {instance}",
        "Wants=network-online.target",
        "After=network-online.target nvidia-persistenced.service",
        "StartLimitIntervalSec=3600",
        "StartLimitBurst=3",
        "",
        "[Service]",
        "Type=exec",
        "ExecStart=" + " ".join(quote(word) for word in run["argv"]),
        *[f"Environment={quote(f'{key}={value}', command_line=False)}" for key, value in sorted(run["env"].items())],
        f"WorkingDirectory={state_directory.replace('%', '%%')}",
        *([f"User={run['user']}"] if run.get("user") else []),
        *([f"StandardOutput=append:{run['log_file'].replace('%', '%%')}"] if run.get("log_file") else []),
        "KillMode=control-group",
        "KillSignal=SIGTERM",
        f"TimeoutStopSec={stop_timeout:g}",
        "SuccessExitStatus=SIGKILL",
        "Restart=on-failure",
        "RestartForceExitStatus=SIGKILL",
        "RestartSec=10",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "TasksMax=infinity",
        "OOMPolicy=kill",
        "NoNewPrivileges=yes",
        "ProtectSystem=full",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        "RestrictSUIDSGID=yes",
        "RestrictRealtime=yes",
        "LockPersonality=yes",
        "RestrictNamespaces=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service process_vm_readv process_vm_writev pidfd_open pidfd_getfd kcmp",
        "SystemCallErrorNumber=EPERM",
        "CapabilityBoundingSet=",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)
