"""Turns of several conversations at once: each has its own two pictures of the workspace."""

from __future__ import annotations

import json
from pathlib import Path

from coilclaw.agent.turn_undo import TURNS_FILE, TurnUndo
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState


def test_turns_that_overlap_have_one_picture_before_and_one_after_each(tmp_path: Path) -> None:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir(mode=0o700)
    with Root(workspace) as root:
        state = TreeState.of(home, root.path)
        undoing = TurnUndo(lambda: (root, state))
        undoing.before("a", "1")
        (workspace / "a.txt").write_text("a")
        undoing.before("b", "2")
        (workspace / "b.txt").write_text("b")
        undoing.before("a", "1")
        undoing.after("a", "1")
        undoing.after("b", "2")
        undoing.after("b", "2")
        lines = (state.directory / TURNS_FILE).read_text().splitlines()
        records = [json.loads(line) for line in lines]
        assert [(one["kind"], one["turn_id"]) for one in records] == [
            ("before", "1"),
            ("before", "2"),
            ("after", "1"),
            ("after", "2"),
        ]
        undone = undoing.undo("b")
    assert (undone.turn_id, undone.paths) == ("2", ("b.txt",))
    assert sorted(path.name for path in workspace.iterdir()) == ["a.txt"]
