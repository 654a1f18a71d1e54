"""The form in which changes are kept does not change silently."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from coilclaw.changes.operations import PathChange, Plan
from coilclaw.kernel.tree_files import RegularFile, Symlink
from coilclaw.kernel.tree_path import TreePath
from coilclaw.workspace.tree import changelog
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.writer import Purpose, Writer
from tests.support.trees import make

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "change"
PLAN = Plan(
    (
        PathChange(TreePath(("d", "b.txt")), RegularFile(b"b\n"), None),
        PathChange(TreePath(("link",)), None, Symlink(b"run.sh")),
        PathChange(TreePath(("n", "odd \udcff\n")), None, RegularFile(b"\x00\xff", True)),
        PathChange(TreePath(("run.sh",)), RegularFile(b"old\n", True), RegularFile(b"new\n", True)),
    )
)


def written(tmp_path: Path) -> Path:
    tree = make(tmp_path / "tree", {"d/b.txt": b"b\n", "run.sh": (b"old\n", 0o750)})
    (tree / "d").chmod(0o755)
    state = TreeState.of(tmp_path / "home", tree)
    with Root(tree) as root:
        writer = Writer(
            root,
            state,
            now=lambda: datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            token=lambda: "a1b2c3",
        )
        done = writer.apply(PLAN, Purpose("undo", "a run", ("20260101-000000-000000",)))
    return state.changes / done.id


def test_a_change_kept_by_the_first_version_can_be_read() -> None:
    change = changelog.read_change(BASELINE)
    assert (change.id, change.time, change.origin, change.group, change.undoes) == (
        "20260102-030405-a1b2c3",
        "2026-01-02T03:04:05.678+00:00",
        "undo",
        "a run",
        ("20260101-000000-000000",),
    )
    assert (change.directories, change.emptied) == ((("n",),), ((("d",), 0o755),))
    assert changelog.load_plan(BASELINE, change) == PLAN
    assert [item.before.mode for item in change.files if item.before] == [0o644, 0o750]


def test_what_is_written_today_is_the_same_to_the_byte(tmp_path: Path) -> None:
    folder = written(tmp_path)
    for name in ("change.json", "contents"):
        assert (folder / name).read_bytes() == (BASELINE / name).read_bytes(), name
