"""``[sandbox]``: the paths that the user shows to every child, less what none may see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.config import expand
from coilclaw.config.section import shown
from coilclaw.workspace.sandbox_view import View

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.config.section import Section
    from coilclaw.config.values import Config


def read_view(section: Section, config: Config, home: Path) -> View:
    """Read the paths; what cannot be shown is noted as a problem."""
    barred = tuple(_barred(section, config, home))
    return View(
        read=tuple(_paths(section, "read", barred)),
        write=tuple(_paths(section, "write", barred)),
    )


def _paths(section: Section, name: str, barred: tuple[tuple[str, Path], ...]) -> Iterator[Path]:
    for index, raw in section.items(name, ()):
        path = section.as_path(raw, (*section.place, name, index))
        if path is None:
            continue
        problem = _problem_with(path, raw, barred)
        if problem:
            section.item(name, index, problem)
        else:
            yield path


def _problem_with(path: Path, raw: str, barred: tuple[tuple[str, Path], ...]) -> str:
    if not path.is_absolute():
        return f"is {shown(raw)}, a relative path; it must be absolute, or begin with ~/"
    if not path.exists():
        return f"is {shown(raw)}, which does not exist"
    real = type(path)(os.path.realpath(path))
    for what, other in barred:
        place = type(path)(os.path.realpath(other))
        if real.is_relative_to(place):
            return f"is {shown(raw)}, which lies in {what}: {other}"
        if place.is_relative_to(real):
            return f"is {shown(raw)}, which holds {what}: {other}"
    return ""


def _barred(section: Section, config: Config, home: Path) -> Iterator[tuple[str, Path]]:
    """What no child may see, with what to call it."""
    yield "our own state", home
    yield "the memory", config.memory.path
    yield "the log of receipts", config.receipts.path
    for provider in config.providers.values():
        if provider.api_key_file is not None:
            yield f"the key of {provider.name}", provider.api_key_file
    for path in config.security.forbidden_paths:
        yield "a forbidden path", path
    user = expand.user_home(section.reading.environ)
    if user:
        yield "the keys of the user", type(home)(user) / ".ssh"
