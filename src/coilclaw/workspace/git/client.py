"""``Git``: git on one git directory, which ignores every other configuration of the machine."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from coilclaw.kernel import (
    EnvironmentFault,
    GitFailed,
    UsageError,
    explain_os_errors,
    is_below,
    quote_text,
    write_atomic,
)
from coilclaw.workspace.process import command as process
from coilclaw.workspace.process.environment import search_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from _typeshed import SupportsRead

TIMEOUT_S: Final = 600.0
OUTPUT_BYTES: Final = 2**20
MAX_LISTING_BYTES: Final = 2**30
"""Longest listing of a tree that is read."""
COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}")
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
    """The complete answer of a git command."""

    exit_code: int
    stdout: bytes
    stderr: str


class GitOptions(TypedDict, total=False):
    """How a git command is run; without ``limit_bytes`` a little of its output is read."""

    stdin: bytes | SupportsRead[bytes] | None
    work_tree: Path | None
    accept: tuple[int, ...]
    timeout_s: float
    limit_bytes: int
    variables: Mapping[str, str] | None


def name_author(name: str, email: str, *, seconds: int | None = None) -> dict[str, str]:
    """Return the variables that say under whose name, and when, git makes commits."""
    facts = {"NAME": name, "EMAIL": email}
    if seconds is not None:
        facts["DATE"] = f"@{seconds} +0000"
    roles = ("AUTHOR", "COMMITTER")
    return {f"GIT_{role}_{what}": value for role in roles for what, value in facts.items()}


class Git:
    """Runs git with nothing but one git directory: our own, made on first use, or a foreign one.

    No hook, filter, attribute, alias, ignore rule or variable from outside it has a say. What a
    foreign one configures itself is up to ``variables``, which every command gets.
    """

    def __init__(
        self, git_dir: Path, *, foreign: bool = False, variables: Mapping[str, str] | None = None
    ) -> None:
        self.git_dir = git_dir
        self._foreign = foreign
        self._variables = dict(variables or {})

    def run(self, *arguments: str, **options: Unpack[GitOptions]) -> bytes:
        """Run a git command and return its whole output; anything less raises ``GitFailed``."""
        return self.answer(*arguments, **options).stdout

    def read_line(self, *arguments: str, **options: Unpack[GitOptions]) -> str:
        """Run a git command that writes one line, such as an id, and return it."""
        return self.run(*arguments, **options).decode("ascii").strip()

    def list_names(self, *arguments: str, **options: Unpack[GitOptions]) -> tuple[str, ...]:
        """Run a git command that writes names ended by NUL, and return them."""
        options.setdefault("limit_bytes", MAX_LISTING_BYTES)
        listing = self.run(*arguments, **options)
        return tuple(os.fsdecode(name) for name in listing.split(b"\0") if name)

    def find_commit(self, ref: str, **options: Unpack[GitOptions]) -> str | None:
        """Return the full id of the commit that a name stands for, if there is one."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        options["accept"] = (0, 1, 128)
        said = self.answer(*words, **options)
        name = said.stdout.decode("ascii", "replace").strip()
        return name if said.exit_code == 0 and COMMIT_ID.fullmatch(name) else None

    def answer(self, *arguments: str, **options: Unpack[GitOptions]) -> GitAnswer:
        """Run a git command and return its answer; raise unless ``accept`` has its exit code."""
        work_tree = options.get("work_tree")
        timeout_s = options.get("timeout_s", TIMEOUT_S)
        limit_bytes = options.get("limit_bytes", OUTPUT_BYTES)
        variables = options.get("variables") or {}
        self.create()
        # A foreign git directory may lie in its tree, and paths would be taken from there.
        cwd = work_tree if self._foreign and work_tree is not None else self.git_dir
        settings = [option for setting in _SETTINGS for option in ("-c", setting)]
        result = process.run(
            ["git", "--no-pager", *settings, *arguments],
            cwd=cwd,
            env={**self._environment(work_tree), **self._variables, **variables},
            stdin=options.get("stdin"),
            timeout_s=timeout_s,
            limit_bytes=limit_bytes,
        )
        name = next(word for word in arguments if not word.startswith("-"))
        if result.outcome != "exited":
            how = {
                "timed_out": f"took longer than {timeout_s:g} s and was stopped",
                "signalled": "was killed",
            }.get(result.outcome, "was cancelled")
            raise GitFailed(f"git {name} in {self.git_dir} {how}", rule="git.stopped")
        code = result.exit_code
        if code is None or code not in options.get("accept", (0,)):
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
        with explain_os_errors(f"create the git directory {self.git_dir}", rule="git.create"):
            # ``HEAD``, which makes it a repository, comes last.
            for name in ("objects/info", "objects/pack", "refs/heads"):
                (self.git_dir / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            self.git_dir.chmod(0o700)
            for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
                write_atomic(self.git_dir / name, text.encode("ascii"))

    def find_ignored(self, root: Path, paths: Sequence[str]) -> frozenset[str]:
        """Return the paths that the tree's own ``.gitignore`` files name.

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
        top = os.path.realpath(root)
        is_link = cache(lambda name: os.path.islink(os.path.join(top, name)))
        asked = {path: _list_askable(top, path, is_link) for path in paths}
        request = sorted({name for several in asked.values() for name in several})
        # What starts with a colon would be read as a pattern; git answers with the names as given.
        question = b"".join(b"./%s\0" % os.fsencode(name) for name in request)
        command = ("check-ignore", "--no-index", "--stdin", "-z")
        limit = 2 * len(question)
        answer = self.list_names(
            *command, stdin=question, work_tree=root, accept=(0, 1), limit_bytes=limit
        )
        found = frozenset(name[2:] for name in answer)
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


def _list_askable(top: str, path: str, is_link: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the names under which git is asked about a path: it does not look beyond a link."""
    parts = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise UsageError(
            f"{quote_text(path)} is not a plain relative path, so it cannot be asked about",
            rule="git.ignored",
        )
    for link in ("/".join(parts[:count]) for count in range(1, len(parts))):
        if is_link(link):
            real = os.path.realpath(os.path.join(top, path))
            inside = real != top and is_below(real, top)
            return (link, os.path.relpath(real, top)) if inside else (link,)
    return (path,)


def _refuse_odd_ignore_files(root: Path, paths: Sequence[str]) -> None:
    """Raise if a ``.gitignore`` is a FIFO or the like, at which git would wait forever."""
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
                f"{quote_text(place)} is not a file, so the ignored paths are unknown",
                rule="git.ignored",
            )
