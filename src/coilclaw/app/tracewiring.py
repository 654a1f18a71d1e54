"""Trajectories, wired: the agent, the environment with its judge, the store of artifacts."""

from __future__ import annotations

import os
import platform
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw import __version__, artifacts
from coilclaw.agents import naming
from coilclaw.app import runners, traceready
from coilclaw.app.environments import ground_of, judge_of
from coilclaw.app.replaywiring import Archive
from coilclaw.app.tracestore import Shelf
from coilclaw.artifacts.store import CONFLICT
from coilclaw.environments import catalogue
from coilclaw.errors import CoilClawError, EnvironmentFault, UsageError
from coilclaw.trajectory import ignoring, running
from coilclaw.trajectory import plan as plans
from coilclaw.trajectory.places import Places
from coilclaw.trajectory.plan import Plan
from coilclaw.trajectory.publishing import BUNDLE, TRACE
from coilclaw.trajectory.running import Equipment
from coilclaw.workspace.cancel import Cancellation
from coilclaw.workspace.removal import remove_tree
from coilclaw.workspace.sandbox import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.agents.runner import Runner
    from coilclaw.app.environments import Ground
    from coilclaw.artifacts.store import Store, Version
    from coilclaw.artifacts.uploader import Report, Trouble, Uploader
    from coilclaw.environments.catalogue import EnvironmentPlace
    from coilclaw.trajectory.returning import Returned
    from coilclaw.trajectory.trace import PartRecord, SessionEnd, TurnRecord
    from coilclaw.workspace.sandbox import Kind

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
class Wishes:
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
class Outcome:
    """How a trajectory ended, and what became of its artifacts."""

    end: SessionEnd
    uploads: Report


@dataclass(frozen=True, slots=True)
class Resumable:
    """A trajectory that can be gone on with."""

    plan: Plan
    known: Mapping[str, Version]
    """The versions in the store that it goes on from."""
    brought: Returned | None = None
    """It was brought here from the store."""


@dataclass(slots=True)
class Tracing:
    """Records trajectories below one home."""

    home: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    start: Path = field(default_factory=Path.cwd)
    """What relative paths are relative to."""
    store_at: str = ""
    """A directory or an S3 address; empty for the usual place."""
    box: Box = "local"
    jobs: int | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    on_begin: Callable[[], None] = lambda: None
    on_wait: Callable[[Report, int], None] = lambda *_: None
    """Told when the end has to wait for uploads, and for how many seconds at most."""
    on_part: Callable[[PartRecord], None] = lambda _: None
    on_turn: Callable[[TurnRecord], None] = lambda _: None
    skipped: tuple[str, ...] = ()
    """Suites of what was planned that cannot be judged here, for want of their fixtures."""

    @property
    def store(self) -> Store:
        place = self.store_at or artifacts.default_place(self.environ, self.home)
        return artifacts.open_store(place, self.environ)

    def plan(self, wishes: Wishes) -> Plan:
        """Put together what is asked for; nothing is made yet."""
        parsed = naming.parse(wishes.agent)
        if parsed.kind == "scripted":
            runners.read_script(parsed.argument, self.start)
        environment = self._environment(wishes.environment)
        ground = ground_of(environment, self.home)
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
        places, store = Places(self.home, trajectory_id), self.store
        template = environment.workspace
        return Plan(
            trajectory_id=trajectory_id,
            agent=self._agent(parsed),
            model=wishes.model,
            prompt=prompt,
            environment=_named(environment),
            environment_version=ground.version,
            template="" if template is None else str(template),
            ignore=() if template is None else _ignored(template),
            required=self._required(environment, ground),
            max_parts=wishes.max_parts,
            max_turns=wishes.max_turns,
            timeout_s=wishes.timeout_s,
            trace_uri=store.uri(places.key_of(TRACE)),
            bundle_uri=store.uri(places.key_of(BUNDLE)),
            versions={"coilclaw": __version__, "python": platform.python_version()},
            keep_raw=wishes.keep_raw,
        )

    def _agent(self, parsed: naming.RunnerName) -> str:
        """The agent's name as it is kept: a script is found again from everywhere."""
        if parsed.kind != "scripted":
            return str(parsed)
        return str(replace(parsed, argument=os.path.abspath(self.start / parsed.argument)))

    def ready(self, plan: Plan, *, here: bool = True) -> None:
        """Refuse what cannot be recorded; nothing is made. Without ``here``, it is elsewhere."""
        traceready.not_stopped(self.home)
        places = Places(self.home, plan.trajectory_id)
        if here:
            traceready.jobs(self.jobs)
            traceready.agent(plan.agent, self.environ, self.home, self.start)
            traceready.sandbox(_KINDS[self.box], probe())
            traceready.free(places)
        Shelf(self.store, places).require_free()

    def run(self, plan: Plan) -> Outcome:
        """Record a new trajectory to its end."""
        with self.stoppable():
            return self._carried_out(plan, lambda equipment: running.run(plan, equipment), {})

    def resumable(
        self,
        trajectory_id: str,
        change: Callable[[Plan], Plan] = lambda same: same,
        environment: str = "",
    ) -> Resumable:
        """Refuse what cannot be gone on with; one that is only in the store is brought here.

        ``environment`` says where its environment is on a machine that it comes to.
        """
        traceready.not_stopped(self.home)
        traceready.jobs(self.jobs)
        places = Places(self.home, trajectory_id)
        with Archive(self.home, self.environ).scratch() as folder:
            if places.session.exists():
                return self._from_here(places, change, environment, folder)
            return self._from_store(places, change, environment, folder)

    def _from_here(
        self, places: Places, change: Callable[[Plan], Plan], environment: str, folder: Path
    ) -> Resumable:
        kept = change(plans.load(places.session))
        if environment:
            raise UsageError(
                "--environment cannot change when a trajectory is gone on with",
                rule="usage.resume",
                hint="start a new one",
            )
        # It goes on where its artifacts are, unless somebody names another place.
        key = places.key_of(TRACE)
        self.store_at = self.store_at or kept.trace_uri.removesuffix(f"/{key}")
        kept = self._placed(kept)
        history = traceready.history(places)
        traceready.unsolved(history, places.trajectory_id)
        self._fitting(kept, catalogue.find(kept.environment))
        shelf = Shelf(self.store, places)
        shelf.require_usable()
        return Resumable(kept, shelf.require_ours(folder, history.parts))

    def _from_store(
        self, places: Places, change: Callable[[Plan], Plan], environment: str, folder: Path
    ) -> Resumable:
        shelf = Shelf(self.store, places)
        shelf.require_usable()
        returned, known = shelf.bring(folder, places.key)
        traceready.unsolved(returned.history, places.trajectory_id)
        kept = self._placed(change(returned.plan))
        try:
            place = self._environment(environment or kept.environment)
        except UsageError as problem:
            raise UsageError(
                problem.message,
                rule=problem.rule,
                hint="name it as it is called here by --environment",
            ) from problem
        kept = replace(kept, environment=_named(place), template=str(place.workspace or ""))
        self._fitting(kept, place)
        made = Places(folder, places.trajectory_id)
        kept.save(made.session)
        try:
            places.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(made.directory, places.directory)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {places.directory}: {problem.strerror}", rule="trajectory.create"
            ) from problem
        return Resumable(kept, known, brought=returned)

    def _fitting(self, kept: Plan, environment: EnvironmentPlace) -> None:
        """Refuse to go on with another environment, or without the agent."""
        if ground_of(environment, self.home).version != kept.environment_version:
            raise UsageError(
                f"the environment {environment.name} is not the one that trajectory "
                f"{kept.trajectory_id} began with",
                rule="trajectory.environment",
                hint="start a new trajectory",
            )
        traceready.agent(kept.agent, self.environ, self.home, self.start)
        traceready.sandbox(_KINDS[self.box], probe())

    def _placed(self, plan: Plan) -> Plan:
        """A plan that says where the artifacts are going."""
        places, store = Places(self.home, plan.trajectory_id), self.store
        return replace(
            plan,
            trace_uri=store.uri(places.key_of(TRACE)),
            bundle_uri=store.uri(places.key_of(BUNDLE)),
        )

    def resume(
        self,
        trajectory_id: str,
        change: Callable[[Plan], Plan] = lambda same: same,
        *,
        ready: Resumable | None = None,
    ) -> Outcome:
        """Go on with one that was stopped or killed; ``ready`` is what ``resumable`` said."""
        ready = ready or self.resumable(trajectory_id, change)
        plan = ready.plan
        try:
            with self.stoppable():
                return self._carried_out(
                    plan,
                    lambda equipment: running.resume(trajectory_id, equipment, lambda _: plan),
                    ready.known,
                )
        except EnvironmentFault as problem:
            if problem.rule == ELSEWHERE and ready.brought is not None:
                # Somebody else went on with it first: what was brought is worth nothing here.
                remove_tree(Places(self.home, trajectory_id).directory)
            raise

    def _carried_out(
        self,
        plan: Plan,
        work: Callable[[Equipment], SessionEnd],
        known: Mapping[str, Version],
    ) -> Outcome:
        from coilclaw.artifacts.uploader import Uploader

        store = self.store
        uploader = Uploader(store, known=known, report=self._troubled)
        equipment = self._equipment(plan)
        hidden = (*equipment.hidden, *_directory(store))

        def begun() -> None:
            self._claimed(plan, uploader)
            self.on_begin()

        try:
            end = work(replace(equipment, uploads=uploader, hidden=hidden, on_begin=begun))
        except CoilClawError:
            self._handed_over(uploader)
            raise
        else:
            self._handed_over(uploader)
            return Outcome(end, uploader.status())
        finally:
            uploader.close(0.0)  # at once, when a second signal came

    def _handed_over(self, uploader: Uploader) -> None:
        """Wait for the last uploads, but not once somebody asks to stop meanwhile."""
        stopping, said = self.cancel.cancelled, False
        until = time.monotonic() + FLUSH_S
        while (left := until - time.monotonic()) > 0:
            report = uploader.flush(min(left, FLUSH_LOOK_S))
            if not report.waiting or (self.cancel.cancelled and not stopping):
                return
            if not said:
                self.on_wait(report, round(left))
                said = True

    def _claimed(self, plan: Plan, uploader: Uploader) -> None:
        """The journal goes to the store before all else, so that no two machines go on at once."""
        places = Places(self.home, plan.trajectory_id)
        uploader.document(places.key_of(places.journal.name), places.journal)
        report = uploader.flush(CLAIM_S)
        for trouble in report.troubles:
            if trouble.rule == CONFLICT:
                raise EnvironmentFault(
                    f"trajectory {plan.trajectory_id} is being recorded on another machine: "
                    f"{trouble.message}",
                    rule=ELSEWHERE,
                    hint="wait for it to end; or give this one another id",
                )

    def _troubled(self, trouble: Trouble) -> None:
        """Two recordings of one trajectory do not go together: this one ends."""
        if trouble.rule == CONFLICT:
            self.cancel.cancel(f"it is recorded on another machine, too: {trouble.message}")

    def _equipment(self, plan: Plan) -> Equipment:
        from coilclaw.app.agentwiring import open_config
        from coilclaw.app.environments import judge_of
        from coilclaw.app.toolbox import redactor_of

        support = probe()
        config = open_config(self.home, self.environ)
        environment = catalogue.find(plan.environment)
        runner = self._runner(plan)
        return Equipment(
            home=self.home,
            runner=runner,
            judge=judge_of(plan.environment, self.home, jobs=self.jobs, support=support),
            support=support,
            cancel=self.cancel,
            environ=self.environ,
            sandbox=_KINDS[self.box],
            hidden=(environment.directory,),
            view=config.sandbox,
            redact=redactor_of(config, self.environ).redact,
            on_part=self.on_part,
            on_turn=self.on_turn,
        )

    def _runner(self, plan: Plan) -> Callable[[int], Runner]:
        parsed = naming.parse(plan.agent)
        if parsed.kind == "scripted":
            from coilclaw.agents.scripted import ScriptedRunner

            script = runners.read_script(parsed.argument, self.start)
            return lambda turn: ScriptedRunner(script, turn=lambda _: turn - 1)
        traceready.agent(plan.agent, self.environ, self.home, self.start)
        made = runners.external(parsed, start=self.start, home=self.home, environ=self.environ)
        assert made is not None, "those that are our own code are refused"
        return lambda _: made

    def _environment(self, name: str) -> EnvironmentPlace:
        name = name or DEFAULT_ENVIRONMENT
        path = self.start / name
        return catalogue.find(str(path) if "/" in name or path.is_file() else name)

    def _required(self, environment: EnvironmentPlace, ground: Ground) -> tuple[str, ...]:
        """The suites at the top of an environment that can be judged: each has to be green."""
        schema = judge_of(str(environment.file), self.home).schema(cancel=self.cancel)
        cases = schema.get("cases")
        ids = [str(name) for name in cases] if isinstance(cases, list) else []
        suites = dict.fromkeys(name.partition("/")[0] for name in ids)
        return tuple(name for name in suites if name not in ground.skipped) or ("",)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """The emergency stop ends a trajectory too; it can be resumed afterwards."""
        from coilclaw.runtime.estop import Estop

        traceready.not_stopped(self.home)
        with Estop.of(self.home).watched(self.cancel, MAX_RUN_S):
            yield


def new_id() -> str:
    """An id that no other trajectory has; ids sort by the time of their making."""
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _directory(store: Store) -> tuple[Path, ...]:
    """Where a store is on this machine: results are kept there, which no agent may see."""
    from coilclaw.artifacts.local import LocalStore

    if not isinstance(store, LocalStore):
        return ()
    try:
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot create {store.root}: {problem.strerror}", rule="trajectory.store"
        ) from problem
    return (store.root,)


def _named(environment: EnvironmentPlace) -> str:
    """What finds an environment again: its name if it comes with us, else its file."""
    shipped = os.path.realpath(catalogue.shipped() / environment.name / catalogue.MAIN)
    return environment.name if str(environment.file) == shipped else str(environment.file)


def _ignored(template: Path) -> tuple[str, ...]:
    """The ignore list that comes with an environment."""
    path = template / _IGNORE
    if not path.is_file():
        return ()
    found = ignoring.patterns(_read(path))
    ignoring.Ignored(found)
    return found


def _read(path: Path) -> str:
    data = _bytes(path, MAX_PROMPT_BYTES, "trajectory.prompt")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8", rule="trajectory.prompt") from problem


def _bytes(path: Path, limit: int, rule: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}", rule=rule) from problem
    if len(data) > limit:
        raise UsageError(f"{path} is larger than {limit} bytes", rule=rule)
    return data
