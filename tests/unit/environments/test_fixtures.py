"""Fixture sets: how they are declared, found and told apart."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments import catalogue, fixtures
from coilclaw.traces.environments.fixtures import DebianOrigin, FoundFixture, GitOrigin
from tests.support.fixturesets import FILES, OTHERS, SET, lay, pinned

DECLARED = """
[[set]]
name = "small"
suite = "small"
purpose = "a few files"
licence = "ours"
places = ["small", "other-name", "deep-*/inside"]
files = ["LICENSE", "tests/**/*.c", "tests/**/*.h"]
anchor = "tests/a.c"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
programs = 2
"""
GIT = '[set.git]\nurl = "https://example.org/small.git"\ncommit = "%s"\n'
DEBIAN = '[set.debian]\npackage = "small-source"\nversion = "1.0-1"\narchive = "usr/*.tar.xz"\n'


def declare(folder: Path, text: str) -> Path:
    (folder / fixtures.FILE).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[set]]", "[set]"),
        ("[[set]]", "version = 1\n[[set]]"),
        ('name = "small"', 'name = "Small"'),
        ('name = "small"', 'name = ""'),
        ('name = "small"', 'nam = "small"'),
        ('suite = "small"', "suite = 1"),
        ("programs = 2", "programs = 0"),
        ("programs = 2", "programs = true"),
        ('sha256 = "0', 'sha256 = "x'),
        ('places = ["small"', 'places = ["/small"'),
        ('places = ["small"', 'places = ["../small"'),
        ('places = ["small"', 'places = ["s*"'),
        ('places = ["small"', 'places = ["a/b"'),
        ('places = ["small"', 'places = [""'),
        ('files = ["LICENSE"', 'files = ["../LICENSE"'),
        ('files = ["LICENSE"', "files = [1"),
        ('anchor = "tests/a.c"', 'anchor = "tests/a.txt"'),
        ("programs = 2", 'programs = 2\nleft_out = "../x.json"'),
        ("programs = 2", "programs = 2\ngit = 1"),
        ("programs = 2", "programs = 2\n" + GIT % "main"),
        ("programs = 2", "programs = 2\n" + (GIT % ("a" * 40)).replace("https", "ext")),
        ("programs = 2", "programs = 2\n" + (GIT % ("a" * 40)).replace("https://", "--")),
        ("programs = 2", "programs = 2\n" + DEBIAN.replace("small-source", "-o x")),
        ("programs = 2", "programs = 2\n" + DEBIAN.replace("version", "v")),
        ("programs = 2", "programs = "),
        ("programs = 2", "programs = 2\n" + "x" * fixtures.MAX_DECLARED_BYTES),
    ],
)
def test_a_declaration_that_is_none(tmp_path: Path, old: str, new: str) -> None:
    assert fixtures.read_declared(declare(tmp_path, DECLARED)) == (SET,)
    assert old in DECLARED
    with pytest.raises(UsageError) as caught:
        fixtures.read_declared(declare(tmp_path, DECLARED.replace(old, new)))
    assert caught.value.rule == "fixtures.declared"
    assert fixtures.FILE in str(caught.value)


def test_two_sets_of_one_name_or_place(tmp_path: Path) -> None:
    second = DECLARED.replace('"small"', '"second"')
    assert len(fixtures.read_declared(declare(tmp_path, DECLARED + second))) == 2
    for same in ('name = "second"', 'places = ["second"'):
        text = DECLARED + second.replace(same, same.replace("second", "small"))
        declare(tmp_path, text)
        with pytest.raises(UsageError, match="twice"):
            fixtures.read_declared(tmp_path)


def test_where_a_set_comes_from(tmp_path: Path) -> None:
    text = DECLARED + 'left_out = "small_left_out.json"\n' + GIT % ("a1" * 20) + DEBIAN
    assert fixtures.read_declared(declare(tmp_path, text)) == (
        replace(
            SET,
            left_out="small_left_out.json",
            git=GitOrigin("https://example.org/small.git", "a1" * 20),
            debian=DebianOrigin("small-source", "1.0-1", "usr/*.tar.xz"),
        ),
    )


def test_an_environment_without_fixtures(tmp_path: Path) -> None:
    assert fixtures.read_declared(tmp_path) == ()


def test_what_the_c_compiler_environment_declares() -> None:
    sets = fixtures.read_declared(catalogue.shipped_directory() / "c_compiler")
    assert [(one.name, one.suite, one.programs) for one in sets] == [
        ("wacct", "wacct", 1559),
        ("c-testsuite", "c_testsuite", 220),
        ("torture", "torture", 1563),
    ]


def test_names_of_sets() -> None:
    assert fixtures.choose_sets((SET,), []) == (SET,)
    assert fixtures.choose_sets((SET,), ["small"]) == (SET,)
    with pytest.raises(UsageError, match="large") as caught:
        fixtures.choose_sets((SET,), ["large"])
    assert caught.value.hint == "there are small"


def test_missing_pinned_and_another_version(tmp_path: Path) -> None:
    wanted = pinned(tmp_path / "sample")
    root = tmp_path / "root"
    assert fixtures.find(wanted, root) == FoundFixture(wanted, "missing")
    place = lay(root / "small", FILES | OTHERS)
    assert fixtures.find(wanted, root) == FoundFixture(wanted, "pinned", place, wanted.sha256, 4)
    lay(root / "small", {"tests/deep/b.h": b"#define B 2\n"})
    other = fixtures.find(wanted, root)
    assert (other.state, other.place, other.files) == ("other", place, 4)
    assert other.sha256 not in (None, wanted.sha256)
    (place / "tests/a.c").unlink()
    assert fixtures.find(wanted, root) == FoundFixture(wanted, "missing")


@pytest.mark.parametrize("change", ["renamed", "added", "removed", "moved"])
def test_every_change_of_what_is_read_is_another_version(tmp_path: Path, change: str) -> None:
    wanted = pinned(tmp_path / "sample")
    files = dict(FILES)
    match change:
        case "renamed":
            files["tests/deep/c.c"] = files.pop("tests/deep/b.c")
        case "added":
            files["tests/more.c"] = b""
        case "removed":
            del files["LICENSE"]
        case _:
            files["tests/b.c"] = files.pop("tests/deep/b.c")
    lay(tmp_path / "root/small", files)
    assert fixtures.find(wanted, tmp_path / "root").state == "other"


def test_a_clone_with_its_history_is_as_good(tmp_path: Path) -> None:
    wanted = pinned(tmp_path / "sample")
    lay(tmp_path / "root/small", FILES | {".git/tests/x.c": b"int x;"})
    assert fixtures.find(wanted, tmp_path / "root").state == "pinned"


@pytest.mark.parametrize("place", ["other-name", "deep-1/inside"])
def test_other_places(tmp_path: Path, place: str) -> None:
    wanted = pinned(tmp_path / "sample")
    lay(tmp_path / "root" / place, FILES)
    assert fixtures.find(wanted, tmp_path / "root").place == tmp_path / "root" / place
    # The first place wins, whatever is in the others.
    lay(tmp_path / "root/small", FILES | {"LICENSE": b"another"})
    assert fixtures.find(wanted, tmp_path / "root").state == "other"


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    wanted = pinned(tmp_path / "sample")
    place = lay(tmp_path / "root/small", FILES)
    odd = place / "tests/odd.c"
    if kind == "link":
        odd.symlink_to("/etc/hostname")
    else:
        os.mkfifo(odd)
    with pytest.raises(UsageError, match=r"odd\.c"):
        fixtures.find(wanted, tmp_path / "root")


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = pinned(tmp_path / "sample")
    place = lay(tmp_path / "root/small", FILES)
    monkeypatch.setattr(fixtures, "MAX_FILE_BYTES", 100)
    assert fixtures.find(wanted, tmp_path / "root").state == "pinned"
    (place / "tests/a.c").write_bytes(b"x" * 101)
    with pytest.raises(UsageError, match="larger"):
        fixtures.find(wanted, tmp_path / "root")


def test_where_they_are_unless_somebody_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, home = tmp_path / "opt/tests", tmp_path / "home"
    monkeypatch.setattr(fixtures, "SHARED", shared)
    own = home / "fixtures"
    assert fixtures.default_root(home) == own
    assert fixtures.default_root(home, to_write=True) == own
    shared.parent.mkdir()
    assert fixtures.default_root(home) == own
    assert fixtures.default_root(home, to_write=True) == shared
    own.mkdir(parents=True)
    assert fixtures.default_root(home, to_write=True) == own
    shared.mkdir()
    assert fixtures.default_root(home) == shared
    assert fixtures.default_root(home, to_write=True) == shared
