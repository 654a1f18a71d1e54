"""Names of runners."""

from __future__ import annotations

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runners.runner import KINDS, RunnerName, parse


@pytest.mark.parametrize(
    "text",
    [
        "",
        "codex2",
        "Builtin",
        "builtin ",
        ":x",
        "gemini",
        "claude:x",
        "scripted" + "x" * 40_000,
    ],
)
def test_an_unknown_name_is_answered_with_the_list(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.rule == "runner.unknown"
    assert all(kind in str(caught.value.hint) for kind in KINDS)


@pytest.mark.parametrize(
    "text",
    [
        "scripted",
        "scripted:",
        "process:  ",
        "process:'unclosed",
        "process:''",
        "process:a\0b",
        "builtin:x",
        "codex:",
        "opencode:x",
        "codex-exec:x",
        "acp",
        "acp:",
        "acp:'unclosed",
    ],
)
def test_a_name_without_what_it_needs_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.rule == "runner.argument"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("builtin", RunnerName("builtin")),
        ("code-commit", RunnerName("code-commit")),
        ("codex", RunnerName("codex")),
        ("codex-exec", RunnerName("codex-exec")),
        ("opencode", RunnerName("opencode")),
        ("acp:gemini --acp", RunnerName("acp", "gemini --acp")),
        ("scripted:a b.json", RunnerName("scripted", "a b.json")),
        ("scripted:C:x", RunnerName("scripted", "C:x")),
    ],
)
def test_a_name_is_read_and_written(text: str, name: RunnerName) -> None:
    assert parse(text) == name
    assert str(name) == text


def test_the_words_of_a_process_are_split_and_not_interpreted() -> None:
    name = parse("""process:python -c "print('$HOME; x')" a*""")
    assert name.argv == ("python", "-c", "print('$HOME; x')", "a*")


def test_the_words_of_an_acp_agent_are_split_too() -> None:
    assert parse("acp:gemini --acp -m 'a b'").argv == ("gemini", "--acp", "-m", "a b")
