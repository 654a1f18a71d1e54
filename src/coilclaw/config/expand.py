"""``~``, ``$VAR`` and ``${VAR}`` in paths and addresses; ``$$`` is a dollar sign."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE: Final = r"\$(?:(?P<dollar>\$)|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*)|)"


class Expanded(NamedTuple):
    """The text with everything in its place; ``problems`` say what could not be."""

    text: str
    problems: tuple[str, ...] = ()


def variables(text: str, environ: Mapping[str, str]) -> Expanded:
    """Put the variables of the environment in; what they hold is not expanded again."""
    problems: list[str] = []

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        name = found["braced"] or found["plain"]
        if not name:
            problems.append("has a $ that names no variable; a dollar sign is written $$")
            return ""
        held = environ.get(name)
        if not held:
            state = "not set" if held is None else "empty"
            problems.append(f"names the variable {name}, which is {state}")
            return ""
        return held

    if "$" not in text:
        return Expanded(text)
    whole = re.sub(_VARIABLE, value, text, flags=re.ASCII)
    return Expanded(whole, tuple(dict.fromkeys(problems)))


def path(text: str, environ: Mapping[str, str]) -> Expanded:
    """Expand a path; only the user's own home can be written with ``~``."""
    if not text.startswith("~"):
        return variables(text, environ)
    if text != "~" and not text.startswith("~/"):
        return Expanded(text, ("begins with ~ and a name; only ~ and ~/ are expanded",))
    home = user_home(environ)
    if home is None:
        return Expanded(text, ("begins with ~, and there is no home directory",))
    rest = variables(text[1:], environ)
    return Expanded(home.rstrip("/") + rest.text or "/", rest.problems)


def user_home(environ: Mapping[str, str]) -> str | None:
    """Return the home directory of the user, as ``~`` means it."""
    named = environ.get("HOME")
    if named:
        return named
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir or None
    except KeyError:
        return None


def escaped(text: str) -> str:
    """Write a path so that expanding gives it back; it must be absolute."""
    return text.replace("$", "$$")
