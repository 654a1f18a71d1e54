"""Answers as models write them, valid by construction: at most one in a hundred is refused."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from coilclaw.changes import answer
from coilclaw.kernel.errors import CoilClawError
from coilclaw.workspace.tree.delivery import Delivered, DeliveryTerms, deliver_answer
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from tests.support.answer_rendering import quote_name as quote

EPOCH = "1970-01-01 00:00:00.000000000 +0000"
STAMP = "2024-05-06 07:08:09.123456789 +0200"
Tree = Mapping[str, str]
BODY = "".join(f"line {number}\n" for number in range(1, 31))
CODE = "import os\n\n\ndef main() -> None:\n    print('hello')\n\n\nif __name__:\n    main()\n"
README = "# Title\n\n```python\nmain()\n```\n\n~~~\ntext\n~~~\n\nThe end.\n"


@dataclass(frozen=True)
class Edit:
    name: str
    before: Tree
    after: Tree
    unended: bool = False
    """A file lacks its last newline, which not every format can say."""


EDITS = (
    Edit("one line", {"src/app.py": CODE}, {"src/app.py": CODE.replace("hello", "hello, world")}),
    Edit("new file", {"keep.txt": "k\n"}, {"keep.txt": "k\n", "src/new module.py": CODE}),
    Edit("removal", {"old/gone.txt": "a\nb\n", "k": "k\n"}, {"k": "k\n"}),
    Edit(
        "several files",
        {"a.txt": BODY, "b/c.txt": BODY, "d.txt": "d\n"},
        {
            "a.txt": BODY.replace("line 2\n", "two\n").replace("line 29\n", "line 29\nmore\n"),
            "b/c.txt": BODY.replace("line 15\n", ""),
            "e.txt": "new\n",
        },
    ),
    Edit("first and last", {"f": BODY}, {"f": f"first\n{BODY}last\n"}),
    Edit("fences inside", {"README.md": README}, {"README.md": README.replace("The end", "Fin")}),
    Edit(
        "unicode",
        {"docs/über ñ.md": "ä\nö\nü\n"},
        {"docs/über ñ.md": "ä\nœ\nü\n", "日本.txt": "語\n"},
    ),
    Edit("no newline", {"n.txt": "a\nb\nc"}, {"n.txt": "a\nB\nc"}, unended=True),
    Edit("empty file", {"k": "k\n"}, {"k": "k\n", "pkg/__init__.py": ""}),
    Edit("file to folder", {"a": "1\n", "k": "k\n"}, {"a/b": "2\n", "k": "k\n"}),
    Edit("folder to file", {"a/b": "2\n", "k": "k\n"}, {"a": "1\n", "k": "k\n"}),
    Edit("blank lines", {"g": "a\n\n\nb\n\nc\n"}, {"g": "a\n\n\nB\n\nc\n"}),
)


# The formats; each returns the blocks of an answer, or nothing where it cannot say the edit.


def names(edit: Edit) -> list[str]:
    every = sorted({*edit.before, *edit.after})
    return [name for name in every if edit.before.get(name) != edit.after.get(name)]


def fences(edit: Edit) -> str | None:
    if edit.unended:
        return None
    return "\n".join(
        f"^^^{name}\n^^^delete\n"
        if name not in edit.after
        else f"^^^{name}\n{edit.after[name]}^^^end\n"
        for name in names(edit)
    )


def bundle(edit: Edit) -> str:
    files = [
        {"path": name, "operation": "delete"}
        if name not in edit.after
        else {"path": name, "content": edit.after[name]}
        for name in names(edit)
    ]
    text = json.dumps({"root": ".", "files": files}, indent=2, ensure_ascii=False)
    return f"```json\n{text}\n```\n"


def structured(edit: Edit) -> str | None:
    if any(name not in edit.before or name not in edit.after for name in names(edit)):
        return None
    patches = [
        {
            "path": name,
            "replacements": [{"find": edit.before[name], "replace": edit.after[name]}],
        }
        for name in names(edit)
    ]
    text = json.dumps({"root": ".", "patches": patches}, indent=2)
    return f"```json\n{text}\n```\n"


def hunks(name: str, edit: Edit, *, git: bool, context: int = 3) -> str:
    old, new = edit.before.get(name), edit.after.get(name)
    sides = (
        f"a/{name}" if old is not None else "/dev/null",
        f"b/{name}" if new is not None else "/dev/null",
    )
    lines = list(
        difflib.unified_diff(
            (old or "").splitlines(keepends=True), (new or "").splitlines(keepends=True), n=context
        )
    )[2:]
    text = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    head = f"diff --git {quote('a/' + name)} {quote('b/' + name)}\n" if git else ""
    if git and old is None:
        head += "new file mode 100644\nindex 0000000..e69de29\n"
    elif git and new is None:
        head += "deleted file mode 100644\nindex e69de29..0000000\n"
    elif git:
        head += "index 1234567..89abcde 100644\n"
    return head + (f"--- {quote(sides[0])}\n+++ {quote(sides[1])}\n{text}" if text else "")


def git_patch(edit: Edit) -> str:
    return "```patch\n" + "".join(hunks(name, edit, git=True) for name in names(edit)) + "```\n"


def plain_diff(edit: Edit) -> str | None:
    parts = [hunks(name, edit, git=False, context=2) for name in names(edit)]
    return None if not all(parts) else "```diff\n" + "".join(parts) + "```\n"


def gnu_diff(edit: Edit) -> str | None:
    """As ``diff -ruN old new`` writes it."""
    if "" in edit.after.values():
        return None
    parts = []
    for name in names(edit):
        stamps = [EPOCH if name not in side else STAMP for side in (edit.before, edit.after)]
        body = "".join(hunks(name, edit, git=False).splitlines(keepends=True)[2:])
        sides = (
            f"--- {quote('old/' + name)}\t{stamps[0]}\n+++ {quote('new/' + name)}\t{stamps[1]}\n"
        )
        parts.append(f"diff -ruN {quote('old/' + name)} {quote('new/' + name)}\n{sides}{body}")
    return "```diff\n" + "".join(parts) + "```\n"


def bare_diff(edit: Edit) -> str:
    return "".join(hunks(name, edit, git=True) for name in names(edit))


def envelope(edit: Edit) -> str | None:
    if edit.unended:
        return None
    lines = ["*** Begin Patch"]
    for name in names(edit):
        old, new = edit.before.get(name), edit.after.get(name)
        if new is None:
            lines.append(f"*** Delete File: {name}")
        elif old is None:
            lines += [f"*** Add File: {name}", *(f"+{line}" for line in new.splitlines())]
        else:
            lines.append(f"*** Update File: {name}")
            lines += [f"-{line}" for line in old.splitlines()]
            lines += [f"+{line}" for line in new.splitlines()]
    return "\n".join((*lines, "*** End Patch", ""))


def blocks(edit: Edit) -> str | None:
    if edit.unended or any(name not in edit.after for name in names(edit)):
        return None
    parts = []
    for name in names(edit):
        old, new = edit.before.get(name, ""), edit.after[name]
        shown = f"`{name}`" if " " in name else name
        parts.append(f"{shown}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n")
    return "\n".join(parts)


FORMATS: tuple[Callable[[Edit], str | None], ...] = (
    fences,
    bundle,
    structured,
    git_patch,
    plain_diff,
    gnu_diff,
    bare_diff,
    envelope,
    blocks,
)
PROSE: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "around": lambda text: f"Sure! Here is the change:\n\n{text}\nLet me know if it helps.\n",
    "list": lambda text: f"# Plan\n\n1. Read `a`.\n2. Change it:\n\n{text}\n- done {'{'}x{'}'}\n",
    "example": lambda text: f"Before:\n\n```python\nprint('x')\n```\n\nAfter:\n\n{text}",
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "no last newline": lambda text: text.removesuffix("\n"),
    "wrapped": lambda text: f"````markdown\n{text}````\n",
}


def answers() -> Iterator[tuple[str, Edit, str]]:
    """Yield every edit in every format that can say it, in every dress, in a fixed order."""
    for edit in EDITS:
        for form in FORMATS:
            text = form(edit)
            for name, dress in PROSE.items():
                if text is not None:
                    yield f"{edit.name}, {form.__name__}, {name}", edit, dress(text)


def outcome(root: Path, edit: Edit, text: str) -> dict[str, str] | str:
    tree = root / "tree"
    for name, content in edit.before.items():
        place = tree / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode())
    with Root(tree) as opened:
        try:
            parsed = answer.parse_answer(text)
            found = deliver_answer(
                opened, TreeState.of(root / "home", tree), parsed, DeliveryTerms(dry_run=True)
            )
        except CoilClawError as problem:
            return f"{problem.rule}: {problem.message}"
    if not isinstance(found, Delivered):
        return type(found).__name__
    result = dict(edit.before)
    for change in found.plan.changes:
        result.pop(str(change.path), None)
        if change.after is not None:
            assert hasattr(change.after, "content")
            result[str(change.path)] = change.after.content.decode()
    return result


def test_valid_answers_are_applied_as_they_are_meant(tmp_path: Path) -> None:
    every = list(answers())
    assert len(every) >= 300
    random.Random(1).shuffle(every)
    refused, wrong = [], []
    for number, (name, edit, text) in enumerate(every):
        found = outcome(tmp_path / str(number), edit, text)
        if isinstance(found, str):
            refused.append(f"{name}: {found}")
        elif found != dict(edit.after):
            wrong.append(name)
    assert wrong == [], f"{len(refused)} of {len(every)} refused"
    assert len(refused) <= len(every) / 100, (len(refused), len(every), refused)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_in_the_corpus(form: Callable[[Edit], str | None]) -> None:
    assert any(form(edit) is not None for edit in EDITS)
