"""Commands that another one starts, programs of the tree, and commands whose options are all known.

All are judged with the policies that are shipped; each allowed form has its denied neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from coilclaw.policy.commands.launchers import LaunchedCommand, is_trivial, read_launched, runner
from coilclaw.runs.contracts.policy_files import CommandRule
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.gates.command import CommandTerms, judge_text

POLICIES = PolicySet.read_shipped("low")
FILES = frozenset({"run.sh", "gradlew", "mvnw", "tests/run.py", "ci/check", "env"})
TERMS = CommandTerms(POLICIES.commands, POLICIES.forbidden_actions, FILES.__contains__)
SETUP = replace(TERMS, rules=POLICIES.setup_commands)
ONLINE = replace(SETUP, network=True)


def judged(command: str, terms: CommandTerms = TERMS) -> list[str]:
    result = judge_text(command, terms=terms, timeout_sec=60)
    return [violation.rule for violation in result.violations]


@pytest.mark.parametrize(
    "command",
    [
        *("uv run pytest", "uv run --frozen pytest -q tests", "uv run --extra test pytest"),
        *("uv run -m pytest -q", "uv run python -m pytest", "uv run tests/run.py", "uv run -- tox"),
        *("uv run --group=dev --no-sync python -m unittest", "uv run ruff check ."),
        *("poetry run pytest", "poetry run python -m pytest -x", "pdm run pytest"),
        *("hatch test", "hatch test --cover -- -k name", "hatch run pytest", "pipenv run pytest"),
        *("npx jest", "npx --no-install jest --ci", "npx vitest run", "npx -- jest src/a.test.js"),
        *(
            "npx vitest run --coverage --reporter=verbose",
            "pnpm exec vitest run",
            "npx jest -t sum",
        ),
        *("jest --runInBand", "npx jest --test-timeout=5000", "npx tsc --noEmit"),
        *("just test", "just -q test", "just build", "just --color=never test"),
        *("bazel test //...", "bazel test //a/b:c --test_output=errors", "bazelisk test //..."),
        *("bazel test -- //... -//slow/...", "tox -e py", "tox", "mvn -q test", "mvn -B -q test"),
        *("./gradlew test", "./gradlew --offline test", "./mvnw -q verify", "dotnet test"),
        *("./run.sh", "./run.sh --fast", "ci/check", "gradle test", "uv run ./run.sh"),
    ],
)
def test_what_an_ordinary_project_is_tested_by(command: str) -> None:
    assert judged(command) == []
    assert not is_trivial(command)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("uv run true", "tool.not_allowed"),
        ("uv run sh -c pytest", "tool.inline_code"),
        ("uv run bash", "tool.not_allowed"),
        ("uv run python -c 'import os'", "tool.inline_code"),
        ("uv run -m http.server", "tool.not_allowed"),
        ("uv run evil.py", "tool.not_allowed"),
        ("uv run -", "tool.flag"),
        ("uv run --with evil pytest", "tool.flag"),
        ("uv run --with=evil pytest", "tool.flag"),
        ("uv run --frozen=x pytest", "tool.flag"),
        ("uv run --env-file x pytest", "tool.flag"),
        ("uv run --directory sub pytest", "tool.flag"),
        ("uv run --index x pytest", "tool.flag"),
        ("uv run -p 3.9 pytest", "tool.flag"),
        ("uv run pytest -p plugin", "tool.flag"),
        ("uv run env pytest", "tool.wrapper"),
        ("uv run sudo pytest", "tool.forbidden_action"),
        ("uv run curl x", "tool.network"),
        ("uv run npx --yes jest", "tool.flag"),
        ("uv run uv run true", "tool.not_allowed"),
        ("uv run ./gone.sh", "tool.program_path"),
        ("uv run", "tool.wrapper"),
        ("uv run --", "tool.wrapper"),
        ("uv --directory sub run pytest", "tool.not_allowed"),
        ("uv tool run pytest", "tool.not_allowed"),
        ("./uv run pytest", "tool.program_path"),
        ("poetry run bash", "tool.not_allowed"),
        ("poetry -C sub run pytest", "tool.not_allowed"),
        ("poetry run -q pytest", "tool.flag"),
        ("hatch test -p plugin", "tool.flag"),
        ("hatch run lint:sh", "tool.not_allowed"),
        ("hatch -e x test", "tool.not_allowed"),
        ("npx cowsay", "tool.not_allowed"),
        ("npx --yes jest", "tool.network"),
        ("npx -y jest", "tool.flag"),
        ("npx --no jest vitest run", "tool.flag"),
        ("npx -p evil jest", "tool.flag"),
        ("npx -c 'jest && x'", "tool.flag"),
        ("npx jest@1", "tool.not_allowed"),
        ("npx github:a/jest", "tool.flag"),
        ("npx ./run.sh", "tool.flag"),
        ("npx vitest", "tool.not_allowed"),
        ("npx jest --config evil.js", "tool.flag"),
        ("npx jest -c evil.js", "tool.flag"),
        ("npx jest --global-setup=x.js", "tool.flag"),
        ("npx jest -u", "tool.flag"),
        ("npx jest --passWithNoTests", "tool.flag"),
        ("npx vitest run --root sub", "tool.flag"),
        ("npx vitest run --update", "tool.flag"),
        ("npx vitest run --coverage.reportsDirectory=x", "tool.flag"),
        ("pnpm exec cowsay", "tool.not_allowed"),
        ("pnpm exec -c jest", "tool.flag"),
        ("pnpm dlx jest", "tool.network"),
        ("just --shell bash test", "tool.flag"),
        ("just test --shell=bash", "tool.flag"),
        ("just -f other test", "tool.flag"),
        ("just --set shell x test", "tool.flag"),
        ("just -c ls", "tool.flag"),
        ("bazel run //a:b", "tool.not_allowed"),
        ("bazel --bazelrc=x test //...", "tool.not_allowed"),
        ("bazel test --run_under=x //...", "tool.flag"),
        ("bazel test //a/../b", "tool.path"),
        ("bazel test /etc/passwd", "tool.path"),
        ("bazel test @other//...", "tool.argument_file"),
        ("pytest //...", "tool.path"),
        ("tox -c other.ini", "tool.flag"),
        ("mvn -f other.xml test", "tool.flag"),
        ("mvn -q deploy", "tool.not_allowed"),
        ("./gradlew publish", "tool.not_allowed"),
        ("./gradlew -I init.gradle test", "tool.flag"),
        ("dotnet run", "tool.not_allowed"),
        ("./gone.sh", "tool.program_path"),
        ("../run.sh", "tool.program_path"),
        ("./../run.sh", "tool.program_path"),
        ("ci/../run.sh", "tool.not_allowed"),
        ("/run.sh", "tool.program_path"),
        ("run.sh", "tool.not_allowed"),
        ("./env pytest", "tool.wrapper"),
        ("./.git/hooks/x", "tool.program_path"),
    ],
)
def test_its_neighbours_are_refused(command: str, rule: str) -> None:
    assert rule in judged(command)


@pytest.mark.parametrize("pack", ["medium", "high"])
def test_a_program_of_the_tree_is_a_script_and_a_launcher_opens_no_other_kind(pack: str) -> None:
    policies = PolicySet.read_shipped(pack)
    terms = replace(TERMS, rules=policies.commands)
    for command in ("./run.sh", "uv run ./run.sh", "uv run make docs", "just docs"):
        assert judged(command, terms) != []
        assert judged(command) == []
    for command in ("uv run pytest", "npx jest", "just test"):
        assert judged(command, terms) == []


def test_the_pack_that_forbids_a_launcher_or_what_it_starts_decides() -> None:
    high = PolicySet.read_shipped("high")
    terms = replace(TERMS, forbidden_actions=high.forbidden_actions)
    assert judged("npx jest", terms) == ["tool.forbidden_action"]
    inner = replace(TERMS, forbidden_actions=("tox",))
    assert judged("uv run tox", inner) == ["tool.forbidden_action"]
    assert judged("uv run pytest", inner) == []


def test_a_rule_that_names_what_is_launched_is_enough_for_that() -> None:
    rule = CommandRule(exec="uv", kind="test", prefixes=(("run", "judge-it"),), forbidden_flags=())
    terms = replace(TERMS, rules=(rule,))
    assert judged("uv run judge-it now", terms) == []
    assert judged("uv run judge", terms) == ["tool.not_allowed", "tool.not_allowed"]
    launcher = replace(rule, prefixes=(("run",),))
    assert judged("uv run judge-it", replace(TERMS, rules=(launcher,))) == ["tool.not_allowed"]


def test_what_is_launched_is_told_apart_from_the_launcher() -> None:
    assert read_launched(("uv", "run", "--extra", "x", "-q", "pytest", "-k", "-m")) == (
        LaunchedCommand("uv run", ("pytest", "-k", "-m"), 5)
    )
    assert read_launched(("uv", "run", "--module", "pytest")) == (
        LaunchedCommand("uv run", ("python", "-m", "pytest"), 3)
    )
    assert read_launched(("npx", "--yes", "x")) == LaunchedCommand("npx", (), 1, "--yes")
    assert read_launched(("uv", "sync")) is read_launched(("pytest",)) is read_launched(()) is None
    assert runner(("uv", "run", "python", "-m", "pytest", "-q")) == ("pytest", ("-q",))
    assert runner(("uv", "run", "--with", "x", "pytest"))[0] == "uv"


@pytest.mark.parametrize(
    "command",
    [
        *("uv run true", "uv run pytest --co", "uv run", "uv run --with x pytest", "npx cat x"),
        *("poetry run pytest --version", "npx jest --listTests", "npx jest --passWithNoTests"),
        *("npx vitest run --pass-with-no-tests", "mvn -q test -DskipTests", "mvn test -fn"),
        *("mvn test -Dmaven.test.skip=true", "./gradlew test -x test", "gradle test -m"),
        *("just -n test", "just --list", "bazel test --nobuild //...", "dotnet test -t"),
        *("hatch test --show", "hatch test --collect-only", "dotnet test --list-tests"),
    ],
)
def test_a_launched_command_that_tests_nothing(command: str) -> None:
    assert is_trivial(command)


NEEDS_NETWORK = """
npm ci
npm ci --ignore-scripts --no-audit
npm install
pnpm install --frozen-lockfile
yarn install --immutable
bun install --frozen-lockfile
pip install -e . --no-deps
pip install -e '.[test]'
pip install -r requirements.txt
python -m pip install --editable=.
uv sync
uv sync --frozen --extra test
uv pip install -e .
poetry install
poetry install --no-root --with dev
pdm sync
pipenv sync --dev
cargo fetch --locked
go mod download
bundle install
composer install
dotnet restore
mvn -q dependency:go-offline
./mvnw dependency:resolve
""".strip().splitlines()


@pytest.mark.parametrize("command", NEEDS_NETWORK)
def test_a_setup_has_the_network_that_it_declares(command: str) -> None:
    assert judged(command, ONLINE) == []
    assert judged(command, SETUP) == ["tool.network"]


@pytest.mark.parametrize("command", [*NEEDS_NETWORK, "./gradlew testClasses"])
def test_a_setup_is_no_acceptance_test(command: str) -> None:
    assert "tool.not_allowed" in judged(command, replace(TERMS, network=True))


@pytest.mark.parametrize(
    "command",
    [
        *("make generate", "./run.sh", "cargo build", "./gradlew testClasses", "npm ci --offline"),
        *("pip install --no-index --no-build-isolation -e .", "uv sync --offline"),
        *("bundle install --local", "cargo fetch --offline"),
    ],
)
def test_a_setup_without_the_network(command: str) -> None:
    assert judged(command, SETUP) == []


@pytest.mark.parametrize(
    "command",
    [
        *("npm install left-pad", "npm ci --prefix sub", "npm ci --registry=https://example.org"),
        *("npm ci --script-shell=x", "npm exec x", "npx cowsay", "npm publish"),
        *("pip install evil", "pip install -e git+https://example.org/x", "pip install ./../x"),
        *("pip install -r https://example.org/r.txt", "pip install --index-url=x -e ."),
        *("pip install -i x -e .", "pip install --target=x .", "pip install -e", "pip download x"),
        *("python -m pip install evil", "uv pip install evil", "uv add evil", "uv tool install x"),
        *("uv sync --index=x", "uv sync --directory sub", "uv sync --script x"),
        *("poetry install --directory=x", "poetry add x", "poetry self add x"),
        *("cargo fetch --manifest-path=x", "cargo install x", "go mod download x@v1", "go get x"),
        *("bundle install --path=x", "bundle config x", "dotnet restore --source=x"),
        *("mvn -s x dependency:go-offline", "curl x", "sh -c ls", "npm ci --offline=false x"),
    ],
)
def test_a_setup_that_fetches_something_else_is_refused_with_the_network(command: str) -> None:
    assert judged(command, ONLINE) != []


def test_the_network_can_be_forbidden_by_the_value_of_an_option_too() -> None:
    assert judged("npm ci --offline=false", SETUP) == ["tool.network"]
