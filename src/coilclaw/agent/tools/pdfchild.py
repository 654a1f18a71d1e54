"""Extract the text of a PDF, as a separate program that a hostile file may crash.

It reads the file from standard input and writes lines of JSON: the number of pages, then one line
per page, or an error. It sets its own limits before it reads, and imports nothing of CoilClaw.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPEN_FILES: Final = 64


def main(arguments: Sequence[str]) -> int:
    """Extract pages ``first`` to ``last``, as long as their text fits into ``room`` bytes."""
    folder, *numbers = arguments
    first, last, room, memory, seconds = map(int, numbers)
    _limit(memory, seconds)
    sys.path.insert(0, folder)
    try:
        _extract(first, last, room)
    except MemoryError:
        _say({"error": "memory"})
    except RecursionError:
        _say({"error": "depth"})
    except Exception as problem:  # noqa: BLE001 - a hostile file raises anything, and it is one answer
        _say({"error": "malformed", "detail": f"{type(problem).__name__}: {problem}"[:300]})
    return 0


def _limit(memory: int, seconds: int) -> None:
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _extract(first: int, last: int, room: int) -> None:
    import io
    import logging

    import pypdf

    logging.disable()
    reader = pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read()), strict=False)
    if reader.is_encrypted:
        _say({"error": "encrypted"})
        return
    total = len(reader.pages)
    _say({"total": total})
    for number in range(first, min(last, total) + 1):
        text = reader.pages[number - 1].extract_text()
        _say({"page": number, "text": text[:room], "cut": len(text) > room})
        room -= len(text.encode("utf-8", "replace"))
        if room <= 0:
            return


def _say(value: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
