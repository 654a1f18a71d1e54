"""A run of code-commit, wired: project, keys, model, logs, tree."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.app.models import provider_of
from coilclaw.app.tree import open_tree
from coilclaw.codecommit import models, project, rollup
from coilclaw.codecommit.build import KEY_VARIABLES
from coilclaw.codecommit.interrupts import Interrupts
from coilclaw.codecommit.logs import RunLog
from coilclaw.codecommit.project_turn import take_turn
from coilclaw.codecommit.workflow import REPAIRS, Observer, Outcome, Run
from coilclaw.domain.secret import Secret
from coilclaw.security.protected import KEY_FILES
from coilclaw.security.redaction import Redactor
from coilclaw.workspace.git import Git
from coilclaw.workspace.privileges import forbid_inspection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from coilclaw.app.tree import Tree


MAX_SHOWN_SKIPPED: Final = 20


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the person who starts a run asks for."""

    directory: Path
    home: Path
    model: str
    base_url: str | None
    key_file: str | None
    fallbacks: tuple[str, ...]
    build_timeout_s: float
    model_timeout_s: float
    rollup: bool
    wait: bool = True
    """Wait for another run in the project, and do not give up."""


@dataclass(frozen=True, slots=True)
class Committed:
    """How a run ended, and where its logs are."""

    outcome: Outcome
    log: Path
    model: str
    redact: Callable[[str], str]


class Display(Observer, Protocol):
    """Shows a run to a person while it goes on."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def commit(
    wishes: Wishes,
    environ: Mapping[str, str],
    display: Callable[[Callable[[str], str], int], Display],
) -> Committed:
    """Check everything first; then ask, apply, build and repair."""
    with open_tree(wishes.directory, wishes.home) as tree, ExitStack() as stack:
        directory = tree.root.path
        own = (wishes.key_file,) if wishes.key_file else ()
        key_files = (*KEY_FILES, *own)
        tree.state.create()
        git = Git(tree.state.git)
        project.check_ignored(directory, key_files, lambda names: git.ignored(directory, names))
        redactor = known_secrets(directory, key_files, environ)
        interrupts = Interrupts()
        shown = stack.enter_context(display(redactor.redact, REPAIRS))
        stack.enter_context(interrupts.watching())
        stack.enter_context(
            take_turn(tree.state.directory, interrupts, shown.line, wait=wishes.wait)
        )
        if wishes.rollup:
            _roll_up(tree, key_files, shown)
        loaded = project.load(directory)
        targets = _targets(wishes, environ)
        held = {
            target.key_file: project.key(directory, target.key_file)
            for target in targets
            if target.key_file
        }
        forbid_inspection()
        told: list[Callable[[str], None]] = []
        provider = provider_of(
            targets,
            held,
            timeout_s=wishes.model_timeout_s,
            redact=redactor.redact,
            report=_Teller(told).tell,
        )
        log = RunLog.create(directory, datetime.now().astimezone(), redactor)
        ignore_root = Path(stack.enter_context(TemporaryDirectory(prefix="coilclaw-ignore-")))
        _copy_ignore_files(directory, ignore_root)
        told.append(lambda text: _report(shown, log, text))
        run = Run(
            project=loaded,
            root=tree.root,
            state=tree.state,
            log=log,
            provider=provider,
            model=wishes.model,
            environ=environ,
            interrupts=interrupts,
            observer=shown,
            build_timeout_s=wishes.build_timeout_s,
            run_id=f"{log.folder.name}-{secrets.token_hex(3)}",
            key_lines=tuple(f"/{name}" for name in key_files),
            ignore_root=ignore_root,
            key_files=own,
        )
        outcome = run.go()
    return Committed(outcome, log.folder, wishes.model, redactor.redact)


def _roll_up(tree: Tree, key_files: tuple[str, ...], shown: Display) -> None:
    """Make the codebase anew, and say what is left out of it."""
    made = rollup.roll_up(tree.root, tree.state, key_files)
    rollup.write(tree.root.path / project.CODEBASE, made)
    for path, reason in made.skipped[:MAX_SHOWN_SKIPPED]:
        shown.line(f"left out of the roll-up: {path}: {reason}", "yellow")


@dataclass(frozen=True, slots=True)
class _Teller:
    """Passes on what a provider reports, to a display that is made after it."""

    listeners: list[Callable[[str], None]]

    def tell(self, text: str) -> None:
        for listener in self.listeners:
            listener(text)


def _copy_ignore_files(tree: Path, target: Path) -> None:
    """Keep what the tree ignores now: an answer may change it, and must not gain by that."""
    for folder, names, files in os.walk(tree):
        names[:] = [name for name in names if name != ".git"]
        place = Path(folder) / ".gitignore"
        if ".gitignore" in files and place.is_file():
            copy = target / Path(folder).relative_to(tree) / ".gitignore"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(place.read_bytes())


def _targets(wishes: Wishes, environ: Mapping[str, str]) -> tuple[models.Target, ...]:
    first = models.target(wishes.model, environ, base_url=wishes.base_url, key_file=wishes.key_file)
    return (first, *(models.target(name, environ) for name in wishes.fallbacks))


def known_secrets(
    directory: Path, key_files: tuple[str, ...], environ: Mapping[str, str]
) -> Redactor:
    """Return what takes the keys of a project and of the environment out of a text."""
    return Redactor((*project.keys(directory, key_files), *_from_environment(environ)))


def _from_environment(environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Keys in the environment are none of ours, but no log should show them either."""
    values = {environ[name].strip() for name in KEY_VARIABLES if name in environ}
    long = (value for value in sorted(values) if len(value) >= project.MIN_KEY_CHARS)
    return tuple(Secret(value) for value in long)


def _report(shown: Display, log: RunLog, text: str) -> None:
    shown.line(f"  {text}", "yellow")
    log.note(text)
