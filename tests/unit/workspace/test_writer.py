from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coilclaw.changes.operations import PathChange, Plan
from coilclaw.kernel.errors import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    JournalDamaged,
    PathRefused,
    PlanRefused,
    Stopped,
)
from coilclaw.kernel.journal_verification import verify_journal
from coilclaw.kernel.tree_files import FileState, RegularFile, Symlink
from coilclaw.kernel.tree_path import TreePath
from coilclaw.workspace.tree import changelog, recovery
from coilclaw.workspace.tree.changelog import HASH_FIELD, Changelog
from coilclaw.workspace.tree.placement import Placement
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.writer import Purpose, Writer, mark
from tests.support.trees import make, picture

PURPOSE = Purpose("apply")


def change(name: str, before: FileState, after: FileState) -> PathChange:
    return PathChange(TreePath(tuple(name.split("/"))), before, after)


def text(content: str, *, executable: bool = False) -> RegularFile:
    return RegularFile(content.encode(), executable)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make(
        tmp_path / "tree",
        {"a.txt": b"a\n", "d/b.txt": b"b\n", "run.sh": (b"#!/bin/sh\n", 0o755)},
    )


@pytest.fixture
def state(tmp_path: Path, tree: Path) -> TreeState:
    return TreeState.of(tmp_path / "home", tree)


PLAN = Plan(
    (
        change("a.txt", text("a\n"), text("A\n")),
        change("d/b.txt", text("b\n"), None),
        change("new/deep/c.txt", None, text("c\n")),
        change("new/tool", None, text("t\n", executable=True)),
    )
)
AFTER = {
    "a.txt": ("file", b"A\n", 0o644),
    "new": ("directory", b"", 0),
    "new/deep": ("directory", b"", 0),
    "new/deep/c.txt": ("file", b"c\n", 0o644),
    "new/tool": ("file", b"t\n", 0o755),
    "run.sh": ("file", b"#!/bin/sh\n", 0o755),
}


def test_a_changed_preimage_refuses_the_whole_plan(tree: Path, state: TreeState) -> None:
    (tree / "d" / "b.txt").write_bytes(b"edited\n")
    before = picture(tree)
    with Root(tree) as root, pytest.raises(PlanRefused, match=r"changed since.*d/b\.txt") as caught:
        Writer(root, state).apply(PLAN, PURPOSE)
    assert caught.value.rule == "plan.changed"
    assert picture(tree) == before
    assert not state.pending.exists()
    assert list(state.changes.iterdir()) == []


def test_a_file_that_appeared_refuses_the_whole_plan(tree: Path, state: TreeState) -> None:
    make(tree, {"new/tool": b"mine"})
    before = picture(tree)
    with Root(tree) as root, pytest.raises(PlanRefused, match="new/tool"):
        Writer(root, state).apply(PLAN, PURPOSE)
    assert picture(tree) == before


def test_a_preimage_that_changes_while_contents_are_staged_refuses(
    tree: Path, state: TreeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Placement.stage

    def meddle(self: Placement, *args: object, **kwargs: object) -> object:
        (tree / "a.txt").write_bytes(b"meanwhile\n")
        return stage(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Placement, "stage", meddle)
    with Root(tree) as root, pytest.raises(PlanRefused):
        Writer(root, state).apply(PLAN, PURPOSE)
    monkeypatch.undo()
    assert (tree / "a.txt").read_bytes() == b"meanwhile\n"
    assert sorted(picture(tree)) == ["a.txt", "d", "d/b.txt", "run.sh"]


def test_a_directory_swapped_for_a_link_refuses(
    tree: Path, state: TreeState, tmp_path: Path
) -> None:
    outside = make(tmp_path / "outside", {"b.txt": b"b\n"})
    (tree / "d").rename(tree / "e")
    os.symlink(outside, tree / "d")
    with Root(tree) as root, pytest.raises(PathRefused):
        Writer(root, state).apply(PLAN, PURPOSE)
    assert picture(outside) == {"b.txt": ("file", b"b\n", 0o644)}


def test_an_error_half_way_takes_everything_back(
    tree: Path, state: TreeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(tree)
    install = Placement.install
    calls: list[int] = []

    def fail(self: Placement, *args: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        install(self, *args)  # type: ignore[arg-type]

    with Root(tree) as root:
        monkeypatch.setattr(Placement, "install", fail)
        with pytest.raises(EnvironmentFault, match="the tree is as it was: No space left"):
            Writer(root, state).apply(PLAN, PURPOSE)
        monkeypatch.undo()
    assert picture(tree) == before
    assert not state.pending.exists()
    assert Changelog(state).entries() == ()


def test_an_empty_plan_is_refused(tree: Path, state: TreeState) -> None:
    with Root(tree) as root, pytest.raises(PlanRefused):
        Writer(root, state).apply(Plan(()), PURPOSE)


def test_a_plan_is_applied_and_recorded(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        writer = Writer(
            root,
            state,
            now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            token=lambda: "abc",
        )
        done = writer.apply(PLAN, Purpose("apply", "group-1"))
    assert picture(tree) == AFTER
    assert (done.id, done.origin, done.group) == ("20260102-030405-abc", "apply", "group-1")
    changelog = Changelog(state)
    assert [entry.id for entry in changelog.entries()] == [done.id]
    assert changelog.plan(changelog.load(changelog.find(done.id))) == PLAN
    report = verify_journal(state.journal, hash_field=HASH_FIELD, id_field="id", key_path=state.key)
    assert report.ok
    assert not state.pending.exists()


def test_nothing_of_ours_stays_in_the_tree(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        Writer(root, state).apply(PLAN, PURPOSE)
    assert not [name for name in picture(tree) if "coilclaw" in name]


def test_a_hard_link_out_of_the_tree_is_not_written_through(
    tree: Path, state: TreeState, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    os.link(tree / "a.txt", outside)
    with Root(tree) as root:
        Writer(root, state).apply(PLAN, PURPOSE)
    assert (outside.read_bytes(), (tree / "a.txt").read_bytes()) == (b"a\n", b"A\n")


def test_permission_bits_survive_and_set_id_bits_do_not(tree: Path, state: TreeState) -> None:
    (tree / "a.txt").chmod(0o640)
    (tree / "run.sh").chmod(0o4750)
    plan = Plan(
        (
            change("a.txt", text("a\n"), text("A\n")),
            change("run.sh", text("#!/bin/sh\n", executable=True), text("x", executable=True)),
        )
    )
    with Root(tree) as root:
        Writer(root, state).apply(plan, PURPOSE)
    assert stat.S_IMODE((tree / "a.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((tree / "run.sh").stat().st_mode) == 0o750


def test_the_executable_bit_follows_the_plan(tree: Path, state: TreeState) -> None:
    (tree / "a.txt").chmod(0o640)
    plan = Plan(
        (
            change("a.txt", text("a\n"), text("a\n", executable=True)),
            change("run.sh", text("#!/bin/sh\n", executable=True), text("#!/bin/sh\n")),
        )
    )
    with Root(tree) as root:
        Writer(root, state).apply(plan, PURPOSE)
    assert stat.S_IMODE((tree / "a.txt").stat().st_mode) == 0o750
    assert stat.S_IMODE((tree / "run.sh").stat().st_mode) == 0o644


def test_a_new_file_obeys_the_umask(tree: Path, state: TreeState) -> None:
    old = os.umask(0o077)
    try:
        with Root(tree) as root:
            Writer(root, state).apply(Plan((change("n", None, text("n")),)), PURPOSE)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tree / "n").stat().st_mode) == 0o600


def test_links_and_odd_names_and_changes_of_type(tree: Path, state: TreeState) -> None:
    odd = os.fsdecode(b"odd \xff\nname")
    plan = Plan(
        (
            change(odd, None, text("odd")),
            change("a.txt", text("a\n"), None),
            change("a.txt/inside", None, text("now a directory")),
            change("d", None, Symlink(b"run.sh")),
            change("d/b.txt", text("b\n"), None),
        )
    )
    with Root(tree) as root:
        done = Writer(root, state).apply(plan, PURPOSE)
    assert picture(tree) == {
        "a.txt": ("directory", b"", 0),
        "a.txt/inside": ("file", b"now a directory", 0o644),
        "d": ("link", b"run.sh", 0),
        odd: ("file", b"odd", 0o644),
        "run.sh": ("file", b"#!/bin/sh\n", 0o755),
    }
    changelog = Changelog(state)
    assert changelog.plan(changelog.load(changelog.find(done.id))) == plan


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_survives(tree: Path, state: TreeState) -> None:
    os.chown(tree / "a.txt", 1234, 1235)
    with Root(tree) as root:
        Writer(root, state).apply(PLAN, PURPOSE)
    info = (tree / "a.txt").stat()
    assert (info.st_uid, info.st_gid) == (1234, 1235)


def test_damaged_kept_contents_are_never_restored_silently(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = Writer(root, state).apply(PLAN, PURPOSE)
    contents = state.changes / done.id / "contents"
    contents.write_bytes(contents.read_bytes().replace(b"b\n", b"x\n"))
    changelog = Changelog(state)
    with pytest.raises(EnvironmentFault, match="damaged"):
        changelog.plan(changelog.load(changelog.find(done.id)))


def test_a_damaged_record_or_marker_is_a_fault_not_a_guess(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = Writer(root, state).apply(PLAN, PURPOSE)
        record = state.changes / done.id / "change.json"
        good = record.read_bytes()
        for bad in (b"{", b"{}", json.dumps({"format": "other"}).encode(), good[:-20]):
            record.write_bytes(bad)
            with pytest.raises(EnvironmentFault):
                Changelog(state).load(Changelog(state).find(done.id))
        state.pending.write_bytes(b"nonsense")
        with pytest.raises(EnvironmentFault, match="damaged"):
            Writer(root, state).apply(Plan((change("n", None, text("n")),)), PURPOSE)
        state.pending.write_bytes(b'{"id": "x", "phase": "unheard-of"}')
        with pytest.raises(CoilClawError):
            Writer(root, state).apply(Plan((change("n", None, text("n")),)), PURPOSE)
    assert not (tree / "n").exists()


def test_an_edit_saved_while_files_are_put_in_place_is_never_lost(
    tree: Path, state: TreeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(tree)
    install = Placement.install

    def meddle(self: Placement, *args: object) -> None:
        install(self, *args)  # type: ignore[arg-type]
        make(tree, {"new/tool": b"the user's own"})

    monkeypatch.setattr(Placement, "install", meddle)
    with Root(tree) as root, pytest.raises(PlanRefused, match="new/tool"):
        Writer(root, state).apply(PLAN, PURPOSE)
    monkeypatch.undo()
    assert (tree / "new" / "tool").read_bytes() == b"the user's own"
    assert {name: entry for name, entry in picture(tree).items() if "new" not in name} == before


@pytest.mark.parametrize("where", ["stage", "install", "remove"])
def test_a_signal_takes_the_change_back(
    tree: Path, state: TreeState, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = picture(tree)
    original = getattr(Placement, where)

    def interrupted(self: Placement, *args: object) -> object:
        monkeypatch.undo()
        original(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(Placement, where, interrupted)
    with Root(tree) as root, pytest.raises(Stopped, match="the tree is as it was"):
        Writer(root, state).apply(PLAN, PURPOSE)
    assert picture(tree) == before
    assert not state.pending.exists()
    assert list(state.changes.iterdir()) == []


def test_a_record_that_cannot_be_written_takes_the_change_back(
    tree: Path, state: TreeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(tree)

    def fail(self: Changelog, change: object) -> None:
        raise EnvironmentFault("the journal is full")

    monkeypatch.setattr(Changelog, "append", fail)
    with Root(tree) as root, pytest.raises(EnvironmentFault, match="the tree is as it was"):
        Writer(root, state).apply(PLAN, PURPOSE)
    assert picture(tree) == before


def test_our_own_state_is_no_tree(tmp_path: Path, tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        Writer(root, state).apply(PLAN, PURPOSE)
    for inside in (state.home, state.home / "keys"):
        ours = TreeState.of(state.home, inside)
        plan = Plan((change("x", None, text("x")),))
        with Root(inside) as root, pytest.raises(DeniedError, match="state of CoilClaw") as caught:
            Writer(root, ours).apply(plan, PURPOSE)
        assert caught.value.rule == "protected.state"


def test_an_edited_record_is_never_acted_on(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = Writer(root, state).apply(PLAN, PURPOSE)
    record = state.changes / done.id / "change.json"
    record.write_bytes(record.read_bytes().replace(b'["a.txt"]', b'["b.txt"]'))
    changelog = Changelog(state)
    with pytest.raises(EnvironmentFault, match="not the one that was kept"):
        changelog.load(changelog.find(done.id))


@pytest.mark.parametrize(
    "parts", [b'["..","x"]', b'["/x"]', b'["a/b"]', b"[]", b"[5]", b'["a\\u0000"]', b'["\\ud800"]']
)
def test_a_path_that_leads_elsewhere_is_no_record(
    tree: Path, state: TreeState, parts: bytes
) -> None:
    with Root(tree) as root:
        done = Writer(root, state).apply(PLAN, PURPOSE)
    record = state.changes / done.id / "change.json"
    record.write_bytes(record.read_bytes().replace(b'["a.txt"]', parts))
    with pytest.raises(EnvironmentFault, match="damaged"):
        changelog.read_change(state.changes / done.id)


def test_an_edited_journal_is_not_read_as_if_it_were_whole(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        Writer(root, state).apply(PLAN, PURPOSE)
    good = state.journal.read_bytes()
    state.journal.write_bytes(good.replace(b'"apply"', b'"other"'))
    with pytest.raises(JournalDamaged, match="edited"):
        Changelog(state).entries()
    state.journal.unlink()
    with pytest.raises(CoilClawError):
        Changelog(state).entries()


def test_an_interrupted_change_is_not_finished_in_another_directory(
    tree: Path, state: TreeState
) -> None:
    with Root(tree) as root:
        mark(root, state_of(state), "20260101-000000-abc", "committed")
    tree.rename(tree.with_name("old"))
    make(tree, {"fresh": b"fresh"})
    before = picture(tree)
    with Root(tree) as root:
        done = recovery.repair_tree(root, state)
    assert done is not None
    assert done.outcome == "forgotten"
    assert picture(tree) == before


@pytest.mark.parametrize("change_id", ["../../victim", "", "a\u0000b", "x"])
def test_a_marker_names_a_change_and_nothing_else(
    tree: Path, state: TreeState, change_id: str
) -> None:
    state.create()
    with Root(tree) as root:
        mark(root, state, change_id, "staging")
        with pytest.raises(EnvironmentFault, match="damaged"):
            recovery.repair_tree(root, state)


def state_of(state: TreeState) -> TreeState:
    state.create()
    return state


def test_a_moved_file_keeps_its_bits(tree: Path, state: TreeState) -> None:
    (tree / "a.txt").chmod(0o600)
    moved = TreePath(("m.txt",))
    plan = Plan(
        (
            change("a.txt", text("a\n"), None),
            PathChange(moved, None, text("a\n"), TreePath(("a.txt",))),
        )
    )
    with Root(tree) as root:
        Writer(root, state).apply(plan, PURPOSE)
    assert stat.S_IMODE((tree / "m.txt").stat().st_mode) == 0o600
