"""What takes secrets out of texts, and the one for those who have no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json


class RedactingPieces(Protocol):
    """Redacts bytes that come in pieces."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class Redacting(Protocol):
    """Takes secrets out."""

    def redact(self, text: str) -> str: ...

    def redact_json(self, value: Json) -> Json: ...

    def stream(self) -> RedactingPieces: ...


class NothingToRedact:
    """Where there is no secret, everything stays as it is; and nothing needs to be loaded."""

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
