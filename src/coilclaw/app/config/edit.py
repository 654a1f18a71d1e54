"""Changing the text of a configuration, comments and layout kept."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coilclaw.app.config.keys import ANY, TABLES, TEXTUAL, find, general, known_names
from coilclaw.app.config.load import (
    MAX_BYTES,
    dotty_line,
    examine_config_text,
    invalid,
    read_source,
)
from coilclaw.app.config.section import describe_unknown
from coilclaw.kernel import EnvironmentFault, UsageError, write_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.app.config.load import Examined
    from coilclaw.kernel import Problem

MAX_VALUE_CHARS: Final = 64 * 2**10
_MAX_NAMES: Final = 8
_MAX_KEY_CHARS: Final = 400
_NO_KEY: Final = "=[#\r\n"
"""With one of these, a dotted key would be more than a key."""

Changes: TypeAlias = "Mapping[tuple[str, ...], object]"


def set_value(text: str, dotted_key: str, value_text: str) -> str:
    """Return the text with one key set to a value, given as TOML or as a plain string.

    The result is TOML that says exactly this; whether the value makes sense is for ``load`` to say.
    """
    names = parsed_key(dotted_key)
    return change_text(text, {names: parsed_value(names, value_text)})


def parsed_key(dotted_key: str) -> tuple[str, ...]:
    """Take a dotted key apart, and refuse one that has no meaning."""
    names = _names_of(dotted_key)
    if not names or len(names) > _MAX_NAMES:
        raise UsageError(f"{dotted_key[:60]!r} is not a dotted key", rule="config.key")
    if find(names) is None:
        raise _unknown(names)
    return names


def parsed_value(names: tuple[str, ...], value_text: str) -> object:
    """Read a value; what is not TOML is a string, and so is everything where a string belongs."""
    if len(value_text) > MAX_VALUE_CHARS:
        raise UsageError(
            f"the value of {write_place(names)} is longer than {MAX_VALUE_CHARS} characters",
            rule="config.value",
        )
    if dotty_line(value_text) is not None:
        return value_text
    key = find(names)
    try:
        read = tomllib.loads(f"value = {value_text}")
    except (ValueError, RecursionError):
        return value_text
    if set(read) != {"value"}:
        return value_text
    value = read["value"]
    if key is not None and key.form in TEXTUAL and not isinstance(value, str):
        return value_text
    return value


def change_text(text: str, values: Changes, removed: Sequence[tuple[str, ...]] = ()) -> str:
    """Return the text with keys set and others removed, and nothing else different."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    expected = _parse_toml(text)
    made: list[Any] = []
    try:
        document = tomlkit.parse(text)
        for names in removed:
            if _remove(expected, names):
                _remove(document, names)
        for names, value in values.items():
            _put(expected, names, value)
            made += _put(document, names, value, tomlkit.table)
        for table in made:
            table.add(tomlkit.nl())
        result = tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, RecursionError) as problem:
        raise _cannot(tuple(values)) from problem
    # The editor is not trusted: what it wrote must say what was meant, and nothing else.
    try:
        said = tomllib.loads(result)
    except ValueError as problem:
        raise _cannot(tuple(values)) from problem
    if said != expected:
        raise _cannot(tuple(values))
    return result.rstrip("\n") + "\n" if made else result


def _parse_toml(text: str) -> dict[str, Any]:
    if dotty_line(text) is not None:
        raise UsageError("the configuration has a line with too many dots", rule="config.invalid")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UsageError(
            f"the configuration is not valid TOML: {problem}",
            rule="config.invalid",
            hint="coilclaw config validate says where",
        ) from problem


def _names_of(dotted_key: str) -> tuple[str, ...]:
    if len(dotted_key) > _MAX_KEY_CHARS or any(char in dotted_key for char in _NO_KEY):
        return ()
    try:
        read: object = tomllib.loads(f"{dotted_key} = 0")
    except (ValueError, RecursionError):
        return ()
    names = []
    while isinstance(read, dict) and len(read) == 1:
        ((name, read),) = read.items()
        names.append(str(name))
    return tuple(names)


def _unknown(names: tuple[str, ...]) -> UsageError:
    """Say which part of a key is the wrong one."""
    for depth, name in enumerate(names):
        table = names[:depth]
        entry = general(table)
        options = tuple(TABLES[entry]) if ANY in entry else known_names(table)
        if name not in options and ANY not in options:
            message, allowed = describe_unknown(name, options)
            choices = f"; known there: {', '.join(allowed)}" if allowed else ""
            return UsageError(f"{write_place(names)}: {message}{choices}", rule="config.key")
    return UsageError(f"{write_place(names)} is a table; name one of its keys", rule="config.key")


def _put(
    table: Any, names: tuple[str, ...], value: object, new: Callable[[bool], object] | None = None
) -> list[Any]:
    """Set a value; return the table that had to be made for it, if any.

    ``new`` makes a table, told whether it will hold nothing but other tables.
    """
    made = []
    for depth, name in enumerate(names[:-1], start=2):
        if name not in table:
            holds_tables = depth < len(names)
            table[name] = {} if new is None else new(holds_tables)
            made = [] if holds_tables else [table[name]]
        table = table[name]
    table[names[-1]] = value
    return made


def _remove(table: Any, names: tuple[str, ...]) -> bool:
    for name in names[:-1]:
        if name not in table:
            return False
        table = table[name]
    if names[-1] not in table:
        return False
    del table[names[-1]]
    return True


def _cannot(places: Sequence[tuple[str, ...]]) -> UsageError:
    said = ", ".join(write_place(place) for place in places)
    return UsageError(
        f"{said} cannot be changed without touching more than that",
        rule="config.edit",
        hint="change it in the file itself: coilclaw config path names it",
    )


LOCK_NAME: Final = "config.lock"


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """A change that is not written yet; ``before`` is ``None`` where the file is missing."""

    path: Path
    before: str | None
    after: str
    examined: Examined


def plan(
    path: Path,
    edit: Callable[[str], str],
    *,
    home: Path,
    environ: Mapping[str, str],
    initial: str = "",
) -> PlannedEdit:
    """Work out a change; ``initial`` is what is edited where the file is missing.

    A change that brings a new problem is refused; one that leaves old ones may take the next away.
    """
    source = read_source(path)
    if source.text is None and source.problems:
        raise invalid(path.name, source.problems)
    text = initial if source.text is None else source.text
    after = edit(text)
    if len(after.encode()) > MAX_BYTES:
        raise UsageError(
            f"{path.name} would be larger than {MAX_BYTES} bytes", rule="config.invalid"
        )
    examined = examine_config_text(after, path, home=home, environ=environ)
    if examined.problems:
        old = examine_config_text(text, path, home=home, environ=environ)
        known = {_identity(problem) for problem in old.problems}
        new = tuple(p for p in examined.problems if _identity(p) not in known)
        if new:
            raise invalid(path.name, new, hint="nothing was written")
    return PlannedEdit(path, source.text, after, examined)


def write(planned: PlannedEdit, *, home: Path) -> None:
    """Put the change in place, unless the file became another one meanwhile."""
    from coilclaw.kernel import FileLock, write_atomic

    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(home / LOCK_NAME):
        if read_source(planned.path).text != planned.before:
            raise EnvironmentFault(
                f"{planned.path.name} was changed meanwhile",
                rule="config.changed",
                hint="do it again",
            )
        # A link, as people keep their settings elsewhere, stays one.
        target = Path(os.path.realpath(planned.path))
        write_atomic(target, planned.after.encode(), mode=0o600)


def _identity(problem: Problem) -> tuple[str, str]:
    return problem.key, problem.message
