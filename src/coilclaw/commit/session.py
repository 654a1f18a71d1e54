"""A run of code-commit, wired: project, keys, model, logs, tree."""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.commit import models, project, rollup
from coilclaw.commit.build import KEY_VARIABLES
from coilclaw.commit.interrupts import Interrupts
from coilclaw.commit.models import provider_of
from coilclaw.commit.project import take_turn
from coilclaw.commit.run_log import RunLog
from coilclaw.commit.workflow import REPAIRS, CommitOutcome, CommitRun, Observer
from coilclaw.kernel import Secret
from coilclaw.policy import KEY_FILES, SecretRedactor
from coilclaw.workspace import Git, forbid_inspection, open_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_SHOWN_SKIPPED: Final = 20


@dataclass(frozen=True, slots=True)
class CommitOptions:
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

    outcome: CommitOutcome
    log: Path
    model: str
    redact: Callable[[str], str]


class CommitDisplay(Observer, AbstractContextManager["CommitDisplay", None], Protocol):
    """Shows a run to the user while it lasts."""


def run_commit(
    wishes: CommitOptions,
    environ: Mapping[str, str],
    display: Callable[[Callable[[str], str], int], CommitDisplay],
) -> Committed:
    """Check everything first; then ask, apply, build and repair."""
    with open_tree(wishes.directory, wishes.home) as tree, ExitStack() as stack:
        directory = tree.root.path
        own = (wishes.key_file,) if wishes.key_file else ()
        key_files = (*KEY_FILES, *own)
        tree.state.create()
        git = Git(tree.state.git)
        project.check_ignored(directory, key_files, lambda names: git.ignored(directory, names))
        redactor = find_known_secrets(directory, key_files, environ)
        interrupts = Interrupts()
        shown = stack.enter_context(display(redactor.redact, REPAIRS))
        stack.enter_context(interrupts.watching())
        place = tree.state.directory
        stack.enter_context(take_turn(place, interrupts, shown.line, wait=wishes.wait))
        if wishes.rollup:
            made = rollup.roll_up(tree.root, tree.state, key_files)
            rollup.write(directory / project.CODEBASE, made)
            for path, reason in made.skipped[:MAX_SHOWN_SKIPPED]:
                shown.line(f"left out of the roll-up: {path}: {reason}", "yellow")
        loaded = project.load_project(directory)
        targets = _targets(wishes, environ)
        files = [target.key_file for target in targets if target.key_file]
        held = {file: project.read_key(directory, file) for file in files}
        forbid_inspection()
        log: RunLog | None = None

        def report(text: str) -> None:
            """Pass on what the provider reports, once there is a log."""
            if log is not None:
                shown.line(f"  {text}", "yellow")
                log.note(text)

        redact, timeout_s = redactor.redact, wishes.model_timeout_s
        provider = provider_of(targets, held, timeout_s=timeout_s, redact=redact, report=report)
        log = RunLog.create(directory, datetime.now().astimezone(), redactor)
        ignore_root = Path(stack.enter_context(TemporaryDirectory(prefix="coilclaw-ignore-")))
        _copy_ignore_files(directory, ignore_root)
        run = CommitRun(
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


def _targets(wishes: CommitOptions, environ: Mapping[str, str]) -> tuple[models.ModelTarget, ...]:
    first = models.choose_target(
        wishes.model, environ, base_url=wishes.base_url, key_file=wishes.key_file
    )
    return (first, *(models.choose_target(name, environ) for name in wishes.fallbacks))


def _copy_ignore_files(tree: Path, target: Path) -> None:
    """Keep what the tree ignores now: an answer may change it, and must not gain by that."""
    for folder, names, files in os.walk(tree):
        names[:] = [name for name in names if name != ".git"]
        place = Path(folder) / ".gitignore"
        if ".gitignore" in files and place.is_file():
            copy = target / Path(folder).relative_to(tree) / ".gitignore"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(place.read_bytes())


def find_known_secrets(
    directory: Path, key_files: tuple[str, ...], environ: Mapping[str, str]
) -> SecretRedactor:
    """Return what takes the keys of a project and of the environment out of a text."""
    # Keys in the environment are none of ours, but no log should show them either.
    values = {environ[name].strip() for name in KEY_VARIABLES if name in environ}
    found = [Secret(one) for one in sorted(values) if len(one) >= project.MIN_KEY_CHARS]
    return SecretRedactor((*project.read_keys(directory, key_files), *found))
