"""``config.toml``, read: a configuration, or every problem of it."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from coilclaw.app.config.section import ConfigDocument
from coilclaw.app.config.sections import read_config
from coilclaw.kernel import Problem, UsageError, list_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.app.config.values import Config


__all__ = ["Problem", "closest", "invalid"]


def invalid(file: str, problems: tuple[Problem, ...], hint: str | None = None) -> UsageError:
    """Make the error that says all of them."""
    return UsageError(
        f"the configuration has {list_problems(problems, file)}",
        rule="config.invalid",
        hint=hint or "coilclaw config validate lists them one by one",
    )


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return what was probably meant, if anything is near."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)), None)


FILE_NAME: Final = "config.toml"
MAX_BYTES: Final = 256 * 2**10
MAX_DOTS: Final = 1000
"""Dots of one key: the parser takes memory by the square of them, 40 GB for the largest file."""

_MARK: Final = b"\xef\xbb\xbf"


class Examined(NamedTuple):  # made at every start, as those of ``keys``
    """What a file holds; ``config`` is set when it has no problems."""

    config: Config | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


class ConfigSource(NamedTuple):
    """The text of a file; ``None`` where it is missing or cannot be read."""

    text: str | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def load_config(path: Path, *, home: Path, environ: Mapping[str, str]) -> Config:
    """Return the configuration; a file that is not there is one that says nothing.

    ``home`` is where our own state lives. A ``UsageError`` says all problems at once.
    """
    examined = examine_config(path, home=home, environ=environ)
    if examined.config is None:
        raise invalid(path.name, examined.problems)
    return examined.config


def examine_config(path: Path, *, home: Path, environ: Mapping[str, str]) -> Examined:
    """Return the configuration or its problems, and what is doubtful about it."""
    source = read_source(path)
    if source.text is None and source.problems:
        return Examined(None, source.problems, source.warnings)
    return examine_config_text(source.text or "", path, home=home, environ=environ, source=source)


def examine_config_text(
    text: str,
    path: Path,
    *,
    home: Path,
    environ: Mapping[str, str],
    source: ConfigSource | None = None,
) -> Examined:
    """Return what a text would be as the file at ``path``."""
    source = source or ConfigSource(text)
    document = ConfigDocument(text, path.parent, environ)
    data, broken = _parse(document)
    if broken:
        return Examined(None, (*source.problems, *broken), source.warnings)
    config = read_config(document, data, path=path, home=home)
    warnings = (*source.warnings, *document.warnings)
    found = (*source.problems, *document.problems)
    if found:
        return Examined(None, found, warnings)
    return Examined(replace(config, warnings=warnings) if warnings else config, (), warnings)


def _parse(document: ConfigDocument) -> tuple[Mapping[str, object], tuple[Problem, ...]]:
    """Return the tables of a text, or why it is not TOML."""
    dotty = dotty_line(document.text)
    if dotty is not None:
        return {}, (Problem("", f"has a line with more than {MAX_DOTS} dots", dotty),)
    try:
        return document.read_toml().values, document.problems
    except ValueError as error:  # a number with thousands of digits
        return {}, (Problem("", f"is not valid TOML: {error}"),)


def read_source(path: Path) -> ConfigSource:
    """Read the file, whatever it turns out to be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if path.is_symlink():
            return _unreadable("is a link that leads nowhere")
        return ConfigSource(None)
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
    warnings = _doubts(path.name, state)
    found: tuple[Problem, ...] = ()
    if data.startswith(_MARK):
        data = data.removeprefix(_MARK)
        found = (Problem("", "begins with a byte order mark; save the file without it", 1),)
    try:
        return ConfigSource(data.decode("utf-8"), found, warnings)
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        return ConfigSource(None, (*found, Problem("", "is not written in UTF-8", line)), warnings)


def _unreadable(message: str) -> ConfigSource:
    return ConfigSource(None, (Problem("", message),))


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
