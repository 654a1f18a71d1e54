"""``coilclaw config``."""

from __future__ import annotations

import json
import stat

import pytest

from coilclaw.app.config.keys import TABLES
from tests.unit.cli.setting_up import World

CANARY = "canary-0badcafe"


def test_validate_says_every_problem_with_its_line_and_what_is_allowed(world: World) -> None:
    world.write('[security]\nautonomy = "godmode"\nsandbx = "auto"\n')
    done = world.run("config", "validate")
    known = f"allowed: {', '.join(TABLES['security',])}"
    assert done.code == 2
    assert done.out.splitlines() == [
        "config.toml:2: security.autonomy: is 'godmode' (allowed: readonly, supervised, full)",
        f"config.toml:3: security.sandbx: is not a known key; did you mean 'sandbox'? ({known})",
    ]
    assert done.err == f"coilclaw: {world.config} has 2 problems [config.invalid]\n"


def test_validate_for_machines(world: World) -> None:
    world.write('[security]\nautonomy = "godmode"\n')
    done = world.run("config", "validate", "--json")
    assert done.code == 2
    assert done.data == {
        "ok": False,
        "path": str(world.config),
        "problems": [
            {
                "key": "security.autonomy",
                "line": 2,
                "message": "is 'godmode'",
                "allowed": ["readonly", "supervised", "full"],
            }
        ],
        "warnings": [],
    }


def test_validate_of_a_good_file(world: World) -> None:
    world.write("default_model = 'x'\n")
    done = world.run("config", "validate")
    assert (done.code, done.out, done.err) == (0, f"{world.config} is valid\n", "")
    world.config.unlink()
    done = world.run("config", "validate")
    assert done.code == 0
    assert "the defaults apply" in done.out


def test_validate_warns_of_a_file_that_others_can_change(world: World) -> None:
    world.write("")
    world.config.chmod(0o666)
    done = world.run("config", "validate", "--json")
    assert done.code == 0
    assert "can be changed by everybody" in done.err
    assert "can be changed by everybody" in done.out


@pytest.mark.parametrize("action", ["show", "validate"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_no_secret_is_ever_printed(world: World, action: str, flags: tuple[str, ...]) -> None:
    key = world.user / "key"
    key.write_text(CANARY, encoding="utf-8")
    world.write(
        f"""
[providers.models.local]
kind = "gemini"
model = "m"
api_key_file = "{key}"
base_url = "https://h/$SOME_TOKEN"
[providers.models.b]
kind = "gemini"
model = "m"
api_key_env = "UNSUSPICIOUS"
"""
    )
    done = world.run("config", action, *flags, SOME_TOKEN=CANARY, UNSUSPICIOUS=CANARY)
    assert done.code == 0
    assert CANARY not in done.out + done.err
    world.write(
        f"""
[providers.models.local]
kind = "gemini"
model = "m"
api_key = "{CANARY}"
api_key_env = "sk-{CANARY}"
base_url = "http://u:{CANARY}@h"
"""
    )
    done = world.run("config", action, *flags)
    assert done.code == 2
    assert CANARY not in done.out + done.err


def test_show_prints_what_is_in_effect(world: World) -> None:
    world.write("default_model = 'x'\n[security]\nautonomy = 'full'\n")
    done = world.run("config", "show")
    assert done.code == 0
    assert 'default_model = "x"' in done.out
    assert f'workspace_dir = "{world.workspace}"' in done.out
    assert 'api_key_env = "OPENAI_API_KEY"  # not set' in done.out
    shown = world.run("config", "show", "--json", OPENAI_API_KEY="k")
    record = json.loads(shown.out)
    assert record["security"]["autonomy"] == "full"
    assert record["providers"]["models"]["openai_compatible"]["key_state"] == "set"


def test_show_of_a_wrong_file_says_what_is_wrong(world: World) -> None:
    world.write("x = 1\n")
    done = world.run("config", "show")
    assert (done.code, done.out) == (2, "")
    assert "config.toml:1: x: is not a known key" in done.err


def test_path(world: World) -> None:
    assert world.run("config", "path").out == f"{world.config}\n"
    elsewhere = world.user / "elsewhere"
    done = world.run("config", "path", "--json", COILCLAW_HOME=str(elsewhere))
    assert done.data == {"path": str(elsewhere / "config.toml"), "exists": False}


def test_a_home_elsewhere_holds_what_is_not_placed(world: World) -> None:
    elsewhere = world.user / "elsewhere"
    done = world.run("config", "show", "--json", COILCLAW_HOME=str(elsewhere))
    record = json.loads(done.out)
    assert record["memory"]["path"] == str(elsewhere / "memory.sqlite")
    assert record["receipts"]["path"] == str(elsewhere / "tool_receipts.log")
    assert record["workspace_dir"] == str(world.workspace)


def test_set_changes_one_key_and_keeps_the_rest(world: World) -> None:
    world.write("# mine\n[security]\nautonomy = 'full' # for now\n")
    done = world.run("config", "set", "security.autonomy", "readonly")
    assert done.code == 0
    text = world.config.read_text(encoding="utf-8")
    assert text == '# mine\n[security]\nautonomy = "readonly" # for now\n'
    assert stat.S_IMODE(world.config.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("security.autonomy", "godmode", "(allowed: readonly, supervised, full)"),
        ("security.autonmy", "full", "did you mean 'autonomy'?"),
        ("limits.max_tool_rounds", "many", "must be a whole number, not a string"),
        ("limits.max_tool_rounds", "0", "is out of bounds"),
        ("default_provider", "nobody", "which no provider is called"),
        ("providers.models.local.api_key", CANARY, "api_key_env"),
        ("providers.models.new.model", "m", "providers.models.new.kind: is missing"),
    ],
)
def test_set_refuses_what_would_be_wrong(world: World, key: str, value: str, words: str) -> None:
    world.write("# mine\n")
    done = world.run("config", "set", key, value)
    assert done.code == 2
    assert words in done.err
    assert "config validate" not in done.err
    assert CANARY not in done.out + done.err
    assert world.config.read_text(encoding="utf-8") == "# mine\n"


def test_set_without_a_file_begins_with_the_whole_one(world: World) -> None:
    done = world.run("config", "set", "security.autonomy", "full")
    assert done.code == 0
    text = world.config.read_text(encoding="utf-8")
    assert text.startswith("# The configuration of CoilClaw")
    assert 'autonomy = "full"' in text
    assert stat.S_IMODE(world.home.stat().st_mode) == 0o700


def test_set_mends_one_of_two_problems_and_tells_of_the_other(world: World) -> None:
    world.write("[security]\nautonomy = 'x'\nsandbox = 'y'\n")
    done = world.run("config", "set", "security.autonomy", "full")
    assert done.code == 0
    assert "still wrong: config.toml:3: security.sandbox: is 'y'" in done.err


def test_set_to_what_it_is_writes_nothing(world: World) -> None:
    world.write('default_model = "m"\n')
    before = world.config.stat().st_mtime_ns
    assert world.run("config", "set", "default_model", "m").code == 0
    assert world.config.stat().st_mtime_ns == before
