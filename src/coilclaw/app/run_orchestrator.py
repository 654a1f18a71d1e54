"""Orchestrated runs, wired: repository, policies, runners, models, approvals and evidence."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.agent import ApprovalStore
from coilclaw.app.receipt_checks import checkpoint_writer, find_signing_key
from coilclaw.kernel import UsageError, explain_os_errors
from coilclaw.runners import external_runners, runner
from coilclaw.runs import (
    FOLDER,
    MAX_RUN_S,
    OVERRIDE,
    RUNTIME_ROOT,
    UNCLAIMED,
    Locks,
    PolicySource,
    RoleModel,
    RunDependencies,
    RunEngine,
    RunOptions,
    RunOutcome,
    RunPlaces,
    create_run,
    exclude_runtime_root,
    is_worked_on,
    record_answer,
    reopen_run,
    sealed_manifest,
)
from coilclaw.traces import check_not_stopped
from coilclaw.workspace import Cancellation, Repository, SnapshotStore, Worktrees, probe_sandboxes
from coilclaw.workspace import owner as orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Checkpoint, Redactor
    from coilclaw.runners import Runner
    from coilclaw.runs import PolicySet, RunRequest, TaskContract
    from coilclaw.workspace import Owner

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitTerms:
    """How approvals and other runs are waited for, and who answers questions."""

    wait_s: float = 0.0
    lock_wait_s: float | None = None
    """``math.inf`` waits for as long as it takes, ``None`` only if the run waited before."""
    live_wait_s: float = 300.0
    ask_user: Callable[[str], str | None] = lambda _: None
    """Asks the user at the terminal; ``None`` without an answer."""
    asker: str = ""
    """For whom approvals are asked, where that is a client of the gateway."""


def places_of(repository: Path, environ: Mapping[str, str]) -> RunPlaces:
    """Where the runs of a repository are."""
    named = environ.get(OVERRIDE)
    runtime = Path(named).expanduser() if named else repository / RUNTIME_ROOT
    if not runtime.is_absolute():
        runtime = repository / runtime
    return RunPlaces(repository, Path(os.path.realpath(runtime)))


class Orchestrator:
    """The runs of one repository."""

    def __init__(
        self,
        start: Path,
        home: Path,
        environ: Mapping[str, str],
        *,
        cancel: Cancellation | None = None,
        terms: WaitTerms | None = None,
        config: Config | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.repository = Repository.open(start)
        self.home = home
        self.environ = environ
        self.places = places_of(self.repository.top, environ)
        self.cancel = cancel or Cancellation()
        self.terms = terms or WaitTerms()
        self._config = config
        self._redactor = redactor
        self._start = start

    @cached_property
    def config(self) -> Config:
        from coilclaw.app.home import open_config

        return self._config or open_config(self.home, self.environ)

    @cached_property
    def redactor(self) -> Redactor:
        from coilclaw.app.tools import make_redactor

        return self._redactor or make_redactor(self.config, self.environ)

    @property
    def key_path(self) -> Path:
        return self.home / "keys" / "journal.key"

    @property
    def control_paths(self) -> tuple[str, ...]:
        """Where the repository keeps policies, or where they would be found."""
        shipped = PolicySource(self.repository).find(self.repository.head()[1]) == "shipped"
        return UNCLAIMED if shipped else (FOLDER,)

    def policies(self, commit: str) -> PolicySet:
        """The policies of the control root, else those of the commit, else those that ship."""
        return PolicySource(self.repository).read(commit)

    @cached_property
    def equipment(self) -> RunDependencies:
        """Everything that a run is carried out with."""
        chosen = self.config.security.sandbox

        def keep_checkpoint(checkpoint: Checkpoint) -> None:
            writer = checkpoint_writer(self.config, self.home, self.environ)
            if writer is not None:
                writer.after_seal(checkpoint)

        return RunDependencies(
            places=self.places,
            repository=self.repository,
            worktrees=Worktrees(self.repository, self.places.git, self.places.worktrees),
            snapshots=SnapshotStore(self.places.snapshots),
            locks=Locks(self.places.locks, alive=self._goes_on, works=self._works),
            policies=self.policies,
            control_paths=self.control_paths,
            runner=self._runner,
            model=self._model,
            desk=ApprovalStore(self.home, _now, asker=self.terms.asker),
            secrets=self.redactor,
            support=probe_sandboxes(),
            # The sandbox that the user chose; a run never goes without one.
            sandbox="auto" if chosen == "none" else chosen,
            home=self.home,
            environ=self.environ,
            clock=_now,
            cancel=self.cancel,
            key_path=self.key_path,
            signing_key=find_signing_key(self.home),
            wait_s=self.terms.wait_s,
            lock_wait_s=self.terms.lock_wait_s,
            live_wait_s=self.terms.live_wait_s,
            view=self.config.sandbox,
            keep_checkpoint=keep_checkpoint,
            ask_user=self.terms.ask_user,
        )

    def start(
        self,
        request: RunRequest,
        options: RunOptions,
        watch: Callable[[Mapping[str, object]], None] = lambda _: None,
    ) -> RunOutcome:
        """Carry out a new run until it ends or waits."""
        self.check_options(options, planned=request.contract is None)
        self._prepare()
        with self._stoppable(), create_run(self.equipment, request, options, watch) as (run, asked):
            return RunEngine(run, self.equipment, asked).go()

    def resume(
        self,
        run_id: str,
        watch: Callable[[Mapping[str, object]], None] = lambda _: None,
        *,
        answer: str = "",
    ) -> RunOutcome:
        """Resume a run that was paused, stopped or killed; ``answer`` is to its question."""
        self._prepare()
        with self._stoppable(), reopen_run(self.equipment, run_id, watch) as (run, asked):
            if answer:
                record_answer(run, answer)
            return RunEngine(run, self.equipment, asked).go()

    def abandon(
        self, run_id: str, watch: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> RunOutcome:
        """Give up a run that was paused, stopped or killed; its paths are free afterwards."""
        self._prepare()
        with reopen_run(self.equipment, run_id, watch, resume=False) as (run, asked):
            return RunEngine(run, self.equipment, asked).abandon()

    def _stoppable(self) -> AbstractContextManager[None]:
        """Let the emergency stop end agents and tests of a run too; it can be resumed later."""
        return check_not_stopped(self.home, "run").watched(self.cancel, MAX_RUN_S)

    def check_options(self, options: RunOptions, *, planned: bool = False) -> None:
        """Refuse what cannot be, before there is a run."""
        if (planned or options.reviewer == "model") and not self.has_model:
            raise _no_model()
        named = [n for n in (options.runner, options.reviewer) if n not in {"rules", "model"}]
        for parsed in map(runner.parse, named):
            if parsed.kind == "scripted":
                external_runners.read_script(parsed.argument, self._start)
            if parsed.kind == "codex-exec" and not options.diagnostic:
                raise UsageError(
                    "codex-exec never asks and is for diagnosis only",
                    rule="runner.diagnostic",
                    hint="use the runner codex, or add --diagnostic",
                )

    def _prepare(self) -> None:
        # An agent of a run that was killed may not go on beside whoever resumes it.
        orphans.sweep_orphans()
        for folder in (self.places.runs, self.places.worktrees, self.places.locks):
            with explain_os_errors(f"create {folder}", rule="run.places"):
                folder.mkdir(parents=True, exist_ok=True)
        untracked = exclude_runtime_root(self.repository, self.places)
        if untracked:
            _log.warning("%s", untracked)

    @property
    def has_model(self) -> bool:
        """Whether a model is configured that can do work."""
        roles = ("WORKER", "PM", "TECH_LEAD", "REVIEWER")
        return any(self.equipment.model(role) is not None for role in roles)

    def _goes_on(self, run_id: str) -> bool:
        """Whether a run whose process is gone can still be resumed."""
        directory = self.places.runs / run_id
        return directory.is_dir() and sealed_manifest(directory) is None

    def _works(self, run_id: str, owner: Owner) -> bool:
        """Tell whether a process works on a run; without a bundle only its owner is known."""
        if is_worked_on(self.places.runtime, run_id):
            return True
        return owner.runs() and not self.places.bundle(run_id).is_dir()

    def _model(self, _role: str) -> RoleModel | None:
        from coilclaw.app import providers

        config = self.config
        settings = config.providers.get(config.default_provider)
        if settings is None or (settings.kind == "mock" and settings.fixture is None):
            # The mock that only echoes can do no work.
            return None
        name = config.default_provider
        provider = providers.build_configured(config, name, self.environ, self.redactor.redact)
        return RoleModel(provider, settings.model or config.default_model)

    def _runner(self, name: str, contract: TaskContract) -> Runner:
        parsed = runner.parse(name)
        made = external_runners.external(
            parsed, start=self._start, home=self.home, environ=self.environ
        )
        if made is not None:
            return made
        if parsed.kind == "scripted":
            from coilclaw.runners import ScriptedRunner

            return ScriptedRunner(external_runners.read_script(parsed.argument, self._start))
        model = self._model("WORKER")
        if model is None:
            raise _no_model()
        named = contract.runtime_options.model if contract.runtime_options else None
        if parsed.kind == "builtin":
            from coilclaw.agent import Estop
            from coilclaw.runners import BuiltinRunner

            return BuiltinRunner(
                provider=model.provider,
                model=named or model.name,
                redactor=self.redactor,
                estop=Estop.of(self.home),
                key_path=self.key_path,
                limits=self.config.limits,
                view=self.config.sandbox,
            )
        from coilclaw.policy import SecretRedactor
        from coilclaw.runners import CodeCommitRunner

        known = self.redactor if isinstance(self.redactor, SecretRedactor) else SecretRedactor(())
        return CodeCommitRunner(model.provider, named or model.name, known)


def _no_model() -> UsageError:
    return UsageError(
        "no model is configured, and the run would need one",
        rule="run.model",
        hint="see 'coilclaw onboard', or name another runner with --runner",
    )


def _now() -> datetime:
    return datetime.now(UTC)
