"""Writing the configuration: only what can be read again, and never over somebody else's change."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.config.load import MAX_BYTES, examine_text, read_source
from coilclaw.config.problem import invalid
from coilclaw.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.config.load import Examined
    from coilclaw.config.problem import Problem

LOCK_NAME: Final = "config.lock"


@dataclass(frozen=True, slots=True)
class Planned:
    """A change that is not written yet; ``before`` is ``None`` where there is no file."""

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
) -> Planned:
    """Work out a change; ``initial`` is what is edited where there is no file.

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
    examined = examine_text(after, path, home=home, environ=environ)
    if examined.problems:
        old = examine_text(text, path, home=home, environ=environ)
        known = {_identity(problem) for problem in old.problems}
        new = tuple(p for p in examined.problems if _identity(p) not in known)
        if new:
            raise invalid(path.name, new, hint="nothing was written")
    return Planned(path, source.text, after, examined)


def write(planned: Planned, *, home: Path) -> None:
    """Put the change in place, unless the file became another one meanwhile."""
    from coilclaw.storage.atomic import write_atomic
    from coilclaw.storage.lock import FileLock

    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(home / LOCK_NAME):
        if read_source(planned.path).text != planned.before:
            raise EnvironmentFault(
                f"{planned.path.name} was changed by somebody else meanwhile",
                rule="config.changed",
                hint="do it again",
            )
        # A link, as people keep their settings elsewhere, stays one.
        target = Path(os.path.realpath(planned.path))
        write_atomic(target, planned.after.encode(), mode=0o600)


def _identity(problem: Problem) -> tuple[str, str]:
    return problem.key, problem.message
