"""A worktree at the path of the checkout, tried in each sandbox of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, ProcessFault
from coilclaw.workspace.git.dependencies import find_dependencies
from coilclaw.workspace.git.repository import Repository
from coilclaw.workspace.git.worktree_mount import WorktreeMount, can_mount, mount_worktree
from coilclaw.workspace.git.worktrees import Worktree, Worktrees
from coilclaw.workspace.process import command
from coilclaw.workspace.process.confinement import Kind, Sandbox, SandboxSupport
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import PATIENCE_S, marker
from tests.support.sandboxes import supported
from tests.support.snapshot_trees import Program, build, git


class Checkout:
    """A user's checkout with dependencies in it, and one worktree with other contents."""

    def __init__(self, root: Path, kind: Kind, runtime: Path | None = None) -> None:
        self.kind, self.support = kind, supported(kind)
        self.top = build(
            root / "tree",
            {
                "src/pkg/__init__.py": b"WHERE = 'checkout'\n",
                "package.json": b"{}",
                ".gitignore": b".venv\nnode_modules\n",
                "run.sh": Program(b"#!/bin/sh\necho checkout\n"),
            },
        )
        git(self.top, "init", "-q", "-b", "main")
        git(self.top, "add", "-A")
        git(self.top, "commit", "-q", "-m", "first")
        build(self.top / ".venv", {"pyvenv.cfg": b"", "bin/hi": Program(b"#!/bin/sh\necho hi\n")})
        build(self.top / "node_modules", {"dep/index.js": b"one"})
        build(self.top, {"local.txt": b"not tracked"})
        self.repository = Repository.open(self.top)
        self.runtime = runtime or self.top / ".runtime-cache/cortexpilot"
        self.worktrees = Worktrees(
            self.repository, self.runtime / "git", self.runtime / "worktrees"
        )
        self.worktree: Worktree = self.worktrees.add(
            self.runtime / "worktrees/run-0001/task", self.repository.resolve("HEAD")
        )
        build(
            self.worktree.path,
            {
                "src/pkg/__init__.py": b"WHERE = 'worktree'\n",
                "run.sh": Program(b"#!/bin/sh\necho worktree\n"),
            },
        )
        self.home = self.runtime / "homes/run-0001/task"
        self.home.mkdir(parents=True)

    def open(self) -> Iterator[WorktreeMount]:
        files = self.repository.files(self.repository.resolve("HEAD"))
        with (
            mount_worktree(
                self.worktree,
                self.repository,
                runtime=self.runtime,
                scratch=self.runtime / "mounts/run-0001/task",
                dependencies=find_dependencies(self.top, files),
                mounting=can_mount(self.kind, self.support),
            ) as mount,
            mount.points.hold_mounts(),
        ):
            yield mount

    def run(self, mount: WorktreeMount, *argv: str, writes: bool = True) -> ProcessResult:
        writable = (self.home, *self.worktree.writable) if writes else (self.home,)
        sandbox = Sandbox(
            self.kind,
            writable=writable,
            shown=(*self.worktree.writable, self.repository.common_dir),
            mounts=mount.with_home(self.home),
        )
        return command.run(
            argv,
            cwd=self.worktree.path,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **mount.environ},
            sandbox=sandbox,
            support=self.support,
            timeout_s=PATIENCE_S,
        )

    def sh(self, mount: WorktreeMount, text: str, *, writes: bool = True) -> str:
        done = self.run(mount, "sh", "-c", text, writes=writes)
        return (done.stdout.data + done.stderr.data).decode()


@pytest.fixture(params=["home", "tmp", "outside"])
def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Checkout]:
    """In a home, below a /tmp that the child does not see, and with its runtime elsewhere."""
    root = Path("/var/tmp") / f"coilclaw-test-{marker()}"
    root.mkdir(mode=0o755)
    where = tmp_path if request.param == "tmp" else root
    runtime = root / "runtime" if request.param == "outside" else None
    yield Checkout(where, "bubblewrap", runtime)
    shutil.rmtree(root)


@pytest.fixture
def mount(checkout: Checkout) -> Iterator[WorktreeMount]:
    yield from checkout.open()


def test_absolute_paths_of_the_checkout_lead_to_the_worktree(
    checkout: Checkout, mount: WorktreeMount
) -> None:
    found = checkout.sh(mount, f"pwd; cat {checkout.top}/src/pkg/__init__.py; ls")
    assert found.startswith(f"{checkout.top}\nWHERE = 'worktree'\n")
    assert "local.txt" not in found
    assert checkout.run(mount, "./run.sh").stdout.text() == "worktree\n"


def test_dependencies_of_the_checkout_are_found_and_stay_as_they_are(
    checkout: Checkout, mount: WorktreeMount
) -> None:
    assert checkout.run(mount, ".venv/bin/hi").stdout.text() == "hi\n"
    told = checkout.sh(mount, "cat node_modules/dep/index.js; echo two > node_modules/dep/index.js")
    assert told == "one"
    assert checkout.sh(mount, "cat node_modules/dep/index.js") == "two\n"
    assert (checkout.top / "node_modules/dep/index.js").read_bytes() == b"one"
    assert "Read-only" in checkout.sh(mount, "echo x > .venv/bin/hi")


def test_git_works_and_commits_as_it_does_in_the_worktree(
    checkout: Checkout, mount: WorktreeMount
) -> None:
    before = git(checkout.top, "rev-parse", "HEAD")
    told = checkout.sh(
        mount, "git rev-parse --show-toplevel; git commit -qam work; git log -1 --format=%s"
    )
    assert told == f"{checkout.top}\nwork\n"
    assert git(checkout.top, "rev-parse", "HEAD") == before
    assert "ead-only" in checkout.sh(mount, "git branch mine")


def test_what_the_runtime_keeps_is_out_of_sight(checkout: Checkout, mount: WorktreeMount) -> None:
    kept = build(checkout.runtime / "runs", {"secret": b"evidence"})
    if checkout.runtime.is_relative_to(checkout.top):
        assert "No such file" in checkout.sh(mount, f"cat {kept}/secret")
        assert "Read-only" in checkout.sh(mount, f"echo x > {checkout.runtime}/x")
    assert checkout.sh(mount, f"echo x > {checkout.home}/x; cat {checkout.home}/x") == "x\n"


def test_a_copy_is_found_at_its_place_and_nowhere_else(
    checkout: Checkout, mount: WorktreeMount
) -> None:
    found = checkout.sh(mount, f"find {checkout.top} -name index.js").split()
    assert found == [f"{checkout.top}/node_modules/dep/index.js"]


def test_a_reader_cannot_write(checkout: Checkout, mount: WorktreeMount) -> None:
    told = checkout.sh(mount, "cat run.sh; echo x > run.sh; echo x > src/x", writes=False)
    assert told.count("Read-only") == 2
    assert "echo worktree" in told


def test_nothing_of_a_mount_is_left(checkout: Checkout) -> None:
    for mount in checkout.open():
        assert checkout.sh(mount, "echo work > new.txt") == ""
        assert not os.listdir(checkout.worktree.path / "node_modules")
    names = sorted(os.listdir(checkout.worktree.path))
    assert names == [".git", ".gitignore", "new.txt", "package.json", "run.sh", "src"]
    assert not (checkout.runtime / "mounts/run-0001/task").exists()


def test_a_link_does_not_lead_the_removal_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = build(tmp_path / "elsewhere", {})
    (elsewhere / "node_modules").mkdir(parents=True)
    for _ in checkout.open():
        os.rename(checkout.worktree.path / "node_modules", checkout.worktree.path / "moved")
        os.symlink(elsewhere / "node_modules", checkout.worktree.path / "node_modules")
    assert (elsewhere / "node_modules").is_dir()


def test_a_link_in_the_place_of_the_runtime_is_refused(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "bubblewrap")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(elsewhere, checkout.worktree.path / ".runtime-cache")
    with pytest.raises(EnvironmentFault, match="mounted"):
        next(checkout.open())
    assert not os.listdir(elsewhere)


def test_a_link_that_a_command_made_does_not_lead_the_next_mount_elsewhere() -> None:
    root = Path("/var/tmp") / f"coilclaw-test-{marker()}"
    elsewhere = root / "elsewhere"
    try:
        checkout = Checkout(root, "bubblewrap")
        elsewhere.mkdir()
        for mount in checkout.open():
            out = f"{'../' * 40}oldroot{elsewhere}"
            told = checkout.sh(mount, f"mv .runtime-cache moved && ln -s {out} .runtime-cache")
            assert told == ""
            with pytest.raises(ProcessFault, match="is a link"):
                checkout.sh(mount, "true")
        assert not os.listdir(elsewhere)
    finally:
        shutil.rmtree(root)


def test_without_mounts_the_checkout_cannot_be_read() -> None:
    root = Path("/var/tmp") / f"coilclaw-test-{marker()}"
    try:
        checkout = Checkout(root, "landlock")
        for mount in checkout.open():
            told = checkout.sh(
                mount, f"pwd; ./run.sh; git log -1 --format=%s; cat {checkout.top}/run.sh"
            )
            first, *_ = told.splitlines()
            assert first == str(checkout.worktree.path)
            assert "worktree\nfirst\n" in told
            assert "Permission denied" in told
            assert checkout.sh(mount, f"{checkout.top}/.venv/bin/hi") == "hi\n"
    finally:
        shutil.rmtree(root)


def test_support_decides_what_can_be_mounted() -> None:
    with_bubblewrap, without = SandboxSupport("/usr/bin/bwrap"), SandboxSupport(landlock_abi=4)
    assert can_mount("auto", with_bubblewrap)
    assert not can_mount("auto", without)
    assert not can_mount("landlock", with_bubblewrap)
    assert not can_mount("none", with_bubblewrap)
