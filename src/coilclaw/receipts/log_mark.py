"""The mark of a log: a keyed note, kept with the keys, of the record that the log began with.

An empty log and its missing anchor look like a home that never ran a tool. The mark tells them
apart. It is written once, after the first record is on the disk and before the call has an effect:
a kill in between leaves a record without a mark, and the next append makes up for it. So a mark
never stands for a record that was not there, and no call has an effect in a home without one. A log
of an older version gets its mark with the next append.
"""

from __future__ import annotations

import hmac
import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest, encode
from coilclaw.errors import EnvironmentFault, JournalDamaged
from coilclaw.storage import verify as journals
from coilclaw.storage.atomic import create_private, read_private
from coilclaw.storage.paths import anchor_path

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = "coilclaw.receipts.mark.v1"
_NAME_CHARS: Final = 16


class LogMark:
    """What a home knows about one of its logs, whatever became of the log."""

    def __init__(self, log: Path, *, hash_field: str, key_path: Path) -> None:
        self._log = log.absolute()
        self._hash_field = hash_field
        self._key_path = key_path.absolute()
        # Relative, so that a home that was moved is still known.
        place = os.fsencode(os.path.relpath(self._log, self._key_path.parent))
        self._place = digest(place)
        self.path: Final = self._key_path.with_name(
            f"{self._log.name}.{self._place[:_NAME_CHARS]}.mark"
        )
        self._settled = False

    def check(self) -> None:
        """Refuse to append to a log that was emptied, or does not begin as it once did."""
        if not self._settled:
            problem = self.find_problem()
            if problem is not None:
                raise JournalDamaged(
                    problem,
                    hint="restore the log; to begin a new one on purpose, move it, "
                    f"{anchor_path(self._log).name} and {self.path} aside together and keep them "
                    "as evidence",
                )

    def settle(self) -> None:
        """Make the mark of a log that has its first record, where there is none."""
        if not self._settled:
            first = self._first()
            if first is not None:
                create_private(self.path, self._render(first))
                self._settled = True

    def find_problem(self) -> str | None:
        """Return a sentence where the log is not the one that the mark is about."""
        raw = read_private(self.path)
        if raw is None:
            return None
        known = self._parse(raw)
        if known is None:
            return f"{self.path} was edited, or made with another key"
        first = self._first()
        if first is None:
            return f"the records of {self._log} are missing: {self.path.name} says there were some"
        if first != known:
            return f"{self._log} was begun anew: its first record is not the one this home knows"
        return None

    def _first(self) -> str | None:
        """Return the hash that the first line claims; whether it is true, verification says."""
        return next(journals.hashes(self._log, hash_field=self._hash_field), None)

    def _render(self, first: str) -> bytes:
        key = read_private(self._key_path)
        if key is None:
            raise EnvironmentFault(f"the key {self._key_path} is missing", rule="file.io")
        body = {
            "first_hash": first,
            "format": FORMAT,
            "key_id": sha256(key).hexdigest()[:16],
            "log": self._place,
        }
        mac = hmac.new(key, encode(body), sha256).hexdigest()
        return encode({**body, "mac": mac}) + b"\n"

    def _parse(self, raw: bytes) -> str | None:
        """Return the first hash that the key vouches for."""
        try:
            first = json.loads(raw)["first_hash"]
        except (ValueError, RecursionError, TypeError, KeyError):
            return None
        if not isinstance(first, str) or read_private(self._key_path) is None:
            return None
        return first if hmac.compare_digest(raw, self._render(first)) else None
