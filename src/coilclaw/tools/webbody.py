"""The body of an answer from the web: decoded within a bound, and told as text."""

from __future__ import annotations

import codecs
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable

RAW_BYTES: Final = 16 * 2**20
"""Bytes taken from the wire at most: a stream may be long and decode to nothing."""
MAX_TYPE: Final = 100

_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_TEXTUAL: Final = re.compile(
    r"text/.*|application/(.*[+.-])?(json|xml|javascript|ecmascript|yaml|toml|ndjson|"
    r"x-www-form-urlencoded|graphql|sql|x-sh)"
)
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


@dataclass(frozen=True, slots=True)
class Body:
    """What was kept of a body; ``cut`` says that there was, or may have been, more."""

    content: bytes
    cut: bool


def take(pieces: Iterable[bytes], encoding: str, limit: int) -> Body:
    """Decode pieces as they come, and take no more than ``limit`` bytes of what they hold."""
    coding = encoding.strip().lower()
    if coding in {"", "identity"}:
        return _plain(pieces, limit)
    if coding not in _WINDOWS:
        raise EnvironmentFault(
            f"the answer is encoded as {encoding[:40]!r}, which was not asked for",
            rule="http.encoding",
        )
    return _inflated(pieces, _WINDOWS[coding], limit)


def _plain(pieces: Iterable[bytes], limit: int) -> Body:
    kept = bytearray()
    for piece in pieces:
        kept += piece[: limit + 1 - len(kept)]
        if len(kept) > limit:
            return Body(bytes(kept[:limit]), cut=True)
    return Body(bytes(kept), cut=False)


def _inflated(pieces: Iterable[bytes], window: int, limit: int) -> Body:
    kept, raw = bytearray(), 0
    inflater = zlib.decompressobj(window)
    try:
        for piece in pieces:
            raw += len(piece)
            # Never more than there is room for, however much a few bytes stand for.
            kept += inflater.decompress(piece, limit + 1 - len(kept))
            if len(kept) > limit or raw > RAW_BYTES:
                return Body(bytes(kept[:limit]), cut=True)
            if inflater.eof:
                return Body(bytes(kept), cut=False)
    except zlib.error as problem:
        raise EnvironmentFault(
            f"the answer cannot be decompressed: {problem}", rule="http.encoding"
        ) from problem
    return Body(bytes(kept), cut=not inflater.eof)


def text_of(content: bytes, content_type: str) -> str | None:
    """Return a body as text, or ``None`` for one that is none."""
    kind = content_type.partition(";")[0].strip().lower()
    if b"\0" in content or (kind and not _TEXTUAL.fullmatch(kind)):
        return None
    found = _CHARSET.search(content_type)
    return content.decode(_codec(found[1]) if found else "utf-8", "replace")


def _codec(name: str) -> str:
    try:
        info = codecs.lookup(name)
    except LookupError:
        return "utf-8"
    # Some codecs of Python are none of text, and some run code of their own.
    known = info.name.startswith(("utf-8", "iso8859", "ascii", "cp", "koi8", "mac", "euc", "gb"))
    return info.name if known or info.name in {"shift_jis", "big5", "latin-1"} else "utf-8"
