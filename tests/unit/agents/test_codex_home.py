"""The home that Codex gets for a task, the key in it, and where its program is found."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import CoilClawError, DeniedError, EnvironmentFault, UsageError
from coilclaw.runners import agent_program
from coilclaw.runners.codex import home as codexhome
from coilclaw.runners.codex.runner import CodexRunner
from coilclaw.runners.runner import Assignment, Means, ask_nobody
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.codexserver import World, completed, end, item
from tests.support.sandboxes import supported

SAID = completed(item("agentMessage", text="Bye."))
TEMPLATE = """
model = "m-1"
model_provider = "p"
approval_policy = "never"
sandbox_mode = "danger-full-access"
notify = ["/bin/evil"]
profile = "loose"
[model_providers.p]
base_url = "http://127.0.0.1:40009/v1"
env_key = "MY_KEY"
env_http_headers = { X-Other = "OTHER_KEY" }
[mcp_servers.evil]
command = "/bin/evil"
[hooks]
x = 1
[features]
plugins = true
[projects."/"]
trust_level = "trusted"
[shell_environment_policy]
ignore_default_excludes = true
"""


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


@pytest.fixture
def world(tmp_path: Path, support: SandboxSupport) -> World:
    world = World(tmp_path, support)
    template(world)
    return world


def template(world: World) -> Path:
    assert world.base is not None
    (world.base / "config.toml").write_text(TEMPLATE)
    return world.base


def refused(world: World, kind: type[CoilClawError], **changes: Any) -> CoilClawError:
    with pytest.raises(kind) as caught:
        world.play(SAID, end(), **changes)
    assert caught.value.rule == "codex.home"
    return caught.value


# --- the settings --------------------------------------------------------------------------------


def test_of_the_template_only_the_model_is_kept(world: World) -> None:
    world.play(SAID, end(), shell="never")
    mode, text = world.seen()["home"]["config.toml"]
    assert mode == "0o600"
    settings = tomllib.loads(text)
    features = settings.pop("features")
    assert not any(features.values())
    assert {"plugins", "hooks", "apps", "unbounded_connection_retries"} < set(features)
    assert "shell_tool" not in features
    assert settings == {
        "model": "m-1",
        "model_provider": "p",
        "model_providers": {
            "p": {
                "base_url": "http://127.0.0.1:40009/v1",
                "env_key": "MY_KEY",
                "env_http_headers": {"X-Other": "OTHER_KEY"},
            }
        },
        "check_for_update_on_startup": False,
        "web_search": "disabled",
        "analytics": {"enabled": False},
        "history": {"persistence": "none"},
        "projects": {str(world.tree): {"trust_level": "untrusted"}},
        "shell_environment_policy": {
            "inherit": "all",
            "ignore_default_excludes": False,
            "exclude": ["CODEX_HOME", "CODEX_API_KEY", "OPENAI_*", "MY_KEY", "OTHER_KEY"],
            "set": {},
        },
        "allow_login_shell": False,
    }


def test_commands_get_the_settings_of_git_and_nothing_else_that_sounds_like_a_key(
    world: World,
) -> None:
    settings = {"GIT_CONFIG_KEY_0": "gc.auto", "GIT_CONFIG_KEY_12": "core.fsmonitor"}
    others = {
        "GIT_CONFIG_COUNT": "13",
        "GIT_CONFIG_VALUE_0": "0",
        "GIT_CONFIG_KEY_": "x",
        "GIT_CONFIG_KEY_0_SECRET": "x",
        "MY_GIT_CONFIG_KEY_0": "x",
        "API_KEY": "x",
    }
    assignment = world.assignment(environ={**settings, **others})
    with codexhome.prepare_home(assignment, world.base) as home:
        policy = home.settings["shell_environment_policy"]
    assert policy["set"] == settings
    assert policy["ignore_default_excludes"] is False


def test_commands_may_write_what_git_keeps_elsewhere_and_not_the_home(world: World) -> None:
    assignment = world.assignment()
    beside = (world.tree / ".." / "git-dir", world.tree / ".." / "objects")
    writable = (world.home, world.tree, *beside)
    changed = replace(assignment, sandbox=replace(assignment.sandbox, writable=writable))
    assert codexhome.writable_roots(changed) == tuple(map(str, beside))


def test_without_a_shell_codex_has_none_to_offer(world: World) -> None:
    world.play(SAID, end(), shell="deny")
    features = tomllib.loads(world.seen()["home"]["config.toml"][1])["features"]
    assert (features["shell_tool"], features["unified_exec"]) == (False, False)


def test_only_with_the_network_it_may_search_the_web(world: World) -> None:
    world.play(SAID, end(), network="allow")
    assert tomllib.loads(world.seen()["home"]["config.toml"][1])["web_search"] == "live"


def test_the_environment_is_that_of_the_assignment(world: World) -> None:
    environ = {"PATH": os.environ["PATH"], "MY_KEY": "sk-1", "HTTPS_PROXY": "http://p"}
    world.play(SAID, end(), environ=environ, network="allow")
    seen = world.seen()["environ"]
    assert seen.pop("COILCLAW_PROCESS")
    assert {name: seen[name] for name in seen if name not in ("LC_CTYPE", "PWD")} == {
        **environ,
        "CODEX_HOME": str(world.home / "codex"),
        "TMPDIR": str(world.home / "codex-tmp"),
    }
    assert world.seen()["argv"] == ["app-server"]


def test_of_our_environment_only_the_key_of_the_model_is_passed_on(world: World) -> None:
    assert world.base is not None
    text = TEMPLATE + '[model_providers.q]\nbase_url = "https://q"\nenv_key = "FOREIGN_KEY"\n'
    (world.base / "config.toml").write_text(text)
    ours = {"MY_KEY": "sk-1", "OTHER_KEY": "sk-2", "FOREIGN_KEY": "sk-3", "PATH": "/x", "A": "b"}
    given = {"PATH": "/usr/bin:/bin", "OTHER_KEY": "sk-4"}
    with codexhome.prepare_home(world.assignment(), world.base) as home:
        assert home.environment(given, ours) == {
            "MY_KEY": "sk-1",
            "OTHER_KEY": "sk-4",
            "PATH": "/usr/bin:/bin",
            "CODEX_HOME": str(world.home / "codex"),
            "TMPDIR": str(world.home / "codex-tmp"),
        }
        assert "FOREIGN_KEY" in home.settings["shell_environment_policy"]["exclude"]


def test_where_the_network_is_denied_the_way_leads_through_the_relay(world: World) -> None:
    world.play(SAID, end(), environ={"PATH": os.environ["PATH"], "HTTPS_PROXY": "http://p"})
    seen = world.seen()["environ"]
    assert seen["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    assert seen["NO_PROXY"] == "127.0.0.1,localhost"
    assert "COILCLAW_DIRECTORY" not in seen


# --- the key -------------------------------------------------------------------------------------


def test_the_key_is_gone_before_codex_hears_of_its_task(world: World) -> None:
    base = template(world)
    (base / "auth.json").write_text('{"OPENAI_API_KEY": "sk-1"}')
    (base / "auth.json").chmod(0o644)
    (base / "AGENTS.md").write_text("Be kind.\n")
    (base / "secrets.txt").write_text("x")
    world.play(SAID, end())
    home = world.seen()["home"]
    assert home["auth.json"] == ["0o600", '{"OPENAI_API_KEY": "sk-1"}']
    assert sorted(home) == ["AGENTS.md", "auth.json", "config.toml"]
    assert world.seen("later.json") == ["AGENTS.md", "config.toml"]
    assert (base / "auth.json").exists()


@pytest.mark.parametrize("script", [{"first": [{"exit": 1}]}, {"thread": {"error": {}}}])
def test_the_key_is_gone_however_it_ends(world: World, script: Any) -> None:
    (template(world) / "auth.json").write_text("{}")
    world.play(script=script)
    assert not (world.home / "codex" / "auth.json").exists()


def test_a_key_that_codex_wrote_itself_is_taken_away_too(world: World) -> None:
    world.play({"touch": str(world.home / "codex" / "auth.json")}, SAID, end())
    assert not (world.home / "codex" / "auth.json").exists()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["codex", "codex-tmp"])
def test_a_home_that_the_agent_made_a_link_is_refused(
    world: World, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (world.home / name).symlink_to(elsewhere)
    refused(world, DeniedError)
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_home_is_replaced_not_followed(world: World, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (world.home / "codex").mkdir()
    (world.home / "codex" / "config.toml").symlink_to(victim)
    (world.home / "codex" / "auth.json").symlink_to(victim)
    world.play(SAID, end())
    assert victim.read_text() == "mine"
    assert not (world.home / "codex" / "config.toml").is_symlink()


def test_a_directory_where_a_file_belongs_is_refused(world: World) -> None:
    (world.home / "codex" / "auth.json").mkdir(parents=True)
    refused(world, DeniedError)


@pytest.mark.parametrize(
    "text",
    [
        b"model = ",
        b"\xff",
        b"#" * (2**20 + 1),
        b"model_providers = 1",
        b"[model_providers]\np = 1",
        b"[model_providers.p]\nenv_http_headers = 1",
    ],
)
def test_a_template_that_cannot_be_read_is_refused(world: World, text: bytes) -> None:
    (template(world) / "config.toml").write_bytes(text)
    refused(world, UsageError)


def test_a_template_that_is_not_there_is_refused(world: World, tmp_path: Path) -> None:
    world.base = tmp_path / "nowhere"
    refused(world, UsageError)


def test_a_home_without_a_template_says_the_least(world: World) -> None:
    with codexhome.prepare_home(world.assignment(), None) as home:
        assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
        assert "model" not in home.settings
        assert [path.name for path in home.path.iterdir()] == ["config.toml"]


# --- where the program is ------------------------------------------------------------------------


def program(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def package(root: Path) -> tuple[Path, Path]:
    """An installation as the package manager makes it: the script, and the native program."""
    scope = root / "node_modules" / "@openai"
    script = program(scope / "codex" / "bin" / "codex.js", b"#!/usr/bin/env node\n")
    shim = root / "node_modules" / ".bin" / "codex"
    shim.parent.mkdir(parents=True)
    shim.symlink_to(script)
    return (
        shim,
        scope / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex",
    )


def missing(given: Path | None, environ: dict[str, str]) -> str:
    with pytest.raises(EnvironmentFault) as caught:
        agent_program.find(agent_program.KNOWN["codex"], environ, given=given)
    assert caught.value.rule == "agent.missing"
    return caught.value.message


def test_the_script_of_the_package_is_never_taken(tmp_path: Path) -> None:
    shim, native = package(tmp_path)
    assert missing(shim, {}) == f"Codex was not found at {str(shim)!r}."
    assert missing(tmp_path, {}).startswith("Codex was not found at")
    program(native)
    assert agent_program.find(agent_program.KNOWN["codex"], {}, given=shim) == native
    assert agent_program.find(agent_program.KNOWN["codex"], {}, given=tmp_path) == native
    assert (
        agent_program.find(agent_program.KNOWN["codex"], {"PATH": f"/nowhere:{shim.parent}"})
        == native
    )
    assert (
        agent_program.find(agent_program.KNOWN["codex"], {"COILCLAW_CODEX": str(shim), "PATH": ""})
        == native
    )


def test_a_package_inside_a_package_is_found(tmp_path: Path) -> None:
    shim, _ = package(tmp_path)
    inner = tmp_path / "node_modules/@openai/codex/node_modules/@openai"
    native = program(inner / "codex-linux-x64/vendor/musl/bin/codex")
    assert agent_program.find(agent_program.KNOWN["codex"], {}, given=shim) == native


def test_what_is_given_wins_over_the_variable_and_that_over_the_path(tmp_path: Path) -> None:
    one, two, three = (program(tmp_path / name / "codex") for name in ("1", "2", "3"))
    environ = {"COILCLAW_CODEX": str(two), "PATH": str(three.parent)}
    assert agent_program.find(agent_program.KNOWN["codex"], environ, given=one) == one
    assert agent_program.find(agent_program.KNOWN["codex"], environ) == two
    assert agent_program.find(agent_program.KNOWN["codex"], {"PATH": str(three.parent)}) == three
    assert agent_program.find(agent_program.KNOWN["codex"], {}, given=one.parent) == one


def test_a_program_that_is_not_there_is_said_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "codex")
    monkeypatch.chdir(tmp_path)
    assert missing(tmp_path / "x", {}) == f"Codex was not found at {str(tmp_path / 'x')!r}."
    assert missing(None, {"PATH": ".:"}).startswith("Codex was not found on PATH or ")
    (tmp_path / "codex").chmod(0o644)
    assert missing(tmp_path / "codex", {}).startswith("Codex was not found at")


def test_without_a_program_nothing_is_begun(world: World, tmp_path: Path) -> None:
    runner = CodexRunner(executable=tmp_path / "none")
    assignment: Assignment = world.assignment()
    means = Means(ask_nobody, cancel=Cancellation(), support=world.support)
    with pytest.raises(EnvironmentFault):
        next(runner.perform(assignment, means))
    assert list(world.home.iterdir()) == []
    assert runner.name == "codex"
