"""The unit as text: what it says, how words are written, and who wrote it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coilclaw.gateway.systemd import NAME, Unit, is_ours, program, quote_word
from coilclaw.kernel.errors import UsageError

UNIT = Unit(("/bin/true", "serve"), Path("/srv/home"), Path("/srv/work"))


def lines(unit: Unit) -> list[str]:
    return unit.text().splitlines()


@pytest.mark.parametrize("path", ["/tmp", "/tmp/x", "/var/tmp/x", "/dev/shm/x"])
@pytest.mark.parametrize("which", ["program", "home", "workspace"])
def test_what_the_service_could_not_see_is_refused(path: str, which: str) -> None:
    unit = Unit(
        (path if which == "program" else "/bin/true",),
        Path(path if which == "home" else "/srv/home"),
        Path(path if which == "workspace" else "/srv/work"),
    )
    with pytest.raises(UsageError) as caught:
        unit.text()
    assert caught.value.rule == "service.private"
    assert which in caught.value.message


def test_its_neighbour_is_seen() -> None:
    assert Unit(("/bin/true",), Path("/tmpx"), Path("/srv/tmp")).text()


@pytest.mark.parametrize("word", ["a\nb", "a\tb", "\x00", "\x7f", "caf\udcff"])
def test_a_word_that_cannot_be_written_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        quote_word(word)
    assert caught.value.rule == "service.path"


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain", '"plain"'),
        ("two words", '"two words"'),
        ("100%", '"100%%"'),
        ('say "x"', '"say \\"x\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("ünï", '"ünï"'),
        ("$HOME", '"$HOME"'),
    ],
)
def test_a_word_is_written_so_that_it_comes_back(word: str, written: str) -> None:
    assert quote_word(word) == written


def test_the_hardening_is_there() -> None:
    wanted = {
        "NoNewPrivileges=yes",
        "PrivateUsers=yes",
        "PrivateTmp=yes",
        "ProtectSystem=strict",
        "ProtectHome=read-only",
        "ProtectControlGroups=yes",
        "ProtectKernelModules=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
        "MemoryDenyWriteExecute=yes",
        "UMask=0077",
        "Restart=on-failure",
        "LimitCORE=0",
        'ReadWritePaths="/srv/home" "/srv/work"',
        'ExecStart=":/bin/true" "serve"',
        'Environment="COILCLAW_HOME=/srv/home"',
    }
    assert wanted <= set(lines(UNIT))
    # Without namespaces no command could be confined.
    assert not [line for line in lines(UNIT) if line.startswith("RestrictNamespaces")]


def test_only_the_one_line_differs_when_code_may_be_made() -> None:
    with_jit = Unit(UNIT.command, UNIT.home, UNIT.workspace, jit=True)
    assert set(lines(UNIT)[2:]) - set(lines(with_jit)[2:]) == {"MemoryDenyWriteExecute=yes"}


def test_a_path_is_not_named_twice() -> None:
    same = Unit(("/bin/true",), Path("/srv/home"), Path("/srv/home"))
    assert 'ReadWritePaths="/srv/home"' in lines(same)


def test_what_we_wrote_is_known_and_what_was_changed_is_not() -> None:
    text = UNIT.text()
    assert is_ours(text)
    for changed in (
        text + "\n",
        text.replace("strict", "no"),
        text.split("\n", 2)[2],
        "",
        text.replace("sha256 ", "sha256 0"),
    ):
        assert not is_ours(changed)


def verified(folder: Path, text: str) -> tuple[int, list[str]]:
    """What the service manager's own check says of a unit."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = folder / NAME
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", str(unit)],
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, [
        line for line in done.stderr.splitlines() if NAME in line or "/nowhere" in line
    ]


@pytest.mark.parametrize(
    "name", ["plain", "two words", "100% sure", 'quo"te', "back\\slash", "dollar$HOME", "ünï"]
)
def test_the_service_manager_understands_every_path(tmp_path: Path, name: str) -> None:
    place = Path("/srv") / name
    unit = Unit(("/bin/true", str(place)), place, place / "work")
    assert verified(tmp_path, unit.text()) == (0, [])


@pytest.mark.parametrize("name", ["two words", "100% sure", "dollar$HOME", "ünï"])
def test_the_service_manager_finds_every_program(tmp_path: Path, name: str) -> None:
    program = tmp_path / name / "coil claw"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    # The tests stand below /tmp, which a real unit refuses; what is checked here is the writing.
    text = UNIT.text().replace('":/bin/true"', quote_word(f":{program}"))
    assert verified(tmp_path, text) == (0, [])


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "apo'strophe"])
def test_a_program_that_systemd_does_not_start_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        Unit((f"/srv/{name}",), UNIT.home, UNIT.workspace).text()
    assert caught.value.rule == "service.program"
    program = tmp_path / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    code, said = verified(tmp_path, UNIT.text().replace('":/bin/true"', quote_word(str(program))))
    assert code != 0, said


def test_a_program_that_is_not_there_is_noticed_by_the_check(tmp_path: Path) -> None:
    code, said = verified(tmp_path, Unit(("/nowhere/at all",), UNIT.home, UNIT.workspace).text())
    assert code == 1
    assert "/nowhere/at all" in said[0]


def test_the_program_is_found_from_how_it_was_called(tmp_path: Path) -> None:
    script = tmp_path / "coilclaw"
    script.write_text("#!/bin/sh\n")
    assert program(str(script), "/usr/bin/python3") == ("/usr/bin/python3", str(script))
    script.chmod(0o755)
    assert program(str(script), "/usr/bin/python3") == (str(script),)
    module = tmp_path / "__main__.py"
    module.write_text("")
    expected = ("/usr/bin/python3", "-m", "coilclaw")
    assert program(str(module), "/usr/bin/python3") == expected
    assert program("-c", "/usr/bin/python3") == expected
    assert os.path.isabs(program("-c", os.path.relpath(sys.executable))[0])
