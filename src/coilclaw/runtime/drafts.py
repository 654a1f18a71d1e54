"""Pieces of an answer on their way to whoever watches, without secrets that lie across two."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from coilclaw.domain.redacting import Redacting


class Drafts:
    """Passes pieces on as soon as no secret can begin in them; the rest when it is left."""

    def __init__(self, draft: Callable[[str], None] | None, redactor: Redacting) -> None:
        self._draft = draft
        self._stream = redactor.stream()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def listener(self) -> Callable[[str], None] | None:
        """Whom to give the pieces; nobody when nobody watches."""
        return None if self._draft is None else self._feed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pass_on(self._stream.finish(), final=True)

    def _feed(self, piece: str) -> None:
        self._pass_on(self._stream.feed(piece.encode("utf-8", "replace")), final=False)

    def _pass_on(self, data: bytes, *, final: bool) -> None:
        text = self._decoder.decode(data, final)
        if text and self._draft is not None:
            self._draft(text)
