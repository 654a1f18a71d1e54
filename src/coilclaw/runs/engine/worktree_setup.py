"""``WorktreeSetup``: what the set-up commands of a contract make, for every worktree of a run.

They run on a commit, not on an agent's work. What they leave beside the tree is kept by the hash of
what decides over it, so that the next worktree, and the next run, costs little. For commands that
only install packages those are the lock files; for all others it is the whole tree. A set-up of a
candidate that changed what decides is made anew and never kept: an agent may have written its code.
So it gets no network that the contract denies, and may make only what the baseline's makes too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    FileLock,
    PlanRefused,
    digest_bytes,
    hash_json,
    read_private,
    write_atomic,
)
from coilclaw.policy import read_placed
from coilclaw.runners import ProcessRunner
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import AcceptanceTest, SetupCommand, TaskContract
from coilclaw.runs.engine.commands import (
    Commands,
    FinishedCommand,
    announce,
    describe_failure,
    describe_fault,
    unused_folder,
    write_report,
)
from coilclaw.runs.engine.ready_worktree import (
    ReadyWorktree,
    environments_on_path,
    lay_named,
    prepare_bare_worktree,
)
from coilclaw.runs.evidence import layout
from coilclaw.runs.gates.command_line import parse_command
from coilclaw.runs.gates.scope import Scope, cache_above
from coilclaw.workspace import (
    Dependency,
    can_mount,
    find_dependencies,
    is_installation,
    is_plain,
    remove_tree,
    untracked_parts,
    untracked_paths,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from coilclaw.kernel import Json
    from coilclaw.runners import Network, Runner
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.engine.inspection import Inspection
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.workspace import Worktree


RECORD: Final = "setup.json"
"""Written last: a set-up without it is not whole, and is never used."""
RUNS: Final = "runs"
KEY: Final = re.compile(r"[0-9a-f]{32}")


def lock_setup(directory: Path, key: str, *, timeout_s: float) -> FileLock:
    """Return the lock of a set-up, which stays when the set-up goes."""
    return FileLock(directory / f"{key}.lock", timeout_s=timeout_s)


def record_use(place: Path, run_id: str) -> None:
    """Write down that a run uses a set-up from now on."""
    runs = place / RUNS
    runs.mkdir(mode=0o700, exist_ok=True)
    (runs / layout.check_run_id(run_id)).touch(mode=0o600)
    os.utime(place / RECORD)


NAME: Final = "setup"
MAX_LOCK_FILES: Final = 500
MAX_LOCK_BYTES: Final = 64 * 2**20
LOCK_TIMEOUT_S: Final = 3600.0
DECIDING: Final = (
    *("*.lock", "*.lockfile", "*.lockb", "package-lock.json", "npm-shrinkwrap.json"),
    *("pnpm-lock.yaml", "pnpm-workspace.yaml", "packages.lock.json", "go.sum", "go.work"),
    *("requirements*.txt", "constraints*.txt", "pyproject.toml", "setup.py", "setup.cfg"),
    *("Pipfile", "environment.yml", "package.json", ".npmrc", "Cargo.toml", "go.mod", "Gemfile"),
    *("pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    *("gradle-wrapper.properties", "libs.versions.toml", "*.csproj", "*.sln", "composer.json"),
    *(".python-version", ".nvmrc", ".node-version", "rust-toolchain", "rust-toolchain.toml"),
)
"""Names of the files that decide what a set-up installs."""
INSTALLERS: Final = frozenset(
    {
        *(("npm", "ci"), ("npm", "install"), ("pnpm", "install"), ("yarn", "install")),
        *(("uv", "sync"), ("poetry", "install"), ("pdm", "sync"), ("pdm", "install")),
        *(("pipenv", "sync"), ("pipenv", "install"), ("cargo", "fetch"), ("go", "mod")),
        *(("bundle", "install"), ("dotnet", "restore"), ("composer", "install")),
    }
)
"""Commands, by their first two words, that install what lock files name and build nothing else."""
PASSED: Final = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy"),
        *("all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT"),
        *("PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "PIP_CONFIG_FILE", "UV_INDEX_URL"),
        *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_NATIVE_TLS", "UV_CONFIG_FILE"),
        *("NPM_CONFIG_REGISTRY", "npm_config_registry", "YARN_NPM_REGISTRY_SERVER"),
        *("GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOSUMDB"),
    }
)
"""What a command that may use the network is told of the user's: proxies, certificates, indexes."""
_HOME: Final = "home"
_TREE: Final = "tree"
_FORM: Final = 1
_DOWNLOADS: Final = frozenset({".cache", ".npm", ".local", "tmp"})
"""Of the home of a set-up, what is not copied."""


@dataclass(frozen=True, slots=True)
class WorktreeSetup:
    """What a set-up made."""

    directory: Path
    dependencies: tuple[Dependency, ...]

    @property
    def home(self) -> Path:
        """The home of its commands; what it installed there may be named by this path."""
        return self.directory / _HOME

    def fill_home(self, home: Path) -> None:
        """Copy what was installed at home, such as a registry of packages, into another home."""
        for entry in sorted(os.scandir(self.home), key=lambda one: one.name):
            if entry.name in _DOWNLOADS or os.path.lexists(home / entry.name):
                continue  # what is there already may be a link that an agent made
            if entry.is_dir(follow_symlinks=False):
                shutil.copytree(entry.path, home / entry.name, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(entry.path, home / entry.name, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class SetupTerms:
    """Which commands are a set-up, and what they may do."""

    commands: tuple[SetupCommand, ...]
    timeout_sec: int
    """For a command without a limit of its own."""
    candidates_online: bool = False
    """Whether the commands may use the network where an agent may have written what they run."""

    @classmethod
    def of(cls, contract: TaskContract, policies: PolicySet) -> SetupTerms:
        """Return those of a contract."""
        return cls(
            policies.setup_for(contract),
            contract.timeout_retry.timeout_sec,
            contract.tool_permissions.network == "allow",
        )


@contextmanager
def provide_setup(
    run: Run, inspection: Inspection, commit: str, terms: SetupTerms | None = None
) -> Iterator[WorktreeSetup | None]:
    """Have the set-up of a commit there; ``None`` where nothing is to be run.

    Without ``terms`` it is that of the run's contract. ``PlanRefused`` ends the run: a set-up that
    fails says nothing about the work.
    """
    if terms is None:
        terms = SetupTerms.of(run.root_contract, inspection.current_policies())
    commands = terms.commands
    if not commands:
        yield None
        return
    equipment = inspection.equipment
    if not can_mount(equipment.sandbox, equipment.support):
        raise PlanRefused(
            "the contract names a set-up, and this sandbox cannot show what it makes at the path "
            "of the checkout",
            rule="setup.sandbox",
            hint="install bubblewrap",
        )
    key = setup_key(equipment, inspection.baseline, commands)
    if commit == inspection.baseline or setup_key(equipment, commit, commands) == key:
        place = equipment.places.setups / key
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        maker = _Maker(run, inspection, terms, inspection.baseline, place, key)
        with lock_setup(place.parent, key, timeout_s=LOCK_TIMEOUT_S):
            found = load_setup(place, key) or maker.make()
            record_use(place, run.id)
        yield found
        return
    with provide_setup(run, inspection, inspection.baseline, terms) as first:
        usual = frozenset(one.path for one in first.dependencies) if first else frozenset[str]()
    place = run.places.own_home(run.id, f"{NAME}-{commit[:16]}")
    try:
        yield _Maker(run, inspection, terms, commit, place, commit, usual).make()
    finally:
        remove_tree(place)


def setup_key(equipment: RunDependencies, commit: str, commands: Sequence[SetupCommand]) -> str:
    """Return the name of a set-up: the same for the same commands, lock files and programs."""
    repository = equipment.repository
    files: dict[str, Json] = {}
    for path in repository.files(commit):
        name = path.rpartition("/")[2]
        if any(fnmatchcase(name, pattern) for pattern in DECIDING):
            data = repository.read(commit, path, MAX_LOCK_BYTES)
            files[path] = "" if data is None else digest_bytes(data)
        if len(files) > MAX_LOCK_FILES:
            break
    # For commands that only install packages, the lock files decide.
    installs = all(map(_only_installs, commands)) and len(files) <= MAX_LOCK_FILES
    value: dict[str, Json] = {
        "form": _FORM,
        "commands": [command.json() for command in commands],
        "files": files,
        "tree": "" if installs else repository.tree(commit),
        "checkout": str(repository.top),
        "path": equipment.environ.get("PATH", ""),
    }
    return hash_json(value)[:32]


def _only_installs(command: SetupCommand) -> bool:
    """Whether a command installs what lock files name; ``pip install`` of the project is a build,
    unless it is editable."""
    argv = read_placed(parse_command(command.cmd).argv).argv
    if argv[:2] == ("pip", "install") or argv[1:4] == ("-m", "pip", "install"):
        return "." not in argv or "-e" in argv or "--editable" in argv
    return argv[:2] in INSTALLERS


def load_setup(place: Path, key: str) -> WorktreeSetup | None:
    """Return a set-up that was made earlier; ``None`` if there is none, or it is not whole."""
    data = read_private(place / RECORD)
    if data is None:
        return None
    try:
        value = json.loads(data)
        if value["form"] != _FORM or value["key"] != key:
            return None
        paths = [str(path) for path in value["paths"]]
    except (ValueError, KeyError, TypeError):
        return None
    sources = [place / _TREE / str(number) for number in range(len(paths))]
    if not all(is_plain(source) for source in sources):
        return None
    return WorktreeSetup(place, _make_dependencies(paths, sources))


def _make_dependencies(paths: Sequence[str], sources: Sequence[Path]) -> tuple[Dependency, ...]:
    return tuple(
        Dependency(path, source, copied=source.is_dir() and not is_installation(source, path))
        for path, source in zip(paths, sources, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    run: Run
    inspection: Inspection
    terms: SetupTerms
    commit: str
    place: Path
    key: str
    usual: frozenset[str] | None = None
    """The paths that the baseline's set-up makes, where this is that of a candidate."""

    def make(self) -> WorktreeSetup:
        """Run the commands, and keep what they left beside the tree."""
        equipment, run = self.inspection.equipment, self.run
        copied = environments_on_path(equipment, self.inspection.kept_of(self.commit))
        if self.place.exists():
            remove_tree(self.place)
        for name in (_HOME, _TREE):
            (self.place / name).mkdir(mode=0o700, parents=True)
        path = run.places.own_worktree(run.id, NAME)
        sources = []
        with (
            equipment.open_worktree(path, self.commit) as worktree,
            prepare_bare_worktree(equipment, run.id, NAME, worktree, dependencies=copied) as ready,
        ):
            self._run_all(ready)
            found = dict(self._find_outputs(ready))
            for number, source in enumerate(found.values()):
                # What was made is moved out of the worktree.
                sources.append(self.place / _TREE / str(number))
                os.rename(source, sources[-1])
        paths: list[Json] = [*found]
        record = {"form": _FORM, "key": self.key, "commit": self.commit, "paths": paths}
        write_atomic(self.place / RECORD, json.dumps(record).encode("ascii"), mode=0o600)
        return WorktreeSetup(self.place, _make_dependencies([*found], sources))

    def _run_all(self, ready: ReadyWorktree) -> None:
        run, equipment = self.run, self.inspection.equipment
        started, home = equipment.now(), self.place / _HOME
        # What happens after a run was sealed is no part of it.
        sealed = run.progress.sealed
        done: list[FinishedCommand] = []
        for command in self.terms.commands:
            test = AcceptanceTest(name=command.name, cmd=command.cmd, must_pass=True)
            # An agent's code may use the network only if the contract says so.
            trusted = self.usual is None or self.terms.candidates_online
            online = command.may_use_network and trusted
            network: Network = "allow" if online else "deny"
            passed = {k: v for k, v in equipment.environ.items() if online and k in PASSED}
            commands = Commands(ready, home, network, where=NAME, environ=passed, fresh=False)
            timeout = command.timeout_sec or self.terms.timeout_sec
            done.append(
                commands.run(test, timeout) if sealed else announce(run, commands, test, timeout)
            )
            if done[-1].red:
                break
        equipment.check_cancelled()
        if not sealed:
            self._record(done, started)
        if done[-1].red:
            why = describe_fault(done[-1]) or describe_failure(done[-1])
            raise PlanRefused(
                f"the set-up failed: {why}",
                rule="setup.failed",
                hint="run the command in your checkout, or change 'setup' in the contract",
            )

    def _record(self, done: Sequence[FinishedCommand], started: str) -> None:
        run, equipment = self.run, self.inspection.equipment
        prefix = layout.PLAN_SETUPS if run.progress.root is None else layout.SETUPS
        folder = unused_folder(run, f"{prefix}{self.key[:16]}")
        planned = len(self.terms.commands)
        report = write_report(run, equipment, done, started=started, folder=folder, planned=planned)
        reference = run.bundle.write_json(f"{folder}/report.json", report.json())
        facts = {"status": report.status, "commit": self.commit, "key": self.key, "where": NAME}
        good = report.status == "PASS"
        run.record_report(EventType.SETUP_RESULT, reference, facts, good=good)

    def _find_outputs(self, ready: ReadyWorktree) -> Iterator[tuple[str, Path]]:
        """What stands in the worktree beside the files of the commit."""
        for mount in ready.mount.mounts:
            if mount.private:
                yield mount.target.relative_to(ready.mount.checkout).as_posix(), mount.source
        kept = self.inspection.kept_of(self.commit)
        for path, directory in untracked_paths(ready.directory, kept):
            kept_out = cache_above(path, directory=directory) and not path.endswith(".egg-info")
            # A set-up of a candidate could put a test's helper there.
            expected = self.usual is None or any(
                path == usual or path.startswith(f"{usual}/") for usual in self.usual
            )
            if not kept_out and expected and is_plain(ready.directory / path):
                yield path, ready.directory / path


@contextmanager
def prepare_worktree(
    run: Run,
    inspection: Inspection,
    name: str,
    worktree: Worktree,
    commit: str,
    *,
    runner: Runner | None = None,
    scope: Scope | None = None,
    terms: SetupTerms | None = None,
) -> Iterator[ReadyWorktree]:
    """Make a worktree ready, with the set-up of a commit; what was made for it goes afterwards.

    ``runner`` is who works in it, whose program may lie in the checkout, and ``scope`` what may
    change then. ``terms`` are those of a set-up before there is a contract.
    """
    equipment = inspection.equipment
    with provide_setup(run, inspection, commit, terms) as setup:
        kept = inspection.kept_of(inspection.baseline)
        found = (
            *find_dependencies(equipment.repository.top, kept),
            *_find_programs(runner, equipment.repository.top, kept),
            *(setup.dependencies if setup else ()),
        )
        every = {one.path: one for one in found}
        laid: tuple[Dependency, ...] = ()
        if scope is not None and can_mount(equipment.sandbox, equipment.support):
            laid = lay_named(inspection, worktree, every.values(), scope)
        # What git tracks there is judged as it is: nothing may be mounted over it.
        own = inspection.kept_of(worktree.commit)
        shown = [every[path] for path in sorted(every) if every[path] not in laid]
        with prepare_bare_worktree(
            equipment,
            run.id,
            name,
            worktree,
            dependencies=[part for one in shown for part in untracked_parts(one, own)],
            setup=setup,
        ) as made:
            yield replace(made, laid=laid)


def _find_programs(runner: Runner | None, top: Path, kept: Collection[str]) -> Iterator[Dependency]:
    """The files of an agent that stand in the checkout and not in the repository."""
    if not isinstance(runner, ProcessRunner):
        return
    for word in map(Path, runner.command_line()):
        if word.is_absolute() and word.is_relative_to(top) and word.is_file():
            path = word.relative_to(top).as_posix()
            if path not in kept:
                yield Dependency(path, word)
