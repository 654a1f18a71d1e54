"""Log requests as lines of JSON, with keys replaced by their hashes."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from coilclaw.cli.model_server.routes import KEY_HEADERS, KEY_PARAMETERS
from coilclaw.kernel import digest_bytes, explain_os_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coilclaw.cli.model_server.script import DialectName
    from coilclaw.cli.model_server.wire import RequestHead
    from coilclaw.kernel import Secret

SHORTEST_KEY: Final = 8
"""Shorter keys are masked only in their header: as a substring they would occur everywhere."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request; each key is replaced by ``sha256:`` and its hash."""

    time: str
    method: str
    path: str
    headers: dict[str, str]
    body: object
    """The JSON value of the body, or its text if it is not JSON."""
    dialect: str
    answer: str | None
    """The path of the answer in the script."""
    problem: str | None
    """Why it has no answer."""


class RequestLog:
    """A log file, and the last requests in memory; safe for many threads."""

    __slots__ = ("_clock", "_descriptor", "_kept", "_key", "_lock", "_path")

    def __init__(
        self, path: Path | None, kept: int, key: Secret | None, clock: Callable[[], float]
    ) -> None:
        self._path, self._key, self._clock = path, key, clock
        self._kept: deque[Recorded] = deque(maxlen=kept)
        self._lock = threading.Lock()
        self._descriptor = -1

    def open(self) -> None:
        """Open the file, if the log has one."""
        if self._path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with self._explain():
                # It contains prompts, which only its owner may read.
                self._descriptor = os.open(self._path, flags, 0o600)

    @property
    def requests(self) -> list[Recorded]:
        """Return the last requests, oldest first."""
        with self._lock:
            return list(self._kept)

    def add(
        self,
        head: RequestHead,
        body: object,
        dialect: DialectName,
        answer: str | None,
        problem: str | None,
    ) -> None:
        """Record one request; raise if the line cannot be written, so that it is not answered."""
        mask = _Mask(_find_keys(head, self._key))
        headers = head.headers.items()
        recorded = Recorded(
            time=datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds"),
            method=head.method,
            path=mask.text(_mask_target(head.target)),
            headers={name: mask.text(_mask_header(name, value)) for name, value in headers},
            body=mask.value(body),
            dialect=str(dialect),
            answer=answer,
            problem=None if problem is None else mask.text(problem),
        )
        with self._lock:
            self._kept.append(recorded)
            if self._descriptor >= 0:
                line = json.dumps(asdict(recorded)).encode() + b"\n"
                with self._explain():
                    while line:
                        line = line[os.write(self._descriptor, line) :]

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def _explain(self) -> AbstractContextManager[None]:
        return explain_os_errors(f"write the log {self._path}", rule="server.log")


class _Mask:
    """Replaces keys wherever they occur."""

    __slots__ = ("_keys",)

    def __init__(self, keys: set[str]) -> None:
        self._keys: list[tuple[str, str]] = []
        # The longest first, because one key may contain another.
        for key in sorted(keys, key=len, reverse=True):
            if len(key) >= SHORTEST_KEY:
                self._keys += [(form, hash_key(key)) for form in {key, quote(key, safe="")}]

    def text(self, text: str) -> str:
        for key, replacement in self._keys:
            text = text.replace(key, replacement)
        return text

    def value(self, value: object) -> object:
        """Replace keys in every string and number; the depth of a body is bounded."""
        if not self._keys:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, int | float) and self.text(repr(value)) != repr(value):
            return self.text(repr(value))
        return value


def hash_key(key: str) -> str:
    """Return what the log shows instead of a key."""
    return "sha256:" + digest_bytes(key.encode("utf-8", "surrogateescape"))


def _mask_header(name: str, value: str) -> str:
    if name not in KEY_HEADERS:
        return value
    scheme, key = _split_credentials(name, value)
    return f"{scheme} {hash_key(key)}" if scheme else hash_key(key)


def _split_credentials(name: str, value: str) -> tuple[str, str]:
    """Split ``Bearer KEY``; the value of any other header is the key."""
    scheme, space, key = value.partition(" ")
    return (scheme, key.strip()) if space and name.endswith("authorization") else ("", value)


def _mask_target(target: str) -> str:
    parts = urlsplit(target)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if not any(name.lower() in KEY_PARAMETERS for name, _ in query):
        return target
    masked = [(name, hash_key(v) if name.lower() in KEY_PARAMETERS else v) for name, v in query]
    return urlunsplit(parts._replace(query=urlencode(masked, safe=":")))


def _find_keys(head: RequestHead, required: Secret | None) -> set[str]:
    """Return every key that a request holds, and the one that is required."""
    held = (header for header in head.headers.items() if header[0] in KEY_HEADERS)
    found = {_split_credentials(*header)[1] for header in held}
    query = parse_qsl(urlsplit(head.target).query)
    found |= {value for name, value in query if name.lower() in KEY_PARAMETERS}
    return found | ({required.reveal()} if required else set())
