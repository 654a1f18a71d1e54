"""git patches: what git writes is read exactly; what is malformed or not permitted is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TypeAlias

import pytest

from coilclaw.changes import line_edits
from coilclaw.changes.formats import git_binary, git_patch
from coilclaw.changes.operations import (
    AnswerOptions,
    DeleteFile,
    EditText,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_git

Tree: TypeAlias = dict[str, tuple[bytes, bool] | bytes]
"""Content and executable bit of each file; a link is its bare target."""

EVERYTHING = AnswerOptions(binary=True, links=True)


def parse(
    text: str, options: AnswerOptions = AnswerOptions(), first_line: int = 1
) -> tuple[Operation, ...]:
    return git_patch.parse(text, first_line=first_line, options=options)


def refusal(text: str, options: AnswerOptions = AnswerOptions()) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        parse(text, options, first_line=101)
    assert caught.value.line is not None
    assert caught.value.message.startswith(f"line {caught.value.line}: ")
    return caught.value


def told(text: str, options: AnswerOptions = AnswerOptions()) -> tuple[str, int]:
    """Return rule and line of the refusal, the first line of the text being 1."""
    error = refusal(text, options)
    return error.rule, (error.line or 0) - 100


def path(text: str) -> TreePath:
    return TreePath.parse(text)


class Repository:
    """A repository whose index is the old tree and whose work tree is the new one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")

    def git(self, *arguments: str) -> bytes:
        env = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.root),
        }
        command = ["git", "-c", "core.autocrlf=false", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=env, check=True, capture_output=True
        ).stdout

    def put(self, tree: Tree) -> None:
        for entry in self.root.rglob("*"):
            if ".git" not in entry.parts and not entry.is_dir():
                entry.unlink()
        for name, state in tree.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(state, bytes):
                os.symlink(state, file)
            else:
                file.write_bytes(state[0])
                file.chmod(0o755 if state[1] else 0o644)

    def diff(self, before: Tree, after: Tree, *arguments: str) -> str:
        self.put(before)
        self.git("add", "-A", "-f")
        old = self.git("write-tree").decode().strip()
        self.put(after)
        self.git("add", "-A", "-f")
        raw = self.git("diff", "--cached", *arguments, old)
        return raw.decode("utf-8", "surrogateescape")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def applied(operations: tuple[Operation, ...], before: Tree) -> Tree:
    """Apply operations to a tree the plain way, all reading the old one."""
    after = dict(before)
    for operation in operations:
        if isinstance(operation, PatchFile | PatchBinary) and operation.target and operation.keep:
            continue
        if not isinstance(operation, WriteFile | WriteLink):
            after.pop(str(operation.path), None)
    for operation in operations:
        old = before.get(str(operation.path))
        match operation:
            case WriteFile(content=content, executable=executable):
                after[str(operation.path)] = (content, bool(executable))
            case WriteLink(target=target):
                after[str(operation.path)] = target
            case DeleteFile(expected=expected):
                assert expected == (old if isinstance(old, bytes) or old is None else old[0])
            case PatchFile(hunks=hunks, executable=executable):
                assert isinstance(old, tuple)
                content = line_edits.apply_hunks(old[0], hunks, path=str(operation.path))
                assert operation.old_executable in {None, old[1]}
                after[str(operation.target or operation.path)] = (
                    content,
                    old[1] if executable is None else executable,
                )
            case PatchBinary(executable=executable):
                if not operation.delete:
                    mode = old[1] if isinstance(old, tuple) else False
                    base = old[0] if isinstance(old, tuple) else None
                    after[str(operation.target or operation.path)] = (
                        git_binary.result(base, operation),
                        mode if executable is None else executable,
                    )
            case EditText():
                raise AssertionError("no git patch edits text")
    return after


def numbered(count: int, **changed: str) -> bytes:
    rows = [changed.get(f"l{number}", f"line {number}") for number in range(1, count + 1)]
    return "".join(f"{row}\n" for row in rows).encode()


LONG = numbered(40)
EDITED = numbered(40, l5="five", l30="thirty")
NOISE = bytes(range(256)) * 8

CASES: dict[str, tuple[Tree, Tree]] = {
    "edit": ({"a.txt": (LONG, False)}, {"a.txt": (EDITED, False)}),
    "new": ({}, {"dir/new.txt": (b"x\ny\n", False)}),
    "new executable": ({}, {"run.sh": (b"#!/bin/sh\n", True)}),
    "new empty": ({}, {"empty": (b"", False)}),
    "new without newline": ({}, {"n": (b"x", False)}),
    "delete": ({"a.txt": (LONG, False)}, {}),
    "delete empty": ({"a.txt": (b"", False)}, {}),
    "delete without newline": ({"a.txt": (b"a\nb", False)}, {}),
    "rename": ({"a.txt": (LONG, False)}, {"sub/b.txt": (LONG, False)}),
    "rename and edit": ({"a.txt": (LONG, False)}, {"b.txt": (EDITED, False)}),
    "rename, edit and mode": ({"a.txt": (LONG, False)}, {"b.txt": (EDITED, True)}),
    "copy": ({"a.txt": (LONG, False)}, {"a.txt": (LONG, False), "b.txt": (LONG, False)}),
    "copy and edit": ({"a.txt": (LONG, True)}, {"a.txt": (LONG, True), "b.txt": (EDITED, True)}),
    "mode": ({"a.txt": (LONG, False)}, {"a.txt": (LONG, True)}),
    "mode back": ({"a.txt": (LONG, True)}, {"a.txt": (LONG, False)}),
    "mode and edit": ({"a.txt": (LONG, False)}, {"a.txt": (EDITED, True)}),
    "empty the file": ({"a.txt": (LONG, False)}, {"a.txt": (b"", False)}),
    "fill the file": ({"a.txt": (b"", False)}, {"a.txt": (LONG, False)}),
    "newline lost": ({"a.txt": (b"a\nb\n", False)}, {"a.txt": (b"a\nb", False)}),
    "newline gained": ({"a.txt": (b"a\nb", False)}, {"a.txt": (b"a\nb\n", False)}),
    "no newline kept": ({"a.txt": (b"a\nb", False)}, {"a.txt": (b"x\nb", False)}),
    "crlf": (
        {"a.txt": (LONG.replace(b"\n", b"\r\n"), False)},
        {"a.txt": (EDITED.replace(b"\n", b"\r\n"), False)},
    ),
    "crlf to lf": (
        {"a.txt": (LONG.replace(b"\n", b"\r\n"), False)},
        {"a.txt": (LONG, False)},
    ),
    "byte order mark removed": (
        {"a.txt": (b"\xef\xbb\xbfa\nb\n", False)},
        {"a.txt": (b"a\nb\n", False)},
    ),
    "latin-1": ({"a.txt": (b"\xe4\n\xf6\n", False)}, {"a.txt": (b"\xe4\n\xfc\n", False)}),
    "lines like headers": (
        {"a.txt": (b"-- a\n++ b\n-- \n@@ -1 +1 @@\ndiff --git a/x b/x\n\n\n", False)},
        {"a.txt": (b"++ b\n-- \n@@ -2 +2 @@\n-- /dev/null\n++ b/x\n\n\\ none\n", False)},
    ),
    "names": (
        {
            "with space.txt": (LONG, False),
            "x b/x": (LONG, False),
            "umläut.txt": (LONG, False),
            'quo"te': (b"q\n", False),
            " lead": (b"l\n", False),
        },
        {
            "with space.txt": (EDITED, False),
            "x b/x": (LONG, True),
            "umläut.txt": (EDITED, True),
            'quo"te': (b"r\n", False),
            " lead": (b"m\n", False),
            "new b/new file": (b"", False),
        },
    ),
    "renames with odd names": (
        {"a b/c d": (LONG, False), "ä ö": (EDITED, False)},
        {"b a/c b/d": (LONG, False), 'ü"': (EDITED, False)},
    ),
    "several": (
        {"a": (LONG, False), "b": (b"b\n", False), "c": (b"c\n", False)},
        {"a": (EDITED, False), "c": (b"C\n", True), "d": (b"d\n", False)},
    ),
}

BINARY_CASES: dict[str, tuple[Tree, Tree]] = {
    "new": ({}, {"x.bin": (NOISE, True)}),
    "delete": ({"x.bin": (NOISE, False)}, {}),
    "literal": ({"x.bin": (b"\0a", False)}, {"x.bin": (NOISE, False)}),
    "delta": ({"x.bin": (NOISE * 4, False)}, {"x.bin": (NOISE * 2 + b"!" + NOISE * 2, False)}),
    "mode": ({"x.bin": (NOISE, False)}, {"x.bin": (NOISE + b"\0", True)}),
    "rename": ({"x.bin": (NOISE * 4, False)}, {"y.bin": (NOISE * 4 + b"\0more", False)}),
    "copy": (
        {"x.bin": (NOISE * 4, False)},
        {"x.bin": (NOISE * 4, False), "y.bin": (NOISE * 4 + b"\0more", False)},
    ),
    "pure rename": ({"x.bin": (NOISE, False)}, {"y.bin": (NOISE, False)}),
    "beside text": (
        {"x.bin": (NOISE, False), "y.txt": (LONG, False), "z.bin": (b"\0", False)},
        {"x.bin": (NOISE + b"\0", False), "y.txt": (EDITED, False), "z.bin": (b"\0\0", False)},
    ),
}

FIND = ("-M", "-C", "--find-copies-harder")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("arguments", [FIND, ("-M", "--full-index", "-U1"), ("--no-renames",)])
def test_what_git_writes_is_applied_as_git_means_it(
    repository: Repository, case: str, arguments: tuple[str, ...]
) -> None:
    before, after = CASES[case]
    operations = parse(repository.diff(before, after, "--text", *arguments))
    assert applied(operations, before) == after
    # The renderer gives the same operations, and git reads what it writes as the same change.
    rendered = render_git(operations)
    assert parse(rendered) == operations
    repository.put(before)
    repository.git("add", "-A", "-f")
    patch = repository.root / ".git" / "rendered.patch"
    patch.write_bytes(rendered.encode("utf-8", "surrogateescape"))
    repository.git("apply", "--index", "--whitespace=nowarn", str(patch))
    applied_tree = repository.git("write-tree")
    repository.put(after)
    repository.git("add", "-A", "-f")
    assert repository.git("write-tree") == applied_tree


@pytest.mark.parametrize("case", BINARY_CASES)
def test_binary_patches_give_the_content_git_means_and_only_where_permitted(
    repository: Repository, case: str
) -> None:
    before, after = BINARY_CASES[case]
    text = repository.diff(before, after, "--binary", "--full-index", *FIND)
    operations = parse(text, EVERYTHING)
    assert applied(operations, before) == after
    assert parse(render_git(operations), EVERYTHING) == operations
    if "GIT binary patch" in text:
        assert refusal(text).rule == "git.binary"
        assert refusal(repository.diff(before, after), EVERYTHING).rule == "git.binary"
        repository.put(before)
        repository.git("add", "-A", "-f")
        patch = repository.root / ".git" / "rendered.patch"
        patch.write_text(render_git(operations))
        repository.git("apply", "--index", str(patch))


def test_a_binary_patch_needs_full_ids(repository: Repository) -> None:
    text = repository.diff(*BINARY_CASES["literal"], "--binary", "--full-index")
    short = "\n".join(
        "index 1234567..89abcde 100644" if line.startswith("index ") else line
        for line in text.split("\n")
    )
    assert refusal(short, EVERYTHING).rule == "git.binary"
    missing = "\n".join(line for line in text.split("\n") if not line.startswith("index "))
    assert refusal(missing, EVERYTHING).rule == "git.binary"
    zeros = "\n".join(
        f"index {'0' * 40}..{'1' * 40} 100644" if line.startswith("index ") else line
        for line in text.split("\n")
    )
    assert told(zeros, EVERYTHING) == ("git.header", 1)


def test_format_patch_mail_is_read_with_its_headers_and_signature(repository: Repository) -> None:
    who = ("-c", "user.name=N", "-c", "user.email=n@example.org")
    repository.put({"a": (LONG, False), "b": (b"b\n", False)})
    repository.git("add", "-A")
    repository.git(*who, "commit", "-qm", "one")
    repository.put({"a": (EDITED, False), "c": (b"b\n", False)})
    repository.git("add", "-A")
    repository.git(*who, "commit", "-qm", "two\n\n--- not a header\n")
    mail = repository.git("format-patch", "-1", "--stdout").decode()
    assert mail.startswith("From ")
    assert "\n-- \n" in mail
    operations = parse(mail)
    before: Tree = {"a": (LONG, False), "b": (b"b\n", False)}
    assert applied(operations, before) == {"a": (EDITED, False), "c": (b"b\n", False)}
    assert refusal(mail + mail).rule == "git.garbage"


def test_no_prefix_is_refused_clearly(repository: Repository) -> None:
    error = refusal(repository.diff(*CASES["edit"], "--no-prefix"))
    assert (error.rule, error.hint is not None) == ("git.prefix", True)
    assert refusal(repository.diff(*CASES["mode"], "--no-prefix")).rule == "git.prefix"
    renamed = repository.diff(*CASES["rename"], "-M", "--no-prefix")
    assert refusal(renamed).rule == "git.names"


def test_links_are_refused_unless_permitted(repository: Repository) -> None:
    link: Tree = {"dir/l": b"target/file"}
    created = repository.diff({}, link)
    assert refusal(created).rule == "git.link"
    assert parse(created, EVERYTHING) == (WriteLink(path("dir/l"), b"target/file"),)
    deleted = repository.diff(link, {})
    assert refusal(deleted).rule == "git.link"
    assert parse(deleted, EVERYTHING) == (DeleteFile(path("dir/l"), b"target/file"),)
    modified = repository.diff(link, {"dir/l": b"elsewhere"})
    assert refusal(modified).rule == "git.link"
    assert refusal(modified, EVERYTHING).rule == "git.link"
    turned = repository.diff({"dir/l": (b"x\n", False)}, link)
    assert refusal(turned).rule == "git.link"
    assert parse(turned, EVERYTHING) == (
        DeleteFile(path("dir/l"), b"x\n"),
        WriteLink(path("dir/l"), b"target/file"),
    )


# The renderer.

PATCHED = Hunk((HunkLine("-", b"x"), HunkLine("+", b"y")), old_start=1, new_start=1)


@pytest.mark.parametrize(
    "operation",
    [
        WriteFile(path("f"), b"x\n"),
        WriteFile(path("f"), b"", new=True),
        WriteLink(path("f"), b""),
        WriteLink(path("f"), b"a\nb"),
        DeleteFile(path("f")),
        EditText(path("f"), ()),
        PatchFile(path("f"), ()),
        PatchFile(path("f"), (Hunk(PATCHED.lines),)),
        PatchFile(path("f"), (Hunk((HunkLine(" ", b"x"),), 1, 1),)),
        PatchFile(path("f"), (Hunk((HunkLine("-", b"x\ny"),), 1, 1),)),
        PatchFile(path("f"), (Hunk(PATCHED.lines, 1, 1, heading=b"a\nb"),)),
        PatchFile(path("f"), (Hunk(PATCHED.lines, 1, 1, at_end=True),)),
        PatchFile(path("f"), (PATCHED,), target=path("f")),
        PatchFile(path("f"), (PATCHED,), keep=True),
        PatchFile(path("f"), (PATCHED,), executable=True),
        PatchFile(path("f"), (PATCHED,), old_executable=True),
        PatchBinary(path("f"), "literal", b"x", 1, "1" * 7, "2" * 40),
        PatchBinary(path("f"), "literal", b"x", 2, "1" * 40, "2" * 40),
        WriteFile(TreePath(("..", "f")), b"x\n", new=True),
    ],
)
def test_what_a_git_patch_cannot_say_is_not_rendered(operation: Operation) -> None:
    with pytest.raises(UsageError) as caught:
        render_git([operation])
    assert caught.value.rule == "render.inexpressible"


def test_nothing_is_not_rendered() -> None:
    with pytest.raises(UsageError) as caught:
        render_git([])
    assert caught.value.rule == "render.inexpressible"


def test_everything_else_round_trips() -> None:
    zero, one, two = "0" * 40, "1" * 40, "2" * 40
    operations = (
        WriteFile(path("new file"), b"x\ny", new=True),
        WriteFile(path("n"), b"", new=True, executable=True),
        WriteFile(path("p"), b"\0\xff\r\n\n", new=True, executable=False),
        WriteLink(path("l"), b"to"),
        DeleteFile(path("d"), b""),
        DeleteFile(path("e"), b"x"),
        PatchFile(path("f"), (PATCHED, Hunk(PATCHED.lines, 7, 0, heading=b" h \xff"))),
        PatchFile(path("g"), (), target=path("h")),
        PatchFile(path("i"), (PATCHED,), path('j"'), True, False, True),
        PatchFile(path("k"), (), old_executable=True, executable=False),
        PatchBinary(path("b"), "literal", NOISE, len(NOISE), zero, one, new=True, executable=True),
        PatchBinary(path("c"), "literal", b"", 0, one, zero, delete=True),
        PatchBinary(path("q"), "delta", b"12", 2, one, two, path("r"), True, executable=False),
    )
    assert parse(render_git(operations), EVERYTHING) == operations
