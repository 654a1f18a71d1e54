"""The form of a request about an environment: a file that is written as it comes, and texts."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.gateway import body
from coilclaw.gateway.faults import refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from python_multipart.multipart import MultipartCallbacks
    from starlette.types import Receive

    from coilclaw.domain.messages import Json

MULTIPART: Final = b"multipart/form-data"
URLENCODED: Final = b"application/x-www-form-urlencoded"
FILE: Final = "file"
MAX_TEXT_BYTES: Final = 256 * 2**10
"""Of one field that is no file."""
MAX_TEXTS_BYTES: Final = 4 * MAX_TEXT_BYTES
"""Of a body without a file: a byte of a text may take three."""
MAX_PARTS: Final = 8
_MAX_HEADER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class FormRules:
    """What a form may hold; ``upload`` is where its file goes."""

    fields: Collection[str]
    upload: Path | None
    max_bytes: int
    """Of the whole body."""
    timeout_s: float


async def read_form(content_type: bytes, receive: Receive, rules: FormRules) -> dict[str, str]:
    """Return the texts of a form; the file, if there is one, has been written."""
    kind, options = _content_type(content_type)
    if kind == MULTIPART:
        chunks = body.pieces(receive, rules.max_bytes, rules.timeout_s)
        return await _multipart(options.get(b"boundary", b""), chunks, rules)
    # Only a file is written as it comes; anything else is held in memory.
    most = min(rules.max_bytes, MAX_TEXTS_BYTES)
    data = await body.read(receive, max_bytes=most, timeout_s=rules.timeout_s)
    if kind == URLENCODED:
        return _urlencoded(data, rules)
    if data:
        raise refused("body.type", "a body must be a form")
    return {}


def params_of(form: Mapping[str, str]) -> dict[str, Json]:
    """Return the parameters of a form, a JSON object as text."""
    text = form.get("params", "") or "{}"
    try:
        value = json.loads(
            text,
            parse_constant=body.no_constant,
            parse_float=_finite,
            object_pairs_hook=body.no_twins,
        )
    except (ValueError, RecursionError):
        raise UsageError("the field params is not JSON", rule="form.params") from None
    if not isinstance(value, dict):
        raise UsageError("the field params is not a JSON object", rule="form.params")
    return value


def seconds_of(form: Mapping[str, str], default: int, most: int) -> int:
    """Return how long a session may be idle."""
    text = form.get("timeout", "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise UsageError("the field timeout is no number of seconds", rule="form.timeout")
    if not 1 <= int(text) <= most:
        raise UsageError(
            f"a session expires after 1 to {most} seconds, not {text}", rule="form.timeout"
        )
    return int(text)


async def _multipart(
    boundary: bytes, chunks: AsyncIterator[bytes], rules: FormRules
) -> dict[str, str]:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser

    reading = _Reading(rules)
    if not boundary:
        raise _malformed("it names no boundary")
    try:
        parser = MultipartParser(boundary, reading.callbacks(), max_header_size=_MAX_HEADER_BYTES)
        async for chunk in chunks:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as problem:
        raise _malformed(str(problem)) from problem
    except OSError as problem:
        raise EnvironmentFault(
            f"the upload cannot be written: {problem.strerror}", rule="upload.disk"
        ) from problem
    finally:
        reading.abandon()
    if not reading.ended:
        raise _malformed("it is cut off")
    return {name: _text(name, data) for name, data in reading.texts.items()}


@dataclass(slots=True)
class _Reading:
    """Takes a form apart as the parser goes through it."""

    rules: FormRules
    texts: dict[str, bytearray] = field(default_factory=dict)
    ended: bool = False
    _seen: set[str] = field(default_factory=set)
    _file: BinaryIO | None = None
    _field: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)
    _disposition: bytes = b""
    _name: str = ""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_begin": self._header_begin,
            "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": self._part_end,
            "on_end": self._end,
        }

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def abandon(self) -> None:
        """Close what is still open; that it cannot be written any more was said before."""
        with suppress(OSError):
            self.close()

    def _begin(self) -> None:
        self._disposition = b""

    def _header_begin(self) -> None:
        self._field, self._value = bytearray(), bytearray()

    def _header_end(self) -> None:
        if self._field.strip().lower() == b"content-disposition":
            self._disposition = bytes(self._value)

    def _headers_finished(self) -> None:
        from python_multipart.multipart import parse_options_header

        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        _check_name(name, self._seen, self.rules)
        self._seen.add(name)
        self._name = name
        if name != FILE:
            self.texts[name] = bytearray()
        elif self.rules.upload is not None:
            self._file = self.rules.upload.open("xb")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._name != FILE:
            self.texts[self._name] += data[start:end]
            if len(self.texts[self._name]) > MAX_TEXT_BYTES:
                raise _long(self._name)
        elif self._file is not None:
            self._file.write(data[start:end])

    def _part_end(self) -> None:
        self.close()

    def _end(self) -> None:
        self.ended = True


def _urlencoded(data: bytes, rules: FormRules) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(data),
            errors="strict",
            max_num_fields=MAX_PARTS,
        )
    except ValueError:
        raise _malformed("it is not urlencoded") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name == FILE:
            raise UsageError(
                "a file comes as multipart/form-data", rule="form.fields", hint="send it as a file"
            )
        _check_name(name, found, rules)
        if len(value.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
            raise _long(name)
        found[name] = value
    return found


def _check_name(name: str, seen: Collection[str], rules: FormRules) -> None:
    if name not in rules.fields:
        raise UsageError(
            f"there is no field {name[:100]!r} here",
            rule="form.fields",
            hint=f"the fields are {', '.join(sorted(rules.fields))}",
        )
    if name in seen:
        raise UsageError(f"the field {name} is there twice", rule="form.fields")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def _content_type(header: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    from python_multipart.multipart import parse_options_header

    return parse_options_header(header)


def _text(name: str, data: bytearray) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"the field {name} is not UTF-8", rule="form.fields") from None


def _long(name: str) -> UsageError:
    return refused("body.large", f"the field {name} has at most {MAX_TEXT_BYTES} bytes")


def _malformed(why: str) -> UsageError:
    return UsageError(f"the form cannot be read: {why}", rule="form.malformed")
