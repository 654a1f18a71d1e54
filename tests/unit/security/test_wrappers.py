"""What a wrapper would run, and what it adds to the class of that command."""

from __future__ import annotations

import pytest

from coilclaw.policy.commands.command_class import CommandClass, CommandInput
from coilclaw.policy.commands.interpreters import peel_interpreter, peel_shell
from coilclaw.policy.commands.wrappers import peel_wrapper
from coilclaw.policy.shell.script import Word
from tests.support.judging import judged, verdict

OTHER = CommandClass.OTHER
PASS = CommandClass.HARMLESS


def words(text: str) -> tuple[Word, ...]:
    return tuple(Word(part, part) for part in text.split())


@pytest.mark.parametrize(
    ("command", "inner", "level"),
    [
        ("env A=1 B=2 ls -l", "ls -l", PASS),
        ("env -i -u X -- ls", "ls", OTHER),
        ("env - ls", "ls", OTHER),
        ("env -C src ls", "ls", PASS),
        ("nice -n 5 ls", "ls", PASS),
        ("nice -5 ls", "ls", PASS),
        ("timeout -k 1 --signal=KILL 5s ls -l", "ls -l", PASS),
        ("stdbuf -oL ls", "ls", PASS),
        ("time -p ls", "ls", PASS),
        ("time -o x ls", "ls", OTHER),
        ("command -p ls", "ls", PASS),
        ("builtin cd src", "cd src", PASS),
        ("exec -a name ls", "ls", OTHER),
        ("nohup ls", "ls", OTHER),
        ("xargs -0 -n 1 -I {} cat {}", "cat {}", CommandClass.HARMLESS),
        ("xargs", "echo", CommandClass.HARMLESS),
        ("xargs -p cat", "cat", OTHER),
        ("busybox ls -l", "ls -l", OTHER),
        ("flock -n a ls", "ls", OTHER),
        ("strace -f -e trace=open ls", "ls", OTHER),
        ("uv run --frozen pytest -q", "pytest -q", CommandClass.ALLOWED),
        ("coreutils --coreutils-prog=ls -l", "ls -l", OTHER),
        ("ld.so /bin/ls", "/bin/ls", OTHER),
    ],
)
def test_a_wrapper_is_peeled(command: str, inner: str, level: CommandClass) -> None:
    peeled = peel_wrapper(command.split(maxsplit=1)[0], words(command))
    assert peeled is not None
    assert [" ".join(w.text or "" for w in each) for each in peeled.commands] == [inner]
    assert peeled.floor.level is level


@pytest.mark.parametrize(
    "command",
    [
        "env --what ls",
        "timeout --what 5 ls",
        "xargs --what ls",
        "nice --what ls",
        "parallel --what ls",
    ],
)
def test_a_wrapper_that_is_not_understood_is_forbidden(command: str) -> None:
    assert verdict(command) == ("forbidden", "command.wrapper")


@pytest.mark.parametrize(
    "command", ["ls", "command -v ls", "git status", "make", "uv pip install x"]
)
def test_what_wraps_nothing_is_not_peeled(command: str) -> None:
    assert peel_wrapper(command.split(maxsplit=1)[0], words(command)) is None


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("bash", "-c", "ls"), "ls"),
        (("bash", "-lc", "ls"), "ls"),
        (("bash", "-c", "-e", "ls"), "ls"),
        (("bash", "-o", "pipefail", "-ec", "ls"), "ls"),
        (("bash", "--norc", "-c", "ls", "name", "arg"), "ls"),
        (("sh", "-c", "--", "ls"), "ls"),
        (("eval", "ls", "-l"), "ls -l"),
        (("trap", "ls", "EXIT"), "ls"),
    ],
)
def test_the_text_for_a_shell_is_found(command: tuple[str, ...], text: str) -> None:
    peeled = peel_shell(command[0], tuple(Word(w, w) for w in command), CommandInput())
    assert peeled is not None
    assert [script.text for script in peeled.scripts] == [text]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("python", "-c", "x"), "x"),
        (("python", "-cx"), "x"),
        (("python", "-Bc", "x"), "x"),
        (("perl", "-ne", "x", "f"), "x"),
        (("node", "--eval=x"), "x"),
        (("vim", "+x", "f"), "x"),
    ],
)
def test_program_text_is_found(command: tuple[str, ...], code: str) -> None:
    peeled = peel_interpreter(command[0], tuple(Word(w, w) for w in command), CommandInput())
    assert peeled is not None
    assert code in [each.text for each in peeled.codes]
    assert peeled.floor.level is OTHER


def test_the_program_text_of_awk_is_judged_by_its_rule() -> None:
    words_ = tuple(Word(w, w) for w in ("awk", "-F:", "-v", "a=1", "x", "f"))
    peeled = peel_interpreter("awk", words_, CommandInput())
    assert peeled is not None
    assert "x" in [each.text for each in peeled.codes]
    assert (peeled.itself, peeled.floor.level) == (True, CommandClass.HARMLESS)


def test_segments_show_what_really_runs() -> None:
    found = judged("env LC_ALL=C timeout 5 sh -c 'ls -l | sort'")
    assert [(s.argv, s.kind, s.rule) for s in found.segments] == [
        (("ls", "-l"), "harmless", "harmless.ls"),
        (("sort",), "harmless", "harmless.sort"),
    ]


def test_the_depth_of_texts_and_of_programs_is_bounded() -> None:
    text = "rm x"
    for _ in range(4):
        text = "bash -c " + "'" + text.replace("'", "'\\''") + "'"
    assert verdict(text) == ("forbidden", "command.forbidden")
    for _ in range(4):
        text = "bash -c " + "'" + text.replace("'", "'\\''") + "'"
    assert judged(text).forbidden
    assert verdict("nice " * 10 + "ls") == ("low", "harmless.ls")
    assert verdict("nice " * 20 + "ls") == ("forbidden", "shell.bound")


def test_where_env_and_git_go_is_where_paths_begin() -> None:
    assert verdict("env -C src cat ../a.txt")[0] == "low"
    assert verdict("env -C src cat ../../a.txt") == ("forbidden", "path.outside")
    assert verdict("git -C src log -- ../a.txt")[0] == "low"
    assert verdict("git -C src -C .. -C .. status") == ("forbidden", "path.outside")
