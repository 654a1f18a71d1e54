"""Trajectories, wired: the agent, the environment with its judge, the store of artifacts."""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw import __version__, artifacts
from coilclaw.agents import naming
from coilclaw.app import runners
from coilclaw.environments import catalogue
from coilclaw.errors import EnvironmentFault, Stopped, UsageError
from coilclaw.trajectory import ignoring, running
from coilclaw.trajectory import plan as plans
from coilclaw.trajectory.places import Places
from coilclaw.trajectory.plan import Plan
from coilclaw.trajectory.publishing import BUNDLE, TRACE
from coilclaw.trajectory.running import Equipment
from coilclaw.workspace.cancel import Cancellation
from coilclaw.workspace.sandbox import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.agents.runner import Runner
    from coilclaw.artifacts.store import Store
    from coilclaw.artifacts.uploader import Report
    from coilclaw.environments.catalogue import EnvironmentPlace
    from coilclaw.trajectory.trace import PartRecord, SessionEnd, TurnRecord
    from coilclaw.workspace.sandbox import Kind

DEFAULT_AGENT: Final = "codex"
DEFAULT_ENVIRONMENT: Final = "c_compiler"
FALLBACK_ENVIRONMENT: Final = "kv_store"
FLUSH_S: Final = 300.0
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
    on_part: Callable[[PartRecord], None] = lambda _: None
    on_turn: Callable[[TurnRecord], None] = lambda _: None

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
            environment_version=environment.version,
            template="" if template is None else str(template),
            ignore=() if template is None else _ignored(template),
            required=self._required(environment),
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

    def run(self, plan: Plan) -> Outcome:
        """Record a new trajectory to its end."""
        with self.stoppable():
            return self._carried_out(plan, lambda equipment: running.run(plan, equipment))

    def resume(
        self, trajectory_id: str, change: Callable[[Plan], Plan] = lambda same: same
    ) -> Outcome:
        """Go on with one that was stopped or killed."""
        kept = change(plans.load(Places(self.home, trajectory_id).session))
        environment = catalogue.find(kept.environment)
        if environment.version != kept.environment_version:
            raise UsageError(
                f"the environment {environment.name} is not the one that trajectory "
                f"{trajectory_id} began with",
                rule="trajectory.environment",
                hint="start a new trajectory",
            )
        # It goes on where its artifacts are, unless somebody names another place.
        key = Places(self.home, trajectory_id).key_of(TRACE)
        self.store_at = self.store_at or kept.trace_uri.removesuffix(f"/{key}")
        with self.stoppable():
            return self._carried_out(
                kept,
                lambda equipment: running.resume(trajectory_id, equipment, change),
                adopt=True,
            )

    def _carried_out(
        self, plan: Plan, work: Callable[[Equipment], SessionEnd], *, adopt: bool = False
    ) -> Outcome:
        from coilclaw.artifacts.uploader import Uploader

        store = self.store
        uploader = Uploader(store, adopt=adopt)
        equipment = self._equipment(plan)
        hidden = (*equipment.hidden, *_directory(store))
        try:
            end = work(replace(equipment, uploads=uploader, hidden=hidden))
        finally:
            report = uploader.close(FLUSH_S)
        return Outcome(end, report)

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
        made = runners.external(parsed, start=self.start, home=self.home, environ=self.environ)
        if made is None:
            raise UsageError(
                f"the agent {parsed.kind} cannot be recorded as a trajectory",
                rule="trajectory.agent",
                hint="use codex, codex-exec, opencode, acp, process or scripted",
            )
        return lambda _: made

    def _environment(self, name: str) -> EnvironmentPlace:
        if not name:
            known = catalogue.names()
            name = DEFAULT_ENVIRONMENT if DEFAULT_ENVIRONMENT in known else FALLBACK_ENVIRONMENT
        path = self.start / name
        return catalogue.find(str(path) if "/" in name or path.is_file() else name)

    def _required(self, environment: EnvironmentPlace) -> tuple[str, ...]:
        """The suites at the top of an environment: each has to be green."""
        from coilclaw.app.environments import judge_of

        schema = judge_of(str(environment.file), self.home).schema(cancel=self.cancel)
        cases = schema.get("cases")
        ids = [str(name) for name in cases] if isinstance(cases, list) else []
        return tuple(dict.fromkeys(name.partition("/")[0] for name in ids)) or ("",)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """The emergency stop ends a trajectory too; it can be resumed afterwards."""
        from coilclaw.runtime.estop import Estop

        stop = Estop.of(self.home)
        if stop.set:
            raise Stopped(
                "the emergency stop is set, so no trajectory goes on",
                rule="estop",
                hint="clear it with 'coilclaw estop --clear'",
            )
        with stop.watched(self.cancel, MAX_RUN_S):
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
