"""What is recognised of a project: by table, with files that are malformed, hostile or absent."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.project_profile import (
    MAX_MANIFEST_BYTES,
    ProjectFinding,
    ProjectProfile,
    recognise_project,
)
from coilclaw.runs.contracts.task_contract import SetupCommand
from coilclaw.runs.gates.command import CommandTerms, judge_text

PYTEST = "[tool.pytest.ini_options]\n"
PYTHON = "python -m pytest -q"


def package(**members: object) -> str:
    return json.dumps({"scripts": {"test": "jest"}, **members})


def profile(files: Mapping[str, str | bytes | None]) -> ProjectProfile:
    def read(name: str) -> bytes | None:
        value = files[name]
        return value.encode() if isinstance(value, str) else value

    return recognise_project(files.keys(), read)


PROJECTS: list[tuple[dict[str, str | bytes | None], list[str], list[str]]] = [
    ({}, [], []),
    ({"README.md": ""}, [], []),
    ({"pyproject.toml": PYTEST}, [PYTHON], []),
    ({"pyproject.toml": "", "conftest.py": ""}, [PYTHON], []),
    ({"pyproject.toml": "", "tests/conftest.py": ""}, [PYTHON], []),
    ({"setup.cfg": "[tool:pytest]\n"}, [PYTHON], []),
    ({"setup.py": "", "tox.ini": "[tox]\n[pytest]\n"}, [PYTHON], []),
    ({"tox.ini": "[tox]\n[testenv]\n"}, ["tox -e py"], []),
    ({"tox.ini": "[testenv]\ndeps =\n    pytest-cov\n"}, [PYTHON], []),
    ({"tox.ini": "[testenv]\ncommands = python -m pytest {posargs}\n"}, [PYTHON], []),
    ({"tox.ini": "[testenv]\ncommands = python run.py no-pytest\n"}, ["tox -e py"], []),
    ({"setup.py": "", "requirements-dev.txt": "ruff\npytest>=8\n"}, [PYTHON], []),
    ({"setup.py": "", "requirements.txt": "not-pytest\n"}, [], []),
    ({"pyproject.toml": '[project.optional-dependencies]\nt = ["pytest"]\n'}, [PYTHON], []),
    ({"pyproject.toml": '[dependency-groups]\ndev = ["pytest~=8"]\n'}, [PYTHON], []),
    ({"pyproject.toml": '[tool.poetry.group.dev.dependencies]\npytest = "*"\n'}, [PYTHON], []),
    ({"setup.py": "", "tests/test_a.py": "import pytest\n"}, [PYTHON], []),
    ({"setup.py": "", "tests/test_a.py": "import a\ndef test_a(): ...\n"}, [PYTHON], []),
    (
        {"setup.py": "", "tests/test_a.py": "class A(TestCase):\n    def test_a(self): ...\n"},
        ["python -m unittest discover -s tests"],
        [],
    ),
    (
        {"setup.py": "", "tests/test_a.py": "import unittest\n"},
        ["python -m unittest discover -s tests"],
        [],
    ),
    (
        {"setup.py": "", "tests/__init__.py": "", "tests/test_a.py": ""},
        ["python -m unittest discover -s tests -t ."],
        [],
    ),
    ({"test_a.py": ""}, ["python -m unittest"], []),
    ({"pyproject.toml": ""}, [], []),
    ({"pyproject.toml": "[tool.hatch.envs.hatch-test]\nparallel = true\n"}, ["hatch test"], []),
    ({"pyproject.toml": PYTEST, "uv.lock": ""}, ["uv run pytest"], ["uv sync --frozen"]),
    (
        {
            "pyproject.toml": '[project.optional-dependencies]\ntest = ["pytest"]\n',
            "uv.lock": "",
        },
        ["uv run pytest"],
        ["uv sync --frozen --extra test"],
    ),
    ({"pyproject.toml": PYTEST, "poetry.lock": ""}, ["poetry run pytest"], ["poetry install"]),
    ({"pyproject.toml": PYTEST, "pdm.lock": ""}, ["pdm run pytest"], ["pdm sync"]),
    (
        {"Pipfile": "", "Pipfile.lock": "", "pytest.ini": ""},
        ["pipenv run pytest"],
        ["pipenv sync --dev"],
    ),
    (
        {"pyproject.toml": "", "uv.lock": "", "tests/test_a.py": ""},
        ["uv run python -m unittest discover -s tests"],
        ["uv sync --frozen"],
    ),
    ({"package.json": package()}, ["npm test"], []),
    ({"package.json": package(), "package-lock.json": "{}"}, ["npm test"], ["npm ci"]),
    (
        {"package.json": package(devDependencies={"jest": "1"})},
        ["npm test"],
        ["npm install --no-package-lock"],
    ),
    (
        {"package.json": package(), "pnpm-lock.yaml": ""},
        ["pnpm test"],
        ["pnpm install --frozen-lockfile"],
    ),
    (
        {"package.json": package(), "yarn.lock": ""},
        ["yarn test"],
        ["yarn install --frozen-lockfile"],
    ),
    (
        {"package.json": package(packageManager="yarn@4.1.0"), "yarn.lock": ""},
        ["yarn test"],
        ["yarn install --immutable"],
    ),
    (
        {"package.json": package(packageManager="yarn@1.22.0"), "yarn.lock": ""},
        ["yarn test"],
        ["yarn install --frozen-lockfile"],
    ),
    (
        {"package.json": package(packageManager="pnpm@9"), "pnpm-lock.yaml": "", "yarn.lock": ""},
        ["pnpm test"],
        ["pnpm install --frozen-lockfile"],
    ),
    (
        {"package.json": package(), "bun.lock": ""},
        ["bun run test"],
        ["bun install --frozen-lockfile"],
    ),
    (
        {"package.json": package(packageManager="evil; rm@1"), "package-lock.json": ""},
        ["npm test"],
        ["npm ci"],
    ),
    (
        {
            "package.json": package(scripts={}, devDependencies={"jest": "1"}),
            "package-lock.json": "",
        },
        ["npx jest"],
        ["npm ci"],
    ),
    (
        {
            "package.json": package(
                scripts={"test": 'echo "Error: no test specified" && exit 1'},
                devDependencies={"vitest": "1"},
            ),
            "package-lock.json": "",
        },
        ["npx vitest run"],
        ["npm ci"],
    ),
    ({"package.json": package(scripts={"test": 1})}, [], []),
    ({"package.json": "{}"}, [], []),
    ({"Cargo.toml": '[package]\nname = "a"\n'}, ["cargo test"], []),
    ({"Cargo.toml": '[dependencies]\na = "1"\n'}, ["cargo test"], ["cargo fetch"]),
    (
        {"Cargo.toml": '[workspace]\nmembers = ["a"]\n', "Cargo.lock": ""},
        ["cargo test"],
        ["cargo fetch --locked"],
    ),
    ({"go.mod": "module a\n"}, ["go test ./..."], []),
    ({"go.mod": "module a\nrequire (\n)\n"}, ["go test ./..."], ["go mod download"]),
    ({"pom.xml": ""}, ["mvn -B test"], ["mvn -B dependency:go-offline"]),
    ({"pom.xml": "", "mvnw": ""}, ["./mvnw -B test"], ["./mvnw -B dependency:go-offline"]),
    ({"build.gradle": ""}, ["gradle test"], ["gradle testClasses"]),
    ({"settings.gradle.kts": "", "gradlew": ""}, ["./gradlew test"], ["./gradlew testClasses"]),
    ({"Makefile": "all: x\ntest: all\n\t./x\n"}, ["make test"], []),
    ({"Makefile": "check:\n\t./x\n"}, ["make check"], []),
    ({"Makefile": "check:\n\t./x\ntest:: a\n\t./x\n"}, ["make test"], []),
    ({"Makefile": "test := 1\ntests: x\n\ttest: x\n# test: x\n"}, [], []),
    ({"Makefile": "test:\n", "tests/test_a.py": "import pytest\n"}, ["make test"], []),
    ({"justfile": "@test *args:\n  x\n"}, ["just test"], []),
    ({"justfile": "test := 'x'\n"}, [], []),
    ({"justfile": "tests:\n x\n", "Makefile": "test:\n\tx\n"}, ["just tests"], []),
    ({"pyproject.toml": PYTEST, "Makefile": "test:\n\tx\n"}, [PYTHON], []),
    (
        {"package.json": package(), "package-lock.json": "", "pyproject.toml": PYTEST},
        [PYTHON, "npm test"],
        ["npm ci"],
    ),
    ({"web/package.json": package(), "py/pyproject.toml": PYTEST}, [], []),
]


@pytest.mark.parametrize(("files", "tests", "setup"), PROJECTS)
def test_what_is_proposed(
    files: dict[str, str | bytes | None], tests: list[str], setup: list[str]
) -> None:
    found = profile(files)
    assert [*found.tests] == tests
    assert [command.cmd for command in found.setup] == setup
    assert all(command.may_use_network for command in found.setup)
    assert bool(found.findings) or not tests
    # What is proposed is something that the shipped policies let run.
    policies = PolicySet.read_shipped("low")
    terms = CommandTerms(policies.commands, policies.forbidden_actions, files.__contains__)
    for cmd in found.tests:
        assert judge_text(cmd, terms=terms, timeout_sec=60).passed, cmd
    online = CommandTerms(
        policies.setup_commands, policies.forbidden_actions, files.__contains__, network=True
    )
    for command in found.setup:
        assert judge_text(command.cmd, terms=online, timeout_sec=60).passed, command


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("pyproject.toml", "[tool.pytest\n", "not valid TOML"),
        ("pyproject.toml", "a = " + "[" * 100_000, "not valid TOML"),
        ("pyproject.toml", b"\xff\xfe", "not UTF-8"),
        ("pyproject.toml", b"#" * (MAX_MANIFEST_BYTES + 1), "bytes"),
        ("pyproject.toml", None, "cannot be read"),
        ("package.json", '{"scripts": ', "not a valid JSON object"),
        ("package.json", "[" * 100_000, "not a valid JSON object"),
        ("package.json", '["test"]', "not a valid JSON object"),
        ("package.json", '{"a": 1, "a": 2}', "not a valid JSON object"),
        ("package.json", None, "cannot be read"),
        ("Makefile", None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_passed_over(
    name: str, content: str | bytes | None, says: str
) -> None:
    found = profile({name: content, "go.mod": "module a\n"})
    assert found.tests == ("go test ./...",)
    assert found.setup == ()
    assert any(each.path == name and says in each.says for each in found.findings)


@pytest.mark.parametrize(
    "text",
    [
        "tool = 1",
        "[tool]\npytest = 1",
        "[tool]\nhatch = []",
        "project = []",
        "[project]\noptional-dependencies = [1]\ndependencies = 5",
        '[tool.poetry]\ngroup = {a = 1, b = {dependencies = "x"}}',
    ],
)
def test_a_value_of_another_kind_is_no_sign(text: str) -> None:
    assert profile({"pyproject.toml": text}).tests == ()


def test_the_names_of_files_are_shown_harmlessly() -> None:
    found = profile({"setup.py": "", "tests/test_\x1b[31m.py": "import pytest\n"})
    assert found.tests == (PYTHON,)
    assert all("\x1b" not in str(each) for each in found.findings)


def test_what_is_better_left_alone_is_named_where_it_is_there() -> None:
    found = profile(
        {
            "uv.lock": "",
            "pyproject.toml": PYTEST,
            ".github/workflows/ci.yml": "",
            "policies/x.json": "",
            "tests/test_a.py": "",
            "web/yarn.lock": "",
        }
    )
    assert found == ProjectProfile(
        (
            ProjectFinding(
                "uv.lock", "the environment is that of uv; pyproject.toml configures pytest"
            ),
        ),
        ("uv run pytest",),
        (SetupCommand(name="install-python", cmd="uv sync --frozen", network="allow"),),
        ("uv.lock", ".github/workflows", "policies"),
        ("tests",),
    )


def test_python_is_called_as_the_machine_calls_it() -> None:
    files = {"setup.py": b"", "pytest.ini": b""}
    assert recognise_project(files, files.get, python="python3").tests == ("python3 -m pytest -q",)
