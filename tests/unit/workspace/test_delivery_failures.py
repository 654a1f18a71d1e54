"""Every part of an answer that fails is named at once, and no secret with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coilclaw.changes import answer
from coilclaw.changes.failure_report import (
    MAX_KEPT,
    MAX_LISTED,
    MAX_SHOWN,
    describe_failures,
    explain_failures,
    list_failures,
    nearest_lines,
)
from coilclaw.kernel.errors import CoilClawError, NearLine
from coilclaw.kernel.secret import Secret
from coilclaw.policy.protected_files import find_protected_policy
from coilclaw.policy.redaction import SecretRedactor
from coilclaw.workspace.tree.delivery import (
    Delivered,
    Delivery,
    DeliveryTerms,
    Denied,
    deliver_answer,
)
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from tests.support.trees import make, picture

CODE = b"import os\n\n\ndef main():\n    print('hello')\n"
MIXED = """\
```json
{"root": ".", "files": [
  {"path": "../out", "content": "x"},
  {"path": "src/app.py", "operation": "patch", "replacements": [
    {"find": "print('helo')", "replace": "print('hi')"},
    {"find": "import sys", "replace": "import re"}]},
  {"path": "n", "operation": "rename"}]}
```

```patch
diff --git a/b.txt b/b.txt
--- a/b.txt
+++ b/b.txt
@@ -1,3 +1,3 @@
 one
-too
+2
 three
@@ -7,3 +7,3 @@
 seven
-ate
+8
 nine
diff --git a/c.txt b/c.txt
--- a/c.txt
+++ b/c.txt
@@ -1,9 +1 @@
-c
+d
```

*** Begin Patch
*** Delete File: not-there
*** Update File: b2.txt
@@ nowhere
-x
+y
*** Wrong File: x
*** End Patch

^^^../../up
x
^^^end

d.txt
<<<<<<< SEARCH
not in d
=======
x
>>>>>>> REPLACE
"""
B = b"one\ntwo\nthree\n4\n5\n6\nseven\neight\nnine\n"


TERMS = DeliveryTerms()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    make(root, {"src/app.py": CODE, "b.txt": B, "b2.txt": b"b\n", "c.txt": b"c\n", "d.txt": b"d\n"})
    return root


def send(tree: Path, text: str, terms: DeliveryTerms = TERMS) -> Delivery:
    failures: list[CoilClawError] = []
    parsed = answer.parse_answer(text, failures=failures)
    with Root(tree) as root:
        return deliver_answer(
            root, TreeState.of(tree.parent / "home", tree), parsed, terms, failures
        )


def refusal(tree: Path, text: str, terms: DeliveryTerms = TERMS) -> CoilClawError:
    before = picture(tree)
    with pytest.raises(CoilClawError) as caught:
        send(tree, text, terms)
    assert picture(tree) == before
    return caught.value


def test_all_that_fails_in_all_formats_is_named_with_path_index_and_lines(tree: Path) -> None:
    parts = describe_failures(refusal(tree, MIXED))
    found = [(part["rule"], part.get("path"), part.get("index")) for part in parts]
    assert found == [
        ("path.parent", "../out", None),
        ("bundle.entry", "n", None),
        ("git.corrupt", None, None),
        ("envelope.header", None, None),
        ("path.parent", "../../up", None),
        ("patch.missing", "src/app.py", 1),
        ("patch.missing", "src/app.py", 2),
        ("lines.missing", "b.txt", 1),
        ("lines.missing", "b.txt", 2),
        ("plan.missing", "not-there", None),
        ("lines.missing", "b2.txt", 1),
        ("lines.missing", "d.txt", 1),
    ]
    near = {(part.get("path"), part.get("index")): part.get("nearest") for part in parts}
    assert near["src/app.py", 1] == [{"line": 5, "text": "    print('hello')"}]
    assert near["src/app.py", 2] == [{"line": 1, "text": "import os"}]
    assert near["b.txt", 2] == [
        {"line": 7, "text": "seven"},
        {"line": 8, "text": "eight"},
        {"line": 9, "text": "nine"},
    ]


def test_the_text_for_a_model_has_all_of_it(tree: Path) -> None:
    text = explain_failures(refusal(tree, MIXED))
    assert text.startswith("12 parts of the answer fail:\n- ")
    assert "  the nearest lines of 'b.txt' are:\n       7 | seven\n" in text
    assert text.count("[lines.missing]") == 4


def test_the_same_answer_without_its_mistakes_is_applied(tree: Path) -> None:
    patch = MIXED[MIXED.index("diff --git a/b.txt") : MIXED.index("diff --git a/c.txt")]
    outcome = send(tree, patch.replace("-too", "-two").replace("-ate", "-eight"))
    assert isinstance(outcome, Delivered)
    assert (tree / "b.txt").read_bytes() == b"one\n2\nthree\n4\n5\n6\nseven\n8\nnine\n"


def edits(*entries: tuple[str, str]) -> str:
    patches = [{"path": p, "replacements": [{"find": f, "replace": "x"}]} for p, f in entries]
    return json.dumps({"root": ".", "patches": patches})


def test_denied_paths_are_not_looked_at_and_the_rest_is_told(tree: Path) -> None:
    make(tree, {"keep/secret.txt": b"hidden line\n"})
    terms = DeliveryTerms(policy=find_protected_policy("default", ["/keep"]))
    text = edits(("keep/secret.txt", "hiden line"), ("d.txt", "e"))
    outcome = send(tree, text, terms)
    assert isinstance(outcome, Denied)
    assert [denial.path for denial in outcome.denials] == ["keep/secret.txt"]
    assert [part.rule for part in outcome.failures] == ["patch.missing"]
    assert "hidden" not in str([describe_failures(part) for part in outcome.failures])


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "d/server.pem", "id_ed25519", "aws_credentials", ".npmrc"]
)
def test_a_secret_file_is_never_quoted(tree: Path, name: str) -> None:
    make(tree, {name: b"TOKEN=abcdefgh\n", "plain": b"TOKEN=abcdefgh\n"})
    os.symlink(name, tree / "link")
    for path in (name, "link"):
        patch = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-TOKEN=abc\n+x\n"
        for text in (edits((path, "TOKEN=abc\nX")), patch):
            told = explain_failures(refusal(tree, text))
            assert "abcdefgh" not in told
    assert "abcdefgh" in explain_failures(refusal(tree, edits(("plain", "TOKEN=abc\nX"))))


def test_a_known_key_is_taken_out_of_what_is_quoted(tree: Path) -> None:
    make(tree, {"conf": b"key = sk-0123456789abcdef\n"})
    terms = DeliveryTerms(redact=SecretRedactor((Secret("sk-0123456789abcdef"),)).redact)
    patch = "--- a/conf\n+++ b/conf\n@@ -1 +1 @@\n-key = sk-old\n+x\n"
    for text in (edits(("conf", "key = sk-old")), patch):
        told = json.dumps(describe_failures(refusal(tree, text, terms)))
        assert "0123456789" not in told
        assert "key = " in told


def test_what_is_told_is_bounded(tree: Path) -> None:
    problem = refusal(tree, edits(*((f"f{number}", "x") for number in range(500))))
    assert len(list_failures(problem)) == 500
    assert len(describe_failures(problem)) == MAX_LISTED
    assert f"and {500 - MAX_LISTED} more" in explain_failures(problem)


def test_nearest_lines_are_bounded_and_harmless() -> None:
    text = b"".join(b"%d %s\x1b[31m\n" % (n, b"x" * 500) for n in range(500))
    near = nearest_lines(text, [b"%d %s" % (n, b"x" * 500) for n in range(100, 200)])
    assert len(near) == MAX_SHOWN
    assert all(len(line.text) <= MAX_KEPT for line in near)
    assert nearest_lines(b"", [b"a"]) == nearest_lines(b"zzz\n", [b"a"]) == ()
    assert nearest_lines(b"a\n  b\nc\n", [b"b"]) == (NearLine(2, "  b"),)


def test_control_characters_of_a_file_do_not_reach_a_terminal(tree: Path) -> None:
    make(tree, {"e": b"one \x1b[31mtwo\n"})
    told = explain_failures(refusal(tree, edits(("e", "one two three"))))
    assert "\x1b" not in told
    assert "\\u001b" in told
