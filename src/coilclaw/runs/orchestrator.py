"""``Orchestrator``: start, resume, abandon, verify and export the runs of one repository."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.agent import AgentLimits, ApprovalStore, Estop, find_signing_key, signing_key_path
from coilclaw.kernel import UsageError, VerificationFailed, checkpoint, explain_os_errors
from coilclaw.runners import external_runners, runner
from coilclaw.runs.contracts.policy_set import FOLDER
from coilclaw.runs.engine.locks import Locks
from coilclaw.runs.engine.run import RunDependencies
from coilclaw.runs.engine.run_engine import RunEngine
from coilclaw.runs.engine.run_start import MAX_RUN_S, create_run, is_worked_on, reopen_run
from coilclaw.runs.evidence.bundle import json_bytes, new_audit, sealed_manifest
from coilclaw.runs.evidence.layout import OVERRIDE, RUNTIME_ROOT, RunPlaces
from coilclaw.runs.policy_source import UNCLAIMED, PolicySource
from coilclaw.runs.roles.plan_dialogue import record_answer
from coilclaw.runs.runtime_exclusion import exclude_runtime_root
from coilclaw.workspace import (
    Cancellation,
    Repository,
    SandboxView,
    SnapshotStore,
    Worktrees,
    format_time,
    probe_sandboxes,
)
from coilclaw.workspace import owner as orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from coilclaw.kernel import Checkpoint, Redactor, SignedCheckpoint
    from coilclaw.runners import Runner
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.runs.engine.contract_stage import RunRequest
    from coilclaw.runs.engine.run import RoleModel
    from coilclaw.runs.engine.run_engine import RunOutcome
    from coilclaw.runs.engine.run_start import RunOptions
    from coilclaw.runs.evidence.verification import VerifyReport
    from coilclaw.runs.report.report_reader import RunReport
    from coilclaw.workspace import Kind, Owner

_log = logging.getLogger(__name__)

_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the configuration gives to the runs of a repository."""

    redactor: Redactor
    model: Callable[[], RoleModel | None]
    """Makes the model that works, plans and reviews; ``None`` where none is configured."""
    keep_checkpoint: Callable[[Checkpoint], None]
    sandbox: Kind
    view: SandboxView
    limits: AgentLimits


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


def find_run_places(repository: Path, environ: Mapping[str, str]) -> RunPlaces:
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
        read_settings: Callable[[], RunSettings],
        *,
        cancel: Cancellation | None = None,
        terms: WaitTerms | None = None,
    ) -> None:
        """``read_settings`` is called when a setting is first needed, and once."""
        self.repository = Repository.open(start)
        self.home = home
        self.environ = environ
        self.places = find_run_places(self.repository.top, environ)
        self.cancel = cancel or Cancellation()
        self.terms = terms or WaitTerms()
        self._read_settings = read_settings
        self._start = start

    @cached_property
    def settings(self) -> RunSettings:
        return self._read_settings()

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
        settings = self.settings
        return RunDependencies(
            places=self.places,
            repository=self.repository,
            worktrees=Worktrees(self.repository, self.places.git, self.places.worktrees),
            snapshots=SnapshotStore(self.places.snapshots),
            locks=Locks(self.places.locks, alive=self._goes_on, works=self._works),
            policies=self.policies,
            control_paths=self.control_paths,
            runner=self._runner,
            model=lambda _role: settings.model(),
            desk=ApprovalStore(self.home, _now, asker=self.terms.asker),
            secrets=settings.redactor,
            support=probe_sandboxes(),
            # The sandbox that the user chose; a run never goes without one.
            sandbox="auto" if settings.sandbox == "none" else settings.sandbox,
            home=self.home,
            environ=self.environ,
            clock=_now,
            cancel=self.cancel,
            key_path=self.key_path,
            signing_key=find_signing_key(self.home),
            wait_s=self.terms.wait_s,
            lock_wait_s=self.terms.lock_wait_s,
            live_wait_s=self.terms.live_wait_s,
            view=settings.view,
            keep_checkpoint=settings.keep_checkpoint,
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
        return Estop.of(self.home).require_clear("run").watch_call(self.cancel, MAX_RUN_S)

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

    def verify(
        self,
        directory: Path,
        *,
        strict: bool = True,
        root: str | None = None,
        checkpoints: Sequence[SignedCheckpoint] | None = None,
    ) -> VerifyReport:
        """Verify a bundle; nothing is written."""
        from coilclaw.runs.evidence.verification import verify_run

        if root is not None and (len(root) != 64 or not _HEX.issuperset(root.lower())):
            raise UsageError("a root hash has 64 hexadecimal digits", rule="verify.root")
        key = find_signing_key(self.home)
        return verify_run(
            directory,
            key_path=self.key_path,
            strict=strict,
            expected_root=None if root is None else root.lower(),
            public_key=None if key is None else key.public,
            checkpoints=checkpoints,
        )

    def take_checkpoint(self, directory: Path) -> Checkpoint:
        """Return the checkpoint of a sealed run; raise where the run does not verify."""
        from coilclaw.runs.contracts.manifest import RunManifest
        from coilclaw.runs.evidence.audits import make_checkpoint

        report, kept = self.verify(directory), sealed_manifest(directory)
        made = None if kept is None or report.errors else make_checkpoint(RunManifest.of(kept))
        if made is None:
            why = report.errors[0].message if report.errors else "it is not sealed"
            raise VerificationFailed(
                f"{directory.name} does not hold: {why}",
                rule="checkpoint.refused",
                hint=f"see 'coilclaw runs verify {directory.name}'",
            )
        return made

    def export(self, directory: Path, out: Path | None, *, whole_history: bool = False) -> Path:
        """Write a run as one signed file that can be checked anywhere; return its path."""
        from coilclaw.runs.evidence.export import export_run

        return export_run(
            directory,
            self.repository.objects,
            out or Path(f"{directory.name}.tar"),
            checkpoint.load_key(signing_key_path(self.home)),
            key_path=self.key_path,
            whole_history=whole_history,
        )

    def build_report(self, directory: Path) -> RunReport:
        """Verify a bundle strictly, and read it; nothing is written."""
        from coilclaw.runs.report.report_reader import read_report

        return read_report(directory, self.verify(directory), self.settings.redactor.redact)

    def _goes_on(self, run_id: str) -> bool:
        """Whether a run whose process is gone can still be resumed."""
        directory = self.places.runs / run_id
        return directory.is_dir() and sealed_manifest(directory) is None

    def _works(self, run_id: str, owner: Owner) -> bool:
        """Tell whether a process works on a run; without a bundle only its owner is known."""
        if is_worked_on(self.places.runtime, run_id):
            return True
        return owner.runs() and not self.places.bundle(run_id).is_dir()

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
        model = self.settings.model()
        if model is None:
            raise _no_model()
        named = contract.runtime_options.model if contract.runtime_options else None
        if parsed.kind == "builtin":
            from coilclaw.runners import BuiltinRunner

            return BuiltinRunner(
                provider=model.provider,
                model=named or model.name,
                redactor=self.settings.redactor,
                estop=Estop.of(self.home),
                key_path=self.key_path,
                limits=self.settings.limits,
                view=self.settings.view,
            )
        from coilclaw.policy import SecretRedactor
        from coilclaw.runners import CodeCommitRunner

        redactor = self.settings.redactor
        known = redactor if isinstance(redactor, SecretRedactor) else SecretRedactor(())
        return CodeCommitRunner(model.provider, named or model.name, known)


def _no_model() -> UsageError:
    return UsageError(
        "no model is configured, and the run would need one",
        rule="run.model",
        hint="see 'coilclaw onboard', or name another runner with --runner",
    )


def _now() -> datetime:
    return datetime.now(UTC)


def write_verification(report: VerifyReport, directory: Path) -> Path:
    """Keep a verification of a bundle as one of its audits; return the folder of the audit."""
    from coilclaw.kernel import write_atomic
    from coilclaw.runs.evidence.audits import VERIFICATION

    audit = new_audit(directory, format_time(_now()), "verify")
    write_atomic(audit / VERIFICATION, json_bytes(report.json()))
    return audit


def write_report(report: RunReport, out: Path) -> None:
    """Write a report; an earlier file is replaced, anything else at its place is refused."""
    from coilclaw.kernel import write_atomic
    from coilclaw.runs.report.report_page import render_page

    try:
        mode = os.lstat(out).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    if stat.S_ISLNK(mode):
        raise UsageError(
            f"{out} is a symbolic link, and a report is not written through one",
            rule="report.link",
            hint="name a file with -o FILE",
        )
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{out} is not a file, so no report can be written there",
            rule="report.place",
            hint="name a file with -o FILE",
        )
    write_atomic(out, render_page(report))
