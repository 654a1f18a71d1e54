"""The file delivery specification, sentence by sentence, through ``coilclaw apply``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.changes import instructions
from coilclaw.cli.main import main
from tests.support.trees import make, picture

Apply = Callable[..., int]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make(
        tmp_path / "tree",
        {
            "src/MyFile.cs": b"public void OldMethod()\n{\n    Trace();\n    Trace();\n}\n",
            "src/Foo.cs": b"public class Foo\n{\n    public int Count;\n}\n",
        },
    )


@pytest.fixture
def apply(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Apply:
    monkeypatch.setenv("COILCLAW_HOME", str(tmp_path / "home"))
    file = tmp_path / "answer.md"

    def run(answer: str, *flags: str) -> int:
        file.write_text(answer)
        return main(["apply", str(file), "--root", str(tree), *flags])

    return run


def fenced(value: object, tag: str = "json") -> str:
    body = value if isinstance(value, str) else json.dumps(value, indent=2) + "\n"
    return f"```{tag}\n{body}```\n"


def bundle(*entries: dict[str, object], root: str = ".") -> str:
    return fenced({"root": root, "files": list(entries)})


def patches(*replacements: dict[str, str], path: str = "src/MyFile.cs") -> str:
    return fenced({"root": ".", "patches": [{"path": path, "replacements": list(replacements)}]})


GIT = """\
diff --git a/src/Foo.cs b/src/Foo.cs
index 1234567..89abcde 100644
--- a/src/Foo.cs
+++ b/src/Foo.cs
@@ -1,4 +1,4 @@ public class Foo
 public class Foo
 {
-    public int Count;
+    public int TotalCount;
 }
"""


# 1. File bundle


def test_a_bundle_in_a_json_fence_writes_complete_files(apply: Apply, tree: Path) -> None:
    answer = bundle({"path": "a/new.ext", "content": "x"}, {"path": "src/Foo.cs", "content": "y\n"})
    assert apply("Here it is.\n\n" + answer) == 0
    assert (tree / "a/new.ext").read_text() == "x"
    assert (tree / "src/Foo.cs").read_text() == "y\n"


def test_inside_the_block_the_content_must_be_pure_json(apply: Apply, tree: Path) -> None:
    before = picture(tree)
    body = '{\n  // a comment\n  "root": ".", "files": [{"path": "a", "content": "x"}]\n}\n'
    assert apply(fenced(body)) == 2
    assert picture(tree) == before


def test_root_is_the_logical_root_of_the_paths(apply: Apply, tree: Path) -> None:
    assert apply(bundle({"path": "New.cs", "content": "n"}, root="src")) == 0
    assert (tree / "src/New.cs").read_text() == "n"


@pytest.mark.parametrize("root", ["/", "..", "src/..", "C:/x", ".git"])
def test_a_root_outside_the_tree_is_refused(apply: Apply, tree: Path, root: str) -> None:
    before = picture(tree)
    assert apply(bundle({"path": "x", "content": "n"}, root=root)) == 3
    assert picture(tree) == before


def test_path_is_required(apply: Apply) -> None:
    assert apply(bundle({"content": "x"}, {"path": "a", "content": "x"})) == 2


def test_content_is_required_for_create_and_replace(apply: Apply) -> None:
    for operation in ({}, {"operation": "create"}, {"operation": "replace"}):
        assert apply(bundle({"path": "a", **operation})) == 2


def test_an_omitted_operation_creates_or_replaces(apply: Apply, tree: Path) -> None:
    assert apply(bundle({"path": "n", "content": "1"})) == 0
    assert apply(bundle({"path": "n", "content": "2"})) == 0
    assert (tree / "n").read_text() == "2"


def test_create_fails_if_the_file_exists(apply: Apply, tree: Path) -> None:
    entry: dict[str, object] = {"path": "n", "content": "1", "operation": "create"}
    assert apply(bundle(entry)) == 0
    assert apply(bundle(entry)) == 3


def test_replace_writes_creating_or_overwriting_as_needed(apply: Apply, tree: Path) -> None:
    for name in ("src/Foo.cs", "src/Other.cs"):
        assert apply(bundle({"path": name, "content": "r", "operation": "replace"})) == 0
        assert (tree / name).read_text() == "r"


def test_delete_deletes_and_its_content_may_be_null_or_omitted(apply: Apply, tree: Path) -> None:
    gone: tuple[dict[str, object], ...] = (
        {"path": "src/Foo.cs", "operation": "delete", "content": None},
        {"path": "src/MyFile.cs", "operation": "delete"},
    )
    assert apply(bundle(*gone)) == 0
    assert picture(tree) == {}


def test_patch_entries_carry_replacements(apply: Apply, tree: Path) -> None:
    entry: dict[str, object] = {
        "path": "src/Foo.cs",
        "operation": "patch",
        "replacements": [{"find": "Count", "replace": "Total"}],
    }
    assert apply(bundle(entry)) == 0
    assert "public int Total;" in (tree / "src/Foo.cs").read_text()


def test_git_patch_entries_carry_the_diff_of_their_own_path(apply: Apply, tree: Path) -> None:
    entry: dict[str, object] = {"path": "src/Foo.cs", "operation": "gitPatch", "content": GIT}
    assert apply(bundle({**entry, "path": "src/MyFile.cs"})) == 2
    assert apply(bundle(entry)) == 0
    assert "TotalCount" in (tree / "src/Foo.cs").read_text()


def test_an_unknown_operation_is_refused(apply: Apply) -> None:
    assert apply(bundle({"path": "a", "content": "x", "operation": "append"})) == 2


# 2. Structured patch


def test_replacements_are_literal_and_in_order(apply: Apply, tree: Path) -> None:
    assert (
        apply(
            patches(
                {"find": "public void OldMethod()", "replace": "public void NewMethod()"},
                {"find": "NewMethod()", "replace": "Newer.*()"},
            )
        )
        == 0
    )
    assert (tree / "src/MyFile.cs").read_text().startswith("public void Newer.*()\n")


def test_limit_once_is_the_default_and_must_be_unique(apply: Apply, tree: Path) -> None:
    before = picture(tree)
    assert apply(patches({"find": "Trace();", "replace": "Log();"})) == 3
    assert apply(patches({"find": "Trace();", "replace": "Log();", "limit": "once"})) == 3
    assert picture(tree) == before


def test_limit_all_replaces_all_occurrences(apply: Apply, tree: Path) -> None:
    assert apply(patches({"find": "Trace();", "replace": "Log();", "limit": "all"})) == 0
    assert (tree / "src/MyFile.cs").read_text().count("Log();") == 2


def test_a_find_that_is_not_found_fails_the_patch(
    apply: Apply, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = picture(tree)
    good = {"find": "OldMethod", "replace": "NewMethod"}
    assert apply(patches(good, {"find": "Nothing", "replace": "x"})) == 3
    said = capsys.readouterr().err
    assert "src/MyFile.cs" in said
    assert "2" in said
    assert picture(tree) == before


def test_lenient_skips_with_a_warning_and_takes_the_first_match(
    apply: Apply, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = patches({"find": "Nothing", "replace": "x"}, {"find": "Trace();", "replace": "Log();"})
    assert apply(answer, "--lenient") == 0
    assert "warning" in capsys.readouterr().err
    assert (tree / "src/MyFile.cs").read_text().count("Log();") == 1


def test_a_structured_patch_needs_a_file_to_patch(apply: Apply) -> None:
    assert apply(patches({"find": "a", "replace": "b"}, path="none.cs")) == 3


SENTENCES = [
    "A patch cannot be safely generated with the information provided.",
    "Unable to generate a safe Git patch; fallback to Aptix file bundle.",
    (
        "A patch cannot be safely generated with the information provided. Please allow a full "
        "Aptix file bundle instead."
    ),
    "Unable to generate a safe Git patch; fallback to Aptix file bundle or structured patch.",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_refusal_sentences_are_a_refusal_and_never_no_changes(
    apply: Apply, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for answer in (sentence, f"> `{sentence}`\n", f"Sorry.\n\n**{sentence}**\n"):
        assert apply(answer) == 3
        assert "[answer.refusal]" in capsys.readouterr().err


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_refusal_with_a_guessed_patch_is_not_believed(
    apply: Apply, tree: Path, sentence: str
) -> None:
    before = picture(tree)
    assert apply(f"{sentence}\n\n{patches({'find': 'OldMethod', 'replace': 'N'})}") == 3
    assert picture(tree) == before


# 3. Git patch


def test_a_git_patch_in_a_patch_fence_is_applied(apply: Apply, tree: Path) -> None:
    assert apply(fenced(GIT, "patch")) == 0
    assert (
        tree / "src/Foo.cs"
    ).read_text() == "public class Foo\n{\n    public int TotalCount;\n}\n"


def test_it_must_be_a_valid_unified_diff(apply: Apply, tree: Path) -> None:
    before = picture(tree)
    assert apply(fenced(GIT.replace("-1,4 +1,4", "-1,9 +1,4"), "patch")) == 2
    assert picture(tree) == before


def test_it_must_not_contain_commentary(apply: Apply, tree: Path) -> None:
    before = picture(tree)
    evil = GIT + "\nAnd another thing:\ndiff --git a/x b/x\nnew file mode 100644\n"
    assert apply(fenced(evil, "patch")) == 2
    assert picture(tree) == before


def test_local_changes_are_never_overwritten_in_patch_mode(apply: Apply, tree: Path) -> None:
    make(tree, {"src/Foo.cs": b"public class Foo\n{\n    public int Mine;\n}\n"})
    before = picture(tree)
    assert apply(fenced(GIT, "patch")) == 3
    assert apply(patches({"find": "Count", "replace": "X"}, path="src/Foo.cs")) == 3
    assert picture(tree) == before


# 4. Modes


@pytest.mark.parametrize("name", instructions.NAMES)
def test_there_is_a_text_that_tells_a_model_how_to_answer(name: str) -> None:
    text = instructions.instruction_text(name)
    assert len(text.splitlines()) > 10


@pytest.mark.parametrize(
    "phrase",
    [
        "Aptix file bundle",
        "Aptix file patch",
        "minimal",
        "git patch",
        *SENTENCES,
    ],
)
def test_the_aptix_text_covers_mode_selection_and_refusals(phrase: str) -> None:
    text = " ".join(instructions.instruction_text("aptix").split())
    assert phrase.lower() in text.lower()


# 5. Mixed responses


def test_one_answer_may_hold_a_bundle_and_a_git_patch(apply: Apply, tree: Path) -> None:
    answer = (
        "### Aptix File Bundle\n"
        + bundle({"path": "b.txt", "content": "b"})
        + "\n### Git Patch\n"
        + fenced(GIT, "patch")
    )
    assert apply(answer) == 0
    assert (tree / "b.txt").exists()
    assert "TotalCount" in (tree / "src/Foo.cs").read_text()


def test_overlapping_modifications_are_refused_whole(apply: Apply, tree: Path) -> None:
    before = picture(tree)
    answer = bundle(
        {"path": "b.txt", "content": "b"}, {"path": "src/Foo.cs", "content": "c"}
    ) + fenced(GIT, "patch")
    assert apply(answer) == 3
    assert picture(tree) == before


# 8. Guarantees


def test_operations_are_deterministic_and_idempotent(apply: Apply, tree: Path) -> None:
    answer = bundle({"path": "a", "content": "1"}, {"path": "src/Foo.cs", "content": "2"})
    assert apply(answer) == 0
    after = picture(tree)
    assert apply(answer) == 0
    assert picture(tree) == after


def test_json_that_is_no_delivery_is_ignored(apply: Apply, tree: Path) -> None:
    answer = fenced({"name": "pkg", "files": ["dist"]}) + bundle({"path": "a", "content": "1"})
    assert apply(answer) == 0
    assert (tree / "a").exists()
    assert apply(fenced({"name": "pkg", "files": ["dist"]})) == 2
