"""Logs: one line per record, nobody stopped, nothing left behind."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from coilclaw.app.telemetry.formats import MAX_ITEMS, MAX_TEXT
from coilclaw.app.telemetry.logs import FORMATS, LineHandler, configure, is_audit
from coilclaw.kernel.effects import Risk
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.secret import Secret
from tests.support.log_events import EVENTS

LOG = logging.getLogger("coilclaw.agent.loop")


def _same(text: str) -> str:
    return text


class Screen(io.StringIO):
    """A terminal that is not there."""

    def isatty(self) -> bool:
        return True


class Unshowable:
    """Something that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.fixture(autouse=True)
def _logging_is_left_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("coilclaw")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    assert (logger.handlers[:], logger.level, logger.propagate) == before


@pytest.mark.parametrize("value", ["xml", "1", "json,human"])
def test_an_unknown_format_is_refused_with_the_allowed_ones(value: str) -> None:
    with pytest.raises(UsageError, match=f"'{value}'; allowed are json, human, off") as caught:
        configure({"COILCLAW_LOG": value}, io.StringIO(), redact=_same)
    assert caught.value.rule == "log.format"
    assert FORMATS == ("json", "human", "off")


@pytest.mark.parametrize("value", ["json", " JSON ", "human", "", "off"])
def test_a_known_format_is_not(value: str) -> None:
    configure({"COILCLAW_LOG": value}, io.StringIO(), redact=_same).close()


def test_json_has_the_specified_keys_and_the_fields() -> None:
    out = io.StringIO()
    with configure({"COILCLAW_LOG": "json"}, out, redact=_same):
        LOG.info(
            "tool requested: %s",
            "file_read",
            extra={
                "event": "tool_requested",
                "fields": {
                    "path": "a\u202e",
                    "risk": Risk.LOW,
                    "n": 3,
                    "time": 1.5,
                    "key": Secret("k"),
                },
            },
        )
        LOG.warning("no event")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "info",
        "logger": "coilclaw.agent.loop",
        "event": "tool_requested",
        "message": "tool requested: file_read",
        "path": "a\u202e",
        "risk": "low",
        "n": 3,
        "field_time": 1.5,
        "key": "…",
    }
    assert (second["level"], second["event"]) == ("warning", None)
    assert out.getvalue().isascii()


def test_people_get_one_line_with_what_the_message_does_not_say() -> None:
    out = io.StringIO()
    with configure({}, out, redact=_same):
        fields = {"tool": "file_read", "path": "a b", "n": 3, "empty": "", "list": [1, "x"]}
        LOG.info("tool requested: %s", "file_read", extra={"fields": fields})
        LOG.warning("provider local failed, fallback to %s", "other")
    first, second = out.getvalue().splitlines()
    shown = 'tool requested: file_read path="a b" n=3 empty="" list="[1,\\"x\\"]"'
    assert re.fullmatch(r"\d\d:\d\d:\d\d " + re.escape(shown), first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning: provider local failed, fallback to other", second)


def test_a_line_cannot_be_forged() -> None:
    out = Screen()
    with configure({"NO_COLOR": "1", "TERM": "xterm"}, out, redact=_same):
        LOG.info("a\n06:01:02 tool approved\r\x1b[2K", extra={"fields": {"k\n": "v\u2028\u202e"}})
        try:
            raise ValueError("x\n06:01:02 tool approved")
        except ValueError:
            LOG.exception("failed")
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("a<LF>06:01:02 tool approved<CR><ESC>[2K k<LF>=v<U+2028><U+202E>")
    assert lines[1].endswith("error: failed (ValueError: x<LF>06:01:02 tool approved)")


def test_chained_exceptions_are_named_and_json_has_the_traceback() -> None:
    human, machine = io.StringIO(), io.StringIO()
    for out, environ in ((human, {}), (machine, {"COILCLAW_LOG": "json"})):
        with configure(environ, out, redact=_same):
            try:
                try:
                    raise KeyError("inner")
                except KeyError as problem:
                    raise OSError("outer") from problem
            except OSError:
                LOG.exception("failed", stack_info=True)
    assert human.getvalue().endswith("error: failed (OSError: outer <- KeyError: 'inner')\n")
    line = json.loads(machine.getvalue())
    assert "KeyError: 'inner'" in line["exception"]
    assert "The above exception was the direct cause" in line["exception"]
    assert line["stack"].startswith("Stack (most recent call last):")


@pytest.mark.parametrize(
    ("environ", "terminal", "coloured"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
        ({"TERM": "xterm"}, False, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    environ: dict[str, str], terminal: bool, coloured: bool
) -> None:
    out = Screen() if terminal else io.StringIO()
    with configure(environ, out, redact=_same):
        LOG.info("hello")
    assert out.getvalue().startswith("\x1b[2m") is coloured
    assert ("\x1b" in out.getvalue()) is coloured


def test_off_is_silent() -> None:
    out = io.StringIO()
    with configure({"COILCLAW_LOG": "off"}, out, redact=_same):
        LOG.error("hello")
    assert out.getvalue() == ""


@pytest.mark.parametrize("event", [name for name, _ in EVENTS])
def test_without_audit_only_what_is_about_tool_calls_is_silent(event: str) -> None:
    out = io.StringIO()
    with configure({}, out, redact=_same, audit=False):
        LOG.info("one", extra={"event": event})
        LOG.warning("two", extra={"event": event})
    said = [line.split()[-1] for line in out.getvalue().splitlines()]
    audit = event.startswith("tool_") or event == "receipt_written"
    assert said == (["two"] if audit else ["one", "two"])
    assert is_audit(event) is audit


def test_every_specified_event_has_a_meaning() -> None:
    assert [name for name, _ in EVENTS] == [
        "startup",
        "config_path",
        "workspace_path",
        "provider_selected",
        "channel_started",
        "conversation_started",
        "tool_requested",
        "tool_approved",
        "tool_denied",
        "tool_completed",
        "tool_failed",
        "receipt_written",
        "checkpoint_written",
        "checkpoint_failed",
        "memory_persisted",
        "estop_triggered",
        "provider_fallback",
    ]
    assert all(meaning and "\n" not in meaning for _, meaning in EVENTS)


def test_the_level_holds_and_what_was_there_comes_back() -> None:
    logger = logging.getLogger("coilclaw")
    out = io.StringIO()
    logs = configure({}, out, redact=_same, level=logging.WARNING)
    LOG.info("one")
    LOG.warning("two")
    assert [type(handler) for handler in logger.handlers] == [LineHandler]
    logs.close()
    logs.close()
    LOG.warning("three")
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ["two"]


@pytest.mark.parametrize("form", ["json", "human"])
def test_a_record_that_does_not_fit_together_is_told_and_stops_nobody(form: str) -> None:
    out = io.StringIO()
    with configure({"COILCLAW_LOG": form}, out, redact=_same):
        LOG.info("%d of %s", "x")  # noqa: PLE1206 - that is the case
        LOG.info("fields", extra={"fields": ["no", "mapping"]})
        LOG.info("value", extra={"fields": {"u": Unshowable(), "f": float("nan"), "d": Decimal(1)}})
        LOG.info(Unshowable())
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert "%d of %s" in lines[0]
    assert "Unshowable that cannot be shown: RuntimeError" in lines[2]
    assert "cannot be shown" in lines[3]


def test_a_redactor_that_fails_shows_nothing_of_the_record() -> None:
    def broken(text: str) -> str:
        raise ValueError(text)

    out = io.StringIO()
    with configure({}, out, redact=broken):
        LOG.info("secret")
    assert out.getvalue() == "coilclaw: a log record could not be shown: ValueError\n"


def test_what_is_long_wide_or_deep_is_bounded() -> None:
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    out = io.StringIO()
    with configure({"COILCLAW_LOG": "json"}, out, redact=_same):
        fields = {
            "text": "x" * (MAX_TEXT + 5),
            "many": list(range(500)),
            "deep": deep,
            "big": 2**60,
        }
        LOG.info("m", extra={"fields": {**fields, "keys": {str(n): n for n in range(500)}}})
    line = json.loads(out.getvalue())
    assert line["text"] == "x" * MAX_TEXT + "… 5 more characters"
    assert line["many"] == [*range(MAX_ITEMS), "… 400 more"]
    assert line["keys"]["…"] == "400 more"
    assert len(line["keys"]) == MAX_ITEMS + 1
    assert line["big"] == str(2**60)


def test_a_closed_stream_stops_nobody() -> None:
    out = io.StringIO()
    with configure({}, out, redact=_same):
        out.close()
        LOG.error("hello")


_BROKEN_PIPE = """
import logging, os, sys
from coilclaw.app.telemetry.logs import configure
with configure({}, sys.stderr, redact=str):
    for _ in range(3):
        logging.getLogger("coilclaw.x").warning("y" * 100000)
print("alive")
"""


def test_a_broken_pipe_stops_nobody_and_spoils_no_exit_status() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", _BROKEN_PIPE], stdout=subprocess.PIPE, stderr=writer, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"alive\n")


def test_a_stream_that_is_a_file_gets_lines_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "w", encoding="ascii") as stream:
        stream.write("before\n")
        with configure({}, stream, redact=_same):
            LOG.info("caf\u00e9")
            lines = path.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[1].endswith("caf\\xe9")
