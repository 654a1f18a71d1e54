"""Counters, and their text for Prometheus.

The values of a label are few: words and names of ours, and ``other`` for everything else.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import valid_text

if TYPE_CHECKING:
    from collections.abc import Sequence

Labels: TypeAlias = tuple[str, ...]

COUNTERS: Final = {
    "conversations_total": "Conversations that began.",
    "turns_total": "Turns that came to an answer.",
    "tool_denials_total": "Tool calls that were denied.",
    "provider_errors_total": "Requests to a model that failed.",
}
GAUGES: Final = {
    "receipt_chain_valid": "1 when the receipts held at the last verification, else 0.",
    "receipt_chain_receipts": "Receipts that the last verification saw.",
    "receipt_open_intents": "Intents without a receipt: calls that run, or that a crash ended.",
    "receipt_unsettled_intents": "Calls that a crash ended and that are not settled.",
    "turns_running": "Turns that run now.",
    "turns_waiting": "Messages that wait for their turn.",
    "estop": "1 while the emergency stop is set.",
    "runs_active": "Runs that are carried out now.",
    "approvals_pending": "Approvals that wait for an answer.",
}
LABELLED: Final = {
    "runs_total": (("status",), "Runs that ended, paused or were stopped, by how."),
    "sop_runs_total": (("status",), "Runs of SOPs that ended, wait or were stopped, by how."),
    "tool_calls_total": (
        ("tool", "status", "rule"),
        "Tool calls that were attempted; the rule is that of a denial or failure.",
    ),
    "model_tokens_total": (("direction",), "Tokens that the providers told, by direction."),
    "requests_refused_total": (
        ("rule", "status"),
        "Requests that were not admitted, by the rule that refused them.",
    ),
}
DURATIONS: Final = {
    "request_duration_seconds": (
        ("method", "route", "status"),
        "How long requests took until their answer began.",
    ),
    "model_duration_seconds": (("outcome",), "How long requests to a model took."),
}
OTHER: Final = "other"
MAX_SERIES: Final = 1000
"""Combinations of labels of one metric; those beyond it are counted as ``other``."""
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


@dataclass(slots=True)
class _Durations:
    """How long the things of one kind took."""

    buckets: list[int] = field(default_factory=lambda: [0] * len(BUCKETS_S))
    count: int = 0
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        for index, bound in enumerate(BUCKETS_S):
            if seconds <= bound:
                self.buckets[index] += 1
                break


class Metrics:
    """What is counted; threads may share it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._labelled: dict[str, dict[Labels, int]] = {name: {} for name in LABELLED}
        self._durations: dict[str, dict[Labels, _Durations]] = {
            name: defaultdict(_Durations) for name in DURATIONS
        }

    def count(self, name: str) -> None:
        """Count one more of the things that ``COUNTERS`` names."""
        with self._mutex:
            self._counters[name] += 1

    def count_as(self, name: str, *labels: str, number: int = 1) -> None:
        """Count some more of the things that ``LABELLED`` names; labels are words of ours."""
        with self._mutex:
            counted = self._labelled[name]
            if labels not in counted and len(counted) >= MAX_SERIES:
                labels = (OTHER,) * len(labels)
            counted[labels] = counted.get(labels, 0) + number

    def count_refusal(self, rule: str, status: int) -> None:
        """Count a request that was not admitted."""
        self.count_as("requests_refused_total", rule, str(status))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; routes are those of our table, so that their number is bounded."""
        with self._mutex:
            self._durations["request_duration_seconds"][method, route, str(status)].add(seconds)

    def observe_model(self, outcome: str, seconds: float) -> None:
        """Count a request to a model that came to ``ok`` or ``error``."""
        with self._mutex:
            self._durations["model_duration_seconds"][outcome,].add(seconds)

    def text(self, gauges: dict[str, float]) -> str:
        """Return everything in the text format, gauges with the values given."""
        lines: list[str] = []

        def begin(name: str, meaning: str, kind: str) -> str:
            full = f"coilclaw_{name}"
            lines.extend([f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"])
            return full

        with self._mutex:
            for name, value in self._counters.items():
                lines.append(f"{begin(name, COUNTERS[name], 'counter')} {value}")
            for name, counted in self._labelled.items():
                full = begin(name, LABELLED[name][1], "counter")
                for values, number in sorted(counted.items()):
                    lines.append(f"{full}{{{_labels(LABELLED[name][0], values)}}} {number}")
            for name, gauge in gauges.items():
                lines.append(f"{begin(name, GAUGES[name], 'gauge')} {gauge:g}")
            for name, observed in self._durations.items():
                full = begin(name, DURATIONS[name][1], "histogram")
                for values, durations in sorted(observed.items()):
                    lines += _histogram(full, _labels(DURATIONS[name][0], values), durations)
        return "\n".join(lines) + "\n"


def _labels(names: Sequence[str], values: Labels) -> str:
    return ",".join(
        f'{name}="{_escape_value(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escape_value(value: str) -> str:
    return valid_text(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _histogram(name: str, labels: str, durations: _Durations) -> list[str]:
    pairs = zip(BUCKETS_S, accumulate(durations.buckets), strict=True)
    return [
        *(f'{name}_bucket{{{labels},le="{bound:g}"}} {below}' for bound, below in pairs),
        f'{name}_bucket{{{labels},le="+Inf"}} {durations.count}',
        f"{name}_sum{{{labels}}} {durations.total_s:.6f}",
        f"{name}_count{{{labels}}} {durations.count}",
    ]
