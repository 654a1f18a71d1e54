"""``Tracing``: plan, record and resume trajectories below one home."""

from __future__ import annotations

import os
import platform
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from coilclaw import __version__
from coilclaw.agent import Estop
from coilclaw.kernel import CoilClawError, EnvironmentFault, UsageError, explain_os_errors
from coilclaw.runners import external_runners, read_bounded, runner
from coilclaw.traces import preflight
from coilclaw.traces.archive import TrajectoryArchive
from coilclaw.traces.artifacts.store import CONFLICT
from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.judge import open_judge, read_environment
from coilclaw.traces.stored_trajectory import StoredTrajectory
from coilclaw.traces.trajectory import agent_workspace, trajectory_run
from coilclaw.traces.trajectory import plan as plans
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan
from coilclaw.traces.trajectory.recorder import BUNDLE, TRACE
from coilclaw.traces.trajectory.trajectory_run import TrajectoryDependencies
from coilclaw.workspace import Cancellation, probe_sandboxes, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coilclaw.runners import Runner
    from coilclaw.traces.artifacts.store import ArtifactStore, ArtifactVersion
    from coilclaw.traces.artifacts.uploader import Uploader, UploadReport, UploadTrouble
    from coilclaw.traces.environments.catalogue import EnvironmentPlace
    from coilclaw.traces.stored_trajectory import RestoredTrajectory
    from coilclaw.traces.trajectory.trace import PartRecord, RecordedTurn, SessionEnd
    from coilclaw.workspace import Kind, SandboxView

DEFAULT_AGENT: Final = "codex"
DEFAULT_ENVIRONMENT: Final = "c_compiler"
FLUSH_S: Final = 300.0
FLUSH_LOOK_S: Final = 2.0
CLAIM_S: Final = 10.0
"""How long the first upload is waited for before the agent begins."""
ELSEWHERE: Final = "trajectory.elsewhere"
MAX_RUN_S: Final = 30 * 24 * 3600.0
MAX_PROMPT_BYTES: Final = 2**20
_IGNORE: Final = ".gitignore"

Box: TypeAlias = Literal["local", "bwrap"]
"""Where an agent runs: the best sandbox of this machine, or bubblewrap by name."""
_KINDS: Final[dict[Box, Kind]] = {"local": "auto", "bwrap": "bubblewrap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What a person asks of a new trajectory."""

    agent: str = DEFAULT_AGENT
    model: str = ""
    environment: str = ""
    """A name, a directory or a file; empty for the one that is taken unless told otherwise."""
    prompt_file: Path | None = None
    trajectory_id: str = ""
    max_parts: int = plans.MAX_PARTS
    max_turns: int | None = None
    timeout_s: float | None = None
    keep_raw: bool = False


@dataclass(frozen=True, slots=True)
class TraceOutcome:
    """How a trajectory ended, and what became of its artifacts."""

    end: SessionEnd
    uploads: UploadReport


@dataclass(frozen=True, slots=True)
class Resumable:
    """A trajectory that can be gone on with."""

    plan: TrajectoryPlan
    known: Mapping[str, ArtifactVersion]
    """The versions in the store that it goes on from."""
    brought: RestoredTrajectory | None = None
    """It was brought here from the store."""


@dataclass(slots=True)
class Tracing:
    """Records trajectories below one home."""

    home: Path
    environ: Mapping[str, str]
    start: Path
    """What relative paths are relative to."""
    read_settings: Callable[[], tuple[SandboxView, Callable[[str], str]]]
    """Reads what the configuration shows to every child, and what takes secrets out of a text."""
    store_at: str = ""
    """A directory or an S3 address; empty for the usual place."""
    box: Box = "local"
    jobs: int | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    on_begin: Callable[[], None] = lambda: None
    on_wait: Callable[[UploadReport, int], None] = lambda *_: None
    """Told when the end has to wait for uploads, and for how many seconds at most."""
    on_part: Callable[[PartRecord], None] = lambda _: None
    on_turn: Callable[[RecordedTurn], None] = lambda _: None
    skipped: tuple[str, ...] = ()
    """Suites of what was planned that cannot be judged here, for want of their fixtures."""

    @property
    def store(self) -> ArtifactStore:
        return TrajectoryArchive(self.home, self.environ, self.store_at).store

    def plan(self, wishes: TraceOptions) -> TrajectoryPlan:
        """Put together what is asked for; nothing is made yet."""
        parsed = runner.parse(wishes.agent)
        if parsed.kind == "scripted":
            external_runners.read_script(parsed.argument, self.start)
            # Its name is kept so that the script is found again from everywhere.
            parsed = replace(parsed, argument=os.path.abspath(self.start / parsed.argument))
        environment = self._environment(wishes.environment)
        ground = read_environment(environment, self.home)
        self.skipped = ground.skipped
        prompt = environment.task if wishes.prompt_file is None else _read(wishes.prompt_file)
        if not prompt.strip():
            raise UsageError(
                f"environment {environment.name} has no task, so there is nothing to tell the "
                "agent",
                rule="trajectory.prompt",
                hint="give one by --prompt-file",
            )
        trajectory_id = wishes.trajectory_id or new_id()
        template = environment.workspace
        return TrajectoryPlan(
            trajectory_id=trajectory_id,
            agent=str(parsed),
            model=wishes.model,
            prompt=prompt,
            environment=_name_environment(environment),
            environment_version=ground.version,
            template="" if template is None else str(template),
            ignore=() if template is None else _read_ignore_list(template),
            required=self._required_suites(environment, ground.skipped),
            max_parts=wishes.max_parts,
            max_turns=wishes.max_turns,
            timeout_s=wishes.timeout_s,
            **self._find_uris(trajectory_id),
            versions={"coilclaw": __version__, "python": platform.python_version()},
            keep_raw=wishes.keep_raw,
        )

    def ready(self, plan: TrajectoryPlan, *, here: bool = True) -> None:
        """Refuse what cannot be recorded; nothing is made. Without ``here``, it is elsewhere."""
        Estop.of(self.home).require_clear("trajectory")
        places = TracePlaces(self.home, plan.trajectory_id)
        if here:
            preflight.check_jobs(self.jobs)
            preflight.check_agent(plan.agent, self.environ, self.home, self.start)
            preflight.check_sandbox(_KINDS[self.box], probe_sandboxes())
            preflight.check_free(places)
        StoredTrajectory(self.store, places).require_free()

    def run(self, plan: TrajectoryPlan) -> TraceOutcome:
        """Record a new trajectory to its end."""
        with self.stoppable():
            return self._carry_out(
                plan, lambda equipment: trajectory_run.run_trajectory(plan, equipment), {}
            )

    def resumable(
        self,
        trajectory_id: str,
        change: Callable[[TrajectoryPlan], TrajectoryPlan] = lambda same: same,
        environment: str = "",
    ) -> Resumable:
        """Refuse what cannot be gone on with; one that is only in the store is brought here.

        ``environment`` says where its environment is on a machine that it comes to.
        """
        Estop.of(self.home).require_clear("trajectory")
        preflight.check_jobs(self.jobs)
        places = TracePlaces(self.home, trajectory_id)
        with TrajectoryArchive(self.home, self.environ).scratch() as folder:
            resumable = self._from_here if places.session.exists() else self._from_store
            return resumable(places, change, environment, folder)

    def _from_here(
        self,
        places: TracePlaces,
        change: Callable[[TrajectoryPlan], TrajectoryPlan],
        environment: str,
        folder: Path,
    ) -> Resumable:
        kept = change(plans.load_plan(places.session))
        if environment:
            raise UsageError(
                "--environment cannot change when a trajectory is gone on with",
                rule="usage.resume",
                hint="start a new one",
            )
        # It goes on where its artifacts are, unless somebody names another place.
        key = places.key_of(TRACE)
        self.store_at = self.store_at or kept.trace_uri.removesuffix(f"/{key}")
        kept = replace(kept, **self._find_uris(kept.trajectory_id))
        history = preflight.read_history(places)
        history.require_unsolved()
        self._fitting(kept, catalogue.find_environment(kept.environment))
        shelf = StoredTrajectory(self.store, places)
        shelf.require_usable()
        return Resumable(kept, shelf.require_ours(folder, history.parts))

    def _from_store(
        self,
        places: TracePlaces,
        change: Callable[[TrajectoryPlan], TrajectoryPlan],
        environment: str,
        folder: Path,
    ) -> Resumable:
        shelf = StoredTrajectory(self.store, places)
        shelf.require_usable()
        returned, known = shelf.bring(folder, places.key)
        returned.history.require_unsolved()
        kept = change(returned.plan)
        kept = replace(kept, **self._find_uris(kept.trajectory_id))
        try:
            place = self._environment(environment or kept.environment)
        except UsageError as problem:
            raise UsageError(
                problem.message,
                rule=problem.rule,
                hint="name it as it is called here by --environment",
            ) from problem
        kept = replace(
            kept, environment=_name_environment(place), template=str(place.workspace or "")
        )
        self._fitting(kept, place)
        made = TracePlaces(folder, places.trajectory_id)
        kept.save(made.session)
        with explain_os_errors(f"create {places.directory}", rule="trajectory.create"):
            places.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(made.directory, places.directory)
        return Resumable(kept, known, brought=returned)

    def _fitting(self, kept: TrajectoryPlan, environment: EnvironmentPlace) -> None:
        """Refuse to resume with another environment, or without the agent."""
        if read_environment(environment, self.home).version != kept.environment_version:
            raise UsageError(
                f"the environment {environment.name} is not the one that trajectory "
                f"{kept.trajectory_id} began with",
                rule="trajectory.environment",
                hint="start a new trajectory",
            )
        preflight.check_agent(kept.agent, self.environ, self.home, self.start)
        preflight.check_sandbox(_KINDS[self.box], probe_sandboxes())

    def _find_uris(self, trajectory_id: str) -> dict[str, Any]:
        """Return where the artifacts of a trajectory are going."""
        places, store = TracePlaces(self.home, trajectory_id), self.store
        named = {"trace_uri": TRACE, "bundle_uri": BUNDLE}
        return {field: store.uri(places.key_of(name)) for field, name in named.items()}

    def resume(
        self,
        trajectory_id: str,
        change: Callable[[TrajectoryPlan], TrajectoryPlan] = lambda same: same,
        *,
        ready: Resumable | None = None,
    ) -> TraceOutcome:
        """Resume one that was stopped or killed; ``ready`` is what ``resumable`` said."""
        ready = ready or self.resumable(trajectory_id, change)
        plan = ready.plan
        try:
            with self.stoppable():
                return self._carry_out(
                    plan,
                    lambda equipment: trajectory_run.resume_trajectory(
                        trajectory_id, equipment, lambda _: plan
                    ),
                    ready.known,
                )
        except EnvironmentFault as problem:
            if problem.rule == ELSEWHERE and ready.brought is not None:
                # Somebody else went on with it first: what was brought is worth nothing here.
                remove_tree(TracePlaces(self.home, trajectory_id).directory)
            raise

    def _carry_out(
        self,
        plan: TrajectoryPlan,
        work: Callable[[TrajectoryDependencies], SessionEnd],
        known: Mapping[str, ArtifactVersion],
    ) -> TraceOutcome:
        from coilclaw.traces.artifacts.uploader import Uploader

        def report(trouble: UploadTrouble) -> None:
            """Two recordings of one trajectory do not go together: this one ends."""
            if trouble.rule == CONFLICT:
                self.cancel.cancel(f"it is recorded on another machine, too: {trouble.message}")

        store = self.store
        uploader = Uploader(store, known=known, report=report)
        equipment = self._equipment(plan)
        hidden = (*equipment.hidden, *_directory(store))

        def begin() -> None:
            """Send the journal to the store before all else: no two machines go on at once."""
            places = TracePlaces(self.home, plan.trajectory_id)
            uploader.document(places.key_of(places.journal.name), places.journal)
            for trouble in uploader.flush(CLAIM_S).troubles:
                if trouble.rule == CONFLICT:
                    raise EnvironmentFault(
                        f"trajectory {plan.trajectory_id} is being recorded on another machine: "
                        f"{trouble.message}",
                        rule=ELSEWHERE,
                        hint="wait for it to end; or give this one another id",
                    )
            self.on_begin()

        try:
            end = work(replace(equipment, uploads=uploader, hidden=hidden, on_begin=begin))
        except CoilClawError:
            self._hand_over(uploader)
            raise
        else:
            self._hand_over(uploader)
            return TraceOutcome(end, uploader.status())
        finally:
            uploader.close(0.0)  # at once, when a second signal came

    def _hand_over(self, uploader: Uploader) -> None:
        """Wait for the last uploads, but not once a stop is asked for meanwhile."""
        stopping, said = self.cancel.cancelled, False
        until = time.monotonic() + FLUSH_S
        while (left := until - time.monotonic()) > 0:
            report = uploader.flush(min(left, FLUSH_LOOK_S))
            if not report.waiting or (self.cancel.cancelled and not stopping):
                return
            if not said:
                self.on_wait(report, round(left))
                said = True

    def _equipment(self, plan: TrajectoryPlan) -> TrajectoryDependencies:
        support = probe_sandboxes()
        view, redact = self.read_settings()
        return TrajectoryDependencies(
            home=self.home,
            runner=self._runner(plan),
            judge=open_judge(
                plan.environment, self.home, self.environ, jobs=self.jobs, support=support
            ),
            support=support,
            cancel=self.cancel,
            environ=self.environ,
            sandbox=_KINDS[self.box],
            hidden=(catalogue.find_environment(plan.environment).directory,),
            view=view,
            redact=redact,
            on_part=self.on_part,
            on_turn=self.on_turn,
        )

    def _runner(self, plan: TrajectoryPlan) -> Callable[[int], Runner]:
        parsed = runner.parse(plan.agent)
        if parsed.kind == "scripted":
            from coilclaw.runners import ScriptedRunner

            script = external_runners.read_script(parsed.argument, self.start)
            return lambda turn: ScriptedRunner(script, turn=lambda _: turn - 1)
        preflight.check_agent(plan.agent, self.environ, self.home, self.start)
        made = external_runners.external(
            parsed, start=self.start, home=self.home, environ=self.environ
        )
        assert made is not None, "those that are our own code are refused"
        return lambda _: made

    def _environment(self, name: str) -> EnvironmentPlace:
        name = name or DEFAULT_ENVIRONMENT
        path = self.start / name
        return catalogue.find_environment(str(path) if "/" in name or path.is_file() else name)

    def _required_suites(
        self, environment: EnvironmentPlace, skipped: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The suites at the top of an environment that can be judged: each has to be green."""
        judge = open_judge(str(environment.file), self.home, self.environ)
        cases = judge.schema(cancel=self.cancel).get("cases")
        ids = cases if isinstance(cases, list) else []
        suites = dict.fromkeys(str(name).partition("/")[0] for name in ids)
        return tuple(name for name in suites if name not in skipped) or ("",)

    def stoppable(self) -> AbstractContextManager[None]:
        """Let the emergency stop end a trajectory too; it can be resumed afterwards."""
        return Estop.of(self.home).require_clear("trajectory").watch_call(self.cancel, MAX_RUN_S)


def new_id() -> str:
    """An id that no other trajectory has; ids sort by the time of their making."""
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _directory(store: ArtifactStore) -> tuple[Path, ...]:
    """Where a store is on this machine: results are kept there, which no agent may see."""
    from coilclaw.traces.artifacts.local_store import LocalStore

    if not isinstance(store, LocalStore):
        return ()
    with explain_os_errors(f"create {store.root}", rule="trajectory.store"):
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return (store.root,)


def _name_environment(environment: EnvironmentPlace) -> str:
    """What finds an environment again: its name if it comes with us, else its file."""
    shipped = os.path.realpath(catalogue.shipped_directory() / environment.name / catalogue.MAIN)
    return environment.name if str(environment.file) == shipped else str(environment.file)


def _read_ignore_list(template: Path) -> tuple[str, ...]:
    """The ignore list that comes with an environment."""
    path = template / _IGNORE
    if not path.is_file():
        return ()
    found = agent_workspace.read_patterns(_read(path))
    agent_workspace.Ignored(found)
    return found


def _read(path: Path) -> str:
    try:
        return read_bounded(path, MAX_PROMPT_BYTES, "trajectory.prompt").decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8", rule="trajectory.prompt") from problem
