# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit file: what systemd makes of it is byte for byte what was asked for."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils.systemd_unit import quote, render
from hypothesis import example, given
from hypothesis import strategies as st

RUN = {
    "argv": ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/m"],
    "env": {"A": "b"},
    "user": None,
}


def systemd_words(line: str, command_line: bool = True) -> list[str]:
    """What systemd makes of a line, written from systemd.syntax(7) and systemd.service(5)."""
    words, word, quoted, at, started = [], "", "", 0, False
    while at < len(line):
        char = line[at]
        if quoted and char == "\\" or not quoted and char == "\\":
            code = line[at + 1]
            if code == "x":
                word += chr(int(line[at + 2 : at + 4], 16))
                at += 2
            else:
                word += {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "s": " "}[code]
            at += 1
        elif char in "\"'" and (not quoted or quoted == char):
            quoted = "" if quoted else char
            started = True
        elif char.isspace() and not quoted:
            if started or word:
                words.append(word)
            word, started = "", False
        else:
            word += char
        at += 1
    assert not quoted
    if started or word:
        words.append(word)
    out = []
    for item in words:
        item = item.replace("%%", "%")
        out.append(item.replace("$$", "$") if command_line else item)
    return out


TEXT = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(st.lists(TEXT, min_size=1, max_size=6))
@example(["%n", "$HOME", "${X}", 'a"b', "a\\b", "", ";", "'", "{{ x }}", "a b\nc", "\t", "--flag=é"])
def test_words_come_back_as_they_were(words):
    line = " ".join(quote(word) for word in words)
    assert "\n" not in line
    unescaped = re.sub(r"%%|\$\$", "", line)
    assert "%" not in unescaped and "$" not in unescaped
    assert systemd_words(line) == words


@given(TEXT)
def test_environment_values_come_back_as_they_were(value):
    line = quote(f"KEY={value}", command_line=False)
    assert systemd_words(line, command_line=False) == [f"KEY={value}"]


def test_a_nul_byte_is_refused():
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


def test_no_secret_and_a_bounded_stop():
    text = render("default", RUN, "/var/lib/sglang/default", 120)
    assert "TimeoutStopSec=120" in text and "KillMode=control-group" in text and "LimitMEMLOCK=infinity" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_has_nothing_to_say_against_it(tmp_path):
    unit = tmp_path / "sglang-default.service"
    argv = ["/bin/sh", "-c", 'echo "$HOME" %n; true', "odd word"]
    unit.write_text(render("default", {**RUN, "argv": argv}, "/tmp", 120))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if "sglang-default" in line]
    assert said == []
