# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts for the tests."""

from __future__ import annotations

import pytest

from tests.lab import Lab


@pytest.fixture
def lab(tmp_path):
    """One host, nothing running."""
    made = Lab(tmp_path, ["sim1"])
    yield made
    made.end()


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """One host that serves; its tests leave it serving the default plan."""
    made = Lab(tmp_path_factory.mktemp("serving"), ["sim1"])
    first = made.deploy()
    assert first.rc == 0, first.out
    made.first = first
    yield made
    made.end()
