"""Which contents are no text, and so cannot be reviewed in a patch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def is_binary(data: bytes) -> bool:
    """Whether contents are no text.

    git looks for a NUL in the first 8000 bytes; here one anywhere counts, so that padding does not
    help. Beyond that, bytes that are neither UTF-8 nor free of control characters are no text; an
    old eight-bit encoding is.
    """
    if b"\0" in data:
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _CONTROLS.search(data) is not None
    return False


def binary_among(
    paths: Iterable[str], old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]
) -> frozenset[str]:
    """Return the paths whose contents were or are binary: what a patch shows no text for."""
    found = set()
    for path in paths:
        for side in (old.get(path), new.get(path)):
            if side is not None and is_binary(side):
                found.add(path)
    return frozenset(found)
