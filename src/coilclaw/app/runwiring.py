"""Orchestrated runs, wired: repository, policies, runners, models, approvals and evidence."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.agents import naming
from coilclaw.app import runners
from coilclaw.app.checkpoints import checkpoint_writer
from coilclaw.app.home import signing_key_path
from coilclaw.app.policy_source import UNCLAIMED, PolicySource
from coilclaw.app.runtime_exclusion import exclude_runtime_root
from coilclaw.contracts.policyset import FOLDER
from coilclaw.errors import EnvironmentFault, Stopped, UsageError
from coilclaw.orchestrator.bundle import sealed_manifest
from coilclaw.orchestrator.engine import Engine, Outcome
from coilclaw.orchestrator.equipment import Equipment, Model
from coilclaw.orchestrator.locks import Locks
from coilclaw.orchestrator.places import OVERRIDE, RUNTIME_ROOT, Places
from coilclaw.orchestrator.plan_dialogue import record_answer
from coilclaw.orchestrator.starting import MAX_RUN_S, Options, created, reopened, worked_on
from coilclaw.runtime.approvals import Desk
from coilclaw.workspace import orphans
from coilclaw.workspace.cancel import Cancellation
from coilclaw.workspace.repository import Repository
from coilclaw.workspace.sandbox import probe
from coilclaw.workspace.snapshot import SnapshotStore
from coilclaw.workspace.worktrees import Worktrees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.agents.runner import Runner
    from coilclaw.config.values import Config
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.redacting import Redacting
    from coilclaw.orchestrator.planning import Request
    from coilclaw.storage.checkpoint import Checkpoint
    from coilclaw.storage.signing import SigningKey
    from coilclaw.workspace.owner import Owner
    from coilclaw.workspace.sandbox import Kind

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """How approvals and other runs are waited for, and who answers questions."""

    wait_s: float = 0.0
    lock_wait_s: float | None = None
    """``math.inf`` waits for as long as it takes, ``None`` only if the run waited before."""
    live_wait_s: float = 300.0
    ask_user: Callable[[str], str | None] = lambda _: None
    """Asks the user at the terminal; ``None`` where nobody answers."""
    asker: str = ""
    """For whom approvals are asked, where that is a client of the gateway."""


def places_of(repository: Path, environ: Mapping[str, str]) -> Places:
    """Where the runs of a repository are."""
    named = environ.get(OVERRIDE)
    runtime = Path(named).expanduser() if named else repository / RUNTIME_ROOT
    if not runtime.is_absolute():
        runtime = repository / runtime
    return Places(repository, Path(os.path.realpath(runtime)))


class Orchestrator:
    """The runs of one repository."""

    def __init__(
        self,
        start: Path,
        home: Path,
        environ: Mapping[str, str],
        *,
        cancel: Cancellation | None = None,
        terms: Terms | None = None,
        config: Config | None = None,
        redactor: Redacting | None = None,
    ) -> None:
        self.repository = Repository.open(start)
        self.home = home
        self.environ = environ
        self.places = places_of(self.repository.top, environ)
        self.cancel = cancel or Cancellation()
        self.terms = terms or Terms()
        self._config = config
        self._redactor = redactor
        self._start = start

    @cached_property
    def config(self) -> Config:
        from coilclaw.app.agentwiring import open_config

        return self._config or open_config(self.home, self.environ)

    @cached_property
    def redactor(self) -> Redacting:
        from coilclaw.app.toolbox import redactor_of

        return self._redactor or redactor_of(self.config, self.environ)

    @property
    def key_path(self) -> Path:
        return self.home / "keys" / "journal.key"

    def signing_key(self) -> SigningKey | None:
        """The key that runs are signed with, where there is one."""
        from coilclaw.storage import signing

        return signing.find(signing_key_path(self.home))

    @property
    def control_paths(self) -> tuple[str, ...]:
        """Where the repository keeps policies, or where they would be found."""
        _, head = self.repository.head()
        if PolicySource(self.repository).find(head) != "shipped":
            return (FOLDER,)
        return UNCLAIMED

    def policies(self, commit: str) -> PolicySet:
        """The policies of the control root, else those of the commit, else those that ship."""
        return PolicySource(self.repository).read(commit)

    @cached_property
    def equipment(self) -> Equipment:
        """Everything that a run is carried out with."""
        return Equipment(
            places=self.places,
            repository=self.repository,
            worktrees=Worktrees(self.repository, self.places.git, self.places.worktrees),
            snapshots=SnapshotStore(self.places.snapshots),
            locks=Locks(self.places.locks, alive=self._goes_on, works=self._works),
            policies=self.policies,
            control_paths=self.control_paths,
            runner=self._runner,
            model=self._model,
            desk=Desk(self.home, _now, asker=self.terms.asker),
            secrets=self.redactor,
            support=probe(),
            sandbox=self._sandbox(),
            home=self.home,
            environ=self.environ,
            clock=_now,
            cancel=self.cancel,
            key_path=self.key_path,
            signing_key=self.signing_key(),
            wait_s=self.terms.wait_s,
            lock_wait_s=self.terms.lock_wait_s,
            live_wait_s=self.terms.live_wait_s,
            view=self.config.sandbox,
            keep_checkpoint=self._keep_checkpoint,
            ask_user=self.terms.ask_user,
        )

    def _keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        writer = checkpoint_writer(self.config, self.home, self.environ)
        if writer is not None:
            writer.after_seal(checkpoint)

    def _sandbox(self) -> Kind:
        """Return the sandbox that the user chose; a run never goes without one."""
        chosen = self.config.security.sandbox
        return "auto" if chosen == "none" else chosen

    def start(
        self,
        request: Request,
        options: Options,
        watch: Callable[[Mapping[str, object]], None] = lambda _: None,
    ) -> Outcome:
        """Carry out a new run until it ends or waits."""
        self.check_options(options, planned=request.contract is None)
        self._prepare()
        with self._stoppable(), created(self.equipment, request, options, watch) as (run, asked):
            return Engine(run, self.equipment, asked).go()

    def resume(
        self,
        run_id: str,
        watch: Callable[[Mapping[str, object]], None] = lambda _: None,
        *,
        answer: str = "",
    ) -> Outcome:
        """Go on with a run that was paused, stopped or killed; ``answer`` is to its question."""
        self._prepare()
        with self._stoppable(), reopened(self.equipment, run_id, watch) as (run, asked):
            if answer:
                record_answer(run, answer)
            return Engine(run, self.equipment, asked).go()

    def abandon(
        self, run_id: str, watch: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> Outcome:
        """Give up a run that was paused, stopped or killed; its paths are free afterwards."""
        self._prepare()
        with reopened(self.equipment, run_id, watch, resume=False) as (run, asked):
            return Engine(run, self.equipment, asked).abandon()

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """The emergency stop ends agents and tests of a run too; it can be resumed afterwards."""
        from coilclaw.runtime.estop import Estop

        stop = Estop.of(self.home)
        if stop.set:
            raise Stopped(
                "the emergency stop is set, so no run goes on",
                rule="estop",
                hint="clear it with 'coilclaw estop --clear'",
            )
        with stop.watched(self.cancel, MAX_RUN_S):
            yield

    def check_options(self, options: Options, *, planned: bool = False) -> None:
        """Refuse what cannot be, before there is a run."""
        if (planned or options.reviewer == "model") and not self.has_model:
            raise _no_model()
        for name in _named(options):
            parsed = naming.parse(name)
            if parsed.kind == "scripted":
                runners.read_script(parsed.argument, self._start)
            if parsed.kind == "codex-exec" and not options.diagnostic:
                raise UsageError(
                    "codex-exec asks nobody and is for diagnosis only",
                    rule="runner.diagnostic",
                    hint="use the runner codex, or add --diagnostic",
                )

    def _prepare(self) -> None:
        # An agent of a run that was killed may not go on beside whoever resumes it.
        orphans.sweep()
        for folder in (self.places.runs, self.places.worktrees, self.places.locks):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise EnvironmentFault(
                    f"cannot create {folder}: {problem.strerror}", rule="run.places"
                ) from problem
        untracked = exclude_runtime_root(self.repository, self.places)
        if untracked:
            _log.warning("%s", untracked)

    @property
    def has_model(self) -> bool:
        """Whether a model is configured that can do work."""
        return self.equipment.model("WORKER") is not None or any(
            self.equipment.model(role) is not None for role in ("PM", "TECH_LEAD", "REVIEWER")
        )

    def _goes_on(self, run_id: str) -> bool:
        """Whether a run whose process is gone can still be resumed."""
        directory = self.places.runs / run_id
        return directory.is_dir() and sealed_manifest(directory) is None

    def _works(self, run_id: str, owner: Owner) -> bool:
        """Whether somebody works on a run; of one without a bundle only the process is known."""
        if worked_on(self.places.runtime, run_id):
            return True
        return owner.runs() and not self.places.bundle(run_id).is_dir()

    def _model(self, _role: str) -> Model | None:
        from coilclaw.app import providers

        config = self.config
        name = config.default_provider
        settings = config.providers.get(name)
        if settings is None or (settings.kind == "mock" and settings.fixture is None):
            # The mock that only echoes can do no work.
            return None
        provider = providers.build(
            name,
            config.providers,
            environ=self.environ,
            max_response_bytes=config.limits.max_response_bytes,
            redact=self.redactor.redact,
        )
        return Model(provider, settings.model or config.default_model)

    def _runner(self, name: str, contract: TaskContract) -> Runner:
        parsed = naming.parse(name)
        made = runners.external(parsed, start=self._start, home=self.home, environ=self.environ)
        if made is not None:
            return made
        if parsed.kind == "scripted":
            from coilclaw.agents.scripted import ScriptedRunner

            return ScriptedRunner(runners.read_script(parsed.argument, self._start))
        return self._builtin(contract) if parsed.kind == "builtin" else self._code_commit(contract)

    def _builtin(self, contract: TaskContract) -> Runner:
        from coilclaw.agents.builtin import BuiltinRunner
        from coilclaw.runtime.estop import Estop

        model = self._of(contract)
        return BuiltinRunner(
            provider=model.provider,
            model=model.name,
            redactor=self.redactor,
            estop=Estop.of(self.home),
            key_path=self.key_path,
            limits=self.config.limits,
            view=self.config.sandbox,
        )

    def _code_commit(self, contract: TaskContract) -> Runner:
        from coilclaw.agents.codecommit import CodeCommitRunner
        from coilclaw.security.redaction import Redactor

        model = self._of(contract)
        known = self.redactor if isinstance(self.redactor, Redactor) else Redactor(())
        return CodeCommitRunner(model.provider, model.name, known)

    def _of(self, contract: TaskContract) -> Model:
        """The model of a contract: the one it names, else that of the configuration."""
        model = self._model("WORKER")
        if model is None:
            raise _no_model()
        named = contract.runtime_options.model if contract.runtime_options else None
        return Model(model.provider, named or model.name)


@contextmanager
def open_orchestrator(
    start: Path,
    home: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    terms: Terms | None = None,
    cancel: Cancellation | None = None,
) -> Iterator[Orchestrator]:
    """Open what carries out the runs of the repository that a path lies in."""
    yield Orchestrator(start, home, environ, terms=terms, cancel=cancel)


def _no_model() -> UsageError:
    return UsageError(
        "no model is configured, and the run would need one",
        rule="run.model",
        hint="see 'coilclaw onboard', or name another runner with --runner",
    )


def _named(options: Options) -> tuple[str, ...]:
    """The agents that take part."""
    return tuple(n for n in (options.runner, options.reviewer) if n not in {"rules", "model"})


def _now() -> datetime:
    return datetime.now(UTC)
