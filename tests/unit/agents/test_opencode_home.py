"""The home that opencode gets for a task: its settings, the key in them, and what is refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import CoilClawError, DeniedError, EnvironmentFault, UsageError
from coilclaw.kernel.messages import Usage
from coilclaw.runners.acp.opencode import OpencodeRunner, prepare_home, usage_of
from coilclaw.runners.model_route import RouteTarget
from coilclaw.runners.test_tool import TestTool
from tests.support.performing import Performance

PROVIDER = {"npm": "n", "options": {"baseURL": "https://m.example/v1", "apiKey": "{env:MY_KEY}"}}
TEMPLATE = {
    "model": "own/m-1",
    "provider": {"own": PROVIDER, "other": {"options": {"apiKey": "{env:OTHER_KEY}"}}},
    "permission": {"bash": "allow"},
    "mcp": {"evil": {"type": "local", "command": ["/bin/evil"]}},
    "plugin": ["evil"],
    "instructions": ["/etc/passwd"],
}


@pytest.fixture
def stage(tmp_path: Path) -> Performance:
    return Performance.make(tmp_path, "bubblewrap")


def template(stage: Performance, said: object = TEMPLATE) -> Path:
    path = stage.home.parent / "opencode.json"
    path.write_text(said if isinstance(said, str) else json.dumps(said))
    return path


def settings(stage: Performance, path: Path | None, **changes: Any) -> Any:
    tests = TestTool(stage.home) if changes.pop("tests", False) else None
    ours = {"MY_KEY": "sk-1", "OTHER_KEY": "sk-2", "ANTHROPIC_API_KEY": "sk-3", "HOME": "/x"}
    with prepare_home(stage.assignment(**changes), path, ours, tests) as home:
        written = home.path / "settings.json"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        made = json.loads(written.read_text())
        made["targets"] = home.targets
    assert not written.exists()
    return made


def refused(
    stage: Performance, kind: type[CoilClawError], path: Path | None, **changes: Any
) -> str | None:
    with pytest.raises(kind) as caught:
        settings(stage, path, **changes)
    return caught.value.rule


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", ["{", "[]", "\udcff".encode("utf-8", "surrogateescape"), " " * (2**20 + 1)]
)
def test_a_template_that_cannot_be_read_is_refused(stage: Performance, said: Any) -> None:
    path = template(stage, "")
    path.write_bytes(said if isinstance(said, bytes) else said.encode())
    assert refused(stage, UsageError, path) == "opencode.home"


def test_a_template_that_is_not_there_is_refused(stage: Performance, tmp_path: Path) -> None:
    assert refused(stage, UsageError, tmp_path / "none") == "opencode.home"


@pytest.mark.parametrize("model", [None, "m-1", "own/", "/m", 7])
def test_a_model_is_chosen_by_us_and_not_by_opencode(stage: Performance, model: Any) -> None:
    path = template(stage, TEMPLATE | {"model": model})
    assert refused(stage, UsageError, path) == "opencode.model"


def test_where_the_network_is_denied_it_must_be_known_where_the_model_is(
    stage: Performance,
) -> None:
    path = template(stage)
    assert refused(stage, UsageError, path, model="other/m") == "opencode.home"
    assert settings(stage, path, model="other/m", network="allow")["targets"] == ()
    plain = TEMPLATE | {"provider": {"own": {"options": {"baseURL": "http://m.example"}}}}
    assert refused(stage, DeniedError, template(stage, plain)) == "codex.route"


def test_a_home_that_the_agent_made_a_link_is_refused(stage: Performance, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (stage.home / "opencode").symlink_to(elsewhere)
    assert refused(stage, DeniedError, template(stage)) == "opencode.home"
    assert list(elsewhere.iterdir()) == []


def test_a_link_or_a_directory_in_place_of_the_settings(stage: Performance, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (stage.home / "opencode").mkdir()
    place = stage.home / "opencode" / "settings.json"
    place.symlink_to(victim)
    settings(stage, template(stage))
    assert victim.read_text() == "mine"
    place.mkdir()
    assert refused(stage, DeniedError, template(stage)) == "opencode.home"


# --- the settings --------------------------------------------------------------------------------


def test_of_the_template_only_the_model_is_kept(stage: Performance) -> None:
    made = settings(stage, template(stage), shell="untrusted")
    options = {"baseURL": "https://m.example/v1", "apiKey": "sk-1"}
    assert made == {
        "model": "own/m-1",
        "small_model": "own/m-1",
        "enabled_providers": ["own"],
        "provider": {"own": {"npm": "n", "options": options}},
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "agent": {"title": {"disable": True}},
        "instructions": [f"{stage.worktree}/AGENTS.md"],
        "permission": {
            "bash": "ask",
            "edit": "ask",
            "webfetch": "deny",
            "websearch": "deny",
            "external_directory": "allow",
            "doom_loop": "allow",
            "question": "deny",
            "skill": "deny",
            "task": "deny",
        },
        "targets": (RouteTarget("m.example", 443),),
    }


def test_what_the_assignment_denies_is_not_offered(stage: Performance) -> None:
    path = template(stage)
    made = settings(stage, path, shell="deny", filesystem="read-only", network="allow")
    assert made["permission"]["bash"] == "deny"
    assert made["permission"]["edit"] == "deny"
    assert made["permission"]["webfetch"] == "ask"


def test_a_provider_that_opencode_knows_needs_no_template(stage: Performance) -> None:
    made = settings(stage, None, model="anthropic/claude-x/y")
    assert made["model"] == "anthropic/claude-x/y"
    assert made["provider"] == {"anthropic": {"options": {"apiKey": "sk-3"}}}
    assert made["targets"] == (RouteTarget("api.anthropic.com", 443),)


def test_the_tool_server_is_in_the_settings(stage: Performance) -> None:
    made = settings(stage, template(stage), tests=True)
    (server,) = made["mcp"].items()
    assert server[0] == "coilclaw"
    assert server[1]["command"] == TestTool(stage.home).argv
    assert server[1]["timeout"] >= 3600_000


def test_the_environment_has_the_home_and_no_key(stage: Performance) -> None:
    ours = {"MY_KEY": "sk-1"}
    with prepare_home(stage.assignment(), template(stage), ours, None) as home:
        made = home.environment({"PATH": "/bin", "OPENCODE_PURE": "0"})
    assert made["XDG_DATA_HOME"] == str(stage.home / "opencode" / "data")
    assert made["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert (made["PATH"], made["OPENCODE_PURE"]) == ("/bin", "1")
    assert "sk-1" not in json.dumps(made)
    assert sorted(path.name for path in home.path.iterdir()) == ["cache", "config", "data", "state"]


def test_without_a_program_nothing_is_begun(stage: Performance) -> None:
    runner = OpencodeRunner(template(stage), {"PATH": "/nowhere"})
    with pytest.raises(EnvironmentFault) as caught:
        next(runner.perform(stage.assignment(), stage.means()))
    assert caught.value.rule == "agent.missing"
    assert os.listdir(stage.home) == ["tmp"]
    assert runner.name == "opencode"


# --- tokens --------------------------------------------------------------------------------------


def message(role: str, **tokens: Any) -> dict[str, Any]:
    return {"info": {"role": role, "tokens": tokens}}


@pytest.mark.parametrize(
    ("messages", "usage"),
    [
        ([], None),
        ([message("assistant", input=5, output=1), message("user")], None),
        (
            [
                message("user"),
                message("assistant", input=1000, output=1000),
                message("user"),
                message("assistant", input=5, output=1, reasoning=2, cache={"read": 7, "write": 3}),
                message("assistant", input=6, output=2, cache=[]),
            ],
            Usage(21, 5),
        ),
        ([message("user"), message("assistant", input=True, output="x")], None),
        ([message("user"), 7, message("assistant", input=4, output=1)], Usage(4, 1)),
    ],
)
def test_the_tokens_are_those_of_the_answers_of_the_last_turn(
    messages: Any, usage: Usage | None
) -> None:
    assert usage_of(messages) == usage
