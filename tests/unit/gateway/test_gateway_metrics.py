"""Metrics as a scraper reads them: valid text, few labels, whatever a model makes up."""

from __future__ import annotations

import re

from coilclaw.gateway.clients import ToolCounter
from coilclaw.gateway.metrics import MAX_SERIES, Metrics
from coilclaw.kernel.messages import ToolCall, ToolResult

_LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"(coilclaw_[a-z_]+)(?:\{{{_LABEL}(?:,{_LABEL})*\}})? (-?[0-9.e+]+)")
_SUFFIXES = re.compile(r"_(bucket|sum|count)$")


def read(text: str) -> dict[str, list[str]]:
    """Read the text format strictly: each family has one head and all of its samples behind it."""
    assert text.endswith("\n")
    families: dict[str, list[str]] = {}
    kind = ""
    lines = iter(text.removesuffix("\n").split("\n"))
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in families
            families[name] = []
            head = next(lines)
            assert head.startswith(f"# TYPE {name} ")
            kind = head.rsplit(" ", 1)[1]
            assert kind in {"counter", "gauge", "histogram"}
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        family = _SUFFIXES.sub("", found[1]) if kind == "histogram" else found[1]
        assert family == list(families)[-1]
        families[family].append(line)
    for samples in families.values():
        assert len({sample.rpartition(" ")[0] for sample in samples}) == len(samples)
    return families


def _count(counter: ToolCounter, name: str, **metadata: str) -> None:
    success = metadata.get("status") == "allowed"
    counter(ToolCall("1", name, {}), ToolResult(success, "", None, metadata))


def test_calls_are_counted_by_tool_status_and_rule() -> None:
    metrics = Metrics()
    counter = ToolCounter(metrics, {"time", "shell"})
    _count(counter, "time", status="allowed")
    _count(counter, "time", status="allowed")
    _count(counter, "shell", status="denied", rule="command.forbidden")
    _count(counter, "shell", status="failed", rule="tool.interrupted")
    _count(counter, "shell", rule="receipts.disabled")
    found = read(metrics.text({}))
    assert found["coilclaw_tool_calls_total"] == [
        'coilclaw_tool_calls_total{tool="shell",status="denied",rule="command.forbidden"} 1',
        'coilclaw_tool_calls_total{tool="shell",status="denied",rule="receipts.disabled"} 1',
        'coilclaw_tool_calls_total{tool="shell",status="failed",rule="tool.interrupted"} 1',
        'coilclaw_tool_calls_total{tool="time",status="allowed",rule=""} 2',
    ]
    assert found["coilclaw_tool_denials_total"] == ["coilclaw_tool_denials_total 2"]


def test_what_a_model_makes_up_adds_no_label() -> None:
    metrics = Metrics()
    counter = ToolCounter(metrics, {"time"})
    for number in range(50):
        _count(counter, f'made-up-{number}"}} 1\n', status="denied", rule="tool.unknown")
    _count(counter, "time", status="failed", rule='x"} 1\ncoilclaw_evil 1')
    assert read(metrics.text({}))["coilclaw_tool_calls_total"] == [
        'coilclaw_tool_calls_total{tool="other",status="denied",rule="tool.unknown"} 50',
        'coilclaw_tool_calls_total{tool="time",status="failed",rule="other"} 1',
    ]


def test_labels_are_escaped_and_bounded_in_number() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_SERIES):
        metrics.count_as("requests_refused_total", f'"\n\\{number}\ud800', "401")
    samples = read(metrics.text({}))["coilclaw_requests_refused_total"]
    assert len(samples) == MAX_SERIES + 1
    other = 'coilclaw_requests_refused_total{rule="other",status="other"} '
    assert [one for one in samples if one.startswith(other)] == [f"{other}{MAX_SERIES}"]


def test_models_are_measured() -> None:
    metrics = Metrics()
    metrics.observe_model("ok", 0.3)
    metrics.observe_model("error", 45.0)
    metrics.count_as("model_tokens_total", "input", number=120)
    metrics.count_as("model_tokens_total", "output", number=7)
    metrics.count_as("model_tokens_total", "output", number=3)
    found = read(metrics.text({"approvals_pending": 2}))
    assert found["coilclaw_model_tokens_total"] == [
        'coilclaw_model_tokens_total{direction="input"} 120',
        'coilclaw_model_tokens_total{direction="output"} 10',
    ]
    assert found["coilclaw_approvals_pending"] == ["coilclaw_approvals_pending 2"]
    durations = found["coilclaw_model_duration_seconds"]
    assert 'coilclaw_model_duration_seconds_bucket{outcome="ok",le="0.5"} 1' in durations
    assert 'coilclaw_model_duration_seconds_bucket{outcome="error",le="30"} 0' in durations
    assert 'coilclaw_model_duration_seconds_count{outcome="error"} 1' in durations
