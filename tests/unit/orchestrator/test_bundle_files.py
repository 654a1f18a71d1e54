"""Writing a bundle: paths, redaction, what is written once, and what is never followed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.kernel.errors import CoilClawError, DeniedError, EnvironmentFault, UsageError
from coilclaw.runs.contracts.records import ArtifactRef
from coilclaw.runs.evidence import bundle as bundles
from coilclaw.runs.evidence import bundle as bundletree
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import Bundle, discard_bundle, new_audit
from tests.support.bundles import RUN_ID, picture, sealed, unredacted
from tests.support.scale import scaled


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    made = Bundle(tmp_path / "runs" / RUN_ID, unredacted)
    made.create()
    return made


BAD_PATHS = [
    "", ".", "..", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "a\\b", "a\0b", "a\nb",
    "schön.txt", ".hidden", "a/.git", "-x", "a b", "/".join("abcdefghi"), "x" * 201, "C:x",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_what_is_no_path_of_a_bundle_is_refused(bundle: Bundle, path: str) -> None:
    before = picture(bundle.directory)
    for use in (
        lambda: bundle.write_text(path, "x"),
        lambda: bundle.write_json(path, {}),
        lambda: bundle.write_bytes(path, b"x", redact=False),
        lambda: bundle.append(path, "x"),
        lambda: bundle.read(path),
        lambda: bundle.artifact(path),
    ):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.rule == "bundle.path"
    assert picture(bundle.directory) == before


@pytest.mark.parametrize(
    "path", ["a", "tasks/task-1.json", "events.jsonl.torn-1", "a/b/c/d/e/f/g/h"]
)
def test_what_is_a_path_of_a_bundle_is_written(bundle: Bundle, path: str) -> None:
    assert bundle.write_text(path, "x\n").path == path
    assert bundle.read(path) == b"x\n"


def test_a_run_that_is_there_is_not_made_again(bundle: Bundle) -> None:
    bundle.write_text("a.txt", "x")
    before = picture(bundle.directory)
    with pytest.raises(UsageError) as caught:
        bundle.create()
    assert caught.value.rule == "run.exists"
    assert picture(bundle.directory) == before


def test_the_folders_are_those_of_the_specification(bundle: Bundle) -> None:
    there = {path.name for path in bundle.directory.iterdir()}
    assert there == {
        "artifacts", "audits", "ci", "codex", "git", "patches", "reports", "results", "reviews",
        "tasks", "tests", "trace",
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["contract.json", "tasks/t.json", "results/t/result.json", "patches/t.diff", "ci/t.json"],
)
def test_what_belongs_to_one_task_is_written_once(bundle: Bundle, path: str) -> None:
    bundle.write_text(path, "one")
    assert bundle.write_text(path, "one").sha256 == digest_bytes(b"one")
    with pytest.raises(DeniedError) as caught:
        bundle.write_text(path, "two")
    assert caught.value.rule == "bundle.overwrite"
    assert bundle.read(path) == b"one"


@pytest.mark.parametrize(
    "path",
    ["manifest.json", "meta.json", "patch.diff", "git/patch.diff", "reports/x.json", "tests/a"],
)
def test_what_is_the_latest_of_several_is_replaced(bundle: Bundle, path: str) -> None:
    bundle.write_text(path, "one")
    bundle.write_text(path, "two")
    assert bundle.read(path) == b"two"


def test_a_reference_says_what_was_written(bundle: Bundle) -> None:
    ref = bundle.write_text("artifacts/note.md", "schön\n")
    assert ref == ArtifactRef(
        name="artifacts/note.md",
        path="artifacts/note.md",
        sha256=digest_bytes("schön\n".encode()),
        media_type="text/markdown",
        size_bytes=7,
    )
    assert bundle.artifact("artifacts/note.md") == ref


def test_json_is_canonical_floats_included(bundle: Bundle) -> None:
    bundle.write_json("a.json", {"b": 1.0, "a": [0.1, 1e21, "schön"], "\U0001f40d": None})
    text = '{"a":[0.1,1e+21,"schön"],"b":1,"\U0001f40d":null}\n'
    assert bundle.read("a.json") == text.encode()


def test_secrets_are_taken_out_but_not_of_patches(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / RUN_ID, lambda text: text.replace("hunter2", "***"))
    bundle.create()
    bundle.write_text("a.txt", "a hunter2 b")
    bundle.write_json("b.json", {"hunter2": ["hunter2", {"x": "hunter2"}]})
    bundle.write_bytes("c.log", b"\xff hunter2 \xfe")
    bundle.append("codex/t/events.jsonl", '{"key":"hunter2"}')
    for path in bundletree.list_bundle(bundle.directory).files:
        assert b"hunter2" not in bundle.read(path), path
    assert bundle.read("c.log") == b"\xff *** \xfe"
    assert json.loads(bundle.read("b.json")) == {"***": ["***", {"x": "***"}]}
    bundle.write_bytes("patch.diff", b"+hunter2\n", redact=False)
    assert bundle.read("patch.diff") == b"+hunter2\n"


def test_lines_are_added_to_an_agents_events_only(bundle: Bundle) -> None:
    for text in ("one", "two\n"):
        bundle.append("codex/task-1/events.jsonl", text)
    assert bundle.read("codex/task-1/events.jsonl") == b"one\ntwo\n"
    for path in ("events.jsonl", "codex/events.jsonl", "codex/t/other.txt", "tasks/t.json"):
        with pytest.raises(UsageError) as caught:
            bundle.append(path, "x")
        assert caught.value.rule == "bundle.append"


def test_a_link_is_neither_read_nor_written_through(bundle: Bundle, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.txt").write_text("secret")
    (bundle.directory / "link.txt").symlink_to(outside / "x.txt")
    (bundle.directory / "folder").symlink_to(outside)
    for use in (
        lambda: bundle.read("link.txt"),
        lambda: bundle.read("folder/x.txt"),
        lambda: bundle.find("folder/x.txt"),
        lambda: bundle.artifact("link.txt"),
        lambda: bundle.write_text("folder/x.txt", "changed"),
        lambda: bundle.write_text("folder/y.txt", "new"),
    ):
        with pytest.raises(EnvironmentFault) as caught:
            use()
        assert caught.value.rule == "bundle.io"
    (bundle.directory / "codex" / "t").symlink_to(outside)
    with pytest.raises(EnvironmentFault):
        bundle.append("codex/t/events.jsonl", "x")
    assert [path.name for path in outside.iterdir()] == ["x.txt"]
    assert (outside / "x.txt").read_text() == "secret"


def test_a_pipe_is_not_waited_for(bundle: Bundle) -> None:
    os.mkfifo(bundle.directory / "pipe")
    with pytest.raises(EnvironmentFault) as caught:
        bundle.read("pipe")
    assert caught.value.rule == "bundle.io"


def test_reading_has_a_bound(bundle: Bundle) -> None:
    bundle.write_text("a.txt", "12345")
    assert bundle.read("a.txt", limit=5) == b"12345"
    with pytest.raises(EnvironmentFault) as caught:
        bundle.read("a.txt", limit=4)
    assert caught.value.rule == "bundle.large"


def test_writing_has_a_bound(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_FILE_BYTES", 5)
    monkeypatch.setattr(bundles, "MAX_APPENDED_BYTES", 5)
    bundle.write_text("a.txt", "12345")
    bundle.append("codex/t/events.jsonl", "1234")
    for use in (
        lambda: bundle.write_text("b.txt", "123456"),
        lambda: bundle.append("codex/t/events.jsonl", ""),
    ):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.rule == "bundle.large"


def test_what_a_kill_left_half_written_is_swept(bundle: Bundle) -> None:
    left = bundle.directory / "tasks" / ".coilclaw-0123456789abcdef.tmp"
    left.write_text("half")
    other = bundle.directory / "tasks" / ".coilclaw-short.tmp"
    other.write_text("not ours")
    bundle.sweep()
    assert (left.exists(), other.exists()) == (False, True)


def test_nothing_is_written_into_a_sealed_bundle(tmp_path: Path) -> None:
    world = sealed(tmp_path)
    before = picture(world.directory)
    for use in (
        lambda: world.bundle.write_text("new.txt", "x"),
        lambda: world.bundle.write_json(layout.MANIFEST, {}),
        lambda: world.bundle.append("codex/t/events.jsonl", "x"),
    ):
        with pytest.raises(DeniedError) as caught:
            use()
        assert caught.value.rule == "bundle.sealed"
    assert picture(world.directory) == before


def test_audits_are_made_beside_what_is_sealed(tmp_path: Path) -> None:
    world = sealed(tmp_path)
    time = "2026-05-12T15:00:00.000000Z"
    made = [new_audit(world.directory, time, "verify") for _ in range(3)]
    assert [path.name for path in made] == [
        "20260512T150000000000Z-verify",
        "20260512T150000000000Z-verify-2",
        "20260512T150000000000Z-verify-3",
    ]
    with pytest.raises(UsageError) as caught:
        new_audit(world.directory, time, "../x")
    assert caught.value.rule == "bundle.audit"


def test_an_audit_of_an_unknown_run_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        new_audit(tmp_path / "run_unknown", "2026-05-12T15:00:00.000000Z", "verify")
    assert caught.value.rule == "run.unknown"
    assert list(tmp_path.iterdir()) == []


def test_a_sealed_bundle_can_be_discarded(tmp_path: Path) -> None:
    world = sealed(tmp_path)
    discard_bundle(world.directory)
    assert not world.directory.exists()


def test_a_bundle_with_too_much_in_it_is_not_listed(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundletree, "MAX_ENTRIES", len(layout.FOLDERS))
    assert len(bundletree.list_bundle(bundle.directory).directories) == len(layout.FOLDERS)
    bundle.write_text("a.txt", "x")
    with pytest.raises(CoilClawError) as caught:
        bundletree.list_bundle(bundle.directory)
    assert caught.value.rule == "bundle.bounds"


def test_a_bundle_is_listed_while_somebody_writes_into_it(bundle: Bundle) -> None:
    bundle.write_text("ci/kept.txt", "x")
    place, over = bundle.directory / "ci", threading.Event()

    def write() -> None:
        while not over.is_set():
            (place / "passing").mkdir()
            (place / "passing.tmp").write_bytes(b"x")
            (place / "passing.tmp").unlink()
            (place / "passing").rmdir()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = {
            path
            for _ in range(scaled(full=3000, default=800))
            for path in bundletree.list_bundle(bundle.directory).files
        }
    finally:
        over.set()
        writer.join()
    assert found - {"ci/passing.tmp"} == {"ci/kept.txt"}
