"""The tool gate: which commands run, judged word by word with the policies that are shipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coilclaw.runs.contracts.policy_files import CommandRule
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.gates.command import CommandTerms, judge_argv, judge_text
from coilclaw.runs.gates.command_line import (
    MAX_ARGUMENTS,
    MAX_COMMAND,
    ContractCommand,
    ForbiddenAction,
    parse_command,
)
from coilclaw.runs.gates.result import GateResult, Violation

FILES = frozenset(
    {"scripts/test.sh", "scripts/run.py", "tests/test_a.py", "tools/x.js", "Makefile"}
)


def rule(program: str, *prefixes: tuple[str, ...], forbidden: tuple[str, ...] = ()) -> CommandRule:
    return CommandRule(
        exec=program, kind="test", prefixes=prefixes or ((),), forbidden_flags=forbidden
    )


# As loose as an allowlist can be: what is denied below is denied whatever it says.
LOOSE = CommandTerms(
    tuple(
        rule(name)
        for name in (
            *("pytest", "python", "python3", "node", "bash", "sh", "make", "npm", "git", "cargo"),
            *("go", "env", "sudo", "xargs", "timeout", "nice", "vim", "curl", "ssh", "npx", "ruby"),
            *("perl", "rm", "echo", "ruff", "scripts/test.sh", "./scripts/gone.sh", "/bin/sh"),
        )
    ),
    (),
    FILES.__contains__,
    {"sub"}.__contains__,
)


def judged(command: str, terms: CommandTerms = LOOSE) -> list[str]:
    result = judge_text(command, terms=terms, timeout_sec=60)
    assert result.gate == "tool_gate"
    return [violation.rule for violation in result.violations]


@pytest.mark.parametrize(
    ("text", "rule_name"),
    [
        ("", "tool.empty"),
        ("   ", "tool.empty"),
        ("''", "tool.empty"),
        ("pytest 'tests", "tool.quotes"),
        ('pytest "tests', "tool.quotes"),
        ("pytest tests\\", "tool.quotes"),
        ("pytest\0tests", "tool.character"),
        ("pytest\ntests", "tool.character"),
        ("pytest\rtests", "tool.character"),
        ("pytest\ttests", "tool.character"),
        ("pytest\u00a0tests", "tool.character"),
        ("pytest \u202etests", "tool.character"),
        ("py\u200btest", "tool.character"),
        ("pytest \ud800", "tool.character"),
        ("A=b pytest", "tool.assignment"),
        ("A+=b pytest", "tool.assignment"),
        ("'A=b' pytest", "tool.assignment"),
        ("pytest " + "x" * MAX_COMMAND, "tool.length"),
        ("pytest" + " x" * MAX_ARGUMENTS, "tool.length"),
    ],
)
def test_texts_that_are_no_command(text: str, rule_name: str) -> None:
    line = parse_command(text)
    assert line.argv == ()
    assert {violation.rule for violation in line.violations} == {rule_name}


@pytest.mark.parametrize("char", [*";|&<>()$`*?[]{}~!#"])
def test_a_metacharacter_is_refused_unquoted_and_is_text_in_single_quotes(char: str) -> None:
    for text in (f"pytest a{char}b", f"pytest {char}", f"{char}pytest", f'pytest "x"{char}'):
        assert parse_command(text).argv == ()
        assert "tool.metacharacter" in [v.rule for v in parse_command(text).violations]
    assert parse_command(f"pytest 'a{char}b'") == ContractCommand(("pytest", f"a{char}b"))
    assert parse_command(f"pytest a\\{char}b") == ContractCommand(("pytest", f"a{char}b"))
    acting = char in "$`"
    assert (parse_command(f'pytest "a{char}b"').argv == ()) is acting


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert parse_command("a; b | c && d").violations == (
        Violation("tool.metacharacter", "a shell would act on '&'"),
        Violation("tool.metacharacter", "a shell would act on ';'"),
        Violation("tool.metacharacter", "a shell would act on '|'"),
    )


@pytest.mark.parametrize(
    "command",
    [
        "pytest tests/test_sudoku.py",
        "pytest -q -k 'sudo or ssh' tests",
        "pytest --maxfail=1 -vv tests/test_a.py::test_x",
        "python -m pytest -q",
        "python3 -B -W error -m pytest tests",
        "python scripts/run.py --verbose",
        "node --test tools/x.js",
        "node --test",
        "node tools/x.js",
        "bash scripts/test.sh",
        "sh -eu scripts/test.sh",
        "make test",
        "make -j4 -C sub test",
        "npm test",
        "npm run test:unit",
        "cargo test add",
        "go test ./... -run install -count=1",
        "git commit -m 'mention .env and git push'",
        "git grep push",
        "scripts/test.sh --fast",
        "./scripts/test.sh",
        "pytest --junitxml=/dev/null",
        "pytest --base-url=http://localhost:8000/x",
        "echo sudo rm -rf",
    ],
)
def test_defect_6_harmless_commands_are_not_taken_for_others(command: str) -> None:
    terms = replace(LOOSE, forbidden_actions=("rm -rf", "sudo", "ssh", "git push", "editing .env"))
    assert judged(command, terms) == []


@pytest.mark.parametrize(
    ("command", "rule_name"),
    [
        ("env pytest", "tool.wrapper"),
        ("sudo pytest", "tool.wrapper"),
        ("xargs pytest", "tool.wrapper"),
        ("timeout 5 pytest", "tool.wrapper"),
        ("nice pytest", "tool.wrapper"),
        ("vim x", "tool.interactive"),
        ("python -c 'import os'", "tool.inline_code"),
        ("python -Bc 'import os'", "tool.inline_code"),
        ("python3.11 -c x", "tool.inline_code"),
        ("python -i scripts/run.py", "tool.inline_code"),
        ("python -", "tool.inline_code"),
        ("python", "tool.inline_code"),
        ("python --unknown scripts/run.py", "tool.inline_code"),
        ("python -m", "tool.inline_code"),
        ("node -e x", "tool.inline_code"),
        ("node --eval=x", "tool.inline_code"),
        ("node -r ./evil.js tools/x.js", "tool.inline_code"),
        ("node --import=./evil.js tools/x.js", "tool.inline_code"),
        ("node -", "tool.inline_code"),
        ("bash -c ls", "tool.inline_code"),
        ("bash -lc ls", "tool.inline_code"),
        ("bash -s", "tool.inline_code"),
        ("sh", "tool.inline_code"),
        ("ruby -e 1", "tool.inline_code"),
        ("perl -pe 1", "tool.inline_code"),
        ("python scripts/gone.py", "tool.script"),
        ("python ../x.py", "tool.script"),
        ("python /tmp/x.py", "tool.script"),
        ("bash -- scripts/gone.sh", "tool.script"),
        ("/bin/sh scripts/test.sh", "tool.program_path"),
        ("./scripts/gone.sh", "tool.program_path"),
        ("../pytest", "tool.program_path"),
        ("scripts/../scripts/test.sh", "tool.program_path"),
        ("make -f /tmp/x", "tool.path"),
        ("make -f/tmp/x", "tool.path"),
        ("make -C ../other test", "tool.path"),
        ("pytest --junitxml=/tmp/x", "tool.path"),
        ("pytest ~/tests", "tool.metacharacter"),
        ("pytest '~/tests'", "tool.path"),
        ("pytest a/../../b", "tool.path"),
        ("make -f x.mk", "tool.flag"),
        ("make -kf x.mk", "tool.flag"),
        ("make --makef x.mk", "tool.flag"),
        ("make --eval=x", "tool.flag"),
        ("pytest -p plugin", "tool.flag"),
        ("pytest -pplugin", "tool.flag"),
        ("pytest -xp plugin", "tool.flag"),
        ("pytest --override-i a=b", "tool.flag"),
        ("python -m pytest -p plugin", "tool.flag"),
        ("git config --global a b", "tool.flag"),
        ("git -c core.pager=x log", "tool.flag"),
        ("git diff --ext-diff", "tool.flag"),
        ("git grep -O x", "tool.flag"),
        ("git log --outpu=x", "tool.flag"),
        ("npm test --prefix gone", "tool.flag"),
        ("npm test -- --script-shell=x", "tool.flag"),
        ("cargo test --config x", "tool.flag"),
        ("go test -exec x ./...", "tool.flag"),
        ("go test --toolexec=x ./...", "tool.flag"),
        ("git push", "tool.network"),
        ("git -C sub push", "tool.network"),
        ("git clone git@example.com:x", "tool.network"),
        ("npm install", "tool.network"),
        ("npm ci", "tool.network"),
        ("npx --yes jest", "tool.network"),
        ("npx -p cowsay pytest", "tool.network"),
        ("uvx pytest", "tool.network"),
        ("python -m pip install x", "tool.network"),
        ("curl x", "tool.network"),
        ("ssh host", "tool.network"),
        ("cargo install x", "tool.network"),
        ("go get x", "tool.network"),
        ("pytest --base-url=http://localhost.example.com/", "tool.network"),
        ("pytest --base-url=http://localhost@example.com/", "tool.network"),
    ],
)
def test_what_no_allowlist_can_allow(command: str, rule_name: str) -> None:
    assert rule_name in judged(command)


def test_a_tool_in_the_tree_does_not_take_the_place_of_the_tool() -> None:
    for path in ("pytest.py", "pytest/__init__.py"):
        terms = replace(LOOSE, is_file={path}.__contains__)
        assert judged("python -m pytest", terms) == ["tool.shadowed"]
    own = replace(LOOSE, is_file={"mine.py"}.__contains__)
    assert judged("python -m mine", own) == []


def test_the_network_is_a_question_of_the_contract() -> None:
    assert judged("git fetch") == ["tool.network"]
    assert judged("git fetch", replace(LOOSE, network=True)) == []


def test_without_an_allowlist_nothing_runs() -> None:
    terms = replace(LOOSE, rules=())
    assert judged("pytest", terms) == ["tool.allowlist", "tool.not_allowed"]


def test_a_rule_names_the_program_and_what_follows() -> None:
    terms = replace(
        LOOSE, rules=(rule("npm", ("test",), ("run", "lint")), rule("node", ("tools/",)))
    )
    for allowed in ("npm test", "npm test -- -t x", "npm run lint", "node tools/x.js"):
        assert judged(allowed, terms) == []
    for denied in (
        "npm",
        "npm run",
        "npm run build",
        "npm tests",
        "npm --if-present test",
        "pnpm test",
    ):
        assert judged(denied, terms) == ["tool.not_allowed"]
    assert "tool.not_allowed" in judged("node tools/../scripts/run.py", terms)
    assert "tool.not_allowed" in judged("node tools/", terms)
    assert judged(
        "npm",
        replace(
            LOOSE, rules=(CommandRule(exec="npm", kind="test", prefixes=(), forbidden_flags=()),)
        ),
    ) == ["tool.not_allowed"]


def test_flags_that_a_rule_forbids_are_found_in_every_spelling() -> None:
    terms = replace(LOOSE, rules=(rule("ruff", ("check",), forbidden=("--fix", "-n", "-exec")),))
    for command in ("--fix", "--fix=1", "--fi", "-n", "-nx", "-qn", "-n=1", "-exec", "-- --fix"):
        assert judged(f"ruff check {command}", terms) == ["tool.flag"]
    for command in ("--fixes", "-q", "--no-fix", "fix", "-N", "--", "-"):
        assert judged(f"ruff check {command}", terms) == []


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("rm -rf", "rm -rf x"),
        ("rm -rf", "rm -r -f x"),
        ("rm -rf", "rm -fR x"),
        ("rm -rf", "rm --recursive --force x"),
        ("rm -rf", "rm --rec --for x"),
        ("rm -rf", "rm x -rf"),
        ("sudo", "sudo ls"),
        ("git push", "git push origin main"),
        ("git push", "git -C x push"),
        ("git push --force", "git push -f"),
        ("git reset --hard", "git reset --hard HEAD"),
        ("git clean -fd", "git clean -xfd"),
        ("editing .env", "rm .env"),
        ("edit .env", "pytest --env-file=.env"),
        (".env", "pytest sub/.env.local"),
        (".env", "pytest .ENV"),
        (".runtime-cache/cortexpilot/", "rm .runtime-cache/cortexpilot/runs/x"),
        ("edit config/prod.yml", "pytest ./config/prod.yml"),
    ],
)
def test_forbidden_actions_are_matched_as_words(action: str, command: str) -> None:
    assert "tool.forbidden_action" in judged(command, replace(LOOSE, forbidden_actions=(action,)))


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("rm -rf", "rm -r x"),
        ("rm -rf", "echo rm -rf"),
        ("sudo", "pytest -k sudo"),
        ("git push", "git log --grep push"),
        ("git push --force", "git push"),
        (".env", "pytest tests/environment.py"),
        (".env", "pytest .env.example"),
        (".env", "git commit -m 'no .env here'"),
        ("edit config/prod.yml", "pytest config/prod.yml.md"),
    ],
)
def test_their_neighbours_are_not(action: str, command: str) -> None:
    terms = replace(LOOSE, forbidden_actions=(action,), network=True)
    assert "tool.forbidden_action" not in judged(command, terms)


def test_an_action_that_cannot_be_read_forbids_everything() -> None:
    terms = replace(LOOSE, forbidden_actions=("rm -rf *; ls",))
    assert judged("pytest", terms) == ["tool.forbidden_action_unreadable"]
    assert ForbiddenAction.of("rm 'x") is None


@pytest.mark.parametrize("timeout", [None, 0, -1, float("nan"), float("inf"), 10**9])
def test_every_command_has_a_time_limit(timeout: float | None) -> None:
    found = judge_argv(("pytest",), terms=LOOSE, timeout_sec=timeout).violations
    assert [violation.rule for violation in found] == ["tool.timeout"]


def test_an_argv_is_judged_as_it_is() -> None:
    assert judge_argv(("pytest",), terms=LOOSE, timeout_sec=1) == GateResult(
        "tool_gate", (), {"argv": ["pytest"]}
    )
    for argv in ((), ("",)):
        found = judge_argv(argv, terms=LOOSE, timeout_sec=1).violations
        assert [violation.rule for violation in found] == ["tool.empty"]
    found = judge_argv(("pytest", "a\nb"), terms=LOOSE, timeout_sec=1).violations
    assert [violation.rule for violation in found] == ["tool.character"]


SHIPPED = PolicySet.read_shipped("medium")
TERMS = CommandTerms(SHIPPED.commands, SHIPPED.forbidden_actions, FILES.__contains__)


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        "pytest tests/test_sudoku.py",
        "python -m pytest tests",
        "python3 -m unittest",
        "npm test",
        "pnpm test",
        "cargo test",
        "go test ./...",
        "make test",
        "ruff check .",
        "git diff --stat",
    ],
)
def test_defect_6_the_shipped_policies_know_the_common_tool_chains(command: str) -> None:
    assert judged(command, TERMS) == []


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git config --global user.name x",
        "git clone git@example.com:x",
        "pytest -p plugin",
        "python -c 'print(1)'",
        "node -e 1",
        "bash -c ls",
        "make -f /tmp/x",
        "npm install",
        "rm -rf x",
        "sudo pytest",
        "curl https://example.com",
        "unheard-of",
    ],
)
def test_defect_6_the_shipped_policies_deny_what_got_through(command: str) -> None:
    for pack in ("low", "medium", "high"):
        policies = PolicySet.read_shipped(pack)
        terms = CommandTerms(policies.commands, policies.forbidden_actions, FILES.__contains__)
        assert judged(command, terms) != []


# -- files of arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "also"),
    [
        ("python3 -m pytest @shop/args", []),
        ("pytest @/etc/passwd", []),
        ("pytest -q -- @args", []),
        ("ruff check @args", []),
        ("npm test -- @args", []),
        ("make @args", []),
    ],
)
def test_nobody_reads_arguments_from_a_file(command: str, also: list[str]) -> None:
    assert judged(command) == ["tool.argument_file", *also]


def test_an_at_sign_elsewhere_is_no_file_of_arguments() -> None:
    for command in ("pytest tests/a@b", "pytest -k a@b", "git diff --check @", "npm test -w=@a/b"):
        assert judged(command) == []


def test_a_rule_may_name_a_file_of_arguments() -> None:
    terms = replace(LOOSE, rules=(rule("pytest", ("@args",)), rule("pytest", ("tests/",))))
    assert judged("pytest @args -q", terms) == []
    assert judged("pytest @args @more", terms) == ["tool.argument_file"]
    assert judged("pytest tests/a @args", terms) == ["tool.argument_file"]
