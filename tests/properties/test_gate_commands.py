"""A command that is accepted is what a shell would make of it, and nothing more."""

from __future__ import annotations

import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st

from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.gates.command import CommandTerms, judge_text
from coilclaw.runs.gates.command_line import parse_command
from coilclaw.runs.gates.test_grammar import GRAMMARS
from coilclaw.runs.gates.weakened_tests import find_weakened_tests
from tests.support.scale import scaled

PIECES = st.sampled_from(
    [*"ab \\'\"$`;|&<>()*?[]{}~!#=-%^,.:/@", "pytest", "'", '"', " ", "\\", "é", "\t", "\n", "A=b"]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


@settings(max_examples=scaled(full=400, default=60))
@given(st.lists(TEXTS, min_size=20, max_size=20))
@example(["pytest 'a|b' \"c;d\" e\\ f"] * 20)
def test_a_shell_reads_the_same_words(texts: list[str]) -> None:
    accepted = [(text, parse_command(text).argv) for text in texts]
    accepted = [(text, argv) for text, argv in accepted if argv and not argv[0].startswith("-")]
    script = "".join(f"printf '%s\\0' {text}\nprintf '\\n\\0'\n" for text, _ in accepted)
    done = subprocess.run(["sh", "-f"], input=script.encode(), capture_output=True, check=True)
    expected = "".join("".join(f"{word}\0" for word in argv) + "\n\0" for _, argv in accepted)
    assert done.stdout.decode() == expected
    assert done.stderr == b""


@given(TEXTS)
def test_nothing_is_allowed_that_could_not_be_read(text: str) -> None:
    policies = PolicySet.read_shipped("low")
    terms = CommandTerms(policies.commands, policies.forbidden_actions, lambda _: True)
    result = judge_text(text, terms=terms, timeout_sec=1)
    if result.passed:
        argv = parse_command(text).argv
        assert argv
        assert any(
            argv[0].removeprefix("./") == rule.exec.removeprefix("./") for rule in terms.rules
        )


CODE = st.lists(
    st.sampled_from(
        [
            "def test_a():\n",
            "    assert x == 1\n",
            "it('a', () => {",
            "expect(1).toBe(2);",
            "})",
            "{",
            "}",
            "'",
            '"',
            "`",
            "/*",
            "*/",
            "//",
            "\n",
            "#[test]\n",
            "fn a() {",
            "return;",
            "@Test void a() {",
            "[Fact] public void A() {",
            "TEST(a, b) {",
            "func TestA(t) {",
            "import pytest\n",
            "\\",
            "\x00",
        ]
    ),
    max_size=25,
).map("".join)
FILES = st.sampled_from(
    [
        "tests/test_a.py",
        "a.test.ts",
        "a_test.go",
        "src/a.rs",
        "ATest.java",
        "T.Tests/A.cs",
        "a_spec.rb",
        "ATest.php",
        "a_test.cc",
        "a.bats",
        "package.json",
        "pyproject.toml",
        "Makefile",
    ]
)


@given(FILES, CODE, CODE)
def test_weakening_is_judged_for_any_contents(path: str, old: str, new: str) -> None:
    assert find_weakened_tests({path: old.encode()}, {path: old.encode()}) in (
        (),
        *_unreadable(path, old),
    )
    for violation in find_weakened_tests({path: old.encode()}, {path: new.encode()}):
        assert violation.rule.startswith("tests.")
        assert violation.path == path


def _unreadable(path: str, text: str) -> list[tuple[object, ...]]:
    """Python that cannot be read is refused even if it was there before."""
    return [find_weakened_tests({}, {path: text.encode()})] if path.endswith(".py") else []


@given(st.sampled_from(sorted(GRAMMARS)), CODE)
def test_blanking_out_moves_nothing(language: str, code: str) -> None:
    blank = GRAMMARS[language].blank(code)
    assert len(blank) == len(code)
    assert [at for at, char in enumerate(blank) if char == "\n"] == [
        at for at, char in enumerate(code) if char == "\n"
    ]
