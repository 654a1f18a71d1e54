"""What takes secrets out of texts, and the one for those who have no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from coilclaw.kernel.messages import Json


class RedactingPieces(Protocol):
    """Redacts bytes that come in pieces."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class Redactor(Protocol):
    """Takes secrets out."""

    def redact(self, text: str) -> str: ...

    def redact_json(self, value: Json) -> Json: ...

    def stream(self) -> RedactingPieces: ...


class NullRedactor:
    """Leave everything as it is, where nothing is secret; nothing needs to be loaded."""

    def redact(self, text: str) -> str:
        return text

    def redact_json(self, value: Json) -> Json:
        return value

    def stream(self) -> RedactingPieces:
        return _AsItComes()


class _AsItComes:
    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class Secret:
    """Text that must be asked for by name to be seen."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself; call this only where it is sent."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __str__(self) -> str:
        return "…"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not to be pickled")
