"""``Git``: git on one git directory, deaf to every other configuration on the machine."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault, GitFailed, UsageError
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace import process
from coilclaw.workspace.environment import search_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

TIMEOUT_S: Final = 600.0
OUTPUT_BYTES: Final = 2**20
MAX_CANDIDATES: Final = 1_000_000
"""Most paths that one call of ``ignored`` asks about."""

_NOWHERE: Final = "/nonexistent"
_SETTINGS: Final = (
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
)
_CONFIG: Final = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tignorecase = false
\tlogallrefupdates = false
[gc]
\tauto = 0
\tpackRefs = false
"""


@dataclass(frozen=True, slots=True)
class GitAnswer:
    """What a git command said, whole."""

    exit_code: int
    stdout: bytes
    stderr: str


class Git:
    """Runs git with nothing but one git directory: our own, made on first use, or a foreign one.

    No hook, filter, attribute, alias, ignore rule or variable from outside it has a say. What a
    foreign one configures itself is up to ``variables``, which every command gets.
    """

    def __init__(
        self,
        git_dir: Path,
        *,
        foreign: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.git_dir = git_dir
        self._foreign = foreign
        self._variables = dict(variables or {})

    def run(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO | None = None,
        work_tree: Path | None = None,
        accept: tuple[int, ...] = (0,),
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = OUTPUT_BYTES,
        variables: Mapping[str, str] | None = None,
    ) -> bytes:
        """Run a git command and return its whole output; anything less raises ``GitFailed``."""
        return self.answer(
            *arguments,
            stdin=stdin,
            work_tree=work_tree,
            accept=accept,
            timeout_s=timeout_s,
            limit_bytes=limit_bytes,
            variables=variables,
        ).stdout

    def answer(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO | None = None,
        work_tree: Path | None = None,
        accept: tuple[int, ...] = (0,),
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = OUTPUT_BYTES,
        variables: Mapping[str, str] | None = None,
    ) -> GitAnswer:
        """Like ``run``, for a command whose exit code says something; ``accept`` are those."""
        self.create()
        # A foreign git directory may lie in its tree, and paths would be taken from there.
        cwd = work_tree if self._foreign and work_tree is not None else self.git_dir
        options = [option for setting in _SETTINGS for option in ("-c", setting)]
        result = process.run(
            ["git", "--no-pager", *options, *arguments],
            cwd=cwd,
            env={**self._environment(work_tree), **self._variables, **(variables or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            limit_bytes=limit_bytes,
        )
        name = next(word for word in arguments if not word.startswith("-"))
        if result.outcome != "exited":
            raise GitFailed(
                f"git {name} in {self.git_dir} {_stopped(result.outcome, timeout_s)}",
                rule="git.stopped",
            )
        code = result.exit_code
        if code is None or code not in accept:
            said = result.stderr.text().strip() or "nothing on stderr"
            raise GitFailed(f"git {name} in {self.git_dir} ended with exit code {code}: {said}")
        if result.stdout.dropped:
            raise GitFailed(
                f"git {name} in {self.git_dir} wrote {result.stdout.total} bytes, "
                f"more than the {limit_bytes} that are read of it",
                rule="git.output",
            )
        return GitAnswer(code, result.stdout.data, result.stderr.text())

    def create(self) -> None:
        """Make the git directory, readable by its owner alone, unless it is there or foreign."""
        if self._foreign or (self.git_dir / "HEAD").exists():
            return
        try:
            self._create()
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create the git directory {self.git_dir}: {problem.strerror}",
                rule="git.create",
            ) from problem

    def ignored(self, root: Path, paths: Sequence[str]) -> frozenset[str]:
        """Return those of the paths that the tree's own ``.gitignore`` files name.

        They need not exist, and tracked files count too. A path that leads through a link counts
        if the link, or the place in the tree that it leads to, is ignored.
        """
        if len(paths) > MAX_CANDIDATES:
            raise UsageError(
                f"{len(paths)} paths are more than the {MAX_CANDIDATES} that can be asked about",
                rule="git.ignored",
            )
        if not paths:
            return frozenset()
        _refuse_odd_ignore_files(root, paths)
        names = _Names(root)
        asked = {path: names.to_ask(path) for path in paths}
        request = sorted({name for several in asked.values() for name in several})
        # What starts with a colon would be read as a pattern; git answers with the names as given.
        question = b"".join(b"./%s\0" % os.fsencode(name) for name in request)
        answer = self.run(
            "check-ignore",
            "--no-index",
            "--stdin",
            "-z",
            stdin=question,
            work_tree=root,
            accept=(0, 1),
            limit_bytes=2 * len(question),
        )
        found = frozenset(os.fsdecode(name[2:]) for name in answer.split(b"\0") if name)
        return frozenset(path for path, several in asked.items() if not found.isdisjoint(several))

    def _environment(self, work_tree: Path | None) -> dict[str, str]:
        place = {} if work_tree is None else {"GIT_WORK_TREE": str(work_tree.absolute())}
        return {
            "PATH": search_path(),
            "LC_ALL": "C",
            "HOME": _NOWHERE,
            "XDG_CONFIG_HOME": _NOWHERE,
            "GIT_DIR": str(self.git_dir.absolute()),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_GRAFT_FILE": _NOWHERE,
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            **place,
        }

    def _create(self) -> None:
        """Put an empty bare repository in place; ``HEAD``, which makes it one, comes last."""
        for name in ("objects/info", "objects/pack", "refs/heads"):
            (self.git_dir / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.git_dir.chmod(0o700)
        for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
            write_atomic(self.git_dir / name, text.encode("ascii"))


def ignored(root: Path, paths: Sequence[str], *, git_dir: Path) -> frozenset[str]:
    """Return those of the paths that the tree's own ``.gitignore`` files name; see ``Git``."""
    return Git(git_dir).ignored(root, paths)


class _Names:
    """Under which names git is asked about a path: it refuses to look beyond a link."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._links: dict[str, bool] = {}

    def to_ask(self, path: str) -> tuple[str, ...]:
        parts = path.split("/")
        if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
            raise UsageError(
                f"{shown(path)} is no plain relative path, so it cannot be asked about",
                rule="git.ignored",
            )
        for count in range(1, len(parts)):
            link = "/".join(parts[:count])
            if self._is_link(link):
                real = os.path.realpath(os.path.join(self._root, path))
                inside = real.startswith(self._root.rstrip("/") + "/")
                return (link, os.path.relpath(real, self._root)) if inside else (link,)
        return (path,)

    def _is_link(self, path: str) -> bool:
        if path not in self._links:
            self._links[path] = os.path.islink(os.path.join(self._root, path))
        return self._links[path]


def _stopped(outcome: str, timeout_s: float) -> str:
    if outcome == "timed_out":
        return f"took longer than {timeout_s:g} s and was stopped"
    return "was killed" if outcome == "signalled" else "was cancelled"


def _refuse_odd_ignore_files(root: Path, paths: Sequence[str]) -> None:
    """git opens whatever is called ``.gitignore``, and would wait for ever at a FIFO."""
    folders = {""}
    for path in paths:
        parts = path.split("/")[:-1]
        folders.update("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    for folder in sorted(folders):
        place = os.path.join(root, folder, ".gitignore")
        try:
            mode = os.stat(place).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise EnvironmentFault(
                f"{shown(place)} is no file, so what it names cannot be known", rule="git.ignored"
            )
