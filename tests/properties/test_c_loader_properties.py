"""Whatever is in a tree of fixtures or an archive, the answer is programs or a precise error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments import fixtures
from coilclaw.traces.environments.fixture_install import install_fixtures
from tests.support.cprograms import loader, wacct_files, write
from tests.support.fixturesets import FILES, package, packed, pinned
from tests.support.scale import scaled

wacct = loader("wacct")
ctestsuite = loader("ctestsuite")
torture = loader("torture")

MANY = settings(max_examples=scaled(full=300, default=50), deadline=None)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 300) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
programs_named = st.sampled_from(
    ["chapter_1/valid/only.c", "chapter_9/valid/libraries/add.c", "chapter_1/valid/gone.c", "x", ""]
)
names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
sources = st.binary(max_size=60) | st.sampled_from(
    [b'#include "a.c"\n', b'#include "../x.h"\n', b'# include "b.h"', b"int main(void){return 0;}"]
)


FIRST = {
    name: data
    for name, data in wacct_files().items()
    if not name.startswith("tests/") or name.startswith("tests/chapter_1/")
}


def refused(read: Callable[[], tuple[Any, ...]]) -> UsageError | tuple[Any, ...]:
    try:
        return read()
    except UsageError as problem:
        return problem


def hold(read: Callable[[], tuple[Any, ...]]) -> None:
    """What every loader promises: an error that says where, or programs that are sound."""
    made = refused(read)
    if isinstance(made, UsageError):
        assert made.rule == "fixtures.malformed"
        assert made.where is not None
        return
    assert made
    found = [program.name for program in made]
    assert found == sorted(set(found))
    for program in made:
        for file in (*program.sources, *program.include):
            assert file.is_absolute()
            assert file.is_file()
            assert not file.is_symlink()
            assert program.root is None or program.root in file.parents


@MANY
@given(
    results=st.dictionaries(programs_named, json_values, max_size=4),
    properties=st.dictionaries(
        st.sampled_from(["libs", "assembly_libs", "requires_mathlib"]),
        json_values | st.dictionaries(programs_named, st.lists(st.text(max_size=6), max_size=2)),
    ),
    chapter=st.sampled_from([1, 9, 20]),
)
def test_wacct_whatever_its_files_say(
    results: dict[str, Any], properties: dict[str, Any], chapter: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        files = {
            name: data
            for name, data in wacct_files().items()
            if not name.startswith("tests/") or name.startswith(f"tests/chapter_{chapter}/")
        }
        said = json.loads(files["expected_results.json"]) | results
        files["expected_results.json"] = json.dumps(said)
        files["test_properties.json"] = json.dumps(
            json.loads(files["test_properties.json"]) | properties
        )
        tree = write(Path(place), files)
        hold(lambda: wacct.programs(tree, chapter))


@MANY
@given(
    invalid=st.dictionaries(names, sources, max_size=4),
    ends=st.lists(st.sampled_from([".c", ".h", "", ".c.expected"]), min_size=4, max_size=4),
)
def test_any_names_and_contents(invalid: dict[str, bytes], ends: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for (name, data), end in zip(invalid.items(), ends, strict=False):
            if len(f"{name}{end}".encode()) < 250 and name not in (".", ".."):
                (folder / f"{name}{end}").write_bytes(data)
        tree = write(folder / "wacct", FIRST)
        (tree / "tests/chapter_1/invalid_any").symlink_to(folder)
        hold(lambda: torture.programs(folder, frozenset({"a"})))
        hold(lambda: ctestsuite.programs(folder))
        hold(lambda: wacct.programs(tree, 1))


@MANY
@given(
    kind=st.sampled_from(["w", "w:gz", "w:xz", "w:bz2", "deb"]),
    at=st.floats(0, 1),
    change=st.binary(min_size=1, max_size=8),
)
def test_a_damaged_archive_is_refused_or_whole(kind: str, at: float, change: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wanted = pinned(folder / "sample")
        whole = package(FILES) if kind == "deb" else packed(FILES, kind)
        where = int(at * (len(whole) - len(change)))
        file = folder / "damaged"
        file.write_bytes(whole[:where] + change + whole[where + len(change) :])
        root = folder / "root"
        try:
            assert install_fixtures(wanted, root, origin=file).found.state == "pinned"
        except UsageError:
            assert fixtures.find(wanted, root).state == "missing"
            assert [entry.name for entry in root.iterdir()] == [".coilclaw-fixtures.lock"]


@MANY
@given(data=st.binary(max_size=2000), head=st.sampled_from([b"", b"!<arch>\n", b"\x1f\x8b\x08"]))
def test_any_bytes_are_no_archive(data: bytes, head: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        wanted = pinned(Path(place) / "sample")
        file = Path(place) / "any"
        file.write_bytes(head + data)
        root = Path(place) / "root"
        try:
            install_fixtures(wanted, root, origin=file)
        except UsageError:
            assert [entry.name for entry in root.iterdir()] == [".coilclaw-fixtures.lock"]
        else:
            raise AssertionError("nothing of it is the set")
