"""The policies: read whole or not at all, and what those that we ship allow and deny."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts.policy_set import PACKS, PROMPTS, REQUIRED, PolicySet, shipped_files
from coilclaw.runs.contracts.roles import OUTPUT_SCHEMA, ROLES
from coilclaw.runs.gates.command import CommandTerms, judge_text
from tests.support.repository import ROOT

FILES = shipped_files()
TREE = frozenset({"tests/run.py", "scripts/test.sh", "scripts/x.py", "scripts/x.sh", "build.sh"})


def _terms(pack: str) -> CommandTerms:
    policies = PolicySet.of(FILES, pack)
    return CommandTerms(
        rules=policies.commands,
        forbidden_actions=policies.forbidden_actions,
        is_file=TREE.__contains__,
    )


def _changed(name: str, **changes: Any) -> dict[str, bytes]:
    document = {**json.loads(FILES[name]), **changes}
    return {**FILES, name: json.dumps(document).encode()}


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_file_is_an_error_and_never_no_restriction(name: str) -> None:
    files = {other: data for other, data in FILES.items() if other != name}
    with pytest.raises(UsageError, match=name) as caught:
        PolicySet.of(files)
    assert caught.value.rule == "policy.missing"


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "contract.json"),
        (b"{}", "contract.schema"),
        (b"[]", "contract.json"),
        (b'{"version": "v1", "more": 1}', "contract.schema"),
        (b"\xff", "contract.json"),
    ],
)
def test_a_malformed_file_is_an_error(name: str, data: bytes, rule: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        PolicySet.of({**FILES, name: data})
    assert caught.value.rule == rule


def test_an_unknown_pack_is_an_error() -> None:
    for pack in ("", "none", "Low", "higher"):
        with pytest.raises(UsageError, match="no policy pack") as caught:
            PolicySet.of(FILES, pack)
        assert caught.value.rule == "policy.pack"
    assert [PolicySet.of(FILES, pack).pack.pack for pack in PACKS] == list(PACKS)


def test_packs_are_what_their_files_are_called_and_each_role_has_one() -> None:
    with pytest.raises(UsageError, match=r"packs/low\.json is of the pack high"):
        PolicySet.of(_changed("packs/low.json", pack="high"))
    with pytest.raises(UsageError, match="WORKER is in default_for of 0 packs"):
        PolicySet.of(_changed("packs/low.json", default_for=[]))
    with pytest.raises(UsageError, match="WORKER is in default_for of 2 packs"):
        PolicySet.of(_changed("packs/high.json", default_for=["PM", "TECH_LEAD", "WORKER"]))
    shipped = PolicySet.read_shipped
    assert [shipped(role=role).pack.pack for role in ("WORKER", "REVIEWER", "PM", "TECH_LEAD")] == [
        "low",
        "medium",
        "high",
        "high",
    ]


def test_too_many_files_are_refused() -> None:
    more = {f"prompts/{index}.md": b"" for index in range(200)}
    with pytest.raises(UsageError, match="files"):
        PolicySet.of({**FILES, **more})


def test_the_hash_is_over_every_file_and_the_pack() -> None:
    policies = PolicySet.read_shipped("low")
    assert policies.files.keys() == FILES.keys()
    assert len({PolicySet.read_shipped(pack).sha256 for pack in PACKS}) == len(PACKS)
    assert PolicySet.of(dict(reversed(FILES.items())), "low").sha256 == policies.sha256
    for name in FILES:
        other = PolicySet.of({**FILES, name: FILES[name] + b"\n"}, "low")
        assert other.sha256 != policies.sha256
    assert policies.under("high").sha256 == PolicySet.read_shipped("high").sha256


def test_the_files_that_we_ship_are_all_that_there_are() -> None:
    found = {
        path.relative_to(ROOT / "policies").as_posix()
        for path in (ROOT / "policies").rglob("*")
        if path.is_file()
    }
    assert found == set(FILES)


def test_the_packs_become_stricter_in_everything() -> None:
    packs = [PolicySet.read_shipped(pack).pack for pack in PACKS]
    for looser, stricter in pairwise(packs):
        assert set(looser.command_kinds) > set(stricter.command_kinds)
        assert set(looser.forbidden_actions) < set(stricter.forbidden_actions)
        for limit in ("timeout_sec", "retries", "allowed_paths", "changed_files", "patch_bytes"):
            name = f"max_{limit}"
            assert getattr(looser.limits, name) > getattr(stricter.limits, name)
        assert looser.limits.broad_segments <= stricter.limits.broad_segments
        assert set(looser.test_policies) >= set(stricter.test_policies)
        for switch in ("binary_changes", "override_approvals"):
            assert getattr(looser, switch) >= getattr(stricter, switch)
        assert looser.strict_acceptance <= stricter.strict_acceptance
    low, _, high = packs
    assert (low.binary_changes, low.override_approvals, low.strict_acceptance) == (
        True,
        True,
        False,
    )
    assert (high.binary_changes, high.override_approvals, high.strict_acceptance) == (
        False,
        False,
        True,
    )


def test_every_role_has_an_agent_a_definition_and_a_prompt() -> None:
    policies = PolicySet.read_shipped()
    assert {agent.role for agent in policies.registry.agents} == set(ROLES)
    assert (policies.registry.role_contracts or {}).keys() == set(ROLES)
    ids = [agent.agent_id for agent in policies.registry.agents]
    assert len(set(ids)) == len(ids)
    for role in ROLES:
        definition = policies.registry.definition(role)
        assert definition is not None
        assert definition.system_prompt_ref == f"policies/prompts/{role.lower()}.md"
        assert role not in definition.required_downstream_roles
    assert set(PROMPTS) <= policies.contents.keys()


@pytest.mark.parametrize("role", ROLES)
def test_a_prompt_asks_for_json_of_the_bound_form_and_no_prose(role: str) -> None:
    text = FILES[f"prompts/{role.lower()}.md"].decode()
    assert f"schemas/{OUTPUT_SCHEMA[role]}.json, and nothing before or after it." in text  # type: ignore[index]  # every role is a key
    assert "#" not in text
    assert not any(line.startswith(("- ", "* ", "1.")) for line in text.splitlines())


@pytest.mark.parametrize(
    ("roles", "sandbox", "network"),
    [
        (("PM", "TECH_LEAD", "REVIEWER"), "read-only", "deny"),
        (("WORKER", "TEST_RUNNER", "BACKEND", "AI", "OPS", "TEST"), "workspace-write", "deny"),
        (("SEARCHER", "RESEARCHER"), "workspace-write", "allow"),
    ],
)
def test_the_matrix_of_the_specification(
    roles: tuple[Any, ...], sandbox: str, network: str
) -> None:
    for role in roles:
        agent = PolicySet.read_shipped().registry.first(role)
        assert agent is not None
        assert agent.defaults.json() == {
            "sandbox": sandbox,
            "approval_policy": "never",
            "network": network,
        }


def test_an_agent_is_found_by_id_and_role_together() -> None:
    registry = PolicySet.read_shipped().registry
    assert registry.find("worker", "WORKER") is not None
    assert registry.find("worker", "PM") is None
    assert registry.find("pm", "WORKER") is None


def test_deny_wins_on_the_mcp_list() -> None:
    files = _changed("mcp_allowlist.json", deny=["codex"])
    assert "codex" in PolicySet.read_shipped().mcp_allowed
    assert "codex" not in PolicySet.of(files).mcp_allowed
    assert "unheard-of" not in PolicySet.read_shipped().mcp_allowed


DENIED = """
sudo pytest
rm -rf build
curl example.org
wget example.org
ssh host
bash -c 'pytest'
sh scripts/x.sh; true
python -c 'print(1)'
python3 -c pass
python -m pip install x
python -m http.server
python -m pytest -p plugin
python evil.py
pytest -p plugin
pytest -c other.ini
pytest --rootdir=/tmp
pytest -o addopts=
node -e 1
node --eval 1
node --require ./x.js --test
npm install
npm install left-pad
npm ci
npm publish
npm exec thing
npx thing
pnpm add x
pnpm dlx x
yarn add x
cargo install x
cargo publish
cargo run
cargo test --config x.toml
go get x
go run main.go
go install x
go test -exec wrapper ./...
make -f /tmp/x test
make -C /tmp test
make --eval=x test
git push
git push origin main
git config --global user.name x
git clone git@example.org:x
git commit -m x
git checkout main
git reset --hard
git clean -fd
git -c core.pager=x log
git diff --output=x
git diff --ext-diff
git grep -O x
git grep --open-files-in-pager=x y
deno test -A
deno run x.ts
bun install
mvn deploy
gradle publish
ctest -S script
cmake -P script.cmake
ruff check --config other.toml
ruff format
mypy --install-types
env pytest
xargs pytest
timeout 5 pytest
echo ok
true
:
cat .env
./tests/gone.py
../run.sh
/usr/bin/pytest
""".strip().splitlines()
TESTS = """
pytest
pytest -q tests
pytest tests/test_sudoku.py -k 'not slow'
pytest -x --maxfail=1 tests/unit
python -m pytest -q
python3 -m pytest tests
python3 -m unittest discover -s tests
python -m unittest -v
python tests/run.py
npm test
npm run test
pnpm test
yarn test
node --test
node --test test/a.test.js
cargo test
cargo test --workspace -- --nocapture
go test ./...
go test -race -run TestX ./pkg
make test
make check
ctest --output-on-failure
deno test
bun test
dotnet test
mvn test
gradle test
git diff --check
git status --porcelain
git log -p -1
git grep -q Usage -- README.md
./scripts/test.sh
uv run pytest
poetry run pytest -q
hatch test
just test
bazel test //...
mvn -q test
""".strip().splitlines()
CHECKS = """
ruff check .
ruff format --check src
mypy src
python -m mypy src
python -m ruff check
python3 -m compileall -q src
cargo clippy
cargo build
go vet ./...
npm run lint
make lint
./build.sh
python -m build
""".strip().splitlines()
SCRIPTS = """
make
make docs
npm run anything
tox
nox
bash scripts/x.sh
python scripts/x.py
./tests/run.py
just anything
tox -e py
""".strip().splitlines()


@pytest.mark.parametrize("command", DENIED)
def test_a_command_that_no_pack_allows(command: str) -> None:
    for pack in PACKS:
        assert not judge_text(command, terms=_terms(pack), timeout_sec=60).passed


@pytest.mark.parametrize(
    ("command", "packs"),
    [
        *((command, PACKS) for command in TESTS),
        *((command, PACKS[:2]) for command in CHECKS),
        *((command, PACKS[:1]) for command in SCRIPTS),
    ],
)
def test_a_command_is_allowed_by_the_packs_of_its_kind(
    command: str, packs: tuple[str, ...]
) -> None:
    for pack in PACKS:
        result = judge_text(command, terms=_terms(pack), timeout_sec=60)
        assert result.passed is (pack in packs), (pack, result.violations)
