"""Worktrees hold exactly what a commit holds, and nothing is left of them in the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, GitFailed, UsageError
from coilclaw.workspace.git import worktrees
from coilclaw.workspace.git.repository import Repository
from coilclaw.workspace.git.worktrees import Worktree, Worktrees
from coilclaw.workspace.process import environment
from coilclaw.workspace.snapshot.store import SnapshotStore
from coilclaw.workspace.tree import removal
from tests.support.children import wait_for
from tests.support.scale import scaled
from tests.support.snapshot_trees import Content, Empty, Link, Program, build, contents, git

FILES: dict[str, Content] = {
    ".gitattributes": b"*.txt text eol=crlf\n*.id ident\n"
    b"*.u16 working-tree-encoding=UTF-16\n* filter=x\n",
    "dos.txt": b"one\ntwo\n",
    "keep.txt": b"already\r\ncrlf\r\n",
    "name.id": b"$Id$\n",
    "text.u16": "grüße\n".encode(),
    "src/run.sh": Program(b"#!/bin/sh\n"),
    "src/link": Link("../dos.txt"),
    "dangling": Link("/nonexistent/\xff"),
    "odd \n\t'\" name": b"odd",
    "n" * 255: b"long",
    "/".join(["deep" * 10] * 20) + "/f": b"deep",
    "binary": bytes(range(256)),
    "empty": b"",
}
IGNORED = frozenset({".git"})


class World:
    """A repository and the worktrees of it."""

    def __init__(self, root: Path) -> None:
        self.tree = build(root / "tree", FILES)
        git(self.tree, "init", "-q", "-b", "main")
        # The contents as they stand here, whatever the attributes would make of them.
        build(
            self.tree, {".git/info/attributes": b"* -text -ident -filter !working-tree-encoding\n"}
        )
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "first")
        (self.tree / ".git/info/attributes").unlink()
        self.repository = Repository.open(self.tree)
        self.commit = self.repository.resolve("HEAD")
        self.runtime = self.tree / ".runtime-cache" / "cortexpilot"
        self.worktrees = self.opened()
        self.store = SnapshotStore(root / "snapshots")

    def opened(self) -> Worktrees:
        return Worktrees(self.repository, self.runtime / "git", self.runtime / "worktrees")

    def path(self, task: str = "task-1", run: str = "run-0001") -> Path:
        return self.runtime / "worktrees" / run / task

    def left(self) -> list[str]:
        """Whatever of a worktree is left anywhere, by name."""
        own = self.runtime / "git" / "coilclaw"
        places = [
            *(self.runtime / "worktrees").glob("*"),
            *(self.tree / ".git").glob("worktrees"),
            *(self.tree / ".git").glob(".coilclaw*"),
            *own.glob("worktrees/*"),
            *own.glob("objects/*"),
            *own.glob("index*"),
        ]
        branches = git(self.tree, "branch", "--format=%(refname:short)").decode().split()
        return [str(place) for place in places] + [name for name in branches if name != "main"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_place_elsewhere_or_taken_is_refused(world: World, tmp_path: Path) -> None:
    for path in (tmp_path / "elsewhere", world.runtime / "worktrees", world.path() / ".." / ".."):
        with pytest.raises(UsageError) as caught:
            world.worktrees.add(path, world.commit)
        assert caught.value.rule == "worktree.path"
    build(world.path(), {"file": b"mine"})
    with pytest.raises(UsageError) as caught:
        world.worktrees.add(world.path(), world.commit)
    assert caught.value.rule == "worktree.exists"
    assert contents(world.path()) == {"file": b"mine"}


@pytest.mark.parametrize("commit", ["HEAD", "main", "--help", "abc"])
def test_only_a_full_commit_id_is_taken(world: World, commit: str) -> None:
    with pytest.raises(UsageError):
        world.worktrees.add(world.path(), commit)
    assert world.left() == []


def test_a_commit_that_is_not_there_leaves_nothing_behind(world: World) -> None:
    with pytest.raises(GitFailed):
        world.worktrees.add(world.path(), "1" * 40)
    assert world.left() == []


def test_a_checkout_that_fails_leaves_nothing_behind(world: World) -> None:
    blob = git(world.tree, "rev-parse", "HEAD:binary").decode().strip()
    (world.tree / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitFailed):
        world.worktrees.add(world.path(), world.commit)
    assert world.left() == []


def test_it_holds_the_exact_bytes_of_the_commit(world: World) -> None:
    git(world.tree, "config", "core.autocrlf", "true")
    worktree = world.worktrees.add(world.path(), world.commit)
    assert contents(worktree.path, skip=IGNORED) == FILES
    assert world.store.take(worktree.path).tree == world.repository.tree(world.commit)
    assert (worktree.path, worktree.commit) == (world.path(), world.commit)
    assert worktree.git_dir.parent == world.tree / ".git" / "worktrees"


def test_plain_git_would_have_changed_them(world: World) -> None:
    """What the test above guards against is real here."""
    git(world.tree, "worktree", "add", "-q", "--detach", str(world.path()))
    assert (world.path() / "dos.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_it_is_detached_and_git_works_in_it(world: World) -> None:
    worktree = world.worktrees.add(world.path(), world.commit)
    assert git(worktree.path, "rev-parse", "HEAD").decode().strip() == world.commit
    assert git(worktree.path, "rev-parse", "--abbrev-ref", "HEAD") == b"HEAD\n"
    assert git(worktree.path, "log", "--format=%s") == b"first\n"
    assert len(git(worktree.path, "ls-files", "-z").split(b"\0")) == len(FILES) + 1
    assert b"src/run.sh" not in git(worktree.path, "status", "--porcelain")


def test_a_plain_worktree_is_clean_for_git_at_once(tmp_path: Path) -> None:
    tree = build(tmp_path / "tree", {"a": b"a\n", "b/c": b"c\n"})
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "x")
    repository = Repository.open(tree)
    worktrees = Worktrees(repository, tmp_path / "own", tmp_path / "worktrees")
    worktree = worktrees.add(tmp_path / "worktrees/run/task", repository.resolve("HEAD"))
    assert git(worktree.path, "status", "--porcelain") == b""
    assert git(worktree.path, "diff-files") == b""


def test_an_earlier_commit_can_be_asked_for(world: World) -> None:
    first = world.commit
    build(world.tree, {"later": b"later"})
    git(world.tree, "add", "later")
    git(world.tree, "commit", "-q", "-m", "second")
    worktree = world.worktrees.add(world.path(), first)
    assert "later" not in contents(worktree.path)


def test_nothing_that_is_planted_runs(world: World, tmp_path: Path) -> None:
    trap = b"#!/bin/sh\necho \"$0\" >> '%s/ran'\ncat\n" % bytes(tmp_path)
    hooks = ("post-checkout", "reference-transaction", "post-index-change", "pre-commit")
    build(world.tree / ".git/hooks", {name: Program(trap) for name in hooks})
    build(tmp_path, {"trap": Program(trap)})
    for name in ("filter.x.smudge", "filter.x.process", "filter.x.clean", "core.fsmonitor"):
        git(world.tree, "config", name, str(tmp_path / "trap"))
    (tmp_path / "ran").unlink(missing_ok=True)
    world.repository = Repository.open(world.tree)
    worktrees = world.opened()
    worktree = worktrees.add(world.path(), world.commit)
    assert contents(worktree.path, skip=IGNORED) == FILES
    worktrees.reset(worktree)
    worktrees.remove(worktree)
    assert not (tmp_path / "ran").exists()
    assert world.left() == []


def test_submodules_become_empty_directories(world: World, tmp_path: Path) -> None:
    row = f"160000,{world.commit},vendor/sub"
    git(world.tree, "update-index", "--add", "--cacheinfo", row)
    git(world.tree, "commit", "-q", "-m", "with a submodule")
    commit = git(world.tree, "rev-parse", "HEAD").decode().strip()
    worktree = world.worktrees.add(world.path(), commit)
    assert contents(worktree.path, skip=IGNORED) == {**FILES, "vendor/sub": Empty()}
    assert world.repository.gitlinks(commit) == ("vendor/sub",)
    assert world.store.take(worktree.path).tree == world.worktrees.borrowing.exact_tree(commit)
    assert world.worktrees.borrowing.exact_tree(commit) != world.repository.tree(commit)


def test_a_linked_worktree_and_a_submodule_can_be_the_control_root(
    world: World, tmp_path: Path
) -> None:
    git(world.tree, "worktree", "add", "-q", "--no-checkout", "-b", "side", str(tmp_path / "side"))
    outer = build(tmp_path / "outer", {"x": b"x"})
    git(outer, "init", "-q")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(world.tree), "sub")
    for place in (tmp_path / "side", outer / "sub"):
        worktrees = Worktrees(Repository.open(place), place / "r/git", place / "r/worktrees")
        worktree = worktrees.add(place / "r/worktrees/run-1/task", world.commit)
        assert contents(worktree.path, skip=IGNORED) == FILES
        worktrees.remove(worktree)
        assert list((place / "r/worktrees").iterdir()) == []
    assert (world.tree / ".git/worktrees").exists(), "the user's own one stays"


def test_removing_leaves_nothing(world: World) -> None:
    worktree = world.worktrees.add(world.path(), world.commit)
    objects = worktree.objects
    assert objects.is_dir()
    world.worktrees.remove(worktree)
    assert world.left() == []
    assert not objects.exists()
    assert git(world.tree, "worktree", "list", "--porcelain").count(b"worktree ") == 1
    world.worktrees.remove(worktree)


def test_a_neighbour_of_the_same_run_stays(world: World) -> None:
    first = world.worktrees.add(world.path("task-1"), world.commit)
    second = world.worktrees.add(world.path("task-2"), world.commit)
    world.worktrees.remove(first)
    assert contents(second.path, skip=IGNORED) == FILES
    assert git(second.path, "rev-parse", "HEAD").decode().strip() == world.commit
    assert world.worktrees.find(world.path("task-1")) is None
    assert world.worktrees.find(world.path("task-2")) == second


def _pointer_gone(worktree: Worktree) -> None:
    (worktree.path / ".git").unlink()


def _pointer_elsewhere(worktree: Worktree) -> None:
    (worktree.path / ".git").write_text(f"gitdir: {worktree.shared.parent}\n")
    (worktree.git_dir / "gitdir").write_text(f"{worktree.shared.parent.parent}/.git\n")


def _pointer_is_a_repository(worktree: Worktree) -> None:
    (worktree.path / ".git").unlink()
    git(worktree.path, "init", "-q")


def _shut(worktree: Worktree) -> None:
    build(worktree.path, {"shut/inside/file": b"x"})
    (worktree.path / "shut/inside").chmod(0)
    (worktree.path / "shut").chmod(0o500)
    worktree.path.chmod(0o500)


def _busy(worktree: Worktree) -> None:
    build(worktree.git_dir, {"index.lock": b"", "locked": b"mine\n", "config.worktree": b"[x\n"})


def _odd(worktree: Worktree) -> None:
    for name in ("gitdir", "HEAD", "commondir"):
        (worktree.git_dir / name).unlink()
    os.mkfifo(worktree.git_dir / "gitdir")
    (worktree.git_dir / "HEAD").symlink_to("/dev/zero")
    os.mkfifo(worktree.git_dir / "commondir")
    os.mkfifo(worktree.git_dir / "locked")


def _emptied(worktree: Worktree) -> None:
    for entry in worktree.git_dir.iterdir():
        if entry.is_file():
            entry.unlink()


def _deep(worktree: Worktree) -> None:
    here = os.open(worktree.path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def _gone(worktree: Worktree) -> None:
    for entry in worktree.path.rglob("*"):
        if not entry.is_dir():
            entry.unlink()


TRICKS = (
    _pointer_gone,
    _pointer_elsewhere,
    _pointer_is_a_repository,
    _shut,
    _busy,
    _odd,
    _emptied,
    _deep,
    _gone,
)


@pytest.mark.parametrize("trick", TRICKS)
def test_whatever_an_agent_left_it_can_be_removed(world: World, trick: object) -> None:
    assert callable(trick)
    worktree = world.worktrees.add(world.path("task-1"), world.commit)
    other = world.worktrees.add(world.path("task-2"), world.commit)
    trick(worktree)
    # Others are not held up by it meanwhile.
    third = world.worktrees.add(world.path("task-3"), world.commit)
    assert contents(third.path, skip=IGNORED) == contents(other.path, skip=IGNORED) == FILES
    for each in (worktree, other, third):
        world.worktrees.remove(each)
    assert world.left() == []
    assert contents(world.tree / ".git/refs") != {}


@pytest.mark.parametrize("trick", TRICKS)
def test_whatever_an_agent_left_it_can_be_reset(world: World, trick: object) -> None:
    assert callable(trick)
    worktree = world.worktrees.add(world.path(), world.commit)
    before = world.store.take(worktree.path)
    trick(worktree)
    world.worktrees.reset(worktree)
    assert world.store.take(worktree.path, reread=True) == before
    assert git(worktree.path, "rev-parse", "HEAD").decode().strip() == world.commit
    world.worktrees.remove(worktree)
    assert world.left() == []


def test_a_link_out_of_the_worktree_is_removed_and_not_followed(
    world: World, tmp_path: Path
) -> None:
    outside = build(tmp_path / "outside", {"file": b"precious"})
    worktree = world.worktrees.add(world.path(), world.commit)
    (worktree.path / "out").symlink_to(outside)
    world.worktrees.remove(worktree)
    assert contents(outside) == {"file": b"precious"}
    path = world.path()
    path.parent.mkdir()
    path.symlink_to(outside)
    world.worktrees.remove(worktree)
    assert contents(outside) == {"file": b"precious"}
    assert world.left() == []


def test_eight_at_once_in_threads_do_not_get_in_each_others_way(world: World) -> None:
    for number in range(scaled(full=40, default=4)):
        barrier = threading.Barrier(8)

        def one(task: int, barrier: threading.Barrier = barrier, number: int = number) -> Worktree:
            worktrees = world.opened() if task % 2 else world.worktrees
            barrier.wait()
            return worktrees.add(world.path(f"task-{task}", f"run-{number:04}"), world.commit)

        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(one, range(8)))
        assert len({worktree.git_dir for worktree in made}) == 8
        for worktree in made:
            assert contents(worktree.path, skip=IGNORED) == FILES
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(world.worktrees.remove, made))
        assert world.left() == []


@pytest.mark.parametrize("action", ["remove", "reset"])
def test_a_namesake_made_while_a_tree_is_away_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    # git names a worktree's directory after the last part of its path, and takes names that are
    # free: two runs that have the same task meet there.
    ours = world.worktrees.add(world.path(run="run-0001"), world.commit)
    made: list[Worktree] = []
    remove = removal.remove_tree

    def remove_and_make(path: Path, **more: Path) -> None:
        remove(path, **more)
        if path == ours.path and not made:
            made.append(world.opened().add(world.path(run="run-0002"), world.commit))

    monkeypatch.setattr(worktrees, "remove_tree", remove_and_make)
    getattr(world.worktrees, action)(ours)
    monkeypatch.undo()
    (other,) = made
    assert contents(other.path, skip=IGNORED) == FILES
    assert git(other.path, "rev-parse", "HEAD").decode().strip() == world.commit
    if action == "reset":
        assert ours.git_dir != other.git_dir
        assert git(ours.path, "rev-parse", "HEAD").decode().strip() == world.commit
        world.worktrees.remove(ours)
    world.worktrees.remove(other)
    assert world.left() == []


def test_what_a_killed_process_recorded_does_not_harm_its_namesake(world: World) -> None:
    # Killed while it removed its worktree: the record is left, the git directory is another's.
    gone = world.path(run="run-0001")
    pid = os.fork()
    if pid == 0:
        try:
            made = world.worktrees.add(gone, world.commit)
            shutil.rmtree(made.path)
            shutil.rmtree(made.git_dir)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    other = world.worktrees.add(world.path(run="run-0002"), world.commit)
    third = world.worktrees.add(world.path(run="run-0003"), world.commit)
    assert git(other.path, "rev-parse", "HEAD").decode().strip() == world.commit
    assert world.worktrees.sweep() == (gone,)
    assert git(other.path, "rev-parse", "HEAD").decode().strip() == world.commit
    for worktree in (other, third):
        world.worktrees.remove(worktree)
    assert world.left() == []


def test_of_two_that_make_the_same_one_does(world: World) -> None:
    barrier = threading.Barrier(2)

    def one(_: int) -> Worktree | str:
        barrier.wait()
        try:
            return world.opened().add(world.path(), world.commit)
        except UsageError as problem:
            return problem.rule

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, range(2)))
    assert "worktree.exists" in results
    (made,) = (result for result in results if isinstance(result, Worktree))
    assert contents(made.path, skip=IGNORED) == FILES


def test_eight_at_once_in_processes_do_not_get_in_each_others_way(world: World) -> None:
    for number in range(scaled(full=40, default=4)):
        children = []
        for task in range(8):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    path = world.path(f"task-{task}", f"run-{number:04}")
                    worktree = world.worktrees.add(path, world.commit)
                    code = 0 if contents(worktree.path, skip=IGNORED) == FILES else 2
                finally:
                    os._exit(code)
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        assert codes == [0] * 8
        # Their makers are gone, so they are leftovers now.
        assert len(world.worktrees.leftovers()) == 8
        assert len(world.worktrees.sweep()) == 8
        assert world.left() == []


def test_what_runs_is_no_leftover_and_what_is_to_be_kept_stays(world: World) -> None:
    mine = world.worktrees.add(world.path("mine"), world.commit)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for name in ("kept", "dead"):
                world.worktrees.add(world.path(name), world.commit)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    build(world.runtime / "worktrees", {"run-odd/task/file": b"x", "stray": b"x"})
    assert world.worktrees.sweep(keep=[world.path("kept")]) == (
        world.path("dead"),
        world.path("task", "run-odd"),
    )
    assert contents(mine.path, skip=IGNORED) == FILES
    kept = world.worktrees.find(world.path("kept"))
    assert kept is not None
    assert contents(kept.path, skip=IGNORED) == FILES
    assert world.worktrees.leftovers() == (world.path("kept"),)
    for worktree in (mine, kept):
        world.worktrees.remove(worktree)
    (world.runtime / "worktrees/stray").unlink()
    assert world.left() == []


def test_killed_at_any_moment_everything_is_swept(world: World) -> None:
    """The maker is killed while it makes, and while it removes; its git goes on by itself."""
    more = {f"many/{number % 40}/{number}": b"%d\n" % number for number in range(500)}
    build(world.tree, more)
    git(world.tree, "add", "many")
    git(world.tree, "commit", "-q", "-m", "many")
    git(world.tree, "gc", "-q")
    commit, chance = world.repository.resolve("HEAD"), random.Random(7)
    took = _duration(lambda: world.worktrees.remove(world.worktrees.add(world.path(), commit)))
    took = min(took, 0.25)  # a moment at which the machine is busy says nothing
    for number in range(scaled(full=100, default=15)):
        path = world.path("task", f"run-{number:04}")
        pid = os.fork()
        if pid == 0:
            try:
                world.worktrees.remove(world.worktrees.add(path, commit))
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.0, took))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        world.worktrees.sweep()
        assert world.left() == []
    again = world.worktrees.add(world.path(), commit)
    assert contents(again.path, skip=IGNORED) == {**FILES, **more}


@pytest.mark.parametrize("command", ["worktree add", "read-tree"])
def test_a_sweep_waits_for_the_git_of_a_maker_that_was_killed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    started, door = tmp_path / "started", tmp_path / "door"
    script = f"""#!/bin/sh
case "$*" in *"{command}"*) echo yes > '{started}'; cat '{door}' > /dev/null;; esac
exec '{shutil.which("git")}' "$@"
"""
    build(tmp_path, {"bin/git": Program(script.encode())})
    os.mkfifo(door)
    pid = os.fork()
    if pid == 0:
        try:
            os.environ["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
            # The runs of other tests end what nobody waits for, and would end this git.
            monkeypatch.setattr(environment, "_namespace", lambda: "elsewhere")
            world.worktrees.add(world.path(), world.commit)
        finally:
            os._exit(0)
    wait_for(started)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sweeping = threading.Thread(target=world.worktrees.sweep)
    sweeping.start()
    sweeping.join(0.2)
    assert sweeping.is_alive(), "it did not wait"
    door.write_bytes(b"")  # git goes on
    sweeping.join()
    assert world.left() == []


def _duration(action: Callable[[], None]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def test_a_damaged_record_is_named(world: World) -> None:
    world.worktrees.add(world.path(), world.commit)
    (place,) = (world.runtime / "git/coilclaw/worktrees").glob("*.json")
    place.write_text("{}")
    with pytest.raises(EnvironmentFault, match="is not a record of a worktree"):
        world.worktrees.leftovers()


def test_a_user_s_own_worktree_is_never_touched(world: World, tmp_path: Path) -> None:
    git(world.tree, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "mine").write_text("mine")
    worktree = world.worktrees.add(world.path(), world.commit)
    world.worktrees.remove(worktree)
    world.worktrees.sweep()
    assert (tmp_path / "side" / "mine").read_text() == "mine"
    assert git(tmp_path / "side", "rev-parse", "--abbrev-ref", "HEAD") == b"side\n"


@pytest.mark.parametrize("action", ["remove", "reset"])
def test_a_git_gc_of_the_user_s_is_not_taken_for_an_agent(
    world: World, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    # It locks the reflog of every worktree that it has found, also of one that is gone by then.
    ours = world.worktrees.add(world.path(), world.commit)
    remove = removal.remove_tree
    locked: list[Path] = []

    def remove_and_lock(path: Path, **more: Path) -> None:
        remove(path, **more)
        if path == ours.git_dir and not locked:
            locked.append(path / "logs/HEAD.lock")
            build(path, {"logs/HEAD.lock": b""})

    monkeypatch.setattr(worktrees, "remove_tree", remove_and_lock)
    getattr(world.worktrees, action)(ours)
    assert len(locked) == 1
    if action == "reset":
        assert git(ours.path, "rev-parse", "HEAD").decode().strip() == world.commit
        world.worktrees.remove(ours)
    assert world.left() == []


def test_what_cannot_be_removed_for_good_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = world.worktrees.add(world.path(), world.commit)
    remove = removal.remove_tree

    def remove_and_lock(path: Path, **more: Path) -> None:
        remove(path, **more)
        if path == ours.git_dir:
            build(path, {"logs/HEAD.lock": b""})

    monkeypatch.setattr(worktrees, "remove_tree", remove_and_lock)
    monkeypatch.setattr(worktrees, "PAUSE_S", 0.0)
    with pytest.raises(EnvironmentFault, match="something writes in the worktree"):
        world.worktrees.remove(ours)


def test_a_sweep_leaves_alone_what_was_made_again_since_it_looked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run removes its worktree and makes the next one at the same path.
    world.worktrees.add(world.path(), world.commit)
    other = world.opened()
    monkeypatch.setattr(other, "leftovers", lambda: (world.path(),))
    assert other.sweep() == ()
    found = world.worktrees.find(world.path())
    assert found is not None
    assert contents(found.path, skip=IGNORED) == FILES
    world.worktrees.remove(found)
    assert world.left() == []


def test_a_user_s_worktree_that_is_away_is_still_listed(world: World, tmp_path: Path) -> None:
    # On a drive that is not plugged in, say.
    git(world.tree, "worktree", "add", "-q", "--detach", str(tmp_path / "away"))
    (tmp_path / "away").rename(tmp_path / "elsewhere")
    world.worktrees.remove(world.worktrees.add(world.path(), world.commit))
    (tmp_path / "elsewhere").rename(tmp_path / "away")
    assert git(tmp_path / "away", "rev-parse", "HEAD").decode().strip() == world.commit


def test_private_places_are_private(world: World) -> None:
    worktree = world.worktrees.add(world.path(), world.commit)
    for place in (worktree.objects, world.runtime / "git"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
