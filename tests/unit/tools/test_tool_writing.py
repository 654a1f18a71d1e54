"""``file_write`` and ``apply_changes``: shown, written exactly so, all or nothing, undoable."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.file_write import ApplyChanges, FileWrite
from coilclaw.kernel.errors import CoilClawError, DeniedError, PathRefused, PlanRefused
from coilclaw.kernel.messages import ToolResult
from coilclaw.workspace.tree.changelog import Changelog
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.undo import undo_group
from tests.support.toolworld import World, world
from tests.support.trees import make, picture


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path.resolve()) as made:
        make(made.workspace, {"a.txt": b"one\ntwo\n", "run.sh": (b"#!/bin/sh\n", 0o750)})
        make(tmp_path / "outside", {"secret": b"secret\n"})
        yield made


def rule_of(here: World, path: str, content: str = "x") -> str:
    """The rule that refuses to write; nothing is changed, inside or outside."""
    before = picture(here.workspace.parent)
    with pytest.raises(CoilClawError) as raised:
        FileWrite().prepare({"path": path, "content": content}, here.context)
    assert picture(here.workspace.parent) == before
    return raised.value.rule


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/etc/passwd", "path.outside"),
        ("../outside/secret", "path.outside"),
        ("~/outside/secret", "path.outside"),
        (".git/hooks/post-commit", "path.git"),
        ("sub/.GIT/config", "path.git"),
        ("git~1", "path.git"),
        (".g\u200cit", "path.git"),
        (".git::$INDEX_ALLOCATION/x", "path.git"),
        ("C:x", "path.drive"),
        ("..\\outside\\secret", "path.backslash"),
        (".coilclaw/config.toml", "protected.state"),
        (".coilclaw-1", "protected.state"),
        ("CON", "path.device"),
        ("a.txt.", "path.trailing"),
        ("a\nb", "path.control"),
        ("a\0b", "path.nul"),
        (".", "path.empty"),
        ("a.txt/b", "path.directory"),
    ],
)
def test_where_nobody_may_write(here: World, path: str, rule: str) -> None:
    assert rule_of(here, path) == rule


def test_a_link_that_leads_out_is_not_written_through(here: World) -> None:
    (here.workspace / "leaf").symlink_to("../outside/secret")
    (here.workspace / "dir").symlink_to("../outside")
    assert rule_of(here, "leaf") == "path.symlink"
    assert rule_of(here, "dir/new") == "path.symlink"


def test_directories_and_special_files_are_in_the_way(here: World) -> None:
    (here.workspace / "sub").mkdir()
    os.mkfifo(here.workspace / "fifo")
    for name in ("sub", "fifo"):
        with pytest.raises(PlanRefused) as raised:
            FileWrite().prepare({"path": name, "content": "x"}, here.context)
        assert raised.value.rule == "plan.obstacle"


def test_a_hard_link_is_broken_and_its_twin_is_left_alone(here: World) -> None:
    os.link(here.workspace.parent / "outside" / "secret", here.workspace / "twin")
    assert here.call(FileWrite(), path="twin", content="mine\n").success
    assert (here.workspace.parent / "outside" / "secret").read_bytes() == b"secret\n"


def test_forbidden_and_own_places_inside_are_refused(here: World) -> None:
    make(here.workspace, {"keys/k": b""})
    (here.workspace / "link").symlink_to("keys/k")
    kept = here.using(forbidden_paths=(f"{here.workspace}/keys",))
    assert rule_of(kept, "link") == "path.forbidden"
    assert rule_of(kept, "keys/new") == "path.forbidden"


def test_content_that_is_no_unicode_is_refused(here: World) -> None:
    assert rule_of(here, "lone", "\ud800") == "file.encoding"


def test_nothing_happens_before_it_is_performed_and_the_diff_is_exact(here: World) -> None:
    before = picture(here.workspace)
    prepared = FileWrite().prepare({"path": "a.txt", "content": "one\n2\n"}, here.context)
    assert picture(here.workspace) == before
    assert prepared.detail == (
        "diff --git a/a.txt b/a.txt",
        "--- a/a.txt",
        "+++ b/a.txt",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+2",
    )
    told = prepared.perform()
    (entry,) = Changelog(here.context.state).entries()
    assert told == ToolResult(
        True, "changed a.txt (+1 -1 lines)", None, {"change": entry.id, "files": 1}
    )
    assert (here.workspace / "a.txt").read_bytes() == b"one\n2\n"
    assert (entry.origin, entry.group, entry.files) == ("agent", "t-1", 1)


def test_a_file_that_changed_since_it_was_shown_is_not_written(here: World) -> None:
    prepared = FileWrite().prepare({"path": "a.txt", "content": "new"}, here.context)
    (here.workspace / "a.txt").write_text("somebody else's")
    with pytest.raises(PlanRefused) as denied:
        prepared.perform()
    assert denied.value.rule == "plan.changed"
    assert (here.workspace / "a.txt").read_text() == "somebody else's"


def test_a_directory_swapped_for_a_link_after_it_was_shown_is_refused(here: World) -> None:
    make(here.workspace, {"sub/f": b"x"})
    prepared = FileWrite().prepare({"path": "sub/secret", "content": "evil"}, here.context)
    os.rename(here.workspace / "sub", here.workspace / "old")
    (here.workspace / "sub").symlink_to("../outside")
    with pytest.raises(DeniedError):
        prepared.perform()
    assert (here.workspace.parent / "outside" / "secret").read_bytes() == b"secret\n"


def test_parents_are_made_and_the_mode_is_kept(here: World) -> None:
    assert here.call(FileWrite(), path="new/deep/file", content="é").success
    assert (here.workspace / "new/deep/file").read_bytes() == "é".encode()
    assert here.call(FileWrite(), path="./run.sh", content="#!/bin/sh\nexit\n").success
    assert stat.S_IMODE((here.workspace / "run.sh").stat().st_mode) == 0o750
    absolute = f"{here.workspace}/x/../abs"
    assert here.call(FileWrite(), path=absolute, content="").success
    assert (here.workspace / "abs").read_bytes() == b""


def test_a_file_that_holds_it_already_is_left_alone(here: World) -> None:
    prepared = FileWrite().prepare({"path": "a.txt", "content": "one\ntwo\n"}, here.context)
    assert prepared.detail == ("nothing would change",)
    told = prepared.perform()
    assert told == ToolResult(
        True, "the files already have this content; nothing was changed", None, {"files": 0}
    )
    assert Changelog(here.context.state).entries() == ()


def test_the_expected_content_is_compared(here: World) -> None:
    right, wrong = sha256(b"one\ntwo\n").hexdigest(), sha256(b"").hexdigest()
    for path, expected in (("a.txt", wrong), ("new", wrong)):
        with pytest.raises(PlanRefused) as raised:
            here.call(FileWrite(), path=path, content="x", expected_sha256=expected)
        assert raised.value.rule == "plan.content"
    same = "one\ntwo\n"
    with pytest.raises(PlanRefused):
        here.call(FileWrite(), path="a.txt", content=same, expected_sha256=wrong)
    assert here.call(FileWrite(), path="a.txt", content=same, expected_sha256=right).success
    assert here.call(FileWrite(), path="a.txt", content="x", expected_sha256=right).success


def test_what_was_written_can_be_taken_back(here: World) -> None:
    before = picture(here.workspace)
    here.call(FileWrite(), path="a.txt", content="x")
    here.call(FileWrite(), path="new/f", content="y")
    entries = Changelog(here.context.state).group("t-1")
    assert len(entries) == 2
    undo_group(here.context.root, here.context.state, entries[0].id)
    assert picture(here.workspace) == before


def test_outside_only_where_policy_lets_tools_out(here: World) -> None:
    out = here.using(workspace_only=False)
    target = here.workspace.parent / "outside" / "secret"
    told = out.call(FileWrite(), path="../outside/secret", content="new\n")
    assert (told.success, told.output) == (True, f"changed {target} (+1 -1 lines)")
    assert target.read_text() == "new\n"
    (entry,) = Changelog(TreeState.of(here.home, Path("/"))).entries()
    assert (entry.origin, entry.group) == ("agent", "t-1")
    with pytest.raises(DeniedError) as raised:
        out.call(FileWrite(), path=str(here.home / "config.toml"), content="x")
    assert raised.value.rule == "protected.state"
    assert Changelog(here.context.state).entries() == ()


BUNDLE = '{"files": [{"path": "a.txt", "content": "A\\n"}, {"path": "n/b", "content": "B\\n"}]}'
GIT = """diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
 one
-two
+TWO
"""
BLOCKS = "a.txt\n<<<<<<< SEARCH\ntwo\n=======\nTWO\n>>>>>>> REPLACE\n"
ENVELOPE = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+TWO\n*** End Patch\n"
PATCHES = '{"patches": [{"path": "a.txt", "replacements": [{"find": "two", "replace": "TWO"}]}]}'


@pytest.mark.parametrize("changes", [GIT, BLOCKS, ENVELOPE, PATCHES, f"```json\n{PATCHES}\n```\n"])
def test_every_format_is_applied(here: World, changes: str) -> None:
    prepared = ApplyChanges().prepare({"changes": changes}, here.context)
    assert prepared.detail[-3:] == (" one", "-two", "+TWO")
    told = prepared.perform()
    assert (told.success, told.output) == (True, "changed a.txt (+1 -1 lines)")
    assert (here.workspace / "a.txt").read_bytes() == b"one\nTWO\n"


def test_several_files_are_one_change(here: World) -> None:
    told = here.call(ApplyChanges(), changes=BUNDLE)
    assert told.output == "changed a.txt (+1 -2 lines)\ncreated n/b (+1 -0 lines)"
    (entry,) = Changelog(here.context.state).group("t-1")
    assert (entry.files, told.metadata) == (2, {"change": entry.id, "files": 2})


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ('{"path": ".git/config", "content": "x"}', PathRefused),
        ('{"path": "../x", "content": "x"}', PathRefused),
        ('{"path": "/etc/passwd", "content": "x"}', PathRefused),
        ('{"path": ".coilclaw/x", "content": "x"}', DeniedError),
        ('{"path": "a.txt", "content": "again"}', PlanRefused),
        ('{"path": "./a.txt", "content": "again"}', PlanRefused),
        ('{"path": "A.TXT", "content": "twin"}', PlanRefused),
    ],
)
def test_one_bad_file_refuses_all(here: World, bad: str, error: type[CoilClawError]) -> None:
    before = picture(here.workspace)
    changes = f'{{"files": [{{"path": "a.txt", "content": "A"}}, {bad}]}}'
    with pytest.raises(error):
        here.call(ApplyChanges(), changes=changes)
    assert picture(here.workspace) == before


def test_an_edit_that_does_not_fit_refuses_all(here: World) -> None:
    changes = PATCHES.replace('"two"', '"nowhere"')
    with pytest.raises(PlanRefused):
        here.call(ApplyChanges(), changes=changes)
    assert (here.workspace / "a.txt").read_bytes() == b"one\ntwo\n"


def test_a_forbidden_place_refuses_all(here: World) -> None:
    kept = here.using(forbidden_paths=(f"{here.workspace}/n",))
    with pytest.raises(PathRefused) as raised:
        kept.call(ApplyChanges(), changes=BUNDLE)
    assert raised.value.rule == "path.forbidden"
    assert (here.workspace / "a.txt").read_bytes() == b"one\ntwo\n"


def test_what_the_model_is_told_is_bounded(here: World) -> None:
    files = ",".join(f'{{"path": "d/{n:04}", "content": "x"}}' for n in range(200))
    small = here.using(limits=ToolLimits(output_bytes=500))
    told = small.call(ApplyChanges(), changes=f'{{"files": [{files}]}}')
    assert told.metadata["files"] == 200
    assert len(told.output.encode()) <= 500
