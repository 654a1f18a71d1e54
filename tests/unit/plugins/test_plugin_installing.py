"""Installing, removing and approving: all or nothing, nothing run, every change noticed."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.agent.plugins import installation, pins
from coilclaw.agent.plugins.installation import (
    approve_plugin,
    enable_plugin,
    install_plugin,
    remove_plugin,
    review_plugin,
)
from coilclaw.agent.plugins.manifest import parse
from coilclaw.agent.plugins.pins import Pin, PinnedFile
from coilclaw.agent.plugins.store import Difference, InstalledPlugin, PluginStore
from coilclaw.kernel.errors import CoilClawError, DeniedError, EnvironmentFault, UsageError
from tests.support.children import PATIENCE_S
from tests.support.pluginworld import SAYS_OK, make, manifest
from tests.support.scale import scaled

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "plugins"


@pytest.fixture
def store(tmp_path: Path) -> PluginStore:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return PluginStore(home)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make(tmp_path / "source", files={"data/words.txt": "words"})


def rule(problem: pytest.ExceptionInfo[CoilClawError]) -> str:
    return problem.value.rule


def test_an_installed_plugin_is_what_was_given(store: PluginStore, source: Path) -> None:
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_bytes(b"left behind")
    (source / ".git").mkdir()
    assert install_plugin(store, source, ()).version == "1.2.3"
    assert store.list_installed() == (
        InstalledPlugin("sample", "enabled", "1.2.3", parse(manifest())),
    )
    place = store.place("sample")
    assert (place / "run").read_text() == SAYS_OK
    assert (place / "data" / "words.txt").read_text() == "words"
    assert sorted(os.listdir(place)) == ["data", "manifest.toml", "run"]
    assert stat.S_IMODE((place / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((place / "manifest.toml").stat().st_mode) == 0o644
    assert stat.S_IMODE((store.home / "plugins.json").stat().st_mode) == 0o600
    assert os.listdir(store.folder) == ["sample"]


def test_nothing_is_run_and_no_special_bit_survives(store: PluginStore, tmp_path: Path) -> None:
    source = make(tmp_path / "source", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (source / "run").chmod(0o6755)
    (source / "setup.py").write_text(f"open('{tmp_path}/ran', 'w')")
    install_plugin(store, source, ())
    assert not (tmp_path / "ran").exists()
    assert stat.S_IMODE((store.place("sample") / "run").stat().st_mode) == 0o755


@pytest.mark.parametrize("kind", ["link", "broken", "folder link", "fifo", "socket"])
def test_a_directory_with_anything_but_files_is_refused(
    store: PluginStore, source: Path, kind: str, tmp_path: Path
) -> None:
    odd = source / "odd"
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "socket":
        os.mknod(odd, stat.S_IFSOCK | 0o600)
    else:
        odd.symlink_to({"link": "run", "broken": "/nowhere", "folder link": "/etc"}[kind])
    with pytest.raises(DeniedError) as problem:
        install_plugin(store, source, ())
    assert problem.value.rule == "plugin.kind"
    assert store.names() == ()


def test_a_plugin_without_a_right_manifest_is_refused(store: PluginStore, tmp_path: Path) -> None:
    no_manifest = make(tmp_path / "a")
    (no_manifest / "manifest.toml").unlink()
    not_text = make(tmp_path / "b")
    (not_text / "manifest.toml").write_bytes(b"\xff\xfe")
    not_executable = make(tmp_path / "c")
    (not_executable / "run").chmod(0o644)
    for source in (no_manifest, not_text, not_executable):
        with pytest.raises(UsageError) as problem:
            install_plugin(store, source, ())
        assert problem.value.rule == "plugin.manifest"
    assert store.names() == ()


def test_names_that_are_taken_are_refused_and_others_are_not(
    store: PluginStore, tmp_path: Path
) -> None:
    install_plugin(store, make(tmp_path / "first"), ("shell",))
    with pytest.raises(DeniedError) as denied:
        install_plugin(store, make(tmp_path / "again"), ())
    assert denied.value.rule == "plugin.exists"
    other = manifest("shell").replace('"sample"', '"other"')
    with pytest.raises(UsageError) as problem:
        install_plugin(store, make(tmp_path / "b", text=other), ("shell",))
    assert "tools[0].name: 'shell' is a tool of CoilClaw" in problem.value.message
    other = manifest().replace('"sample"', '"other"')
    with pytest.raises(UsageError) as problem:
        install_plugin(store, make(tmp_path / "c", text=other), ())
    assert "'sample_tool' is a tool of the plugin 'sample'" in problem.value.message
    other = manifest("other_tool").replace('"sample"', '"other"')
    install_plugin(store, make(tmp_path / "d", text=other), ("shell",))
    assert store.names() == ("other", "sample")


def test_every_kind_of_change_is_named(store: PluginStore, source: Path) -> None:
    install_plugin(store, source, ())
    place = store.place("sample")
    pin = pins.load(store.home)["sample"]
    assert len(store.read_verified(pin)) == 3
    (place / "run").write_text("#!/bin/sh\n")
    (place / "data" / "words.txt").unlink()
    (place / "new.py").write_text("")
    (place / "manifest.toml").chmod(0o755)
    (place / "link").symlink_to("run")
    (place / "empty").mkdir()
    found = (
        Difference("data/", "added"),
        Difference("data/words.txt", "removed"),
        Difference("empty/", "added"),
        Difference("link", "no file"),
        Difference("manifest.toml", "mode"),
        Difference("new.py", "added"),
        Difference("run", "changed"),
    )
    (seen,) = store.list_installed()
    assert (seen.state, seen.differences) == ("changed", found)
    with pytest.raises(DeniedError) as denied:
        store.read_verified(pin)
    assert denied.value.rule == "plugin.changed"
    for difference in found:
        assert str(difference) in denied.value.message


def test_a_change_that_keeps_size_and_time_is_noticed(store: PluginStore, source: Path) -> None:
    install_plugin(store, source, ())
    program = store.place("sample") / "run"
    before = program.stat()
    program.write_text(SAYS_OK.replace("ok", "no"))
    os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert program.stat().st_size == before.st_size
    (seen,) = store.list_installed()
    assert seen.differences == (Difference("run", "changed"),)


def test_approving_says_what_changed_and_pins_what_is_there(
    store: PluginStore, source: Path
) -> None:
    install_plugin(store, source, ())
    program = store.place("sample") / "run"
    program.write_text(SAYS_OK + "# more\n")
    approval = approve_plugin(store, "sample", ())
    assert (approval.differences, approval.first) == ((Difference("run", "changed"),), False)
    (seen,) = store.list_installed()
    assert (seen.state, seen.differences) == ("enabled", ())
    assert approve_plugin(store, "sample", ()).differences == ()


def test_approving_keeps_a_disabled_plugin_disabled(store: PluginStore, source: Path) -> None:
    install_plugin(store, source, ())
    enable_plugin(store, "sample", enabled=False)
    (store.place("sample") / "data" / "words.txt").write_text("other")
    approve_plugin(store, "sample", ())
    assert store.list_installed()[0].state == "disabled"
    enable_plugin(store, "sample", enabled=True)
    assert store.list_installed()[0].state == "enabled"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ('name = "sample"', 'name = "other"'),
        ('command = "./run"', 'command = "./gone"'),
        ('name = "sample_tool"', 'name = "shell"'),
        ("version", "verzion"),
    ],
)
def test_what_could_not_be_installed_cannot_be_approved(
    store: PluginStore, source: Path, change: str, wrong: str
) -> None:
    install_plugin(store, source, ())
    path = store.place("sample") / "manifest.toml"
    path.write_text(path.read_text().replace(change, wrong))
    with pytest.raises(UsageError) as problem:
        approve_plugin(store, "sample", ("shell",))
    assert problem.value.rule == "plugin.manifest"
    assert store.list_installed()[0].state == "changed"


def test_a_link_cannot_be_approved(store: PluginStore, source: Path) -> None:
    install_plugin(store, source, ())
    (store.place("sample") / "link").symlink_to("/etc/passwd")
    with pytest.raises(DeniedError) as denied:
        approve_plugin(store, "sample", ())
    assert denied.value.rule == "plugin.kind"


def test_a_directory_that_somebody_put_there_needs_approval(
    store: PluginStore, source: Path
) -> None:
    store.folder.mkdir()
    os.rename(source, store.place("sample"))
    assert store.list_installed() == (InstalledPlugin("sample", "unapproved"),)
    with pytest.raises(DeniedError) as denied:
        enable_plugin(store, "sample", enabled=True)
    assert denied.value.rule == "plugin.unapproved"
    assert approve_plugin(store, "sample", ()).first
    assert store.list_installed()[0].state == "enabled"


def test_a_removed_plugin_leaves_nothing(store: PluginStore, source: Path, tmp_path: Path) -> None:
    install_plugin(store, source, ())
    inner = store.place("sample") / "locked"
    inner.mkdir(mode=0o000)
    remove_plugin(store, "sample")
    assert os.listdir(store.folder) == []
    assert pins.load(store.home) == {}
    install_plugin(store, source, ())
    assert store.list_installed()[0].state == "enabled"


@pytest.mark.parametrize("name", ["absent", "../home", "", "."])
def test_a_plugin_that_is_not_there_is_said(store: PluginStore, source: Path, name: str) -> None:
    install_plugin(store, source, ())
    for action in (
        lambda: remove_plugin(store, name),
        lambda: enable_plugin(store, name, enabled=True),
        lambda: approve_plugin(store, name, ()),
    ):
        with pytest.raises(UsageError) as problem:
            action()
        assert problem.value.rule == "plugin.missing"
    assert store.names() == ("sample",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": "other", "plugins": []}',
        '{"format": "coilclaw.plugins.v1", "plugins": [{"name": "x"}]}',
        '{"format": "coilclaw.plugins.v1", "plugins": [7]}',
        '{"format": "coilclaw.plugins.v1", "plugins": [{"name": "x", "files": {}}]}',
    ],
)
def test_damaged_pins_stop_everything(store: PluginStore, source: Path, text: str) -> None:
    install_plugin(store, source, ())
    (store.home / "plugins.json").write_text(text)
    with pytest.raises(EnvironmentFault) as problem:
        store.list_installed()
    assert problem.value.rule == "plugin.pins"
    with pytest.raises(EnvironmentFault):
        enable_plugin(store, "sample", enabled=True)


def test_the_form_of_the_pins_does_not_change_silently(tmp_path: Path) -> None:
    expected = Pin(
        "sample",
        "1.2.3",
        False,
        'name = "sample"\n',
        {"data/ä.txt": PinnedFile("a" * 64, 0o644), "run": PinnedFile("b" * 64, 0o755)},
    )
    text = (BASELINE / "plugins.json").read_text()
    (tmp_path / "plugins.json").write_text(text)
    assert pins.load(tmp_path) == {"sample": expected}
    pins.save(tmp_path, {"sample": expected})
    assert (tmp_path / "plugins.json").read_text() == text
    assert expected.digest == json.loads((BASELINE / "digest.json").read_text())


def test_what_killed_processes_left_is_swept(store: PluginStore, source: Path) -> None:
    install_plugin(store, source, ())
    for prefix in (installation.STAGED, installation.REMOVED, installation.RUNNING):
        (store.folder / f"{prefix}0123" / "files").mkdir(parents=True)
    with installation.running(store.folder) as held:
        remove_plugin(store, "sample")
        assert os.listdir(store.folder) == [held.name]
    assert os.listdir(store.folder) == []


def test_a_program_is_run_only_when_nobody_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "SETTLE_S", 10 * PATIENCE_S)
    path = tmp_path / "run"
    path.write_text(SAYS_OK)
    installation.settle(path)
    writer = path.open("a")
    began = time.monotonic()
    threading.Timer(0.2, writer.close).start()
    installation.settle(path)
    assert writer.closed
    assert time.monotonic() - began < PATIENCE_S


def _killed(work: Callable[[], object], after_s: float | None) -> None:
    """Do some work in a process that is killed after a while, or, with ``None``, not at all."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _killed_before(work: Callable[[], object], number: int) -> bool:
    """Do some work in a process that kills itself before its nth deed on files, if it has one."""
    child = os.fork()
    if child == 0:
        deeds = itertools.count(1)

        def watch(event: str, _: object) -> None:
            if event.startswith(("os.", "open", "fcntl.")) and next(deeds) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("action", ["install", "remove"])
def test_a_kill_before_any_deed_leaves_a_plugin_whole_or_not_there(
    store: PluginStore, source: Path, action: str
) -> None:
    install_plugin(store, source, ())
    remove_plugin(store, "sample")
    seen = []
    for number in range(1, 500):
        if action == "remove":
            if not store.names():
                install_plugin(store, source, ())
            killed = _killed_before(lambda: remove_plugin(store, "sample"), number)
        else:
            if store.names():
                remove_plugin(store, "sample")
            killed = _killed_before(lambda: install_plugin(store, source, ()), number)
        states = tuple(plugin.state for plugin in store.list_installed())
        assert states in {(), ("enabled",)}, number
        seen.append(states)
        if not killed:
            break
    else:
        pytest.fail("it never came to its end")
    assert len(seen) > 20
    # It happens in one move: before it nothing changed, after it everything.
    assert seen == sorted(seen, reverse=action == "remove")


def test_a_kill_leaves_a_plugin_whole_or_not_there(store: PluginStore, tmp_path: Path) -> None:
    source = make(tmp_path / "source", files={f"f{n}": "x" * 500 for n in range(20)})
    chance = random.Random(5)
    began = time.monotonic()
    install_plugin(store, source, ())
    remove_plugin(store, "sample")
    took = time.monotonic() - began
    seen = set()
    for number in range(scaled(full=200, default=24)):
        there = store.names() == ("sample",)
        work: Callable[[], object] = (
            (lambda: remove_plugin(store, "sample"))
            if there
            else (lambda: install_plugin(store, source, ()))
        )
        _killed(work, None if number % 8 == 7 else chance.uniform(0, 2 * took))
        states = tuple(plugin.state for plugin in store.list_installed())
        assert states in {(), ("enabled",)}
        seen.add(states)
        # And whatever is left does not stop anybody.
        if states:
            enable_plugin(store, "sample", enabled=True)
    assert seen == {(), ("enabled",)}
    if store.names():
        remove_plugin(store, "sample")
    installation.install_plugin(store, source, ())
    assert os.listdir(store.folder) == ["sample"]


def test_everything_that_is_wrong_is_told_at_once_with_its_line(
    store: PluginStore, tmp_path: Path
) -> None:
    text = (
        'name = "sample"\nversion = "x"\ncapabilities = ["tool"]\n'
        '[[tools]]\nname = "shell"\ndescription = ""\ncommand = "./gone"\nschema = { type = 3 }\n'
        "[[tools]]\nnme = 'x'\n"
    )
    located = PluginStore(store.home)
    with pytest.raises(UsageError) as caught:
        install_plugin(located, make(tmp_path / "bad", text=text), ("shell",))
    said = caught.value.message.splitlines()[1:]
    found = [(int(part.removeprefix("line ").split(":")[0]), part.split(": ")[1]) for part in said]
    assert found == [
        (2, "version"),
        (5, "tools[0].name"),
        (6, "tools[0].description"),
        (7, "tools[0].command"),
        (8, "tools[0].schema"),
        (9, "tools[1].name"),
        (9, "tools[1].description"),
        (9, "tools[1].command"),
        (9, "tools[1].schema"),
        (10, "tools[1].nme"),
    ]
    assert store.names() == ()


def test_a_review_shows_what_changed_and_only_that_is_approved(
    store: PluginStore, source: Path
) -> None:
    install_plugin(store, source, ())
    place = store.place("sample")
    (place / "run").write_text(SAYS_OK.replace("ok", "no"))
    (place / "data" / "words.txt").write_bytes(b"\0\1\2")
    (place / "manifest.toml").chmod(0o755)
    found = review_plugin(store, "sample", ())
    assert '-echo \'{"success": true, "output": "ok"}\'' in found.lines
    assert '+echo \'{"success": true, "output": "no"}\'' in found.lines
    assert "  permissions 0644 -> 0755" in found.lines
    (binary,) = [line for line in found.lines if "-> 3 bytes, sha256 " in line]
    assert " bytes, sha256 " in binary.split(" -> ")[0]
    # What is there when a person says yes may be something else by then.
    (place / "run").write_text("#!/bin/sh\nevil\n")
    with pytest.raises(DeniedError) as denied:
        approve_plugin(store, "sample", (), seen=found.digest)
    assert denied.value.rule == "plugin.changed"
    approve_plugin(store, "sample", (), seen=review_plugin(store, "sample", ()).digest)
    assert review_plugin(store, "sample", ()).lines == ()
    # Nothing is kept that no approved plugin has.
    kept = {path.name for path in (store.home / "plugin_files").iterdir()}
    assert kept == {one.sha256 for one in pins.load(store.home)["sample"].files.values()}
    remove_plugin(store, "sample")
    assert list((store.home / "plugin_files").iterdir()) == []


def test_a_long_file_does_not_keep_another_out_of_sight(store: PluginStore, source: Path) -> None:
    install_plugin(store, source, ())
    (store.place("sample") / "aaa").write_text("x\n" * 1500)
    (store.place("sample") / "run").write_text("#!/bin/sh\nevil\n")
    lines = review_plugin(store, "sample", ()).lines
    assert lines[:4] == ("'aaa' added", "'run' changed", "'aaa' added", "--- approved/aaa")
    assert (lines[-2], lines[-1].endswith("more lines are not shown")) == ("+x", True)


def test_contents_that_were_not_kept_are_told_by_size_and_hash(
    store: PluginStore, source: Path
) -> None:
    install_plugin(store, source, ())
    for path in (store.home / "plugin_files").iterdir():
        path.write_bytes(b"tampered")
    (store.place("sample") / "run").write_text("new\n" * 3000)
    lines = review_plugin(store, "sample", ()).lines
    assert lines[0] == "'run' changed"
    assert "content not kept, sha256 " in lines[1]
    assert len(lines) == 2
