"""``Baseline``: what planners know of the repository: a commit and the names in it."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import paths
from coilclaw.contracts.project_profile import recognise_project
from coilclaw.errors import UsageError
from coilclaw.gates.command import Terms, judge_text
from coilclaw.orchestrator.reviewevidence import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.project_profile import ProjectProfile
    from coilclaw.contracts.taskcontract import AcceptanceTest, TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.gates.result import GateResult

MAX_TOLD: Final = 3_000
"""Names that a model is told, of files and of directories; the shallowest come first."""
MAX_TOLD_CHARS: Final = 200_000


BROAD_FILES: Final = 20
"""A directory with fewer files is not broad, however short its name is."""
ROOTS: Final = frozenset({"src", "docs"})


LOCKED_BY: Final = {
    "uv.lock": "uv",
    "poetry.lock": "poetry",
    "pdm.lock": "pdm",
    "Pipfile.lock": "pipenv",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
}
"""Lock files, each with the tool that is needed to use it."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The names of a commit's files and directories, and a way to read the files."""

    commit: str
    files: frozenset[str]
    directories: frozenset[str]
    read: Callable[[str], bytes | None]
    links: frozenset[str] = frozenset()
    """Those of the files that are none: links and submodules."""

    @classmethod
    def of(
        cls,
        commit: str,
        files: Iterable[str],
        read: Callable[[str], bytes | None],
        links: Iterable[str] = (),
    ) -> Baseline:
        """Make it from the names of files: directories are what is above them."""
        names = frozenset(files)
        above = frozenset(above for name in names for above in _above(name))
        return cls(commit, names, above, read, frozenset(links))

    def recognise(self) -> ProjectProfile:
        """Recognise what kind of project it is; a file that cannot be read says nothing."""

        def read(name: str) -> bytes | None:
            try:
                return self.read(name)
            except UsageError:
                return None

        python = "python" if shutil.which("python") or not shutil.which("python3") else "python3"
        files = self.files - self.links
        # The lock of a tool that is not installed says nothing about how the project is used here.
        unused = {lock for lock, tool in LOCKED_BY.items() if not shutil.which(tool)}
        found = recognise_project(files - unused, read, python=python)
        kept = recognise_project(files, read, python=python).forbidden_paths
        return replace(found, forbidden_paths=kept)

    def broad(self) -> frozenset[str]:
        """Return the directories that are too much for one task, unless somebody says otherwise.

        Those are the ones that hold many files, and the ones that hold everything by convention.
        """
        counts = Counter(above for name in self.files for above in _above(name))
        many = {name for name, count in counts.items() if count >= BROAD_FILES}
        return frozenset(many | (ROOTS & self.directories))

    def told(self, scopes: Collection[str] = (), *, limit: int = MAX_TOLD) -> dict[str, Json]:
        """Return names for a model, those within ``scopes`` first, and how many are left out."""
        files = _chosen(self.files, scopes, limit)
        directories = _chosen(self.directories, scopes, limit)
        return {
            "baseline_commit": self.commit,
            "files": files,
            "files_left_out": len(self.files) - len(files),
            "directories": directories,
            "directories_left_out": len(self.directories) - len(directories),
        }

    def mentioned(self, text: str) -> tuple[str, ...]:
        """Return the files and directories that a text names, in its order."""
        words = (word.strip("\"'`.,:;!?()[]{}<>").rstrip("/") for word in text.split())
        names = self.files | self.directories
        return tuple(dict.fromkeys(word for word in words if word in names))

    def judge_test(
        self, test: AcceptanceTest, contract: TaskContract, policies: PolicySet
    ) -> GateResult:
        """Ask the command gate about a test of a contract."""
        network = contract.tool_permissions.network == "allow"
        limit = test.timeout_sec or contract.timeout_retry.timeout_sec
        terms = replace(self._terms_of(contract, policies), network=network)
        return judge_text(test.cmd, terms=terms, timeout_sec=limit)

    def refusals(
        self, test: AcceptanceTest, contract: TaskContract, policies: PolicySet
    ) -> tuple[str, ...]:
        """Say why the command gate would not run a test of a contract."""
        return tuple(map(str, self.judge_test(test, contract, policies).violations))

    def judge_setup(self, contract: TaskContract, policies: PolicySet) -> tuple[GateResult, ...]:
        """Let the command gate judge each command of a set-up, with the network it declares."""
        terms = replace(self._terms_of(contract, policies), rules=policies.setup_commands)
        return tuple(
            judge_text(
                command.cmd,
                terms=replace(terms, network=command.may_use_network),
                timeout_sec=command.timeout_sec or contract.timeout_retry.timeout_sec,
            )
            for command in policies.setup_for(contract)
        )

    def _terms_of(self, contract: TaskContract, policies: PolicySet) -> Terms:
        return self.terms(policies, contract.allowed_paths, contract.forbidden_actions)

    def terms(
        self,
        policies: PolicySet,
        allowed_paths: Collection[str] = (),
        forbidden_actions: Iterable[str] = (),
    ) -> Terms:
        """Return what commands are judged by, without the network.

        A file that the work may still make counts as there, and a directory that a build may; a
        link of the baseline does not.
        """
        forbidden = (*policies.forbidden_actions, *forbidden_actions)
        return Terms(
            rules=policies.commands,
            forbidden_actions=tuple(dict.fromkeys(forbidden)),
            is_file=lambda name: (
                name not in self.links and (name in self.files or paths.within(name, allowed_paths))
            ),
            is_directory=lambda name: self.files.isdisjoint((name, *_above(name))),
        )


def _above(name: str) -> Iterator[str]:
    while (name := name.rpartition("/")[0]) != "":
        yield name


def _chosen(names: Iterable[str], scopes: Collection[str], limit: int) -> list[Json]:
    order = sorted(names, key=lambda name: (not paths.within(name, scopes), name.count("/"), name))
    chosen: list[Json] = []
    left = MAX_TOLD_CHARS
    for name in map(legible, order[:limit]):
        left -= len(name)
        if left < 0:
            break
        chosen.append(name)
    return chosen
