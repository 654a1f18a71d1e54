"""The logs of one run: every file redacted, complete and on the disk before the run continues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coilclaw.kernel import sync_directory, write_atomic

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from coilclaw.kernel import CoilClawError
    from coilclaw.policy import SecretRedactor


class RunLog:
    """The folder ``logs/yyyy-mm-dd-hh-ss`` of one run."""

    def __init__(self, folder: Path, redactor: SecretRedactor) -> None:
        self.folder = folder
        self._redactor = redactor

    @classmethod
    def create(cls, project: Path, now: datetime, redactor: SecretRedactor) -> RunLog:
        """Create a new folder, with a number if the name is taken."""
        logs = project / "logs"
        logs.mkdir(exist_ok=True)
        name = f"{now:%Y-%m-%d-%H-%S}"
        number = 1
        while True:
            folder = logs / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
                continue
            sync_directory(logs)
            return cls(folder, redactor)

    def clean(self, text: str) -> str:
        """Return a text without keys."""
        return self._redactor.redact(text)

    def text(self, name: str, text: str) -> str:
        """Write a text and return what was written."""
        clean = self._redactor.redact(text)
        write_atomic(self.folder / name, clean.encode("utf-8", "replace"))
        return clean

    def failure(self, name: str, problem: CoilClawError | str) -> None:
        """Write a failed response: ``ERROR`` first, then the reason."""
        self.text(name, f"ERROR\n{problem}\n")

    def note(self, text: str) -> None:
        """Append a note, for example about a retry or a fallback."""
        with (self.folder / "notes.txt").open("a", encoding="utf-8") as file:
            file.write(self._redactor.redact(text) + "\n")

    def json(self, name: str, body: bytes) -> None:
        """Write a provider's JSON unchanged, or redacted if it contains a key."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            write_atomic(self.folder / name, self._redactor.redact_bytes(body))
            return
        clean = self._redactor.redact_json(value)
        if clean == value and self._redactor.redact_bytes(body) == body:
            write_atomic(self.folder / name, body)
            return
        data = json.dumps(clean, indent=2, ensure_ascii=True).encode("ascii") + b"\n"
        write_atomic(self.folder / name, self._redactor.redact_bytes(data))
