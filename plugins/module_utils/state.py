# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder that an instance keeps on its host: what runs, what last passed, what happened.

Files are replaced as a whole (temporary file, fsync, rename), so a power cut leaves the old or the new
one. No secret stands in any of them but C(secrets.yaml), which only the server's user may read.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

SCHEMA = 1
MAX_HISTORY = 200  # lines of history.jsonl that are kept


class StateError(Exception):
    """A state file that can't be read or written, named with what to do."""


class InstanceState:
    """C(<state_dir>/<instance>).

    C(plan.json) what was launched; C(known_good.json) what last passed its smoke check; C(previous_good.json) what did
    before that; C(secrets.yaml), C(known_good.secrets.yaml) and C(previous_good.secrets.yaml) the keys of these;
    C(history.jsonl) what became of each launch.
    """

    def __init__(self, state_dir: str, instance: str) -> None:
        self.directory = os.path.join(os.path.abspath(state_dir), instance)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def prepare(self) -> None:
        try:
            os.makedirs(self.directory, mode=0o755, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{self.directory} can't be made: {error.strerror}. Set sglang_state_dir to a folder that "
                "this user may write to, or let it become root"
            ) from error

    def read(self, name: str) -> dict[str, Any] | None:
        """The file's content, None if there is none; :class:`StateError` if it is not what we wrote."""
        path = self.path(name)
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StateError(f"{path} can't be read: {error}. Move it away; the next run writes it anew") from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise StateError(f"{path} is not of schema {SCHEMA}. Move it away; the next run writes it anew")
        return content

    def write(self, name: str, content: dict[str, Any], mode: int = 0o644) -> None:
        self.write_text(name, json.dumps({"schema": SCHEMA, **content}, indent=1, sort_keys=True) + "\n", mode)

    def write_text(self, name: str, text: str, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Replace the file as a whole. C(owner) is (uid, gid) to hand it to."""
        self.prepare()
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=f".{name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), mode)
                if owner is not None:
                    os.fchown(file.fileno(), *owner)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path(name))
            directory = os.open(self.directory, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)
            raise StateError(
                f"{self.path(name)} can't be written: {error.strerror}. Nothing of the old file is lost; "
                "free space or fix the permissions and run again"
            ) from error

    def remove(self, name: str) -> bool:
        try:
            os.unlink(self.path(name))
        except FileNotFoundError:
            return False
        return True

    def write_key(self, key: str | None, name: str = "secrets.yaml", owner: tuple[int, int] | None = None) -> None:
        """Put the API key where SGLang reads it with --config, for its user alone; no key, no file."""
        if key is None:
            self.remove(name)
        else:  # a JSON string is a YAML string
            self.write_text(name, f"api-key: {json.dumps(key)}\n", 0o600, owner)

    def read_key(self, name: str = "secrets.yaml") -> str | None:
        return read_key_file(self.path(name))

    def new_log(self, owner: tuple[int, int] | None) -> None:
        """An empty server.log, for the server's user alone; the one before becomes server.log.1."""
        path = self.path("server.log")
        if os.path.exists(path):
            os.replace(path, path + ".1")
        self.write_text("server.log", "", 0o600, owner)

    def read_log(self, cursor: int | None) -> tuple[str, int]:
        """What server.log has beyond C(cursor), and the new cursor."""
        try:
            with open(self.path("server.log"), "rb") as file:
                file.seek(cursor or 0)
                text = file.read()
        except OSError:
            return "", cursor or 0
        return text.decode("utf-8", "replace"), (cursor or 0) + len(text)

    def history(self) -> list[dict[str, Any]]:
        """Oldest first. A line that can't be read is left out: no history is worth a failed deploy."""
        try:
            with open(self.path("history.jsonl"), encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "event" in entry:
                found.append(entry)
        return found

    def note(self, entry: dict[str, Any]) -> None:
        """Add to the history, which keeps its last MAX_HISTORY lines."""
        entries = [*self.history(), entry][-MAX_HISTORY:]
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in entries)
        self.write_text("history.jsonl", text, 0o644)


def read_key_file(path: str | None) -> str | None:
    """The API key in a file that :meth:`InstanceState.write_key` wrote; None if there is none."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            key = json.loads(file.read().partition(":")[2])
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateError(f"{path} can't be read: {error}. Run a deploy with api_key, which writes it anew") from error
    return str(key)
