"""``Publisher``: hands what a trajectory writes to the store of artifacts, behind its back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.errors import EnvironmentFault
from coilclaw.storage.paths import anchor_path

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.trajectory.places import Places

_log = logging.getLogger(__name__)

TRACE: Final = "agent_trace.json"
BUNDLE: Final = "repo.bundle"
SESSION: Final = "session.json"


class Uploads(Protocol):
    """Takes files over and returns at once; ``artifacts.uploader.Uploader`` is one."""

    def document(self, key: str, source: Path | bytes, /) -> None: ...

    def piece(self, key: str, source: Path, /) -> None: ...


class Publisher:
    """What is where in the store, and when it goes there; without uploads it does nothing.

    A store that takes nothing does not stop the recording: what could not be handed over is told,
    and handed over again at the end.
    """

    def __init__(self, places: Places, uploads: Uploads | None = None) -> None:
        self._places = places
        self._uploads = uploads
        self._missed: dict[str, Path] = {}

    def session(self, data: bytes) -> None:
        """What the trajectory was asked for, so that it can be gone on with from the store."""
        if self._uploads is not None:
            self._uploads.document(self._places.key_of(SESSION), data)

    def parts(self) -> None:
        """A part was recorded: the newest state of trace and journal goes up when it can."""
        if self._uploads is not None:
            for path in (
                self._places.document,
                self._places.journal,
                anchor_path(self._places.journal),
            ):
                self._uploads.document(self._places.key_of(path.name), path)

    def piece(self, path: Path) -> None:
        """A checkpoint was made."""
        self._hand_over(f"bundles/{path.name}", path)

    def result(self, call_id: str) -> None:
        """Tests were run."""
        name = f"{call_id}.json"
        self._hand_over(f"results/{name}", self._places.results / name)

    def end(self) -> None:
        """The whole bundle is there."""
        missed, self._missed = self._missed, {}
        for name, path in missed.items():
            self._hand_over(name, path)
        self.parts()
        if self._uploads is not None:
            self._uploads.document(self._places.key_of(BUNDLE), self._places.bundle)

    def _hand_over(self, name: str, path: Path) -> None:
        if self._uploads is None:
            return
        try:
            self._uploads.piece(self._places.key_of(name), path)
        except EnvironmentFault as problem:
            self._missed[name] = path
            _log.warning(
                "artifact waits: %s",
                problem.message,
                extra={"event": "artifact_waits", "fields": {"name": name, "rule": problem.rule}},
            )
