"""What a snapshot holds, and that nothing of the tree's own repository has a say in it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.tree_files import ChangeKind, EntryType, RegularFile, Symlink, TreeChange
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Content, Empty, Link, Program, build, git, witness

ODD = [
    os.fsdecode(name)
    for name in (
        b"new\nline",
        b"not \xff\xfe utf-8",
        b"\x1b[31mred",
        b" ",
        b'"quoted"\t',
        b"-x",
        b":(top)",
    )
]


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


def listing(store: SnapshotStore, snapshot: str) -> dict[str, EntryType]:
    return {path: kind for path, kind, _ in store.files(snapshot)}


def plant(root: Path, marker: Path) -> None:
    """Give a repository everything by which git could be made to run or change something."""
    script = f"#!/bin/sh\ntouch {marker}\ncat\n".encode()
    build(root, {"evil": Program(script), ".git/hooks/post-index-change": Program(script)})
    for hook in ("pre-commit", "reference-transaction", "post-checkout", "fsmonitor-watchman"):
        build(root, {f".git/hooks/{hook}": Program(script)})
    evil = str(root / "evil")
    settings = {
        "core.fsmonitor": evil,
        "core.hooksPath": str(root / ".git/hooks"),
        "core.sshCommand": evil,
        "core.pager": evil,
        "core.autocrlf": "true",
        "core.attributesFile": str(root / ".gitattributes"),
        "diff.external": evil,
        "diff.evil.textconv": evil,
        "diff.evil.command": evil,
        "filter.evil.clean": evil,
        "filter.evil.smudge": evil,
        "filter.evil.process": evil,
        "filter.evil.required": "true",
        "diff.noprefix": "true",
        "diff.renames": "false",
        "color.ui": "always",
        "include.path": str(root / "more-config"),
    }
    lines = []
    for name, value in settings.items():
        section, _, key = name.rpartition(".")
        area, _, which = section.partition(".")
        lines.append(f'[{area} "{which}"]\n' if which else f"[{area}]\n")
        lines.append(f'{key} = "{value}"\n')
    with (root / ".git/config").open("a") as config:
        config.writelines(lines)
    rules = b"* text=auto eol=crlf ident filter=evil diff=evil working-tree-encoding=UTF-16\n"
    build(
        root, {".gitattributes": rules, ".git/info/attributes": rules, "more-config": b"[core]\n"}
    )


def test_planted_hooks_filters_and_attributes_do_nothing(
    tmp_path: Path, root: Path, store: SnapshotStore
) -> None:
    marker = tmp_path / "marker"
    build(root, {"lf": b"a\nb\n", "crlf": b"a\r\nb\r\n", "ident": b"$Id$ $Id: x $\n"})
    git(root, "init", "-q")
    plant(root, marker)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    build(root, {"large.bin": pointer, "utf16": "text\n".encode("utf-16")})
    first = store.take(root)
    wanted = ["lf", "crlf", "ident", "large.bin", "utf16"]
    assert store.read(first.id, wanted) == {
        name: RegularFile((root / name).read_bytes()) for name in wanted
    }
    build(root, {"lf": b"a\nB\n", "moved": (root / "crlf").read_bytes()})
    (root / "crlf").unlink()
    second = store.take(root)
    assert [change.kind for change in store.diff(first.id, second.id)] == [
        ChangeKind.MODIFIED,
        ChangeKind.RENAMED,
    ]
    assert b"--- a/lf\n+++ b/lf\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n" in store.patch(first.id, second.id)
    assert not marker.exists()


def test_the_planted_things_would_have_run(tmp_path: Path, root: Path) -> None:
    """The neighbour of the test above: plain git does run them."""
    build(root, {"lf": b"a\nb\n"})
    git(root, "init", "-q")
    plant(root, tmp_path / "marker")
    git(root, "status")
    assert (tmp_path / "marker").exists()


def test_variables_of_our_own_process_do_nothing(
    tmp_path: Path, root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(root, {"a": b"a\n", "d/b": b"b\n"})
    plain = store.take(root)
    evil = tmp_path / "evil"
    build(tmp_path, {"evil": Program(f"#!/bin/sh\ntouch {tmp_path}/marker\n".encode())})
    for name in (
        "GIT_EXTERNAL_DIFF",
        "GIT_PAGER",
        "GIT_SSH_COMMAND",
        "GIT_EXEC_PATH",
        "GIT_PROXY_COMMAND",
    ):
        monkeypatch.setenv(name, str(evil))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'diff.external'='{evil}' 'core.abbrev'='7'")
    monkeypatch.setenv("GIT_DIFF_OPTS", "--unified=0")
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    again = SnapshotStore(tmp_path / "store2")
    assert again.take(root) == plain
    build(root, {"a": b"A\n"})
    changed = again.take(root)
    assert again.patch(plain.id, changed.id).splitlines()[0] == b"diff --git a/a b/a"
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_the_tree_is_left_exactly_as_it_was(
    tmp_path: Path, root: Path, store: SnapshotStore
) -> None:
    build(root, {"a": b"a", "tool": Program(b"#!"), "l": Link("a"), "e": Empty(), "n/x": b"x"})
    git(root, "init", "-q")
    git(root, "add", "a")
    git(root / "n", "init", "-q")
    os.mkfifo(root / "fifo")
    before = witness(root)
    store.take(root)
    store.take(root, reread=True)
    assert witness(root) == before


def test_the_tree_id_is_the_one_git_itself_gives(root: Path, store: SnapshotStore) -> None:
    build(root, {"a": b"a", "a.b/c": b"", "a0": b"0", "tool": Program(b"#!"), "l": Link("a/b")})
    build(root, {f"odd/{name}": name.encode("utf-8", "surrogateescape") for name in ODD})
    build(
        root, {"ab/x": b"", "ab-c": b"", "ab.d": b"", "lib/lib/lib": b"x", "bin": bytes(range(256))}
    )
    git(root, "init", "-q")
    git(root, "-c", "core.autocrlf=false", "add", "-A")
    assert store.take(root).tree == git(root, "write-tree").decode().strip()


def test_the_same_content_has_the_same_id_wherever_and_whenever(
    tmp_path: Path, root: Path, store: SnapshotStore
) -> None:
    entries: dict[str, Content] = {"a": b"a", "d/b": Program(b"b"), "l": Link("a"), "e/e": Empty()}
    first = store.take(build(root, entries))
    (tmp_path / "copies").mkdir()
    shutil.copytree(root, tmp_path / "copies" / "copy", symlinks=True)
    os.utime(tmp_path / "copies" / "copy" / "a", (1, 1))
    other = SnapshotStore(tmp_path / "other store")
    assert other.take(tmp_path / "copies" / "copy") == first
    assert store.take(tmp_path / "copies" / "copy") == first
    assert store.list() == (first.id,)


def test_tracked_staged_committed_untracked_and_ignored_files_are_all_kept(
    root: Path, store: SnapshotStore
) -> None:
    build(root, {"committed": b"1", ".gitignore": b"ignored*\n", "hidden": b"1", "assumed": b"1"})
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    git(root, "update-index", "--skip-worktree", "hidden")
    git(root, "update-index", "--assume-unchanged", "assumed")
    first = store.take(root)
    build(root, {"staged": b"2", "untracked": b"2", "ignored": b"2", "ignored-d/x": b"2"})
    build(root, {"hidden": b"changed", "assumed": b"changed"})
    git(root, "add", "staged")
    second = store.take(root)
    changed = {change.path: change.kind for change in store.diff(first.id, second.id)}
    added = dict.fromkeys(["staged", "untracked", "ignored", "ignored-d/x"], ChangeKind.ADDED)
    assert changed == added | dict.fromkeys(["hidden", "assumed"], ChangeKind.MODIFIED)
    git(root, "commit", "-qm", "y", "staged")
    assert not store.diff(second.id, store.take(root).id).changes
    git(root, "stash", "-u", "-q")
    assert "untracked" not in listing(store, store.take(root).id)


def test_every_kind_of_entry_is_read_back(root: Path, store: SnapshotStore) -> None:
    entries = {name: name.encode("utf-8", "surrogateescape") for name in ODD}
    build(root, {**entries, "tool": Program(b"#!"), "l": Link("\udcff\n"), "e/m": Empty()})
    taken = store.take(root)
    assert dict(store.read(taken.id, [*ODD, "tool", "l", "nothing"])) == {
        **{name: RegularFile(content) for name, content in entries.items()},
        "tool": RegularFile(b"#!", executable=True),
        "l": Symlink(b"\xff\n"),
        "nothing": None,
    }
    assert listing(store, taken.id) == {
        **dict.fromkeys(ODD, EntryType.FILE),
        "e/m": EntryType.DIRECTORY,
        "l": EntryType.SYMLINK,
        "tool": EntryType.EXECUTABLE,
    }


def test_only_the_owners_execute_bit_counts(root: Path, store: SnapshotStore) -> None:
    build(root, {"f": b""})
    (root / "f").chmod(0o655)
    assert listing(store, store.take(root).id) == {"f": EntryType.FILE}
    (root / "f").chmod(0o744)
    assert listing(store, store.take(root).id) == {"f": EntryType.EXECUTABLE}


def test_an_empty_tree_is_a_snapshot(root: Path, store: SnapshotStore) -> None:
    taken = store.take(build(root, {}))
    assert taken.tree == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    assert list(store.files(taken.id)) == []
    assert store.take(root) == taken
    git(store.directory, "fsck", "--full", "--strict")


def test_a_nested_repository_is_one_opaque_entry_and_plain_files(
    root: Path, store: SnapshotStore
) -> None:
    build(root, {"with/f": b"f", "without/f": b"f", "pointed/.git": b"gitdir: ../elsewhere\n"})
    for name in ("with", "without"):
        git(root / name, "init", "-q")
    git(root / "with", "add", "f")
    git(root / "with", "commit", "-qm", "x")
    first = store.take(root)
    assert listing(store, first.id) == {
        "pointed/.git": EntryType.FILE,
        "with/.git": EntryType.OPAQUE,
        "with/f": EntryType.FILE,
        "without/.git": EntryType.OPAQUE,
        "without/f": EntryType.FILE,
    }
    assert store.take(root) == first


def append_config(repository: Path) -> None:
    with (repository / "config").open("ab") as file:
        file.write(b"[alias]\n")


def add_object(repository: Path) -> None:
    build(repository, {"objects/ab/cd": b"x"})


def add_mode(repository: Path) -> None:
    (repository / "description").chmod(0o755)


def add_link(repository: Path) -> None:
    os.symlink("/etc/passwd", repository / "link")


def add_fifo(repository: Path) -> None:
    os.mkfifo(repository / "fifo")


def rename_file(repository: Path) -> None:
    os.rename(repository / "description", repository / "descriptiom")


def add_directory(repository: Path) -> None:
    (repository / "objects" / "zz").mkdir()


@pytest.mark.parametrize(
    "change",
    [append_config, add_object, add_mode, add_link, add_fifo, rename_file, add_directory],
)
def test_any_change_inside_a_nested_git_directory_shows(
    root: Path, store: SnapshotStore, change: Callable[[Path], None]
) -> None:
    build(root, {"n/f": b"f"})
    git(root / "n", "init", "-q")
    build(root, {"n/.git/description": b"x"})
    first = store.take(root)
    change(root / "n" / ".git")
    second = store.take(root)
    (found,) = store.diff(first.id, second.id)
    assert found.old_id != found.new_id
    assert found == TreeChange(
        ChangeKind.MODIFIED,
        "n/.git",
        old_type=EntryType.OPAQUE,
        new_type=EntryType.OPAQUE,
        old_id=found.old_id,
        new_id=found.new_id,
    )


@pytest.mark.parametrize(
    ("part", "name", "content"),
    [
        ("hooks", "hooks/pre-commit", Program(b"#!/bin/sh\n")),
        ("hooks", "hooks/pre-push", Link("/bin/true")),
        ("config", "config", b"[core]\n"),
        ("config", "config.worktree", b"[core]\n"),
        ("config", "commondir", b"/elsewhere\n"),
        ("attributes", "info/attributes", b"* -text\n"),
        ("attributes", "info/exclude", b"*\n"),
        ("attributes", "info/grafts", b"x\n"),
        ("attributes", "objects/info/alternates", b"/elsewhere\n"),
        ("refs", "HEAD", b"ref: refs/heads/other\n"),
        ("refs", "packed-refs", b"x\n"),
        ("refs", "refs/heads/deep/branch", b"0" * 40),
        ("refs", "refs/replace/x", b"0" * 40),
        ("modules", "modules/a/b/hooks/post-checkout", Program(b"#!/bin/sh\n")),
        ("modules", "modules/a/config", b"[core]\n"),
        ("worktrees", "worktrees/w/commondir", b"/elsewhere\n"),
    ],
)
def test_a_change_of_the_trees_own_git_shows(
    root: Path, store: SnapshotStore, part: str, name: str, content: bytes | Link | Program
) -> None:
    build(root, {"f": b"f"})
    git(root, "init", "-q")
    build(root, {".git/modules/a/HEAD": b"x", ".git/modules/a/index": b"x"})
    first = store.take(root)
    (root / ".git" / name).unlink(missing_ok=True)
    build(root, {f".git/{name}": content})
    second = store.take(root)
    difference = store.diff(first.id, second.id)
    assert (difference.changes, difference.git_changes) == ((), (part,))
    assert store.diff(second.id, first.id).git_changes == (part,)
    assert listing(store, second.id) == {"f": EntryType.FILE}


def test_using_a_repository_is_no_change(root: Path, store: SnapshotStore) -> None:
    build(root, {"f": b"f"})
    git(root, "init", "-q")
    git(root, "add", "f")
    build(root, {".git/modules/a/HEAD": b"x", ".git/modules/a/index": b"x"})
    first = store.take(root)
    (root / "f").touch()
    git(root, "status")
    git(root, "repack", "-q")
    build(
        root,
        {".git/modules/a/index": b"y", ".git/modules/a/objects/aa/b": b"", ".git/FETCH_HEAD": b""},
    )
    assert store.diff(first.id, store.take(root).id).git_changes == ()


def test_a_commit_shows_as_a_change_of_refs(root: Path, store: SnapshotStore) -> None:
    build(root, {"f": b"f"})
    git(root, "init", "-q")
    git(root, "add", "f")
    git(root, "commit", "-qm", "x")
    first = store.take(root)
    git(root, "commit", "-qm", "y", "--allow-empty")
    assert store.diff(first.id, store.take(root).id).git_changes == ("refs",)


@pytest.mark.parametrize("other", [b"gitdir: /b\n", Link("/b"), None])
def test_a_git_file_is_fingerprinted_and_left_out(
    root: Path, store: SnapshotStore, other: bytes | Link | None
) -> None:
    build(root, {"f": b"f", ".git": b"gitdir: /a\n"})
    first = store.take(root)
    (root / ".git").unlink()
    if other is not None:
        build(root, {".git": other})
    second = store.take(root)
    assert store.diff(first.id, second.id).git_changes == ("pointer",)
    assert listing(store, second.id) == listing(store, first.id) == {"f": EntryType.FILE}


def test_links_inside_the_trees_own_git_are_not_followed(
    tmp_path: Path, root: Path, store: SnapshotStore
) -> None:
    outside = build(tmp_path / "outside", {"pre-commit": b"1", "info/alternates": b"1"})
    build(root, {"f": b"f", ".git/hooks": Link(str(outside)), ".git/objects": Link(str(outside))})
    first = store.take(root)
    build(outside, {"pre-commit": b"2", "info/alternates": b"2"})
    assert store.take(root) == first
    (root / ".git/objects").unlink()
    build(root, {".git/objects": Link("elsewhere")})
    assert store.diff(first.id, store.take(root).id).git_changes == ("attributes",)


def test_a_left_out_path_does_not_hide_the_trees_own_git(root: Path, store: SnapshotStore) -> None:
    build(root, {"f": b"f"})
    git(root, "init", "-q")
    first = store.take(root, exclude=(".git",))
    build(root, {".git/hooks/pre-commit": b"x"})
    assert store.diff(first.id, store.take(root, exclude=(".git",)).id).git_changes == ("hooks",)


def test_the_index_lock_of_somebody_else_is_no_obstacle(root: Path, store: SnapshotStore) -> None:
    build(root, {"f": b"f"})
    git(root, "init", "-q")
    build(root, {".git/index.lock": b""})
    assert listing(store, store.take(root).id) == {"f": EntryType.FILE}


def test_special_files_are_opaque(root: Path, store: SnapshotStore) -> None:
    build(root, {"f": b""})
    empty = store.take(root)
    os.mkfifo(root / "p")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(root / "s"))
    if os.geteuid() == 0:
        os.mknod(root / "n", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(root / "z", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    special = {path: name for path, kind, name in store.files(store.take(root).id) if path != "f"}
    assert len(set(special.values())) == len(special) >= 2
    changes = {(c.path, c.kind, c.new_type) for c in store.diff(empty.id, store.take(root).id)}
    assert changes == {(path, ChangeKind.ADDED, EntryType.OPAQUE) for path in special}
