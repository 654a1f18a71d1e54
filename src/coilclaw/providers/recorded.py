"""Recording what is said to a model, and playing it back, so that a conversation becomes a test."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ProviderCapabilities
from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault, ProviderError, ProviderRejected, UsageError
from coilclaw.providers.arguments import numbered
from coilclaw.providers.endpoint import as_it_is
from coilclaw.providers.exchange import decode, described, drift, encode, marks
from coilclaw.providers.streaming import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider
    from coilclaw.providers.exchange import Exchange

MAX_RECORDING_BYTES: Final = 256 * 2**20
MAX_PROBLEMS: Final = 10
TAIL_BYTES: Final = 2**16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recording:
    """Asks a provider, and appends every exchange to a file, answers and errors alike."""

    name: str
    provider: Provider
    path: Path
    redact: Callable[[str], str] = as_it_is

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.provider.capabilities

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask, and record."""
        return self._ask(request, None)

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """As ``chat``, with drafts, which are not recorded."""
        return self._ask(request, draft)

    def _ask(self, request: ChatRequest, draft: Callable[[str], None] | None) -> ChatResponse:
        asked = described(request, self.redact)
        try:
            response = ask(self.provider, request, draft)
        except ProviderError as problem:
            _append(self.path, encode(asked, problem, self.redact))
            raise
        _append(self.path, encode(asked, response, self.redact))
        return response


class Playing:
    """Answers from a recording.

    A request gets the first exchange not yet played that has the same marks, so that one file holds
    any number of conversations. What else differs is told in the log.
    """

    __slots__ = ("_exchanges", "_left", "_lock", "_name", "_path", "_redact")

    def __init__(self, name: str, path: Path, redact: Callable[[str], str] = as_it_is) -> None:
        self._name, self._path, self._redact = name, path, redact
        self._exchanges = load(path, name)
        self._left: dict[tuple[str, ...], list[int]] = {}
        for place, exchange in enumerate(self._exchanges):
            self._left.setdefault(marks(exchange.request), []).append(place)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Play what was answered to this request."""
        asked = described(request, self._redact)
        place = self._place(marks(asked))
        recorded = self._exchanges[place]
        if parts := drift(recorded.request, asked):
            _log.info(
                "exchange %d of %s was recorded with another %s",
                place + 1,
                self._path,
                ", ".join(parts),
                extra={
                    "event": "provider_drift",
                    "fields": {"provider": self._name, "exchange": place + 1, "parts": parts},
                },
            )
        if isinstance(recorded.outcome, ProviderError):
            raise type(recorded.outcome)(recorded.outcome.message, provider=self._name)
        outcome = recorded.outcome
        return replace(outcome, tool_calls=numbered(outcome.tool_calls, request))

    def _place(self, asked: tuple[str, ...]) -> int:
        with self._lock:
            if places := self._left.get(asked):
                return places.pop(0)
            left = sorted((places[0], known) for known, places in self._left.items() if places)
        if left:
            place, known = max(left, key=lambda entry: (*_likeness(entry[1], asked), -entry[0]))
            why = f"exchange {place + 1} {_difference(known, asked)}"
        else:
            why = f"all {len(self._exchanges)} exchanges were played"
        raise ProviderRejected(
            f"the recording {self._path} has no exchange for this request: {why}",
            provider=self._name,
            rule="provider.recording",
            hint="record the conversation again with mode = 'record'",
        )


def load(path: Path, provider: str) -> tuple[Exchange, ...]:
    """Read a recording; a line that a crash left unfinished at its end is left out."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_RECORDING_BYTES + 1)
    except OSError as problem:
        raise _wrong(path, f"cannot be read: {problem.strerror}") from problem
    if len(raw) > MAX_RECORDING_BYTES:
        raise _wrong(path, f"is larger than {MAX_RECORDING_BYTES:,} bytes")
    *lines, unfinished = raw.split(b"\n")
    if unfinished:
        _log.warning(
            "the last line of the recording %s is unfinished, and is left out",
            path,
            extra={"event": "provider_recording_torn", "fields": {"path": str(path)}},
        )
    exchanges: list[Exchange] = []
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            exchanges.append(decode(line, provider))
        except (ValueError, RecursionError) as problem:
            problems.append(f"line {number}: {problem}")
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        raise _wrong(path, "; ".join(problems[:MAX_PROBLEMS]) + more)
    return tuple(exchanges)


def _append(path: Path, line: bytes) -> None:
    """Add a line; one that a crash left unfinished is taken away first."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.ftruncate(descriptor, _whole(descriptor))
            data = memoryview(line + b"\n")
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot write to the recording {path}: {problem.strerror}",
            rule="provider.recording",
            hint="its folder must exist, and the file must be a plain one",
        ) from problem


def _whole(descriptor: int) -> int:
    """Return how many bytes of a recording are whole lines."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - TAIL_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _likeness(known: tuple[str, ...], asked: tuple[str, ...]) -> tuple[int, bool, int]:
    """Rank what was recorded by how likely it was meant: it agrees for longest, and goes on."""
    more = len(known) - len(asked)
    return _agreement(known, asked), more >= 0, -abs(more)


def _agreement(known: tuple[str, ...], asked: tuple[str, ...]) -> int:
    pairs = enumerate(zip(known, asked, strict=False))
    return next(
        (index for index, (one, other) in pairs if one != other), min(len(known), len(asked))
    )


def _difference(known: tuple[str, ...], asked: tuple[str, ...]) -> str:
    at = _agreement(known, asked)
    before = shown(known[at]) if at < len(known) else "nothing more"
    now = shown(asked[at]) if at < len(asked) else "nothing more"
    return f"differs at message {at + 1}: recorded {before}, asked {now}"


def _wrong(path: Path, what: str) -> UsageError:
    return UsageError(f"the recording {path}: {what}", rule="provider.recording")
