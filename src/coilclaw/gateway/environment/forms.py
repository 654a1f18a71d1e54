"""The form of a request about an environment: a file that is written as it comes, and texts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from coilclaw.gateway.http import body
from coilclaw.gateway.http.faults import refusal_error
from coilclaw.kernel import EnvironmentFault, JsonFault, UsageError, read_json_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from python_multipart.multipart import MultipartCallbacks
    from starlette.types import Receive

    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import Json

MULTIPART: Final = b"multipart/form-data"
URLENCODED: Final = b"application/x-www-form-urlencoded"
FILE: Final = "file"
MAX_TEXT_BYTES: Final = 256 * 2**10
"""Of one field that is not a file."""
MAX_TEXTS_BYTES: Final = 4 * MAX_TEXT_BYTES
"""Of a body without a file: a byte of a text may take three."""
MAX_PARTS: Final = 8
_MAX_HEADER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class FormRules:
    """What a form may hold; ``upload`` is where its file goes."""

    fields: Collection[str]
    upload: Path | None
    settings: GatewaySettings

    @property
    def max_bytes(self) -> int:
        """Of the whole body; only a file is written as it comes, anything else is held."""
        return self.settings.max_body_bytes if FILE in self.fields else MAX_TEXTS_BYTES


async def read_form(content_type: bytes, receive: Receive, rules: FormRules) -> dict[str, str]:
    """Return the texts of a form; the file, if there is one, has been written."""
    from python_multipart.multipart import parse_options_header

    kind, options = parse_options_header(content_type)
    if kind == MULTIPART:
        return await _multipart(options.get(b"boundary", b""), receive, rules)
    # Only a file is written as it comes; anything else is held in memory.
    data = await body.read(receive, rules.settings, min(rules.max_bytes, MAX_TEXTS_BYTES))
    if kind == URLENCODED:
        return _parse_urlencoded(data, rules)
    if data:
        raise refusal_error("body.type", "a body must be a form")
    return {}


def params_of(form: Mapping[str, str]) -> dict[str, Json]:
    """Return the parameters of a form, a JSON object as text."""
    try:
        return read_json_object(form.get("params", "") or "{}", max_depth=body.MAX_DEPTH)
    except JsonFault as problem:
        message = f"the field params is not JSON: it {problem}"
        raise UsageError(message, rule="form.params") from None


def seconds_of(form: Mapping[str, str], default: int, most: int) -> int:
    """Return how long a session may be idle."""
    text = form.get("timeout", "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise UsageError("the field timeout is not a number of seconds", rule="form.timeout")
    if not 1 <= int(text) <= most:
        raise UsageError(
            f"a session expires after 1 to {most} seconds, not {text}", rule="form.timeout"
        )
    return int(text)


async def _multipart(boundary: bytes, receive: Receive, rules: FormRules) -> dict[str, str]:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser

    form = _MultipartForm(rules)
    if not boundary:
        raise _malformed_error("it names no boundary")
    try:
        parser = MultipartParser(boundary, form.callbacks(), max_header_size=_MAX_HEADER_BYTES)
        async for chunk in body.pieces(receive, rules.max_bytes, rules.settings.body_timeout_s):
            parser.write(chunk)
        parser.finalize()
    except FormParserError as problem:
        raise _malformed_error(str(problem)) from problem
    except OSError as problem:
        raise EnvironmentFault(
            f"the upload cannot be written: {problem.strerror}", rule="upload.disk"
        ) from problem
    finally:
        with suppress(OSError):  # that it cannot be written any more was said before
            form.close_file()
    if not form.ended:
        raise _malformed_error("it is cut off")
    return {name: _decode(name, data) for name, data in form.texts.items()}


@dataclass(slots=True)
class _MultipartForm:
    """Takes a form apart as the parser goes through it."""

    rules: FormRules
    texts: dict[str, bytearray] = field(default_factory=dict)
    ended: bool = False
    _seen: set[str] = field(default_factory=set)
    _file: BinaryIO | None = None
    _header: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)
    _disposition: bytes = b""
    _name: str = ""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin_part,
            "on_header_begin": self._begin_header,
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_data,
            "on_part_data": self._take_data,
            "on_part_end": self.close_file,
            "on_end": self._end,
        }

    def close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _begin_part(self) -> None:
        self._disposition = b""

    def _begin_header(self) -> None:
        self._header, self._value = bytearray(), bytearray()

    def _end_header(self) -> None:
        if self._header.strip().lower() == b"content-disposition":
            self._disposition = bytes(self._value)

    def _begin_data(self) -> None:
        from python_multipart.multipart import parse_options_header

        _, options = parse_options_header(self._disposition)
        self._name = name = options.get(b"name", b"").decode("utf-8", "replace")
        _check_name(name, self._seen, self.rules)
        self._seen.add(name)
        if name != FILE:
            self.texts[name] = bytearray()
        elif self.rules.upload is not None:
            self._file = self.rules.upload.open("xb")

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._name != FILE:
            self.texts[self._name] += data[start:end]
            if len(self.texts[self._name]) > MAX_TEXT_BYTES:
                raise _long(self._name)
        elif self._file is not None:
            self._file.write(data[start:end])

    def _end(self) -> None:
        self.ended = True


def _parse_urlencoded(data: bytes, rules: FormRules) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(data),
            errors="strict",
            max_num_fields=MAX_PARTS,
        )
    except ValueError:
        raise _malformed_error("it is not urlencoded") from None
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
            f"the field {name[:100]!r} is not known here",
            rule="form.fields",
            hint=f"the fields are {', '.join(sorted(rules.fields))}",
        )
    if name in seen:
        raise UsageError(f"the field {name} is there twice", rule="form.fields")


def _decode(name: str, data: bytearray) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"the field {name} is not UTF-8", rule="form.fields") from None


def _long(name: str) -> UsageError:
    return refusal_error("body.large", f"the field {name} has at most {MAX_TEXT_BYTES} bytes")


def _malformed_error(why: str) -> UsageError:
    return UsageError(f"the form cannot be read: {why}", rule="form.malformed")
