"""``ReportSource``: reads a bundle for a report. Secrets are removed before a text is cut.

A file that is missing, a link, malformed or too large counts as absent: verification reports it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError
from coilclaw.runs.evidence import bundle
from coilclaw.runs.evidence.event_index import get_part, parse_json
from coilclaw.runs.evidence.layout import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json

MAX_SENTENCE_CHARS: Final = 2000
MAX_TEXT_CHARS: Final = 20_000
MAX_LINE_CHARS: Final = 2000
MAX_ITEMS: Final = 200
"""Of any list."""
MAX_PATCH_BYTES: Final = 4 * 2**20
MAX_TAIL_BYTES: Final = 256 * 2**10
_LONGEST_SECRET: Final = 4096


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text as far as it is shown; ``note`` says what was cut."""

    text: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReportSource:
    """One bundle, and what takes secrets out of it."""

    directory: Path
    redact: Callable[[str], str]

    def load(self, path: str) -> Json:
        """Return the JSON of a file; ``None`` where there is none."""
        try:
            return parse_json(bundle.find_file(self.directory, path, limit=bundle.MAX_JSON_BYTES))
        except CoilClawError:
            return None

    def load_manifest(self) -> Mapping[str, Json]:
        """Return the manifest of a sealed run, unverified; empty where there is none."""
        value = self.load(MANIFEST)
        sealed = get_part(value, "integrity", "seal") is not None
        return value if sealed and isinstance(value, dict) else {}

    def sentence(self, value: object, limit: int = MAX_SENTENCE_CHARS) -> str:
        """Return a text of one line or few; anything else is empty."""
        if not isinstance(value, str):
            return ""
        clean = self.redact(value)
        return clean if len(clean) <= limit else f"{clean[:limit]}… ({len(clean) - limit} more)"

    def sentences(self, values: Json, limit: int = MAX_ITEMS) -> tuple[str, ...]:
        """Return the texts of a list, and how many were left out."""
        items = values if isinstance(values, list) else []
        shown = [self.sentence(item) for item in items[:limit] if isinstance(item, str)]
        if len(items) > limit:
            shown.append(f"… and {len(items) - limit} more")
        return tuple(shown)

    def excerpt(self, value: object, limit: int = MAX_TEXT_CHARS) -> Excerpt:
        """Return the beginning of a text."""
        if not isinstance(value, str):
            return Excerpt()
        clean = self.redact(value)
        shown = "\n".join(_bound_lines(clean[:limit].split("\n")))
        left = len(clean) - limit
        return Excerpt(shown, f"{left} more characters are left out" if left > 0 else "")

    def patch(self, path: str) -> tuple[str, str]:
        """Return a patch as text, and a note about what was cut."""
        data, size = self._read_window(path, MAX_PATCH_BYTES, end=False)
        note = ""
        if len(data) < size:
            data = data[: data.rfind(b"\n") + 1]
            note = f"the patch has {size} bytes, of which the first {len(data)} are shown"
        return self.redact(data.decode("utf-8", "surrogateescape")), note

    def head(self, path: str, limit: int) -> tuple[list[str], bool]:
        """Return the first whole lines of a file, and whether that is all of it; not redacted."""
        data, size = self._read_window(path, limit, end=False)
        whole = len(data) >= size
        text = data if whole else data[: data.rfind(b"\n") + 1]
        return text.decode("utf-8", "replace").splitlines(), whole

    def tail(self, path: str, lines: int) -> Excerpt:
        """Return the last lines of a file."""
        data, size = self._read_window(path, MAX_TAIL_BYTES, end=True)
        text = self.redact(data.decode("utf-8", "replace"))
        if len(data) < size:
            # What stands before the first line end may be the rest of a secret.
            text = text[text.find("\n") + 1 or _LONGEST_SECRET :]
        found = text.rstrip("\n").split("\n")
        shown = "\n".join(_bound_lines(found[-lines:]))[-MAX_TEXT_CHARS:]
        cut = len(data) < size or len(found) > lines or len(shown) == MAX_TEXT_CHARS
        return Excerpt(shown, f"the end of {size} bytes; all of it is in {path}" if cut else "")

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder of the bundle, sorted."""
        try:
            return tuple(sorted(os.listdir(self.directory / folder))[:MAX_ITEMS])
        except OSError:
            return ()

    def _read_window(self, path: str, limit: int, *, end: bool) -> tuple[bytes, int]:
        """Return the first or last bytes of a file, and the size of all of it."""
        try:
            with bundle.open_file(self.directory, path) as file:
                size = os.fstat(file.fileno()).st_size
                if end:
                    file.seek(max(size - limit, 0))
                return file.read(limit), size
        except CoilClawError:
            return b"", 0


def _bound_lines(lines: Iterable[str]) -> list[str]:
    return [
        line
        if len(line) <= MAX_LINE_CHARS
        else f"{line[:MAX_LINE_CHARS]}… ({len(line) - MAX_LINE_CHARS} more characters)"
        for line in lines
    ]
