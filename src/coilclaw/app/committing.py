"""A run of code-commit, wired: project, keys, model, logs, tree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from coilclaw.app.models import provider_of
from coilclaw.app.tree import open_tree
from coilclaw.codecommit import models, project, rollup
from coilclaw.codecommit.build import KEY_VARIABLES
from coilclaw.codecommit.interrupts import Interrupts
from coilclaw.codecommit.logs import RunLog
from coilclaw.codecommit.workflow import REPAIRS, Observer, Outcome, Run
from coilclaw.domain.secret import Secret
from coilclaw.security.protected import KEY_FILES
from coilclaw.security.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self


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


@dataclass(frozen=True, slots=True)
class Committed:
    """How a run ended, and where its logs are."""

    outcome: Outcome
    log: Path
    model: str
    redact: Callable[[str], str]


class Display(Observer, Protocol):
    """Shows a run to a person while it goes on."""

    def line(self, text: str, style: str | None = None) -> None: ...
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
    with open_tree(wishes.directory, wishes.home) as tree:
        directory = tree.root.path
        if wishes.rollup:
            rollup.write(directory / project.CODEBASE, rollup.roll_up(tree.root, tree.state))
        loaded = project.load(directory)
        own = (wishes.key_file,) if wishes.key_file else ()
        key_files = (*KEY_FILES, *own)
        project.check_ignored(directory, key_files)
        targets = _targets(wishes, environ)
        held = {
            target.key_file: project.key(directory, target.key_file)
            for target in targets
            if target.key_file
        }
        secrets = (*project.keys(directory, key_files), *_from_environment(environ))
        redactor = Redactor(secrets)
        log = RunLog.create(directory, datetime.now().astimezone(), redactor)
        interrupts = Interrupts()
        with display(redactor.redact, REPAIRS) as shown, interrupts.watching():
            run = Run(
                project=loaded,
                root=tree.root,
                state=tree.state,
                log=log,
                provider=provider_of(
                    targets,
                    held,
                    timeout_s=wishes.model_timeout_s,
                    redact=redactor.redact,
                    report=lambda text: _report(shown, log, text),
                ),
                model=wishes.model,
                secrets=secrets,
                environ=environ,
                interrupts=interrupts,
                observer=shown,
                build_timeout_s=wishes.build_timeout_s,
                key_files=own,
            )
            outcome = run.go()
    return Committed(outcome, log.folder, wishes.model, redactor.redact)


def _targets(wishes: Wishes, environ: Mapping[str, str]) -> tuple[models.Target, ...]:
    first = models.target(wishes.model, environ, base_url=wishes.base_url, key_file=wishes.key_file)
    return (first, *(models.target(name, environ) for name in wishes.fallbacks))


def _from_environment(environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Keys in the environment are none of ours, but no log should show them either."""
    values = {environ[name].strip() for name in KEY_VARIABLES if name in environ}
    return tuple(Secret(value) for value in sorted(values) if len(value) >= 8)


def _report(shown: Display, log: RunLog, text: str) -> None:
    shown.line(f"  {text}", "yellow")
    log.note(text)
