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
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.taskcontract import AcceptanceTest
from coilclaw.domain.canonical import digest
from coilclaw.domain.freeform import hashed
from coilclaw.errors import PlanRefused, Stopped
from coilclaw.gates.command_place import read_placed
from coilclaw.gates.commandline import parse
from coilclaw.gates.leavings import cache_above
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.command_fault import describe_fault
from coilclaw.orchestrator.command_report import describe_failure, unused_folder, write_report
from coilclaw.orchestrator.commands import Commands, announce
from coilclaw.orchestrator.setup_retention import RECORD, lock_setup, record_use
from coilclaw.runtime.identity import stamp
from coilclaw.storage.atomic import read_private, write_atomic
from coilclaw.workspace.dependencies import Dependency, is_installation, untracked_paths
from coilclaw.workspace.dependency_copies import is_plain
from coilclaw.workspace.removal import remove_tree
from coilclaw.workspace.worktree_mount import can_mount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.agents.runner import Network
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import SetupCommand, TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.commands import Finished
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.ready_worktree import ReadyWorktree
    from coilclaw.orchestrator.run import Run

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
"""Of the home of a set-up, what nobody needs a copy of."""


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
def set_up(
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
            found = load(place, key) or maker.make()
            record_use(place, run.id)
        yield found
        return
    with set_up(run, inspection, inspection.baseline, terms) as first:
        usual = frozenset(one.path for one in first.dependencies) if first else frozenset[str]()
    place = run.places.own_home(run.id, f"{NAME}-{commit[:16]}")
    try:
        yield _Maker(run, inspection, terms, commit, place, commit, usual).make()
    finally:
        remove_tree(place)


def setup_key(equipment: Equipment, commit: str, commands: Sequence[SetupCommand]) -> str:
    """Return the name of a set-up: the same for the same commands, lock files and programs."""
    repository = equipment.repository
    files: dict[str, Json] = {}
    for path in repository.files(commit):
        name = path.rpartition("/")[2]
        if any(fnmatchcase(name, pattern) for pattern in DECIDING):
            data = repository.read(commit, path, MAX_LOCK_BYTES)
            files[path] = "" if data is None else digest(data)
        if len(files) > MAX_LOCK_FILES:
            break
    only_installs = all(_only_installs(command) for command in commands)
    value: dict[str, Json] = {
        "form": _FORM,
        "commands": [command.json() for command in commands],
        "files": files,
        "tree": "" if only_installs and len(files) <= MAX_LOCK_FILES else repository.tree(commit),
        "checkout": str(repository.top),
        "path": equipment.environ.get("PATH", ""),
    }
    return hashed(value)[:32]


def _only_installs(command: SetupCommand) -> bool:
    """Whether a command installs what lock files name; ``pip install`` of the project is a build,
    unless it is editable."""
    argv = read_placed(parse(command.cmd).argv).argv
    if argv[:2] == ("pip", "install") or argv[1:4] == ("-m", "pip", "install"):
        return "." not in argv or "-e" in argv or "--editable" in argv
    return argv[:2] in INSTALLERS


def load(place: Path, key: str) -> WorktreeSetup | None:
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
    return WorktreeSetup(place, _dependencies(paths, sources))


def _dependencies(paths: Sequence[str], sources: Sequence[Path]) -> tuple[Dependency, ...]:
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
        from coilclaw.orchestrator.ready_worktree import bare, environments_on_path

        equipment, run = self.inspection.equipment, self.run
        copied = environments_on_path(equipment, self.inspection.kept_of(self.commit))
        if self.place.exists():
            remove_tree(self.place)
        (self.place / _HOME).mkdir(mode=0o700, parents=True)
        worktree = equipment.worktrees.add(run.places.own_worktree(run.id, NAME), self.commit)
        try:
            with bare(equipment, run.id, NAME, worktree, dependencies=copied) as ready:
                self._run_all(ready)
                found = dict(self._outputs(ready))
                sources = self._keep(found)
        finally:
            equipment.worktrees.remove(worktree)
        paths: list[Json] = [*found]
        record = {"form": _FORM, "key": self.key, "commit": self.commit, "paths": paths}
        write_atomic(self.place / RECORD, json.dumps(record).encode("ascii"), mode=0o600)
        return WorktreeSetup(self.place, _dependencies([*found], sources))

    def _run_all(self, ready: ReadyWorktree) -> None:
        run, equipment = self.run, self.inspection.equipment
        started = stamp(equipment.clock())
        done: list[Finished] = []
        for command in self.terms.commands:
            test = AcceptanceTest(name=command.name, cmd=command.cmd, must_pass=True)
            online = command.may_use_network and self._trusts_network()
            network: Network = "allow" if online else "deny"
            passed = _passed(equipment.environ) if online else {}
            commands = Commands(
                ready, self.place / _HOME, network, where=NAME, environ=passed, fresh=False
            )
            timeout = command.timeout_sec or self.terms.timeout_sec
            # What happens after a run was sealed is no part of it.
            sealed = run.progress.sealed
            done.append(
                commands.run(test, timeout) if sealed else announce(run, commands, test, timeout)
            )
            if done[-1].outcome == "cancelled":
                raise Stopped(f"the run was stopped: {equipment.cancel.reason}")
            if done[-1].red:
                break
        if not run.progress.sealed:
            self._record(done, started)
        if done[-1].red:
            why = describe_fault(done[-1]) or describe_failure(done[-1])
            raise PlanRefused(
                f"the set-up failed: {why}",
                rule="setup.failed",
                hint="run the command in your checkout, or change 'setup' in the contract",
            )

    def _trusts_network(self) -> bool:
        """Whether what runs may use the network: an agent's code only if the contract says so."""
        return self.usual is None or self.terms.candidates_online

    def _record(self, done: Sequence[Finished], started: str) -> None:
        run = self.run
        prefix = layout.PLAN_SETUPS if run.progress.root is None else layout.SETUPS
        folder = unused_folder(run, f"{prefix}{self.key[:16]}")
        report = write_report(
            run,
            self.inspection.equipment,
            done,
            started=started,
            folder=folder,
            skipped=len(self.terms.commands) - len(done),
        )
        reference = run.bundle.write_json(f"{folder}/report.json", report.json())
        run.emit(
            EventType.SETUP_RESULT,
            {
                "status": report.status,
                "path": reference.path,
                "sha256": reference.sha256,
                "commit": self.commit,
                "key": self.key,
                "where": NAME,
            },
            level="INFO" if report.status == "PASS" else "ERROR",
        )

    def _outputs(self, ready: ReadyWorktree) -> Iterator[tuple[str, Path]]:
        """What stands in the worktree beside the files of the commit."""
        for mount in ready.mount.mounts:
            if mount.private:
                path = mount.target.relative_to(ready.mount.checkout).as_posix()
                yield path, mount.source
        kept = self.inspection.kept_of(self.commit)
        for path, directory in untracked_paths(ready.directory, kept):
            kept_out = cache_above(path, directory=directory) and not path.endswith(".egg-info")
            if not kept_out and self._expects(path) and is_plain(ready.directory / path):
                yield path, ready.directory / path

    def _expects(self, path: str) -> bool:
        """Whether a set-up may make a path: one of a candidate could put a test's helper there."""
        return self.usual is None or any(
            path == usual or path.startswith(f"{usual}/") for usual in self.usual
        )

    def _keep(self, found: Mapping[str, Path]) -> list[Path]:
        """Move what was made out of the worktree."""
        (self.place / _TREE).mkdir(mode=0o700)
        kept = []
        for number, source in enumerate(found.values()):
            kept.append(self.place / _TREE / str(number))
            os.rename(source, kept[-1])
        return kept


def _passed(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name in PASSED}
