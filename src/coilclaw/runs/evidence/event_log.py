"""``EventLog``: the event stream of one run, chained, synced and anchored like every journal.

One process writes at a time. Times never go back, whatever the clock does, also across a resume.
No event can follow ``RUN_SEALED``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import DeniedError, Journal, UsageError, encode_record
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence.layout import check_run_id
from coilclaw.workspace import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path
    from typing import Self

Level: TypeAlias = Literal["INFO", "WARN", "ERROR"]

HASH_FIELD: Final = "event_hash"
LEVELS: Final = ("INFO", "WARN", "ERROR")
MAX_EVENT_BYTES: Final = 8 * 2**20
MAX_ID_CHARS: Final = 256
MAX_DEPTH: Final = 16


class EventLog:
    """Appends to and reads one run's events. Making it touches nothing."""

    def __init__(
        self,
        path: Path,
        run_id: str,
        key_path: Path,
        redact: Callable[[str], str],
        clock: Callable[[], datetime],
        *,
        trace_id: str = "",
    ) -> None:
        self.path = path
        self.run_id = check_run_id(run_id)
        self.key_path = key_path
        self.trace_id = trace_id
        self._redact = redact
        self._clock = clock
        self._journal = Journal(path, hash_field=HASH_FIELD, key_path=key_path)
        self._guard = threading.Lock()
        self._last: tuple[str, str] | None = None
        """Time and type of the last event, once that is known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a later append opens them again."""
        with self._guard:
            self._journal.close()
            self._last = None

    def append(
        self,
        event_type: EventType,
        payload: Mapping[str, object],
        *,
        level: Level = "INFO",
        task_id: str | None = None,
        attempt: int | None = None,
    ) -> str:
        """Write one event to the disk, synced, and return its hash."""
        event: dict[str, object] = {
            "level": level,
            "event_type": EventType(event_type).value,
            "run_id": self.run_id,
            "task_id": task_id,
            "attempt": attempt,
            "payload": self.clean(dict(payload)),
            "trace_id": self.trace_id,
        }
        self._check(event)
        with self._guard:
            last_ts, last_type = self._last or self._look()
            if last_type == EventType.RUN_SEALED:
                raise DeniedError(
                    f"run {self.run_id} is sealed and accepts no more events", rule="event.sealed"
                )
            # Two times of fixed width in UTC compare as texts.
            event["ts"] = max(format_time(self._clock()), last_ts)
            own = self._journal.append(event)
            self._last = (str(event["ts"]), str(event["event_type"]))
        return own

    def read(self, start: int = 0) -> Iterator[dict[str, object]]:
        """Stream the events from number ``start`` (from 0) on, unverified."""
        return self._journal.read(start)

    @property
    def last_type(self) -> str:
        """The type of the last event; empty without one."""
        with self._guard:
            self._last = self._last or self._look()
            return self._last[1]

    def _look(self) -> tuple[str, str]:
        # Opening first: what a crash left after the last whole event must not count.
        self._journal.open()
        last: tuple[str, str] = ("", "")
        for event in self._journal.read():
            last = (str(event.get("ts")), str(event.get("event_type")))
        return last

    def clean(self, value: object, depth: int = MAX_DEPTH) -> object:
        """Return a value as it would be kept: without secrets."""
        if depth == 0:
            raise UsageError("an event's payload is nested too deeply", rule="event.depth")
        if isinstance(value, str):
            # A model's text may hold half a surrogate pair, which no record can.
            return self._redact(value.encode("utf-8", "replace").decode("utf-8"))
        if isinstance(value, dict):
            return {key: self.clean(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item, depth - 1) for item in value]
        return value

    def _check(self, event: Mapping[str, object]) -> None:
        kind = EventType(str(event["event_type"]))
        payload = event["payload"]
        if not isinstance(payload, dict):
            raise UsageError(f"the payload of {kind} is not an object", rule="event.payload")
        missing = [key for key in kind.required if key not in payload]
        if missing:
            raise UsageError(
                f"the payload of {kind} lacks {', '.join(missing)}", rule="event.payload"
            )
        if event["level"] not in LEVELS:
            raise UsageError(f"{event['level']!r} is not a level of an event", rule="event.level")
        attempt = event["attempt"]
        if attempt is not None and (type(attempt) is not int or attempt < 0):
            raise UsageError(f"{attempt!r} is not the number of an attempt", rule="event.attempt")
        for name in ("task_id", "trace_id"):
            text = event[name]
            if text is None and name == "task_id":
                continue
            if not isinstance(text, str) or not 0 < len(text) <= MAX_ID_CHARS:
                raise UsageError(f"the {name} of {kind} is not an id", rule="event.id")
            if self._redact(text) != text:
                # Taken out, it would no longer name anything.
                raise UsageError(f"the {name} of {kind} holds a secret", rule="event.secret")
        size = len(encode_record(event))
        if size > MAX_EVENT_BYTES:
            raise UsageError(
                f"an event {kind} of {size} bytes is larger than {MAX_EVENT_BYTES}",
                rule="event.large",
            )
