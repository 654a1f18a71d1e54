"""Recordings: what they refuse, spans of equal files, exact checkouts, clones, differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.evaluation.recorded_trace import Recording, Span, gather_bundles
from coilclaw.traces.trajectory import bundles
from coilclaw.workspace.git.client import Git
from tests.support.recordings import commits, git, recording, trace_of


def test_a_repository_without_a_commit_of_the_trace_is_refused(tmp_path: Path) -> None:
    made = commits(tmp_path / "work", [{"a": "1"}, {"a": "2"}])
    trace = trace_of([*made[:2], "d" * 40])
    with pytest.raises(EnvironmentFault) as caught:
        Recording.of(trace, Git(tmp_path / "work" / ".git", foreign=True))
    assert caught.value.rule == "replay.commit"
    assert "d" * 40 in caught.value.message


def test_a_part_that_is_not_there_is_refused_and_its_neighbour_found(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [{"a": "1"}, {"a": "2"}])
    with pytest.raises(UsageError) as caught:
        recorded.commit(3)
    assert caught.value.rule == "trajectory.part"
    assert recorded.commit(2) == git(tmp_path / "work", "rev-parse", "HEAD")
    assert recorded.commit(0) == recorded.trace.initial_commit


def test_spans_hold_parts_with_the_same_files_together(tmp_path: Path) -> None:
    # Part 4 is another commit with the files of part 3; part 5 has those of part 1 again.
    recorded = recording(tmp_path, [{"a": "1"}, None, {"a": "2"}, {"a": "2"}, {"a": "1"}])
    spans = recorded.spans()
    assert [(span.first, span.last) for span in spans] == [(1, 2), (3, 4), (5, 5)]
    assert spans[0].tree == spans[2].tree != spans[1].tree
    assert spans[1] == Span(3, 4, recorded.commit(3), spans[1].tree)
    assert recorded.commit(3) != recorded.commit(4)


def test_a_checkout_has_the_exact_bytes_whatever_the_attributes_say(tmp_path: Path) -> None:
    work = tmp_path / "work"
    made = commits(work, [{"a.txt": "one\n"}])
    (work / "a.txt").write_bytes(b"one\r\ntwo\n$Id$\n")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("a.txt")
    (work / ".git" / "info" / "attributes").write_text("* -text\n")
    git(work, "add", "-A")
    (work / ".gitattributes").write_text("* text eol=crlf ident filter=evil\n")
    git(work, "-c", "filter.evil.clean=cat", "add", ".gitattributes")
    git(work, "commit", "-q", "-m", "tricky")
    made.append(git(work, "rev-parse", "HEAD"))
    git(work, "bundle", "create", "-q", str(tmp_path / "b"), "HEAD", "trajectory")
    recorded = Recording.of(trace_of(made), gather_bundles([tmp_path / "b"], tmp_path / "read.git"))
    recorded.checkout(made[-1], tmp_path / "out")
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"one\r\ntwo\n$Id$\n"
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o111
    assert (tmp_path / "out" / "link").readlink() == Path("a.txt")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".gitattributes",
        "a.txt",
        "link",
        "run.sh",
    ]
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".index")]


def test_nothing_is_checked_out_over_files_that_are_there(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [{"a": "1"}])
    place = tmp_path / "mine"
    place.mkdir()
    (place / "a").write_text("precious")
    for act in (recorded.checkout, recorded.clone):
        with pytest.raises(UsageError) as caught:
            act(recorded.commit(1), place)
        assert caught.value.rule == "replay.destination"
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        recorded.checkout(recorded.commit(1), tmp_path / "file")
    assert (place / "a").read_text() == "precious"


def test_a_clone_has_the_history_and_is_clean_for_plain_git(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [{"a": "1"}, {"a": "2"}, {"b": "3"}])
    place = tmp_path / "clone"
    recorded.clone(recorded.commit(2), place)
    assert git(place, "rev-parse", "HEAD") == recorded.commit(2)
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "log", "--format=%s") == "part 2\npart 1\nstart"
    assert git(place, "rev-parse", "trajectory") == recorded.commit(3)
    assert (place / "a").read_text() == "2"
    assert not (place / "b").exists()


def test_pieces_give_the_same_as_the_whole(tmp_path: Path) -> None:
    work = tmp_path / "work"
    made = commits(work, [{"a": "1"}, None, {"a": "2"}])
    source = Git(work / ".git", foreign=True)
    bundles.write_piece(source, tmp_path / "p" / "3.bundle", made[1])
    first = tmp_path / "p" / "1.bundle"
    git(work, "branch", "one", made[1])
    git(work, "bundle", "create", "-q", str(first), "one")
    reading = gather_bundles(bundles.pieces(tmp_path / "p"), tmp_path / "read.git")
    assert Recording.of(trace_of(made), reading).spans() == recording_spans(tmp_path, made)


def recording_spans(tmp_path: Path, made: list[str]) -> tuple[Span, ...]:
    return Recording.of(trace_of(made), Git(tmp_path / "work" / ".git", foreign=True)).spans()


def test_the_difference_of_two_parts_is_a_patch(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [{"a": "1\n"}, {"a": "2\n"}, {"b": "3\n"}])
    said = recorded.diff(1, 3)
    assert "-1\n+2\n" in said
    assert "+++ b/b" in said
    assert recorded.diff(3, 3) == ""
    assert "2 files changed" in recorded.diff(0, 3, stat=True)
