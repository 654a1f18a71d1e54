"""Commands that work elsewhere in the tree: judged as what they are there, and never outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.policy.commands.launchers import is_trivial
from coilclaw.policy.commands.program_table import PlacedCommand, read_placed
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.engine.contract_checks import Baseline
from coilclaw.runs.gates.command import CommandTerms, judge_text
from coilclaw.workspace.git.repository import Repository
from tests.support.snapshot_trees import Content, Link, build, git

POLICIES = PolicySet.read_shipped("medium")
FILES: dict[str, Content] = {
    "sub/Makefile": b"test:\n",
    "sub/deep/unit.mk": b"test:\n",
    "sub/Cargo.toml": b"",
    "unit.mk": b"test:\n",
    "plain": b"",
    "away": Link("/usr"),
    "near": Link("sub"),
    "near.mk": Link("unit.mk"),
}


@pytest.fixture(scope="module")
def terms(tmp_path_factory: pytest.TempPathFactory) -> CommandTerms:
    root: Path = tmp_path_factory.mktemp("placed")
    build(root, FILES)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    repository = Repository.open(root)
    commit = repository.resolve("HEAD")
    known = Baseline.of(commit, repository.files(commit), lambda _: None, repository.links(commit))
    return known.terms(POLICIES)


def rules(command: str, terms: CommandTerms) -> set[str]:
    judged = judge_text(command, terms=terms, timeout_sec=60)
    return {violation.rule for violation in judged.violations}


ALLOWED = """
make -C sub test
make -C ./sub/ test
make -C . test
make -Csub test
make --directory=sub test
make --directory sub/deep check
make test -C sub
make -f unit.mk test
make -funit.mk test
make --file=./unit.mk test
make -C sub -f deep/unit.mk test
make -f deep/unit.mk -C sub test
ninja -C build test
ninja -Cbuild check
cargo test --manifest-path sub/Cargo.toml
cargo test -q --manifest-path=sub/Cargo.toml
npm --prefix sub test
npm -C sub test
npm --prefix=sub run test
npm test --prefix sub
pnpm --dir sub test
yarn --cwd sub test
go -C sub test ./...
go test -C=sub ./...
"""
REFUSED = """
make -C .. test
make -C ../other test
make -C sub/../.. test
make -C /tmp test
make -C/tmp test
make -C '~/x' test
make -C
make -C '' test
make -C -k test
make -C away test
make -C away/share test
make -C near test
make -C plain test
make -C .git test
make -C sub -C deep test
make --directory=/tmp test
make --direc=sub test
make -kC sub test
make -f /tmp/x test
make -f gone.mk test
make -f near.mk test
make -f sub test
make -C sub -f unit.mk test
make -C sub -f ../unit.mk test
make -f unit.mk -f unit.mk test
make -C sub --eval=x test
make -C sub publish
make -C sub
ninja -C /tmp test
ninja -C away test
ninja -C build -t clean
ninja -C build clean
cargo test --manifest-path /tmp/Cargo.toml
cargo test --manifest-path ../Cargo.toml
cargo test --manifest-path sub
cargo run --manifest-path sub/Cargo.toml
npm --prefix /tmp test
npm --prefix ../x test
npm --prefix away test
npm --prefix sub publish
npm --prefix sub ci
npm test -- --prefix sub
npm --prefix sub --script-shell=x test
pnpm --dir sub exec jest
pnpm --prefix sub test
go -C /tmp test ./...
go -C away test ./...
go -C sub run ./...
go test ./... -args -C sub
git -C sub diff --check
"""


@pytest.mark.parametrize("command", ALLOWED.strip().splitlines())
def test_a_command_may_work_in_a_directory_of_the_tree(command: str, terms: CommandTerms) -> None:
    assert rules(command, terms) == set()
    assert not is_trivial(command)


@pytest.mark.parametrize("command", REFUSED.strip().splitlines())
def test_a_place_that_is_not_of_the_tree_is_refused(command: str, terms: CommandTerms) -> None:
    assert rules(command, terms) != set()


def test_the_reason_names_the_place(terms: CommandTerms) -> None:
    judged = judge_text("make -C away test", terms=terms, timeout_sec=60)
    assert str(judged.violations[0]) == "tool.path: 'away' is not a directory of the tree"


def test_a_policy_that_forbids_the_option_holds(terms: CommandTerms) -> None:
    strict = tuple(
        replace(rule, forbidden_flags=("-C",)) if rule.exec == "make" else rule
        for rule in terms.rules
    )
    assert rules("make -C sub test", replace(terms, rules=strict)) == {"tool.flag"}
    assert rules("make test", replace(terms, rules=strict)) == set()


@pytest.mark.parametrize("action", ["make publish", "edit ./sub"])
def test_a_forbidden_action_holds_elsewhere_too(action: str, terms: CommandTerms) -> None:
    own = replace(terms, rules=PolicySet.read_shipped("low").commands, forbidden_actions=(action,))
    assert rules("make -C sub publish", own) == {"tool.forbidden_action"}
    assert rules("make -C other test", own) == set()


def test_a_set_up_may_install_elsewhere_with_the_network(terms: CommandTerms) -> None:
    own = replace(terms, rules=POLICIES.setup_commands)
    assert rules("npm --prefix sub ci", replace(own, network=True)) == set()
    assert rules("npm --prefix sub ci", own) == {"tool.network"}
    assert rules("npm --prefix sub ci --registry=x", replace(own, network=True)) == {"tool.flag"}


def test_what_says_where_is_taken_out() -> None:
    argv = ("make", "-C", "sub", "-fx.mk", "test", "A=b")
    assert read_placed(argv) == PlacedCommand(("make", "test", "A=b"), "sub", "x.mk", ("-C", "-f"))
    for other in (("git", "-C", "sub", "diff"), ("./make", "-C", "sub"), ()):
        assert read_placed(other) == PlacedCommand(other)


@pytest.mark.parametrize("command", ["ninja -n test", "ninja -C build -t targets", "make -C s -n"])
def test_a_command_that_runs_nothing_there_is_trivial(command: str) -> None:
    assert is_trivial(command)
