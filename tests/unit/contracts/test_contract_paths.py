"""Paths of contracts: judged as they are written, compared by segments."""

from __future__ import annotations

import pytest

from coilclaw.runs.contracts import paths


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "./",
        "/",
        "//",
        "/etc",
        "/etc/",
        "..",
        "../x",
        "x/../y",
        "x/..",
        "src/../../x",
        "*",
        "**",
        "src/*",
        "src/**/a.py",
        "a?.py",
        "[a].py",
        "a\\b",
        "a\nb",
        "a\0b",
        "a\x7f",
        "a\u202eb",
        ".git",
        ".git/",
        ".GIT/config",
        "x/.git/hooks",
        "git~1",
        ".git ",
        ".git\u200c",
        ".git.",
        "./src",
        "src/./a",
        "src//a",
        "src//",
        " src",
        "src ",
        "src/ a",
        "src.",
        "con",
        "nul.txt",
        "C:",
        "C:/x",
        "~/x",
        ".runtime-cache",
        ".runtime-cache/cortexpilot",
        ".runtime-cache/cortexpilot/runs",
        ".Runtime-Cache/CortexPilot/x",
        "...",
        "a" * 300,
        "/".join(["a"] * 200),
        "\ud800",
    ],
)
def test_an_invalid_path_is_refused(text: str) -> None:
    assert paths.find_path_flaw(text)


@pytest.mark.parametrize(
    "text",
    [
        "src",
        "src/",
        "src/a.py",
        ".github",
        ".github/workflows/ci.yml",
        "github",
        "environment.py",
        "git",
        "git/x",
        "a b/c d.txt",
        "ä/ö.txt",
        ".gitignore",
        ".runtime-cache/other",
        "runtime-cache",
        "..a",
        "a..b",
        "-x",
    ],
)
def test_its_neighbour_is_fine(text: str) -> None:
    assert paths.find_path_flaw(text) is None


def test_the_message_says_what_and_never_misleads() -> None:
    assert paths.find_path_flaw("src/*") == "'src/*' has a wildcard; name files or directories"
    assert paths.find_path_flaw("/") == "'/' is the whole tree"
    assert "\u202e" not in str(paths.find_path_flaw("a\u202eb"))


@pytest.mark.parametrize(
    ("scope", "path", "inside"),
    [
        ("src", "src", True),
        ("src", "src/a/b", True),
        ("src/", "src/a", True),
        ("src/a", "src", False),
        ("src", "srcs", False),
        ("src", "src2/a", False),
        ("src", "Src/a", False),
        (".github", "github/a", False),
        ("github", ".github/a", False),
        ("a/b", "a/bc", False),
        ("a.py", "a.pyc", False),
    ],
)
def test_containment_is_by_segments_and_exact(scope: str, path: str, inside: bool) -> None:
    assert paths.contains(scope, path) is inside
    assert paths.is_within(path, ("other", scope)) is inside


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("src", "src/a", True),
        ("src/a", "src", True),
        ("SRC", "src/a", True),
        ("src/ﬁle", "src/file", True),
        ("src/a", "src/b", False),
        ("src/a", "src/ab", False),
        ("a", "b", False),
    ],
)
def test_overlap_ignores_case(one: str, other: str, both: bool) -> None:
    assert paths.overlap(one, other) is both
    assert paths.overlap(other, one) is both
    assert paths.overlaps((one,), ("zzz", other)) == (((one, other),) if both else ())


def test_broad_is_a_directory_of_the_baseline_with_few_segments() -> None:
    directories = ("src", "src/app", "src/app/deep", "docs")
    asked = ("src", "src/", "SRC", "docs", "src/app", "src/app/deep", "new", "setup.py", "new/")
    assert paths.broad_paths(asked, directories=directories) == ("src", "src/", "SRC", "docs")
    two = paths.broad_paths(asked, directories=directories, segments_at_most=2)
    assert two == ("src", "src/", "SRC", "docs", "src/app")
    assert paths.broad_paths(asked, directories=directories, segments_at_most=0) == ()
