"""Provide what every command uses: arguments, the console, exit codes and the home."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.app import find_home
from coilclaw.cli.console import Console, escape_hidden
from coilclaw.cli.parser import Parser

if TYPE_CHECKING:
    from coilclaw.app import Config

__all__ = (
    "DENIED",
    "DONE",
    "FAILED",
    "FAULT",
    "PROVIDER",
    "USAGE",
    "Console",
    "Namespace",
    "Parser",
    "count_noun",
    "escape_hidden",
    "find_home",
    "load_config",
    "pick",
    "read_input",
)

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DENIED: Final = 3
PROVIDER: Final = 4
FAULT: Final = 5


def load_config() -> Config:
    """Load the configuration of this home."""
    from coilclaw.app import open_config

    return open_config(find_home(), os.environ)


def pick(value: object, *names: str) -> dict[str, object]:
    """Return these attributes of a value as a JSON object: paths as strings, tuples as lists."""
    return {name: _jsonable(getattr(value, name)) for name in names}


def _jsonable(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def read_input(name: str, bound: int) -> bytes:
    """Read a file, or standard input for ``-``: at most one byte more than the bound."""
    if name == "-":
        return sys.stdin.buffer.read(bound + 1)
    with Path(name).open("rb") as file:
        return file.read(bound + 1)
