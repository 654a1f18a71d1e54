"""Logs on a stream: one line per record, redacted, for people or as JSON.

``COILCLAW_LOG`` chooses: ``human`` (when it is not set), ``json``, or ``off``.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, Self, TextIO, TypeAlias, cast, get_args

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

VARIABLE: Final = "COILCLAW_LOG"
Format: TypeAlias = Literal["json", "human", "off"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)
_ROOT: Final = "coilclaw"


def configure(
    environ: Mapping[str, str],
    stream: TextIO,
    *,
    redact: Callable[[str], str],
    level: int = logging.INFO,
    audit: bool = True,
) -> Logs:
    """Write what packages log from now on to a stream, until the result is closed.

    ``audit=False`` leaves out the events about tool calls, but never a warning.
    """
    chosen = environ.get(VARIABLE, "").strip().lower() or "human"
    if chosen not in FORMATS:
        raise UsageError(
            f"{VARIABLE} is {chosen!r}; allowed are {', '.join(FORMATS)}", rule="log.format"
        )
    wanted = "NO_COLOR" not in environ and environ.get("TERM", "") not in {"", "dumb"}
    handler = LineHandler(
        stream,
        redact=redact,
        form=cast("Format", chosen),
        colour=wanted and stream.isatty(),
        audit=audit,
    )
    return Logs(handler, level if chosen != "off" else logging.CRITICAL + 1)


class Logs:
    """Logging as it was set up; closing puts back what was there before."""

    __slots__ = ("_before", "_handler")

    def __init__(self, handler: logging.Handler, level: int) -> None:
        logger = logging.getLogger(_ROOT)
        self._handler = handler
        self._before: tuple[list[logging.Handler], int, bool] | None = (
            logger.handlers[:],
            logger.level,
            logger.propagate,
        )
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level)

    def close(self) -> None:
        """Put back how logging was; a second time does nothing."""
        if self._before is not None:
            logger = logging.getLogger(_ROOT)
            logger.handlers[:], level, logger.propagate = self._before
            logger.setLevel(level)
            self._before = None
            self._handler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class LineHandler(logging.Handler):
    """Writes each record as one line; a faulty record or stream stops nothing."""

    def __init__(
        self,
        stream: TextIO,
        *,
        redact: Callable[[str], str],
        form: Format,
        colour: bool,
        audit: bool,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._redact = redact
        self._form = form
        self._colour = colour
        self._audit = audit

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless it is about tool calls and these are not wanted."""
        event = getattr(record, "event", None)
        quiet = not self._audit and isinstance(event, str) and is_audit(event)
        if self._form == "off" or (quiet and record.levelno < logging.WARNING):
            return
        try:
            line = self._line(record)
        except Exception as problem:  # noqa: BLE001 - a log that fails must not stop the work
            # Nothing of the record is told: what it holds could not be redacted.
            line = f"coilclaw: a log record could not be shown: {type(problem).__name__}"
        # A stream that is gone or full is no reason to stop either, and nowhere to say so.
        with suppress(OSError, ValueError):
            self._write(line + "\n")

    def _line(self, record: logging.LogRecord) -> str:
        from coilclaw.app.telemetry.formats import human_line, json_line

        if self._form == "json":
            return json_line(record, self._redact)
        return human_line(record, self._redact, colour=self._colour)

    def _write(self, text: str) -> None:
        """Write at once, below the stream's buffer: there a broken pipe leaves nothing behind."""
        encoding = self._stream.encoding or "utf-8"
        data = text.encode(encoding, "backslashreplace")
        try:
            descriptor = self._stream.fileno()
        except (AttributeError, OSError, ValueError):
            self._stream.write(data.decode(encoding))
            self._stream.flush()
            return
        self._stream.flush()
        while data:
            data = data[os.write(descriptor, data) :]


def is_audit(event: str) -> bool:
    """Tell whether an event is about tool calls: ``audit_log = false`` silences these."""
    return event.startswith("tool_") or event == "receipt_written"
