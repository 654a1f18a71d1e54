"""``LockQueue``: the runs that wait for paths, in the order in which they came.

One file for each run, in the directory of the locks. A place is kept while nobody works on its run,
so that a run that is resumed stands where it stood; it holds nobody up in the meantime.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, PathRefused, UsageError
from coilclaw.orchestrator.lock_paths import normalize_paths
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace.owner import Owner

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.domain.messages import Json

MAX_TICKET_BYTES: Final = 64 * 2**20
_FORM: Final = 1
_FILE: Final = re.compile(r"[0-9a-f]{64}\.wait")


@dataclass(frozen=True, slots=True)
class Ticket:
    """The place of one run; lower numbers come first."""

    number: int
    run_id: str
    task_id: str
    paths: tuple[str, ...]
    owner: Owner
    ts: str
    """When the run began to wait."""


class LockQueue:
    """The tickets in one directory. Whoever calls holds the table of the locks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> tuple[Ticket, ...]:
        """Return all tickets, first come first."""
        names = [name for name in os.listdir(self._directory) if _FILE.fullmatch(name)]
        tickets = (_read_ticket(self._directory / name) for name in names)
        return tuple(sorted(tickets, key=lambda ticket: ticket.number))

    def join(
        self, run_id: str, task_id: str, paths: tuple[str, ...], owner: Owner, ts: str
    ) -> Ticket:
        """Return the place of a run: the one that it has, else a new one behind all others."""
        tickets = self.read()
        own = next((ticket for ticket in tickets if ticket.run_id == run_id), None)
        number = own.number if own else max((ticket.number for ticket in tickets), default=0) + 1
        ticket = Ticket(number, run_id, task_id, paths, owner, own.ts if own else ts)
        if ticket != own:
            write_atomic(self._place(run_id), _ticket_bytes(ticket), mode=0o600)
        return ticket

    def leave(self, run_id: str) -> bool:
        """Give up the place of a run; return whether it had one."""
        place = self._place(run_id)
        had = place.exists()
        place.unlink(missing_ok=True)
        return had

    def _place(self, run_id: str) -> Path:
        return self._directory / f"{sha256(run_id.encode('utf-8')).hexdigest()}.wait"


def _ticket_bytes(ticket: Ticket) -> bytes:
    document: dict[str, Json] = {
        "form": _FORM,
        "number": ticket.number,
        "run_id": ticket.run_id,
        "task_id": ticket.task_id,
        "paths": list(ticket.paths),
        **ticket.owner.json(),
        "ts": ticket.ts,
    }
    return json.dumps(document, ensure_ascii=True, sort_keys=True).encode("ascii") + b"\n"


def _read_ticket(place: Path) -> Ticket:
    try:
        with place.open("rb") as file:
            value = json.loads(file.read(MAX_TICKET_BYTES))
        owner, number, paths = Owner.of(value), value["number"], value["paths"]
        texts = [value[name] for name in ("run_id", "task_id", "ts")]
        plain = [*texts, *paths]
        if owner is None or value["form"] != _FORM or type(number) is not int:
            raise ValueError(place)
        if not all(isinstance(text, str) for text in plain):
            raise ValueError(place)
        if normalize_paths(paths) != tuple(paths):
            raise ValueError(place)
        return Ticket(number, texts[0], texts[1], tuple(paths), owner, texts[2])
    except (OSError, ValueError, KeyError, TypeError, PathRefused, UsageError) as problem:
        raise EnvironmentFault(
            f"{place} is not a place in the queue for locks that can be read",
            rule="lock.damaged",
            hint="delete it once no run is going on",
        ) from problem
