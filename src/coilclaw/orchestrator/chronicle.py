"""``Chronicle``: what the events of a run say, arranged to be compared with its reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json

MAX_EVENTS: Final = 500_000
_COMMITS: Final = ("baseline_commit", "commit", "candidate_commit", "target_commit")


@dataclass(frozen=True, slots=True)
class Told:
    """One event; ``number`` counts from 1."""

    number: int
    ts: str
    kind: str
    task_id: str | None
    attempt: int | None
    payload: Mapping[str, Json]

    def text(self, key: str) -> str:
        """A text of the payload; empty where there is none."""
        value = self.payload.get(key)
        return value if isinstance(value, str) else ""


class Chronicle:
    """Events in order. Whatever has not the form of an event counts as one that says nothing."""

    def __init__(self) -> None:
        self._events: list[Told] = []
        self._gates: dict[str, list[Told]] = {}
        self._paths: dict[str, list[Told]] = {}

    def add(self, number: int, event: Mapping[str, object]) -> None:
        """Take the next event; the first may come again, when reading starts over."""
        if number == 1:
            for kept in (self._events, self._gates, self._paths):
                kept.clear()
        if number > MAX_EVENTS:
            raise EnvironmentFault(f"there are more than {MAX_EVENTS} events", rule="event.many")
        task_id, attempt, payload = (event.get(k) for k in ("task_id", "attempt", "payload"))
        told = Told(
            number,
            str(event.get("ts")),
            str(event.get("event_type")),
            task_id if isinstance(task_id, str) else None,
            attempt if type(attempt) is int else None,
            payload if isinstance(payload, dict) else {},
        )
        self._events.append(told)
        if isinstance(told.payload.get("passed"), bool):
            self._gates.setdefault(told.text("gate"), []).append(told)
        if told.text("path"):
            self._paths.setdefault(told.text("path"), []).append(told)

    def __iter__(self) -> Iterator[Told]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, *kinds: EventType) -> tuple[Told, ...]:
        """All events of some types."""
        wanted = {kind.value for kind in kinds}
        return tuple(event for event in self._events if event.kind in wanted)

    def last(self, *kinds: EventType) -> Told | None:
        """The last event of some types."""
        found = self.of(*kinds)
        return found[-1] if found else None

    @property
    def baseline(self) -> str:
        """The commit that the run began at; it may move until the first task is started."""
        found = ""
        for event in self._events:
            if event.kind == EventType.TASK_STARTED:
                break
            if event.kind in {EventType.RUN_CREATED, EventType.BASELINE_MOVED}:
                found = event.text("baseline_commit")
        return found

    @property
    def commits(self) -> frozenset[str]:
        """Every commit that some event names."""
        return frozenset(event.text(key) for event in self._events for key in _COMMITS) - {""}

    @property
    def tasks(self) -> frozenset[str]:
        """Every task that some event belongs to."""
        return frozenset(event.task_id for event in self._events if event.task_id)

    def gate(
        self, gate: str, task_id: str, attempt: int | None, *, before: int = MAX_EVENTS + 1
    ) -> Told | None:
        """The event that a result speaks of when it names a gate; it came before the result did.

        The last one of the same task and attempt; where there is none, of the same task, then of
        the run itself, then of whichever task: a result of the whole run sums up its tasks.
        """
        found = [told for told in self._gates.get(gate, []) if told.number < before]
        own = [told for told in found if told.task_id == task_id]
        for several in (
            [told for told in own if attempt is not None and told.attempt == attempt],
            own,
            [told for told in found if told.task_id is None],
            found,
        ):
            if several:
                return several[-1]
        return None

    def naming(self, path: str) -> Told | None:
        """The last event that names a file."""
        found = self._paths.get(path)
        return found[-1] if found else None

    def named_files(self) -> dict[str, list[tuple[int, str]]]:
        """Each path that events name together with a hash: the events' numbers and the hashes."""
        return {
            path: hashes
            for path, several in self._paths.items()
            if (hashes := [(t.number, t.text("sha256")) for t in several if t.text("sha256")])
        }
