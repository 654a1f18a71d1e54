"""``config.toml``, read: a configuration, or every problem of it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from coilclaw.config.section import Reading
from coilclaw.config.sections import config_of
from coilclaw.config.values import DEFAULT_TOOLS, Config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.config.problem import Problem
    from coilclaw.config.section import Noted

FILE_NAME: Final = "config.toml"
MAX_BYTES: Final = 256 * 2**10
MAX_DOTS: Final = 1000
"""Dots of one key: the parser takes memory by the square of them, 40 GB for the largest file."""

_AT_LINE: Final = r"\s*\(at (?:line (\d+), column \d+|end of document)\)"
_MARK: Final = b"\xef\xbb\xbf"


class Examined(NamedTuple):  # made at every start, as those of ``keys``
    """What a file holds; ``config`` is there when there is no problem."""

    config: Config | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


class Source(NamedTuple):
    """The text of a file; ``None`` where there is no file, or none that can be read."""

    text: str | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def load(
    path: Path,
    *,
    home: Path,
    environ: Mapping[str, str],
    tools: tuple[str, ...] = DEFAULT_TOOLS,
) -> Config:
    """Return the configuration; a file that is not there is one that says nothing.

    ``home`` is where our own state lives. A ``UsageError`` says all problems at once.
    """
    examined = examine(path, home=home, environ=environ, tools=tools)
    if examined.config is None:
        from coilclaw.config.problem import invalid

        raise invalid(path.name, examined.problems)
    return examined.config


def problems(
    path: Path,
    *,
    home: Path,
    environ: Mapping[str, str],
    tools: tuple[str, ...] = DEFAULT_TOOLS,
) -> tuple[Problem, ...]:
    """Return everything that is wrong with a file, in the order of its lines."""
    return examine(path, home=home, environ=environ, tools=tools).problems


def examine(
    path: Path,
    *,
    home: Path,
    environ: Mapping[str, str],
    tools: tuple[str, ...] = DEFAULT_TOOLS,
) -> Examined:
    """Return the configuration or its problems, and what is doubtful about it."""
    source = read_source(path)
    if source.text is None and source.problems:
        return Examined(None, source.problems, source.warnings)
    return examine_text(
        source.text or "", path, home=home, environ=environ, tools=tools, source=source
    )


def examine_text(
    text: str,
    path: Path,
    *,
    home: Path,
    environ: Mapping[str, str],
    tools: tuple[str, ...] = DEFAULT_TOOLS,
    source: Source | None = None,
) -> Examined:
    """Return what a text would be as the file at ``path``."""
    import tomllib

    source = source or Source(text)
    dotty = dotty_line(text)
    if dotty is not None:
        problem = _of_file(dotty, f"has a line with more than {MAX_DOTS} dots")
        return Examined(None, (*source.problems, problem), source.warnings)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return Examined(None, (*source.problems, _syntax(error)), source.warnings)
    reading = Reading(path.parent, environ)
    config = config_of(reading, data, path=path, home=home, tools=tools)
    warnings = (*source.warnings, *reading.warnings)
    found = (*source.problems, *_located(reading.noted, text))
    if found:
        return Examined(None, found, warnings)
    return Examined(config_with(config, warnings), (), warnings)


def config_with(config: Config, warnings: tuple[str, ...]) -> Config:
    """Return the configuration with what is doubtful about it."""
    if not warnings:
        return config
    from dataclasses import replace

    return replace(config, warnings=warnings)


def read_source(path: Path) -> Source:
    """Read the file, whatever it turns out to be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if path.is_symlink():
            return _unreadable("is a link that leads nowhere")
        return Source(None)
    except (OSError, ValueError) as problem:
        return _unreadable(f"cannot be read: {getattr(problem, 'strerror', None) or problem}")
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            kind = "a directory" if stat.S_ISDIR(state.st_mode) else "no regular file"
            return _unreadable(f"is {kind}")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        return _unreadable(f"cannot be read: {problem.strerror}")
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        return _unreadable(f"is larger than {MAX_BYTES} bytes")
    return _decoded(data, _doubts(path.name, state))


def _decoded(data: bytes, warnings: tuple[str, ...]) -> Source:
    found: tuple[Problem, ...] = ()
    if data.startswith(_MARK):
        data = data.removeprefix(_MARK)
        found = (_of_file(1, "begins with a byte order mark; save the file without it"),)
    try:
        return Source(data.decode("utf-8"), found, warnings)
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        return Source(None, (*found, _of_file(line, "is not written in UTF-8")), warnings)


def _unreadable(message: str) -> Source:
    return Source(None, (_of_file(None, message),))


def _of_file(line: int | None, message: str) -> Problem:
    from coilclaw.config.problem import Problem

    return Problem("", line, message)


def _doubts(name: str, state: os.stat_result) -> tuple[str, ...]:
    """Say who else could change the file: it decides what an agent may do."""
    warnings = []
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        whom = "everybody" if state.st_mode & stat.S_IWOTH else "its group"
        warnings.append(f"{name} can be changed by {whom}; chmod 600 makes it yours alone")
    if state.st_uid not in {os.getuid(), 0}:
        warnings.append(f"{name} belongs to another user")
    return tuple(warnings)


def dotty_line(text: str) -> int | None:
    """Return the line on which a key may have more parts than the parser can take."""
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_DOTS and any(part.count(".") > MAX_DOTS for part in line.split("=")):
            return number
    return None


def _syntax(problem: Exception) -> Problem:
    import re

    if isinstance(problem, RecursionError):
        return _of_file(None, "is nested too deeply")
    said = str(problem)
    found = re.search(_AT_LINE, said)
    line = int(found[1]) if found and found[1] else None
    message = re.sub(_AT_LINE, "", said)
    return _of_file(line, f"is no TOML: {message[:1].lower()}{message[1:]}")


def _located(noted: list[Noted], text: str) -> tuple[Problem, ...]:
    if not noted:
        return ()
    from coilclaw.config.locate import lines_of
    from coilclaw.config.problem import Problem, dotted

    lines = lines_of(text)
    found = []
    for item in noted:
        place = item.place
        while place and place not in lines:
            place = place[:-1]  # what is missing stands in its table
        found.append(Problem(dotted(item.place), lines.get(place), item.message, item.allowed))
    found.sort(key=lambda problem: problem.line or 0)
    return tuple(found)
