from __future__ import annotations

import pytest

from coilclaw.kernel.errors import PathRefused
from coilclaw.kernel.tree_path import TreePath, fold_name, quote_text

REFUSED = [
    ("", "path.empty"),
    (".", "path.empty"),
    ("a/", "path.empty"),
    ("a/.", "path.empty"),
    ("/etc/passwd", "path.absolute"),
    ("//server/share", "path.absolute"),
    ("../x", "path.parent"),
    ("a/../b", "path.parent"),
    ("a/..", "path.parent"),
    ("．．/x", "path.parent"),
    ("‥/x", "path.parent"),
    ("...", "path.parent"),
    ("a\0b", "path.nul"),
    ("a\nb", "path.control"),
    ("a\x1b[31mb", "path.control"),
    ("a\x7f", "path.control"),
    ("a\x85b", "path.control"),
    ("a\u2028b", "path.control"),
    ("a\u202etxt.exe", "path.control"),
    ("a\\b", "path.backslash"),
    ("..\\x", "path.backslash"),
    ("\\\\server\\share", "path.backslash"),
    ("C:x", "path.drive"),
    ("c:/windows", "path.drive"),
    (".git", "path.git"),
    (".git/config", "path.git"),
    ("sub/.git/hooks/x", "path.git"),
    (".GIT/config", "path.git"),
    (".Git", "path.git"),
    ("git~1/config", "path.git"),
    ("GIT~2", "path.git"),
    (".g\u200cit/config", "path.git"),
    (".git\ufeff/config", "path.git"),
    (".git::$INDEX_ALLOCATION/x", "path.git"),
    (".git:stream", "path.git"),
    (".git./x", "path.git"),
    (".git /x", "path.git"),
    ("．git/x", "path.git"),
    ("con", "path.device"),
    ("NUL", "path.device"),
    ("src/com1", "path.device"),
    ("lpt9.txt", "path.device"),
    ("aux.c", "path.device"),
    ("nul .txt", "path.device"),
    ("COM¹", "path.device"),
    ("conin$", "path.device"),
    ("name.", "path.trailing"),
    ("dir /file", "path.trailing"),
    ("~/.ssh/config", "path.home"),
    ("x" * 256, "path.long"),
    ("ä" * 128, "path.long"),
    ("/".join(["d"] * 200), "path.long"),
    ("/".join(["d" * 200] * 21), "path.long"),
    ("\ud800", "path.encoding"),
]

ALLOWED = [
    ("a", ("a",)),
    ("./a", ("a",)),
    ("a//b", ("a", "b")),
    ("a/./b", ("a", "b")),
    ("src/main.rs", ("src", "main.rs")),
    (".gitignore", (".gitignore",)),
    (".gitattributes", (".gitattributes",)),
    (".github/workflows/x.yml", (".github", "workflows", "x.yml")),
    ("git/config", ("git", "config")),
    ("git~/x", ("git~", "x")),
    ("console.py", ("console.py",)),
    ("com10.md", ("com10.md",)),
    ("nullable.c", ("nullable.c",)),
    ("a..b", ("a..b",)),
    ("..a", ("..a",)),
    ("with space/ä 漢字.txt", ("with space", "ä 漢字.txt")),
    ("note: today.md", ("note: today.md",)),
    ("a~", ("a~",)),
    ("x" * 255, ("x" * 255,)),
]


@pytest.mark.parametrize(("text", "rule"), REFUSED)
def test_refuses(text: str, rule: str) -> None:
    with pytest.raises(PathRefused) as caught:
        TreePath.parse(text)
    assert (caught.value.rule, caught.value.path) == (rule, text)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(("text", "parts"), ALLOWED)
def test_allows(text: str, parts: tuple[str, ...]) -> None:
    assert TreePath.parse(text) == TreePath(parts)


@pytest.mark.parametrize("text", ["", "/", "/src", "..", "src/..", "a\\b", ".git", "C:"])
def test_a_root_obeys_the_same_rules(text: str) -> None:
    with pytest.raises(PathRefused):
        TreePath.parse_directory(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [(".", ()), ("./", ()), ("src", ("src",)), ("./src/", ("src",)), ("a/b/.", ("a", "b"))],
)
def test_a_root_may_be_the_tree_or_below(text: str, parts: tuple[str, ...]) -> None:
    assert TreePath.parse_directory(text) == parts


def test_a_path_below_a_root_is_checked_whole() -> None:
    assert str(TreePath.parse("x/y").under(("a", "b"))) == "a/b/x/y"
    with pytest.raises(PathRefused):
        TreePath.parse("/".join("x" * 100)).under(tuple("y" * 100))


def test_folding_joins_what_a_file_system_may_join() -> None:
    assert TreePath.parse("Src/BUILD.sh").folded == TreePath.parse("src/build.SH").folded
    assert fold_name("bu\u200cild.sh") == "build.sh"
    assert fold_name("a") != fold_name("b")


def test_shown_hides_nothing() -> None:
    assert quote_text("a\x1b[2Jb\u202e") == "'a\\u001b[2Jb\\u202e'"
    assert quote_text("x" * 300).endswith("'…")
