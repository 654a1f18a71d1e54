"""What changed in the files of a plugin since it was approved, line by line and within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest
from coilclaw.plugins import kept_files
from coilclaw.plugins.files import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.plugins.files import PluginFile
    from coilclaw.plugins.folder import Look
    from coilclaw.plugins.pins import Pin, PinnedFile
    from coilclaw.plugins.store import Difference

MAX_LINES: Final = 2000
"""Lines of one file that are compared; of a longer one, sizes and hashes are told."""
MAX_SHOWN: Final = 600
"""Lines of all differences together."""
MAX_LINE_CHARS: Final = 300


def describe_changes(
    home: Path, pin: Pin, seen: Look, differences: tuple[Difference, ...]
) -> tuple[str, ...]:
    """Return the differences as lines; their text is the plugin's own, and hostile.

    All files are named first: a long one must not keep the others out of sight.
    """
    lines = [line for one in differences for line in _of_file(home, pin, seen, one)]
    names = tuple(map(str, differences)) if len(differences) > 1 else ()
    cut = [line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…" for line in lines]
    if len(cut) <= MAX_SHOWN:
        return (*names, *cut)
    return (*names, *cut[:MAX_SHOWN], f"… {len(cut) - MAX_SHOWN} more lines are not shown")


def _of_file(home: Path, pin: Pin, seen: Look, one: Difference) -> Iterator[str]:
    yield str(one)
    was, now = pin.files.get(one.path), seen.files.get(one.path)
    if one.what == "mode" and was is not None and now is not None:
        yield f"  permissions {was.mode:04o} -> {now.mode:04o}"
    if one.what not in {"added", "removed", "changed"}:
        return
    before = None if was is None else _approved(home, pin, one.path)
    after = None if now is None else now.content
    old, new = _lines(before), _lines(after)
    if old is None or new is None or (was is not None and before is None):
        yield f"  {_sized(was, before)} -> {_sized(now, after)}"
        return
    from difflib import unified_diff

    yield from unified_diff(old, new, f"approved/{one.path}", f"now/{one.path}", lineterm="")


def _approved(home: Path, pin: Pin, path: str) -> bytes | None:
    """What was approved: kept by its hash or, of the manifest, in the pin itself."""
    sha256 = pin.files[path].sha256
    text = pin.manifest.encode("utf-8", "surrogatepass")
    if path == MANIFEST and digest(text) == sha256:
        return text
    return kept_files.recall(home, sha256)


def _lines(content: bytes | None) -> list[str] | None:
    """Return the lines of a text; ``None`` for what is none, or too long to compare."""
    if content is None:
        return []
    if b"\0" in content:
        return None
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    if lines and not lines[-1]:
        lines.pop()
    return lines if len(lines) <= MAX_LINES else None


def _sized(file: PinnedFile | PluginFile | None, content: bytes | None) -> str:
    if file is None:
        return "nothing"
    size = "content not kept" if content is None else f"{len(content)} bytes"
    return f"{size}, sha256 {file.sha256}"
