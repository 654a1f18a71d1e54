"""Wire and start a run of code-commit: project, keys, model, logs, tree."""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
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
    """The options of a run."""

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
    """Whether to wait for another run in the project."""


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
    options: CommitOptions,
    environ: Mapping[str, str],
    display: Callable[[Callable[[str], str], int], CommitDisplay],
) -> Committed:
    """Check everything first; then ask, apply, build and repair."""
    with open_tree(options.directory, options.home) as tree, ExitStack() as stack:
        directory = tree.root.path
        own = (options.key_file,) if options.key_file else ()
        key_files = (*KEY_FILES, *own)
        tree.state.create()
        find_ignored = partial(Git(tree.state.git).find_ignored, directory)
        project.check_ignored(directory, key_files, find_ignored)
        redactor = find_known_secrets(directory, key_files, environ)
        interrupts = Interrupts()
        shown = stack.enter_context(display(redactor.redact, REPAIRS))
        stack.enter_context(interrupts.watching())
        place = tree.state.directory
        stack.enter_context(take_turn(place, interrupts, shown.line, wait=options.wait))
        if options.rollup:
            made = rollup.roll_up(tree.root, tree.state, key_files)
            rollup.write(directory / project.CODEBASE, made)
            for path, reason in made.skipped[:MAX_SHOWN_SKIPPED]:
                shown.line(f"left out of the roll-up: {path}: {reason}", "yellow")
        loaded = project.load_project(directory)
        targets = _targets(options, environ)
        files = [target.key_file for target in targets if target.key_file]
        held = {file: project.read_key(directory, file) for file in files}
        forbid_inspection()
        log: RunLog | None = None

        def report(text: str) -> None:
            """Show and log a report of the provider, once the log exists."""
            if log is not None:
                shown.line(f"  {text}", "yellow")
                log.note(text)

        redact, timeout_s = redactor.redact, options.model_timeout_s
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
            model=options.model,
            environ=environ,
            interrupts=interrupts,
            observer=shown,
            build_timeout_s=options.build_timeout_s,
            run_id=f"{log.folder.name}-{secrets.token_hex(3)}",
            key_lines=tuple(f"/{name}" for name in key_files),
            ignore_root=ignore_root,
            key_files=own,
        )
        outcome = run.go()
    return Committed(outcome, log.folder, options.model, redactor.redact)


def _targets(options: CommitOptions, environ: Mapping[str, str]) -> tuple[models.ModelTarget, ...]:
    first = models.choose_target(
        options.model, environ, base_url=options.base_url, key_file=options.key_file
    )
    return (first, *(models.choose_target(name, environ) for name in options.fallbacks))


def _copy_ignore_files(tree: Path, target: Path) -> None:
    """Copy the current ``.gitignore`` files, so that an answer cannot profit from changing them."""
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
    """Return the redactor of the keys in a project and in the environment."""
    # Keys in the environment are not used, but no log may show them either.
    values = {environ[name].strip() for name in KEY_VARIABLES if name in environ}
    found = [Secret(one) for one in sorted(values) if len(one) >= project.MIN_KEY_CHARS]
    return SecretRedactor((*project.read_keys(directory, key_files), *found))
