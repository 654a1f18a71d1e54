"""Which sandbox is used, and what is refused rather than weakened."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.tree_path import is_below
from coilclaw.workspace.process import command, landlock
from coilclaw.workspace.process.confinement import (
    NO_SANDBOX,
    SYSTEM_PATHS,
    Confinement,
    Enforced,
    Kind,
    Sandbox,
    SandboxSupport,
    resolve,
)
from coilclaw.workspace.process.sandbox import choose_sandbox, probe_sandboxes

NOTHING = SandboxSupport(notes=("The program 'bwrap' was not found.", "No Landlock."))
BOTH = SandboxSupport("/usr/bin/bwrap", bubblewrap_proc=True, landlock_abi=7)
BUBBLEWRAP = SandboxSupport("/usr/bin/bwrap", bubblewrap_proc=True)
LANDLOCK = SandboxSupport(landlock_abi=7)


def refused(sandbox: Sandbox, support: SandboxSupport) -> EnvironmentFault:
    with pytest.raises(EnvironmentFault) as caught:
        choose_sandbox(sandbox, support)
    assert caught.value.rule == "sandbox.unavailable"
    assert caught.value.hint is not None
    return caught.value


@pytest.mark.parametrize(
    ("kind", "support"),
    [
        ("bubblewrap", NOTHING),
        ("bubblewrap", LANDLOCK),
        ("landlock", NOTHING),
        ("landlock", BUBBLEWRAP),
    ],
)
def test_a_named_sandbox_that_is_missing_is_refused(kind: Kind, support: SandboxSupport) -> None:
    fault = refused(Sandbox(kind), support)
    assert fault.message.startswith(f"The sandbox {kind} is required and this machine has none")


def test_any_sandbox_is_refused_if_required_and_missing() -> None:
    fault = refused(Sandbox("auto", required=True), NOTHING)
    assert fault.message == (
        "A sandbox is required and this machine has none: "
        "The program 'bwrap' was not found. No Landlock."
    )


@pytest.mark.parametrize("abi", [1, 2, 3])
def test_an_old_landlock_does_not_stand_in_for_a_blocked_network(abi: int) -> None:
    support = SandboxSupport(landlock_abi=abi)
    refused(Sandbox("landlock", network=False), support)
    refused(Sandbox("auto", network=False, required=True), support)


@pytest.mark.parametrize("abi", [1, 2])
def test_a_landlock_that_allows_truncation_does_not_stand_in_for_a_closed_tree(abi: int) -> None:
    refused(Sandbox("landlock", network=True), SandboxSupport(landlock_abi=abi))


def test_an_old_landlock_is_better_than_nothing_and_says_what_it_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = choose_sandbox(Sandbox("auto", network=False), SandboxSupport(landlock_abi=2)).enforced
    assert (held.kind, held.filesystem, held.network) == ("landlock", False, "open")
    assert "Landlock 2 cannot keep files from being truncated." in held.notes
    assert "Landlock 2 cannot block the network." in held.notes
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("kind", "support", "expected"),
    [
        ("auto", BOTH, ("bubblewrap", True, "blocked", True)),
        ("auto", BUBBLEWRAP, ("bubblewrap", True, "blocked", True)),
        ("auto", LANDLOCK, ("landlock", True, "tcp-blocked", False)),
        ("landlock", BOTH, ("landlock", True, "tcp-blocked", False)),
        ("landlock", replace(BOTH, seccomp=True), ("landlock", True, "blocked", False)),
        ("bubblewrap", BOTH, ("bubblewrap", True, "blocked", True)),
        ("none", BOTH, ("none", False, "open", False)),
    ],
)
def test_the_best_there_is_is_used(
    kind: Kind, support: SandboxSupport, expected: tuple[object, ...]
) -> None:
    held = choose_sandbox(Sandbox(kind), support).enforced
    assert (held.kind, held.filesystem, held.network, held.processes) == expected


def test_what_is_asked_for_open_is_recorded_open() -> None:
    for support in (BUBBLEWRAP, LANDLOCK):
        assert choose_sandbox(Sandbox("auto", network=True), support).enforced.network == "open"


def test_landlock_says_what_it_does_not_hold(tmp_path: Path) -> None:
    shown = Sandbox("landlock", readable=(tmp_path.parent,), hidden=(tmp_path,))
    notes = choose_sandbox(shown, LANDLOCK).enforced.notes
    assert notes[:3] == (
        "Landlock gives no private /tmp: it is shared, and writable only if listed.",
        "Directories above a hidden path cannot be listed.",
        "Landlock blocks TCP only: UDP and Unix sockets in the file system stay open.",
    )
    assert notes[3:] == (landlock.NOT_HELD_UNFILTERED,)
    filtered = choose_sandbox(Sandbox("landlock"), replace(LANDLOCK, seccomp=True)).enforced.notes
    assert filtered[1:] == (landlock.NOT_HELD,)
    open_ = choose_sandbox(Sandbox("landlock", network=True), replace(LANDLOCK, seccomp=True))
    assert "With the network, Unix sockets in the file system stay open." in open_.enforced.notes


def test_a_bubblewrap_that_the_child_could_replace_is_not_used(tmp_path: Path) -> None:
    own = tmp_path / "venv" / "bwrap"
    own.parent.mkdir()
    own.touch()
    support = replace(BOTH, bubblewrap=str(own))
    inside, beside = Sandbox("auto", writable=(tmp_path,)), Sandbox("auto", readable=(tmp_path,))
    assert choose_sandbox(inside, support).enforced.kind == "landlock"
    assert choose_sandbox(beside, support).enforced.kind == "bubblewrap"
    with pytest.raises(EnvironmentFault, match="it lies where the process may write"):
        choose_sandbox(replace(inside, kind="bubblewrap"), support)


def test_no_sandbox_at_all_is_loud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = command.run(
        ["touch", "started"], cwd=tmp_path, timeout_s=30, sandbox=Sandbox("auto"), support=NOTHING
    )
    assert result.ok
    assert result.enforced == Enforced(
        notes=(
            "No sandbox is available: the process ran unconfined.",
            "The program 'bwrap' was not found.",
            "No Landlock.",
        )
    )
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_none_asked_for_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = command.run(["true"], cwd=tmp_path, timeout_s=30, sandbox=NO_SANDBOX)
    assert (result.enforced, caplog.records) == (Enforced(), [])


@pytest.mark.parametrize(
    "sandbox", [Sandbox("landlock"), Sandbox("bubblewrap"), Sandbox("auto", required=True)]
)
def test_a_process_is_not_started_without_the_sandbox_it_requires(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    starters: list[Callable[..., Any]] = [command.run, command.open]
    for begin in starters:
        with pytest.raises(EnvironmentFault):
            begin(
                ["touch", "started"],
                cwd=tmp_path,
                timeout_s=30,
                sandbox=sandbox,
                support=NOTHING,
            )
    assert not (tmp_path / "started").exists()


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        Sandbox(cast("Kind", "chroot"))
    assert caught.value.rule == "sandbox.kind"


@pytest.mark.parametrize("field", ["writable", "readable", "hidden"])
@pytest.mark.parametrize("path", [Path("relative"), Path("/a\0b")])
def test_a_path_is_absolute(field: str, path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Sandbox("auto", **{field: (path,)})  # type: ignore[arg-type]
    assert caught.value.rule == "sandbox.path"


@pytest.mark.parametrize("field", ["writable", "readable"])
def test_a_place_that_does_not_exist_is_refused(tmp_path: Path, field: str) -> None:
    sandbox = Sandbox("auto", **{field: (tmp_path / "missing",)})  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault) as caught:
        choose_sandbox(sandbox, BOTH)
    assert caught.value.rule == "sandbox.path"


def test_what_is_shown_cannot_be_hidden(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for hidden in (tmp_path, link, Path("/")):
        with pytest.raises(UsageError) as caught:
            resolve(Sandbox("auto", writable=(tmp_path,), hidden=(hidden,)))
        assert caught.value.rule == "sandbox.hidden"


def test_paths_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("real")
    found = resolve(
        Sandbox(
            "auto",
            writable=(tmp_path / "link",),
            readable=(tmp_path / "link" / "..",),
            hidden=(tmp_path / "file", tmp_path / "missing", Path("/root/../etc"), other),
            narrow=True,
        )
    )
    root = str(tmp_path.resolve())
    assert found == Confinement(
        writable=(f"{root}/real",),
        readable=(root,),
        hidden_directories=(f"{root}/other",),
        hidden_files=(f"{root}/file",),
        private_tmp=True,
        covered=("/tmp", "/var/tmp"),
        notes=(f"Nothing was hidden at '{root}/missing': it does not exist.",),
    )
    # Of what does not show, not even the name does.
    assert found.hidden == (f"{root}/other", f"{root}/file")


def test_links_on_the_way_are_kept_where_nothing_else_shows_them(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "data" / "tree").mkdir(parents=True)
    (root / "far").symlink_to("data")
    (root / "near").symlink_to(root / "far" / "tree")
    (root / "data" / "tree" / "inside").symlink_to(".")
    found = resolve(Sandbox("auto", readable=(root / "near" / "inside",), narrow=True))
    assert (found.readable, found.links) == (
        (f"{root}/data/tree",),
        ((f"{root}/far", "data"), (f"{root}/near", f"{root}/far/tree")),
    )
    plain = Sandbox("auto", writable=(root / "near",), readable=(Path("/"),), private_tmp=False)
    assert resolve(plain).links == ()


def test_links_that_a_private_tmp_covers_are_kept() -> None:
    with TemporaryDirectory(dir="/tmp") as directory:
        root = Path(directory).resolve()
        (root / "data").mkdir()
        (root / "near").symlink_to("data")
        found = resolve(Sandbox("auto", writable=(root / "near",), readable=()))
    assert found.links == ((f"{root}/near", "data"),)


def test_system_paths_that_this_machine_lacks_are_left_out() -> None:
    found = resolve(Sandbox("auto", readable=SYSTEM_PATHS)).readable
    assert found is not None
    assert {"/usr", "/etc"} <= set(found)
    assert all(os.path.exists(path) for path in found)


@pytest.mark.parametrize(
    ("path", "ancestor", "below"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/a/b", "/", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
    ],
)
def test_a_name_that_begins_alike_is_not_below(path: str, ancestor: str, below: bool) -> None:
    assert is_below(path, ancestor) is below


def test_probing_leaves_nothing_behind() -> None:
    assert probe_sandboxes() == probe_sandboxes()
