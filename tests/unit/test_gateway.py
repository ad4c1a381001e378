# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The router's counters, and a drain by the server's own word."""

from __future__ import annotations

import json

import pytest
from ansible_collections.blackwell.sglang.plugins.module_utils import gateway
from ansible_collections.blackwell.sglang.plugins.module_utils.http_client import HttpError, Response

BEFORE = """
smg_http_responses_total{status_code="200",error_code=""} 100
smg_http_responses_total{status_code="503",error_code="no_available_workers"} 2
smg_http_request_duration_seconds_bucket{method="POST",path="/v1/chat/completions",le="0.5"} 90
smg_http_request_duration_seconds_bucket{method="POST",path="/v1/chat/completions",le="1"} 100
smg_http_request_duration_seconds_bucket{method="POST",path="/v1/chat/completions",le="+Inf"} 100
smg_http_request_duration_seconds_bucket{method="GET",path="/workers",le="+Inf"} 5000
"""
AFTER = """
smg_http_responses_total{status_code="200",error_code=""} 295
smg_http_responses_total{status_code="503",error_code="no_available_workers"} 5
smg_http_responses_total{status_code="502",error_code="x"} 2
smg_http_request_duration_seconds_bucket{method="POST",path="/v1/chat/completions",le="0.5"} 280
smg_http_request_duration_seconds_bucket{method="POST",path="/v1/chat/completions",le="1"} 299
smg_http_request_duration_seconds_bucket{method="POST",path="/v1/chat/completions",le="+Inf"} 300
smg_http_request_duration_seconds_bucket{method="GET",path="/workers",le="+Inf"} 9000
"""


def test_only_what_came_in_between_counts():
    seen = gateway.Counters(AFTER).since(gateway.Counters(BEFORE))
    assert seen == {"requests": 200, "errors": 5, "latency_p99": 1.0}


def test_counters_of_a_router_that_was_started_anew_begin_at_nothing():
    seen = gateway.Counters(BEFORE).since(gateway.Counters(AFTER))
    assert seen == {"requests": 100, "errors": 2, "latency_p99": 1.0}


def test_without_requests_there_is_no_latency():
    same = gateway.Counters(BEFORE)
    assert same.since(same) == {"requests": 0, "errors": 0, "latency_p99": None}
    assert gateway.Counters("").since(gateway.Counters("")) == {"requests": 0, "errors": 0, "latency_p99": None}


class Server:
    """Tells one load after the other; a number is of /v1/loads, a list of /get_load, None of a server that is down."""

    def __init__(self, *loads):
        self.loads = list(loads)

    def request(self, _method, path, timeout):
        assert timeout
        load = self.loads[0] if len(self.loads) == 1 else self.loads.pop(0)
        if load is None:
            raise HttpError("refused", "nobody listens")
        if isinstance(load, int):
            rows = [
                {"num_running_reqs": load, "num_waiting_reqs": 0},
                {"num_running_reqs": 0, "num_waiting_reqs": load},
            ]
            return Response(200, json.dumps({"loads": rows}).encode(), 0.0)
        if path == "/v1/loads":
            self.loads.insert(0, load)
            return Response(404, b"", 0.0)
        return Response(200, json.dumps([{"num_reqs": number} for number in load]).encode(), 0.0)


@pytest.mark.parametrize(
    ("loads", "left", "waits"),
    [
        ((3, 1, 0, 0), 0, 3),
        ((0, 1, 0, 0), 0, 3),  # one look at nothing is not enough
        ((None,), None, 0),
        (([2, 1], [2, 1], [0, 0]), 0, 3),
    ],
)
def test_drained_is_what_the_server_itself_calls_so_twice(loads, left, waits):
    pauses = []
    assert gateway.drain(Server(*loads), 60, pauses.append) == left
    assert len(pauses) == waits


def test_a_drain_is_bounded():
    assert gateway.drain(Server(2), 0, lambda _seconds: None) == 4
