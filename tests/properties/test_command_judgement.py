"""Whatever a command line is made of: wrapping and adding never make it less strict."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coilclaw.kernel.effects import Risk
from coilclaw.policy.commands.judge import CommandFinding
from coilclaw.policy.commands.stream_editors import find_impurity
from tests.support.judging import judged
from tests.support.scale import scaled

EXAMPLES = scaled(full=3000, default=250)
quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

HARMLESS = (
    "ls -la",
    "cat a.txt",
    "git status",
    "grep -rn x src",
    "sort a.txt",
    "wc -l a.txt",
    "pwd",
)
FORBIDDEN = (
    "rm x",
    "rm -rf /",
    "cat /etc/passwd",
    "shutdown now",
    "sudo ls",
    "PATH=. ls",
    "dd if=a",
)
MIXED = (*HARMLESS, *FORBIDDEN, "curl x", "pytest", "mkdir d", "python -c 1", "$X", "echo $(ls)")
PREFIXES = (
    *(
        "env ",
        "env A=1 ",
        "env -i ",
        "nice ",
        "nice -n 5 ",
        "timeout 5 ",
        "stdbuf -oL ",
        "command ",
    ),
    *("nohup ", "setsid ", "xargs ", "busybox ", "exec ", "ionice ", "strace -f ", "flock a "),
)
JOINTS = ("; ", " && ", " || ", " | ", "\n", " & ", " |& ")
ENCLOSINGS = (
    "({})",
    "{{ {}; }}",
    "echo $({})",
    "cat <({})",
    "if {}; then :; fi",
    "! {}",
    "{} > /dev/null",
)

texts = st.text(st.sampled_from("abrm xl s-/.*?~$(){}[]<>|&;'\"\\`=!#\n\t01é\u202e"), max_size=40)


def strictness(found: CommandFinding) -> tuple[bool, Risk]:
    return (found.forbidden, found.risk)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@st.composite
def wrapped(draw: st.DrawFn, commands: tuple[str, ...]) -> str:
    """A command in a few layers of wrappers, shells and constructs."""
    text = draw(st.sampled_from(commands))
    for _ in range(draw(st.integers(0, 3))):
        layer = draw(st.sampled_from(("prefix", "shell", "enclosing")))
        if layer == "prefix" and "=" not in text.split()[0]:
            prefix = draw(st.sampled_from(PREFIXES))
            text = prefix + (
                text if text.isascii() and text[0].isalpha() else f"sh -c {quoted(text)}"
            )
        elif layer == "shell":
            shell = draw(st.sampled_from(("sh -c", "bash -lc", "env dash -c", "eval", "zsh -ec")))
            text = f"{shell} {quoted(text)}"
        elif layer == "enclosing":
            text = draw(st.sampled_from(ENCLOSINGS)).format(text)
    return text


@quick
@given(wrapped(FORBIDDEN))
def test_what_is_forbidden_stays_forbidden_in_any_wrapping(command: str) -> None:
    assert judged(command).forbidden, command


@quick
@given(st.lists(wrapped(MIXED), min_size=1, max_size=4), st.sampled_from(JOINTS))
def test_a_line_is_at_least_as_strict_as_its_strictest_part(parts: list[str], joint: str) -> None:
    whole = judged(joint.join(parts))
    assert strictness(whole) >= max(strictness(judged(part)) for part in parts)


@quick
@given(st.sampled_from(HARMLESS), st.sampled_from(FORBIDDEN), st.sampled_from(JOINTS))
def test_a_harmless_neighbour_hides_nothing(harmless: str, bad: str, joint: str) -> None:
    assert judged(harmless + joint + bad).forbidden
    assert judged(bad + joint + harmless).forbidden


@quick
@given(texts)
def test_any_text_gets_an_answer(text: str) -> None:
    found = judged(text)
    assert found.segments
    assert found.rule
    assert found.reason


@quick
@given(st.lists(texts.filter(lambda text: "\0" not in text), min_size=1, max_size=6))
def test_any_argv_gets_an_answer(argv: list[str]) -> None:
    found = judged(tuple(argv))
    assert found.segments
    assert found.forbidden or found.segments[0].argv


@quick
@given(st.sampled_from(HARMLESS), texts)
def test_what_follows_never_makes_reading_write(command: str, text: str) -> None:
    found = judged(f"{command} {text}")
    if found.risk is Risk.LOW:
        assert not found.forbidden
        assert not found.terms.writable
        assert ".." not in found.segments[0].argv


@quick
@given(
    st.sampled_from(
        [
            *(("sort", "--output=x"), ("sort", "--compress-program=x"), ("git log", "--output=x")),
            *(
                ("rg a", "--pre=x"),
                ("sed p a", "--in-place"),
                ("tail a", "--follow"),
                ("du", "--dereference"),
            ),
            *(
                ("git grep x", "--open-files-in-pager=x"),
                ("git diff", "--ext-diff"),
                ("date", "--set=x"),
            ),
        ]
    ),
    st.integers(4, 30),
)
def test_no_abbreviation_of_a_refused_option_is_harmless(pair: tuple[str, str], cut: int) -> None:
    command, option = pair
    name, equals, value = option.partition("=")
    assert judged(f"{command} {name[:cut]}{equals}{value}").risk > Risk.LOW


sed_scripts = st.text(st.sampled_from("p1,$/[]^\\a.b*dewrRWs|{};! \n:#x0~+&ghINt=cy"), max_size=14)


@pytest.mark.skipif(shutil.which("sed") is None, reason="there is no sed to ask")
@settings(max_examples=scaled(full=4000, default=200), deadline=None)
@given(
    st.one_of(sed_scripts, st.builds("s/{}/{}/{}".format, sed_scripts, sed_scripts, sed_scripts))
)
def test_a_script_we_call_pure_is_one_that_sed_runs_in_its_sandbox(script: str) -> None:
    """``sed --sandbox`` refuses e, r and w when it reads the script; it is asked what we missed."""
    if find_impurity(script) is not None:
        return
    done = subprocess.run(
        ["sed", "--sandbox", "-n", "-e", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert b"sandbox" not in done.stderr, script
