"""Server-sent events, read piece by piece."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from coilclaw.models.json_value import clean, loads
from coilclaw.models.refusal import error_within, malformed_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from coilclaw.kernel import ChatRequest, ChatResponse, Json, Provider, StreamingProvider
    from coilclaw.models.endpoint import ModelEndpoint


ENVELOPE_BYTES: Final = 64 * 2**10
"""How much larger an event may be than the largest answer."""
ENTRY_BYTES: Final = 64
"""What an entry counts for, however little it says."""
DONE: Final = b"[DONE]"

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def events(endpoint: ModelEndpoint, pieces: Iterable[bytes]) -> Iterator[dict[str, Json] | None]:
    """Yield the JSON object of every event; ``[DONE]`` is ``None``.

    An unfinished last line is dropped: the reader knows whether the answer is complete.
    """
    limit = endpoint.max_response_bytes + ENVELOPE_BYTES
    data: list[bytes] = []
    size = 0
    for line in _lines(endpoint, pieces, limit):
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
                size += len(line)
            if size > limit:
                raise malformed_error(endpoint, f"has an event of more than {limit:,} bytes", None)
        elif data:
            yield _object(endpoint, b"\n".join(data))
            data, size = [], 0
    if data:
        yield _object(endpoint, b"\n".join(data))


class StreamTally:
    """Counts what is kept of a stream against the bound on an answer."""

    __slots__ = ("_endpoint", "_left")

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint, self._left = endpoint, endpoint.max_response_bytes

    def text(self, value: Json) -> str:
        """Return a piece of text, counted; anything else is empty."""
        if not isinstance(value, str):
            return ""
        self._take(len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
        return clean(value)

    def entry(self, value: Json = None) -> None:
        """Count an entry of its own, a part, a block or a call, with what it says already."""
        self._take(ENTRY_BYTES + (len(repr(value)) if value else 0))

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            limit = self._endpoint.max_response_bytes
            raise malformed_error(self._endpoint, f"is larger than {limit:,} bytes", None)


def _lines(endpoint: ModelEndpoint, pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    begun: list[bytes] = []
    size = 0
    after_return = False
    for piece in pieces:
        # A pair of line ends may come apart between two pieces.
        rest = piece.removeprefix(b"\n") if after_return else piece
        after_return = piece.endswith(b"\r")
        first, *lines = _LINE_END.split(rest)
        begun.append(first)
        size += len(first)
        if size > limit:
            raise malformed_error(endpoint, f"has a line of more than {limit:,} bytes", None)
        if lines:
            yield b"".join(begun)
            yield from lines[:-1]
            begun, size = [lines[-1]], len(lines[-1])


def _object(endpoint: ModelEndpoint, data: bytes) -> dict[str, Json] | None:
    if data == DONE:
        return None
    try:
        value = loads(data)
    except (ValueError, RecursionError) as problem:
        raise malformed_error(endpoint, "has an event that is not valid JSON", data) from problem
    if not isinstance(value, dict):
        raise malformed_error(endpoint, "has an event that is not a JSON object", data)
    if error := error_within(endpoint, value, data):
        raise error
    return value


if TYPE_CHECKING:
    Draft: TypeAlias = Callable[[str], None]


def ask(provider: Provider, request: ChatRequest, draft: Draft | None) -> ChatResponse:
    """Ask once; ``draft`` is given the text, in one piece where the provider cannot stream.

    What was drafted before a failure stays drafted: the answer is ``final_text``.
    """
    if draft is None:
        return provider.chat(request)
    if provider.capabilities.streaming:
        return cast("StreamingProvider", provider).stream(request, draft)
    response = provider.chat(request)
    if response.final_text:
        draft(response.final_text)
    return response


class Drafted:
    """A draft that knows whether it was begun, so that a new attempt starts on a new line."""

    __slots__ = ("_begun", "_draft")

    def __init__(self, draft: Draft) -> None:
        self._draft, self._begun = draft, False

    def __call__(self, piece: str) -> None:
        self._begun = True
        self._draft(piece)

    def begin_attempt(self) -> None:
        """Say that what follows is another attempt."""
        if self._begun:
            self._draft("\n")
            self._begun = False
