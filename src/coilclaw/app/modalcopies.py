"""``Copies``: brings the artifacts of a recording from a Modal sandbox to a store of ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from coilclaw.artifacts import keys
from coilclaw.artifacts.store import MAX_LISTED, MAX_OBJECT_BYTES, conflict, too_large, too_many

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.artifacts.store import Store, Version

_MAX_DEPTH: Final = 3


class Files(Protocol):
    """What is used of the files of a Modal sandbox."""

    def copy_from_local(self, local_path: str, remote_path: str) -> None: ...

    def copy_to_local(self, remote_path: str, local_path: str) -> None: ...

    def list_files(self, remote_path: str) -> list[Any]: ...


def refuse_another(store: Store, prefix: str) -> None:
    """Raise if the store holds such a trajectory already."""
    if store.list(prefix):
        raise conflict(store.uri(prefix))


class Copies:
    """What has been brought so far; each round brings what is new or has changed."""

    def __init__(self, files: Files, root: str, store: Store, prefix: str) -> None:
        """``prefix`` is what the keys begin with, in the store there at ``root`` as in ours."""
        self._files = files
        self._root = root
        self._store = store
        self._prefix = keys.check(prefix)
        self._versions: dict[str, Version] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def bring(self, absent: type[Exception], stop: Callable[[], bool] = lambda: False) -> None:
        """Bring everything that is new; ``absent`` is what the SDK raises for a missing file.

        Documents are fetched before pieces are listed, and kept after them: what a document of
        ours speaks of is there.
        """
        with tempfile.TemporaryDirectory(prefix="coilclaw-modal-") as scratch:
            documents: list[tuple[str, Path, tuple[int, float]]] = []
            folders: list[str] = []
            for number, entry in enumerate(self._listed(self._prefix, absent)):
                key = f"{self._prefix}/{entry.name}"
                if entry.is_dir():
                    folders.append(key)
                elif entry.is_file() and self._is_new(key, entry):
                    path = Path(scratch, f"document-{number}")
                    self._files.copy_to_local(f"{self._root}/{key}", str(path))
                    documents.append((key, path, _state(entry)))
            piece = Path(scratch, "piece")
            for folder in folders:
                self._bring_folder(folder, piece, absent, stop)
            if stop():
                return
            for key, path, state in documents:
                self._keep(key, path, state)

    def _bring_folder(
        self,
        folder: str,
        piece: Path,
        absent: type[Exception],
        stop: Callable[[], bool],
        depth: int = 1,
    ) -> None:
        for entry in self._listed(folder, absent):
            if stop():
                return
            key = f"{folder}/{entry.name}"
            if entry.is_dir() and depth < _MAX_DEPTH:
                self._bring_folder(key, piece, absent, stop, depth + 1)
            elif entry.is_file() and self._is_new(key, entry):
                self._files.copy_to_local(f"{self._root}/{key}", str(piece))
                self._keep(key, piece, _state(entry))

    def _listed(self, folder: str, absent: type[Exception]) -> list[Any]:
        try:
            entries = self._files.list_files(f"{self._root}/{folder}")
        except absent:
            return []
        if len(entries) > MAX_LISTED:
            raise too_many(folder)
        # What is being written there has a name that no key has.
        fit = [one for one in entries if "/" not in one.name and keys.safe(f"{folder}/{one.name}")]
        return sorted(fit, key=lambda one: str(one.name))

    def _is_new(self, key: str, entry: Any) -> bool:
        if entry.size > MAX_OBJECT_BYTES:
            raise too_large(key, MAX_OBJECT_BYTES)
        return self._seen.get(key) != _state(entry)

    def _keep(self, key: str, path: Path, state: tuple[int, float]) -> None:
        self._versions[key] = self._store.put(key, path, previous=self._versions.get(key))
        self._seen[key] = state


def _state(entry: Any) -> tuple[int, float]:
    return int(entry.size), float(entry.modified_time)
