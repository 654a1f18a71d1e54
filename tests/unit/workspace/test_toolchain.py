"""Programs run in a sandbox wherever they are installed, and nothing else shows there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.workspace.process import command, toolchain
from coilclaw.workspace.process.confinement import MAX_SHOWN, Kind, Sandbox, resolve
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import PATIENCE_S
from tests.support.sandboxes import supported


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that a private /tmp covers."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


READS = 'cat "$(dirname "$(readlink -f "$0")")/../share/word"'


def program(path: Path, text: str = READS) -> Path:
    """A script, and what it needs of its own installation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    if path.parent.name == "bin":
        share = path.parent.parent / "share"
        share.mkdir(exist_ok=True)
        (share / "word").write_text("it runs\n")
    return path


def python(prefix: Path) -> Path:
    """What looks like an installation of Python."""
    library = prefix / "lib" / "python3.11"
    library.mkdir(parents=True)
    (library / "os.py").touch()
    (library / "word").write_text("it runs\n")
    return program(prefix / "bin" / "python3", READS.replace("share", "lib/python3.11"))


def virtual(prefix: Path, interpreter: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\nversion = 3.11.7\n")
    (prefix / "bin" / "python").symlink_to(interpreter)
    return prefix / "bin"


def at(path: Path) -> str | None:
    """The place of a program, or of a directory of programs."""
    found = toolchain.follow(str(path))
    assert found is not None
    return toolchain.find_installation(found)


def within(sandbox: Sandbox, tree: Path, *argv: str) -> ProcessResult:
    """Run a command in a sandbox, with the PATH of the tests."""
    return command.run(
        argv,
        cwd=tree,
        timeout_s=PATIENCE_S,
        sandbox=sandbox,
        support=supported(sandbox.kind),
    )


def sh(
    text: str, tree: Path, path: str, kind: Kind = "bubblewrap", **more: object
) -> ProcessResult:
    sandbox = Sandbox(kind, writable=(tree,), **more)  # type: ignore[arg-type]  # as a test says
    return command.run(
        ["sh", "-c", text],
        cwd=tree,
        timeout_s=PATIENCE_S,
        env={"PATH": f"{path}:/usr/bin:/bin"},
        sandbox=sandbox,
        support=supported(kind),
    )


@pytest.fixture
def tree(place: Path) -> Path:
    (place / "tree").mkdir()
    return place / "tree"


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_what_is_on_path_runs_and_what_lies_beside_it_does_not_show(
    place: Path, tree: Path, kind: Kind
) -> None:
    program(place / "tools" / "bin" / "mine")
    (place / "beside").write_text("secret")
    result = sh(f"mine; cat {place}/beside", tree, f"{place}/tools/bin", kind)
    assert result.stdout.text() == "it runs\n", result.stderr.text()


def test_what_is_on_path_cannot_be_written(place: Path, tree: Path) -> None:
    program(place / "tools" / "bin" / "mine")
    result = sh(f"echo x > {place}/tools/share/word", tree, f"{place}/tools/bin")
    assert (result.exit_code, (place / "tools/share/word").read_text()) == (2, "it runs\n")


def test_a_link_on_path_leads_to_its_installation(place: Path, tree: Path) -> None:
    program(place / "real" / "bin" / "mine")
    (place / "moved").symlink_to("real")
    (place / "links").mkdir()
    (place / "links" / "mine").symlink_to("../moved/bin/mine")
    (place / "links" / "mine2").symlink_to("mine")
    text = f"{place}/moved/bin/mine; PATH={place}/moved/bin:$PATH; mine"
    assert sh(text, tree, f"{place}/links").stdout.text() == "it runs\n" * 2
    assert sh("mine2", tree, f"{place}/links").stdout.text() == "it runs\n"


def test_a_real_virtual_environment_runs(place: Path, tree: Path) -> None:
    made = command.run(
        [sys.executable, "-m", "venv", "--without-pip", str(place / "real")],
        cwd=tree,
        timeout_s=PATIENCE_S,
    )
    assert made.ok, made.stderr.text()
    (place / "venv").symlink_to("real")
    result = sh("python -c 'import sys; print(sys.prefix)'", tree, f"{place}/venv/bin")
    assert result.stdout.text() == f"{place}/venv\n", result.stderr.text()


def test_the_interpreter_of_a_virtual_environment_shows(place: Path, tree: Path) -> None:
    folder = virtual(place / "venv", python(place / "python"))
    assert sh("python", tree, str(folder)).stdout.text() == "it runs\n"


def test_a_script_needs_its_interpreter(place: Path, tree: Path) -> None:
    interpreter = program(place / "other" / "bin" / "runs", 'exec /bin/sh "$@"')
    mine = program(place / "tools" / "bin" / "mine")
    mine.write_text(f"#!{interpreter}\necho interpreted\n")
    sandbox = Sandbox("bubblewrap", writable=(tree,)).showing(mine)
    result = within(sandbox, tree, str(mine))
    assert result.stdout.text() == "interpreted\n", result.stderr.text()


def test_a_program_of_a_virtual_environment_brings_the_environment(place: Path, tree: Path) -> None:
    folder = virtual(place / "venv", python(place / "python"))
    (place / "venv" / "module").write_text("installed\n")
    sandbox = Sandbox("bubblewrap", writable=(tree,)).showing(folder / "python")
    result = within(sandbox, tree, "sh", "-c", f"{folder}/python; cat {place}/venv/module")
    assert result.stdout.text() == "it runs\ninstalled\n", result.stderr.text()


def test_a_project_brings_its_own_python(place: Path, tree: Path) -> None:
    virtual(tree / ".venv", python(place / "python"))
    assert sh(".venv/bin/python", tree, "").stdout.text() == "it runs\n"


def test_what_can_be_written_does_not_say_what_shows(place: Path, tree: Path) -> None:
    """Otherwise a command could have the next one read whatever lies in /tmp."""
    secret = program(place / "secret" / "bin" / "python3")
    folder = virtual(tree / ".venv", secret)
    for path in ("", str(folder)):
        result = sh(f".venv/bin/python; cat {place}/secret/share/word", tree, path)
        assert result.stdout.text() == ""
    virtual(tree / "venv", python(place / "python"))
    assert sh("venv/bin/python", tree, "").stdout.text() == "it runs\n"


SECRET = "cat ../secret/share/word; ls -A .."


@pytest.fixture
def secret(place: Path) -> Path:
    return program(place / "secret" / "bin" / "key", "echo never")


def shows_nothing(tree: Path, path: str) -> None:
    shown = sh(SECRET, tree, path).stdout.text().split()
    assert set(shown) <= {"tree", "links", "home", "alias", "python"}, shown


def test_a_tree_that_looks_like_a_library_does_not_show_what_lies_around_it(place: Path) -> None:
    program(place / "secret" / "bin" / "key")
    tree = place / "libfoo"
    (tree / "python3").mkdir(parents=True)
    (tree / "python3" / "os.py").touch()
    (tree / ".venv" / "bin").mkdir(parents=True)
    for target in ("../../..", "../../../secret/bin/key", "../../python3/os.py"):
        (tree / ".venv" / "bin" / "python").unlink(missing_ok=True)
        (tree / ".venv" / "bin" / "python").symlink_to(target)
        assert sh(SECRET, tree, "").stdout.text() == "libfoo\n"


def test_of_an_installation_that_a_project_chose_only_its_programs_show(
    place: Path, tree: Path
) -> None:
    python(place / "rootfs" / "usr")
    (place / "rootfs" / "usr" / "etc").mkdir()
    (place / "rootfs" / "usr" / "etc" / "shadow").write_text("secret")
    (place / "rootfs" / "lib").symlink_to("usr/lib")
    (place / "rootfs" / "marker").touch(mode=0o755)
    virtual(tree / ".venv", place / "rootfs" / "usr" / "bin" / "python3")
    text = f"cat {place}/rootfs/usr/etc/shadow; ls {place}/rootfs/usr"
    assert sh(text, tree, "").stdout.text() == "bin\nlib\n"
    (tree / ".venv" / "bin" / "python").unlink()
    (tree / ".venv" / "bin" / "python").symlink_to(place / "rootfs" / "marker")
    assert sh(f"ls {place}/rootfs", tree, "").stdout.text() == ""


@pytest.mark.parametrize("way", ["link", "script"])
def test_a_link_on_path_into_the_tree_leads_no_further(
    place: Path, tree: Path, secret: Path, way: str
) -> None:
    (place / "links").mkdir()
    (place / "links" / "x").symlink_to(tree / "x")
    if way == "link":
        (tree / "x").symlink_to(secret)
    else:
        program(tree / "x").write_text(f"#!{secret}\n")
    shows_nothing(tree, f"{place}/links")


def test_a_directory_of_the_tree_on_path_leads_nowhere_however_it_is_spelled(
    place: Path, tree: Path, secret: Path
) -> None:
    (tree / "bin").symlink_to(secret.parent)
    (place / "alias").symlink_to("tree")
    for entry in (f"{tree}/bin", f"{place}/alias/bin", f"{place}/../{place.name}/tree/bin"):
        shows_nothing(tree, entry)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_a_named_file_of_the_tree_shows_nothing_that_is_hidden(
    place: Path, tree: Path, kind: Kind
) -> None:
    key = program(place / "home" / "keys" / "bin" / "api", "echo never")
    agent = program(tree / "agent.py")
    agent.write_text(f"#!{key}\n")
    sandbox = Sandbox(kind, writable=(tree,), hidden=(place / "home",)).showing("sh", str(agent))
    result = within(sandbox, tree, "sh", "-c", f"cat {key}")
    assert result.stdout.text() == ""


def test_what_was_written_before_shows_nothing_to_a_command_that_only_reads(
    place: Path, tree: Path, secret: Path
) -> None:
    (tree / "bin").mkdir()
    (tree / "bin" / "x").symlink_to(secret)
    result = command.run(
        ["sh", "-c", SECRET],
        cwd=tree,
        timeout_s=PATIENCE_S,
        env={"PATH": f"{tree}/bin:/usr/bin:/bin"},
        sandbox=Sandbox("bubblewrap"),
        support=supported("bubblewrap"),
    )
    assert result.stdout.text() == "tree\n"


def test_links_in_a_directory_of_everybody_lead_nowhere(
    place: Path, tree: Path, secret: Path
) -> None:
    (place / "links").mkdir()
    (place / "links").chmod(0o1777)
    (place / "links" / "x").symlink_to(secret)
    shows_nothing(tree, f"{place}/links")


FLIP = """
import os, sys
place, *targets = sys.argv[1:]
while True:
    for target in targets:
        os.symlink(target, place + ".new")
        os.rename(place + ".new", place)
"""


@pytest.mark.parametrize("where", ["link", "directory"])
def test_a_link_that_changes_meanwhile_shows_nothing_else(
    place: Path, tree: Path, secret: Path, where: str
) -> None:
    virtual(tree / ".venv", python(place / "python"))
    flipped = tree / ".venv" / "bin" / "python"
    targets = [str(place / "python" / "bin" / "python3"), str(secret), str(flipped)]
    if where == "directory":
        flipped.unlink()
        flipped.symlink_to(tree / "d" / "bin" / "python3")
        flipped = tree / "d"
        targets = [str(place / "python"), str(place / "secret"), str(flipped)]
        program(place / "secret" / "bin" / "python3")
    changing = subprocess.Popen([sys.executable, "-c", FLIP, str(flipped), *targets])
    try:
        for _ in range(200):
            shown = resolve(Sandbox("bubblewrap", writable=(tree,)), "", str(tree)).shown
            assert not [one for one in shown if "secret" in one]
        shows_nothing(tree, "")
    finally:
        changing.kill()
        changing.wait()


def test_sockets_of_services_stay_away_even_beside_a_program() -> None:
    """A place in /run leads out of the network namespace."""
    confinement = resolve(Sandbox("bubblewrap"), "/run:/run/lock:/run/user/0/bin")
    assert [one for one in confinement.shown if one.startswith("/run")] == []


def test_what_cannot_be_reached_in_the_sandbox_keeps_nothing_from_starting(
    place: Path, tree: Path
) -> None:
    program(place / "closed" / "tools" / "bin" / "mine")
    (place / "closed").chmod(0o000)
    try:
        result = sh("echo started", tree, f"{place}/closed/tools/bin")
    finally:
        (place / "closed").chmod(0o755)
    assert result.stdout.text() == "started\n"


def test_very_many_links_show_as_many_places_as_there_may_be(place: Path, tree: Path) -> None:
    (place / "links").mkdir()
    for number in range(600):
        (place / "links" / f"x{number}").symlink_to(f"../many/{number}/bin/x")
        program(place / "many" / str(number) / "bin" / "x")
    assert sh("echo started", tree, f"{place}/links").stdout.text() == "started\n"
    assert len(resolve(Sandbox("auto"), f"{place}/links").shown) <= MAX_SHOWN


def test_a_path_that_cannot_be_passed_is_refused_as_ever(tree: Path) -> None:
    for path in ("/usr/bin:/tmp/\0", "/usr/bin:/tmp/\udc00\ud800"):
        with pytest.raises(UsageError) as caught:
            sh("true", tree, path)
        assert caught.value.rule == "process.env"


def test_files_among_the_arguments_that_are_not_run_show_alone(place: Path, tree: Path) -> None:
    (place / "me").mkdir()
    config = place / "me" / "conf.json"
    config.write_text("{}\n")
    (place / "me" / "id_rsa").write_text("secret")
    sandbox = Sandbox("bubblewrap", writable=(tree,)).showing("sh", "--config", str(config))
    result = within(sandbox, tree, "sh", "-c", f"cat {config}; cat {place}/me/*")
    assert result.stdout.text() == "{}\n{}\n"


@pytest.mark.parametrize("entry", ["/tmp", "/tmp/.", "/tmp/../tmp", "/", "/nowhere", "relative"])
def test_a_shared_directory_on_path_shows_nothing(place: Path, tree: Path, entry: str) -> None:
    (place / "beside").write_text("secret")
    assert resolve(Sandbox("auto"), entry).shown == ()
    assert sh(f"cat {place}/beside", tree, entry).stdout.text() == ""


def test_a_program_in_a_shared_directory_shows_alone(place: Path, tree: Path) -> None:
    place.chmod(0o1777)
    mine = program(place / "mine", "echo alone")
    (place / "beside").write_text("secret")
    assert at(mine) == str(mine)
    sandbox = Sandbox("bubblewrap", writable=(tree,)).showing(mine)
    result = within(sandbox, tree, "sh", "-c", f"{mine}; cat {place}/beside")
    assert result.stdout.text() == "alone\n"


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_only_what_was_named_shows_in_what_is_hidden(place: Path, tree: Path, kind: Kind) -> None:
    mine = program(place / "home" / "agents" / "mine" / "bin" / "mine")
    (place / "home" / "key").write_text("secret")
    hidden = (place / "home",)
    text = f"cat {place}/home/key; mine; {mine}"
    path = str(mine.parent)
    assert sh(text, tree, path, kind, hidden=hidden).stdout.text() == ""
    named = sh(text, tree, path, kind, hidden=hidden, programs=(mine,))
    assert named.stdout.text() == "it runs\n" * 2
    top = program(place / "home" / "top", "echo shown")
    alone = sh(f"cat {place}/home/key; {top}", tree, path, kind, hidden=hidden, programs=(top,))
    assert alone.stdout.text() == "shown\n"


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_a_program_that_was_named_shows_among_what_is_readable(
    place: Path, tree: Path, kind: Kind
) -> None:
    mine = program(place / "tools" / "bin" / "mine")
    system = (Path("/usr"), Path("/bin"), Path("/lib"), Path("/lib64"), Path("/etc"))
    closed = sh("mine", tree, str(mine.parent), kind, readable=system, narrow=True)
    assert closed.exit_code == {"bubblewrap": 127, "landlock": 126}[kind]
    shown: dict[str, object] = {"readable": system, "narrow": True, "programs": (mine,)}
    named = sh("mine", tree, str(mine.parent), kind, **shown)
    assert named.stdout.text() == "it runs\n", named.stderr.text()


def test_files_among_the_arguments_show_unless_they_are_hidden(place: Path, tree: Path) -> None:
    script = program(place / "agent" / "agent.sh", ". ${0%/*}/more.sh")
    (place / "agent" / "more.sh").write_text("echo more\n")
    key = program(place / "home" / "keys" / "key", "secret")
    sandbox = Sandbox("bubblewrap", writable=(tree,), hidden=(place / "home",))
    shown = sandbox.showing("/bin/sh", "-e", str(script), str(key), str(place), "/nowhere")
    assert shown.programs == (Path("/bin/sh"), script)
    assert sandbox.showing("sh", str(script)).programs == (script,)
    result = within(shown, tree, "/bin/sh", str(script))
    assert result.stdout.text() == "more\n", result.stderr.text()


def test_links_that_lead_in_a_circle_lead_nowhere(place: Path, tree: Path) -> None:
    folder = place / "bin"
    folder.mkdir()
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "gone").symlink_to("/nowhere/x")
    program(place / "bin" / "fine", "echo fine")
    assert sh("fine", tree, str(folder)).stdout.text() == "fine\n"
    assert toolchain.follow(str(folder / "a")) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tool/bin/a", "tool"),
        ("tool/sbin/a", "tool"),
        (".pyenv/shims/a", ".pyenv"),
        ("tool/a", "tool"),
        (".local/bin/a", ".local/bin"),
        ("x/node_modules/.bin/a", "x"),
        ("x/node_modules/b/node_modules/c/bin/a", "x"),
        ("open/bin/a", "open/bin"),
        ("open/a", "open/a"),
        ("open/node_modules/.bin/a", "open/node_modules"),
    ],
)
def test_the_place_of_a_program(place: Path, name: str, expected: str) -> None:
    program(place / name)
    if name.startswith("open/"):
        (place / "open").chmod(0o1777)
    assert at(place / name) == str(place.resolve() / expected)


def test_a_home_is_no_installation(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place / "home"))
    assert at(program(place / "home/bin/a")) == str(place / "home/bin")
    assert at(program(place / "bin/a")) == str(place / "bin")
    assert at(place / "home") is None
