"""Counters, and their text for Prometheus."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

COUNTERS: Final = {
    "conversations_total": "Conversations that began.",
    "turns_total": "Turns that came to an answer.",
    "tool_calls_total": "Tool calls that were attempted.",
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
}
LABELLED: Final = {"runs_total": ("status", "Runs that ended, paused or were stopped, by how.")}
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUESTS: Final = "coilclaw_request_duration_seconds"


@dataclass(slots=True)
class _Durations:
    """How long the requests to one route took."""

    buckets: list[int] = field(default_factory=lambda: [0] * len(BUCKETS_S))
    count: int = 0
    total_s: float = 0.0


class Metrics:
    """What is counted; threads may share it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._labelled: dict[str, dict[str, int]] = {name: {} for name in LABELLED}
        self._durations: dict[tuple[str, str, int], _Durations] = defaultdict(_Durations)

    def count(self, name: str) -> None:
        """Count one more of the things that ``COUNTERS`` names."""
        with self._mutex:
            self._counters[name] += 1

    def count_as(self, name: str, label: str) -> None:
        """Count one more of the things that ``LABELLED`` names; labels are words of ours."""
        with self._mutex:
            counted = self._labelled[name]
            counted[label] = counted.get(label, 0) + 1

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; routes are those of our table, so that their number is bounded."""
        with self._mutex:
            durations = self._durations[method, route, status]
            durations.count += 1
            durations.total_s += seconds
            for index, bound in enumerate(BUCKETS_S):
                if seconds <= bound:
                    durations.buckets[index] += 1
                    break

    def text(self, gauges: dict[str, float]) -> str:
        """Return everything in the text format, gauges with the values given."""
        lines: list[str] = []
        with self._mutex:
            for name, value in self._counters.items():
                lines += _headed(name, COUNTERS[name], "counter")
                lines.append(f"coilclaw_{name} {value}")
            for name, counted in self._labelled.items():
                lines += _headed(name, LABELLED[name][1], "counter")
                label = LABELLED[name][0]
                lines += [
                    f'coilclaw_{name}{{{label}="{word}"}} {number}'
                    for word, number in sorted(counted.items())
                ]
            for name, gauge in gauges.items():
                lines += _headed(name, GAUGES[name], "gauge")
                lines.append(f"coilclaw_{name} {gauge:g}")
            lines.append(f"# HELP {_REQUESTS} How long requests took until their answer began.")
            lines.append(f"# TYPE {_REQUESTS} histogram")
            for (method, route, status), durations in sorted(self._durations.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines += _histogram(labels, durations)
        return "\n".join(lines) + "\n"


def _headed(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP coilclaw_{name} {meaning}", f"# TYPE coilclaw_{name} {kind}"]


def _histogram(labels: str, durations: _Durations) -> list[str]:
    lines = []
    below = 0
    for bound, number in zip(BUCKETS_S, durations.buckets, strict=True):
        below += number
        lines.append(f'{_REQUESTS}_bucket{{{labels},le="{bound:g}"}} {below}')
    lines.append(f'{_REQUESTS}_bucket{{{labels},le="+Inf"}} {durations.count}')
    lines.append(f"{_REQUESTS}_sum{{{labels}}} {durations.total_s:.6f}")
    lines.append(f"{_REQUESTS}_count{{{labels}}} {durations.count}")
    return lines
