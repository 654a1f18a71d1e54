"""Checkouts of public projects, as a user has them: fetched, installed, tested, with a bug in.

The sources and all that their tests need come from the package indexes that pip and npm know. They
are fetched once for all the processes of a test session; who works on a project holds its lock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coilclaw.kernel.file_lock import FileLock
from tests.support.children import PATIENCE_S
from tests.support.public_projects import Project
from tests.support.runs import World
from tests.support.snapshot_trees import git

LONG_S = 10 * PATIENCE_S
_NEEDED = {"python": (), "npm": ("npm", "npx", "node"), "c": ("make", "gcc", "objcopy")}
# The tests of the projects, and what builds these projects: no build fetches anything by itself.
_SEED = (
    *("pytest==9.0.2", "freezegun==1.5.5", "text-unidecode==1.3"),
    *("setuptools==80.9.0", "setuptools-scm==9.2.2", "hatchling==1.28.0", "editables==0.5"),
    "flit_core==3.12.0",
)
_JEST = "jest@29.7.0"
# How packages are reached from here, for set-ups.
_REACHED = ("npm_config_", "NPM_CONFIG_", "SSL_", "NODE_EXTRA_")
_RUNTIME = ".runtime-cache"


@dataclass(frozen=True)
class Checkout:
    """One project with a bug in it, committed; nothing of an earlier test is left."""

    project: Project
    world: World
    released: str
    """The commit without the bug."""
    broken: str
    """The commit with it, which is checked out."""

    @property
    def repo(self) -> Path:
        return self.world.repo

    def status(self) -> list[str]:
        """Everything in the checkout that git does not track."""
        return self.world.git("status", "--porcelain", "--ignored").splitlines()

    def own_tests(self) -> subprocess.CompletedProcess[str]:
        """Run the project's tests as its user does, outside of any sandbox."""
        return _test(self.world, self.project)

    @contextmanager
    def uninstalled(self) -> Iterator[None]:
        """Have what npm installed out of the way."""
        installed, aside = self.repo / "node_modules", self.world.root / "aside"
        installed.rename(aside)
        try:
            yield
        finally:
            shutil.rmtree(installed, ignore_errors=True)
            aside.rename(installed)

    def text(self, new: str) -> str:
        """Return the source with ``new`` where the bug is."""
        source = (self.repo / self.project.bug.path).read_text()
        assert source.count(self.project.bug.broken) == 1
        return source.replace(self.project.bug.broken, new)


@dataclass(frozen=True)
class ProjectStore:
    """Where the checkouts of a test session are."""

    place: Path

    @contextmanager
    def checkout(self, project: Project) -> Iterator[Checkout]:
        """Have a project to oneself, as it was when it had just been prepared."""
        missing = [name for name in _NEEDED[project.kind] if shutil.which(name) is None]
        if missing:
            pytest.skip(f"{project.name} is not worked on: {', '.join(missing)} is not installed")
        self.place.mkdir(exist_ok=True)
        with FileLock(self.place / f"{project.name}.lock", timeout_s=LONG_S):
            root = self.place / project.name
            if not (root / "ready").exists():
                shutil.rmtree(root, ignore_errors=True)
                self._prepare(project, root)
            world = World(root, _environ(project, root))
            for name in ("home", "user"):
                shutil.rmtree(root / name, ignore_errors=True)
                (root / name).mkdir(mode=0o700)
            broken, released = world.git("rev-list", "main~0").split()[:2]
            yield Checkout(project, world, released, broken)
            self._restore(world, broken)

    def _prepare(self, project: Project, root: Path) -> None:
        root.mkdir()
        self.place.mkdir(parents=True, exist_ok=True)
        repo = root / "repo"
        _unpack(self._fetch(project, root), repo, project.folder)
        for made in repo.rglob("*.egg-info"):
            shutil.rmtree(made)  # only in archives, never in a repository
        for path, text in project.appended.items():
            with (repo / path).open("a") as file:
                file.write(text)
        git(repo, "init", "-q", "-b", "main")
        self._install(project, root)
        git(repo, "add", "-A", "--", ".", ":!*.egg-info")
        git(repo, "commit", "-q", "-m", f"{project.name} {project.version}")
        world = World(root, _environ(project, root))
        source = repo / project.bug.path
        text = source.read_text()
        assert text.count(project.bug.right) == 1
        source.write_text(text.replace(project.bug.right, project.bug.broken))
        git(repo, "commit", "-q", "-am", "A bug")
        shutil.copytree(repo / ".git", root / "git")
        # What somebody's work leaves in a checkout: caches, and builds of the sources as they are.
        seen = _test(world, project)
        assert seen.returncode != 0, seen.stdout + seen.stderr
        (root / "ready").touch()

    def _install(self, project: Project, root: Path) -> None:
        repo = root / "repo"
        if project.kind == "python":
            environment = _environment(project, root)
            packages = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}")
            _do(sys.executable, "-m", "venv", "--without-pip", environment, cwd=root)
            shutil.copytree(
                self._seed() / packages / "site-packages",
                environment / packages / "site-packages",
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("pip", "pip-*"),
            )
            python = environment / "bin" / "python"
            self._pip(project, "--python", python, "install", "--no-deps", "--editable", repo)
        elif project.kind == "npm":
            # How it was built is not in the archive: what is there is tested as it is.
            _do("npm", "pkg", "delete", "jest", "devDependencies", "scripts.prepare", cwd=repo)
            _do("npm", "pkg", "set", "scripts.test=jest dist/", cwd=repo)
            quiet = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")
            _do("npm", "install", *quiet, "--save-dev", _JEST, cwd=repo)

    def _restore(self, world: World, broken: str) -> None:
        """Put everything back that a run may have changed."""
        shutil.rmtree(world.repo / ".git")
        shutil.copytree(world.root / "git", world.repo / ".git")
        shutil.rmtree(world.repo / _RUNTIME, ignore_errors=True)
        world.git("reset", "-q", "--hard", broken)

    def _fetch(self, project: Project, root: Path) -> Path:
        if project.kind == "npm":
            _do("npm", "pack", "--silent", f"{project.name}@{project.version}", cwd=root)
        else:
            wanted = f"{project.name}=={project.version}"
            self._pip(project, "download", "--no-deps", "--no-binary=:all:", "-d", root, wanted)
        (archive,) = (*root.glob("*.tgz"), *root.glob("*.tar.gz"))
        return archive

    def fetch_release(self, name: str, version: str, target: Path) -> None:
        """Unpack a release as its authors packed it."""
        wanted = f"{name}=={version}"
        root = target.parent / f"{target.name}-archive"
        root.mkdir()
        self.place.mkdir(parents=True, exist_ok=True)
        program = self._seed() / "bin" / "pip"
        _do(
            program,
            "download",
            "-q",
            "--no-deps",
            "--no-binary=:all:",
            "--no-build-isolation",
            "-d",
            root,
            wanted,
            cwd=self.place,
        )
        (archive,) = root.glob("*.tar.gz")
        _unpack(archive, target, "")

    def _pip(self, project: Project, *arguments: str | Path) -> None:
        """Let pip work; builds take what they need from the environment, and no history."""
        program = self._seed() / "bin" / "pip"
        environ = {
            "SETUPTOOLS_SCM_PRETEND_VERSION": project.version,
            # pip reads the option the other way round.
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_QUIET": "1",
        }
        _do(program, *arguments, cwd=self.place, environ=environ)

    def _seed(self) -> Path:
        """A virtual environment with all that the projects' tests and builds need."""
        seed = self.place / "seed"
        with FileLock(self.place / "seed.lock", timeout_s=LONG_S):
            if not (seed / "ready").exists():
                shutil.rmtree(seed, ignore_errors=True)
                _do(sys.executable, "-m", "venv", seed, cwd=self.place)
                _do(seed / "bin" / "pip", "install", "--quiet", *_SEED, cwd=self.place)
                (seed / "ready").touch()
        return seed


def _environment(project: Project, root: Path) -> Path:
    return root / "repo" / ".venv" if project.inside else root / "env"


def _environ(project: Project, root: Path) -> dict[str, str]:
    """The environment of a user who has activated the project's own."""
    programs = [_environment(project, root) / "bin"] if project.kind == "python" else []
    programs += [Path(shutil.which(name) or "").parent for name in _NEEDED[project.kind]]
    path = dict.fromkeys([*map(str, programs), "/usr/bin", "/bin"])
    reached = {name: value for name, value in os.environ.items() if name.startswith(_REACHED)}
    return {**reached, "PATH": ":".join(path), "HOME": str(root / "user"), "LANG": "C.UTF-8"}


def _test(world: World, project: Project) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        project.test.split(),
        cwd=world.repo,
        env=world.environ,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def _unpack(archive: Path, target: Path, folder: str) -> None:
    unpacked = target.with_name("unpacked")
    with tarfile.open(archive) as opened:
        opened.extractall(unpacked, filter="data")
    (top,) = unpacked.iterdir()
    (top / folder).rename(target)
    shutil.rmtree(unpacked)
    archive.unlink()


def _do(*argv: str | Path, cwd: Path, environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
