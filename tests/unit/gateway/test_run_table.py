"""What is published about runs, how their requests are read, and what is counted."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from coilclaw.agent.tools.contract import Validators
from coilclaw.gateway.endpoint_table import describe_endpoints, run_table
from coilclaw.gateway.http.body import parse, parse_headers, wants_events
from coilclaw.gateway.metrics import Metrics
from coilclaw.gateway.runs.run_endpoints import RunEndpoints
from coilclaw.gateway.schemas import EVENTS_HEADERS, NO_QUERY, RUN_REQUEST
from coilclaw.kernel.errors import UsageError


def test_every_endpoint_is_published_with_its_status_and_parameters() -> None:
    paths = cast("Any", describe_endpoints(run_table(RunEndpoints(None)))["paths"])
    good = {
        (method, path): [code for code in item[method]["responses"] if code.startswith("2")]
        for path, item in paths.items()
        for method in item
    }
    assert good == {
        ("get", "/runs"): ["200"],
        ("post", "/runs"): ["202"],
        ("get", "/runs/{run_id}"): ["200"],
        ("get", "/runs/{run_id}/events"): ["200"],
        ("get", "/runs/{run_id}/diff"): ["200"],
        ("get", "/runs/{run_id}/bundle"): ["200"],
        ("post", "/runs/{run_id}/verify"): ["200"],
        ("post", "/runs/{run_id}/resume"): ["202"],
        ("post", "/runs/{run_id}/cancel"): ["202"],
    }
    events = paths["/runs/{run_id}/events"]["get"]
    assert [(each["in"], each["name"], each["required"]) for each in events["parameters"]] == [
        ("path", "run_id", True),
        ("query", "since", False),
        ("query", "limit", False),
        ("header", "Last-Event-ID", False),
    ]
    assert set(events["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    bundle = paths["/runs/{run_id}/bundle"]["get"]["responses"]["200"]["content"]
    assert bundle == {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"contract": {}, "request": "x"},
        {"contract": "x"},
        {"request": " \n"},
        {"request": "x" * 20_001},
        {"contract": {}, "runner": ""},
        {"contract": {}, "runner": "process:"},
        {"contract": {}, "runner": "process: "},
        {"contract": {}, "runner": "rules"},
        {"contract": {}, "runner": "codex --yolo"},
        {"contract": {}, "reviewer": "nobody"},
        {"contract": {}, "merge": 1},
        {"contract": {}, "more": 1},
    ],
)
def test_a_run_that_cannot_be_asked_for(body: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(json.dumps(body).encode(), RUN_REQUEST, Validators())
    assert caught.value.rule == "body.schema"


@pytest.mark.parametrize(
    "body",
    [
        {"contract": {}},
        {"request": "x" * 20_000},
        {"contract": {"a": 1}, "runner": "codex", "reviewer": "rules", "merge": True},
        {"request": "x", "runner": "process:a 'b c'", "reviewer": "model", "diagnostic": False},
        {"request": "x", "runner": "scripted:file.json", "reviewer": "builtin"},
        {"request": "x", "runner": "code-commit", "reviewer": "process:a"},
    ],
)
def test_a_run_that_can_be_asked_for(body: dict[str, object]) -> None:
    assert parse(json.dumps(body).encode(), RUN_REQUEST, Validators()) == body


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1.5", b"9" * 10, b"\xb2", b"1 2"])
def test_a_header_that_does_not_fit_is_refused(value: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        parse_headers([(b"last-event-id", value)], EVENTS_HEADERS, Validators())
    assert caught.value.rule == "headers.schema"


def test_only_headers_that_are_declared_reach_an_endpoint() -> None:
    given = [(b"authorization", b"Bearer secret"), (b"last-event-id", b"12"), (b"accept", b"*/*")]
    assert parse_headers(given, EVENTS_HEADERS, Validators()) == {"Last-Event-ID": 12}
    assert parse_headers(given, NO_QUERY, Validators()) == {}
    assert parse_headers([], EVENTS_HEADERS, Validators()) == {}


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (b"text/event-stream", True),
        (b"application/json, Text/Event-Stream;q=0.5", True),
        (b"*/*", False),
        (b"application/json", False),
    ],
)
def test_a_stream_is_sent_only_to_who_names_it(accept: bytes, wanted: bool) -> None:
    assert wants_events([(b"accept", accept)]) is wanted
    assert wants_events([(b"x-accept", b"text/event-stream")]) is False


def test_runs_are_counted_by_how_they_end() -> None:
    metrics = Metrics()
    assert "# TYPE coilclaw_runs_total counter" in metrics.text({})
    for status in ("passed", "failed", "passed"):
        metrics.count_as("runs_total", status)
    lines = metrics.text({"runs_active": 3}).splitlines()
    assert [line for line in lines if line.startswith("coilclaw_runs")] == [
        'coilclaw_runs_total{status="failed"} 1',
        'coilclaw_runs_total{status="passed"} 2',
        "coilclaw_runs_active 3",
    ]
    with pytest.raises(KeyError):
        metrics.count_as("unheard_of", "x")
