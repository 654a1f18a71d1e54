"""``coilclaw provider``."""

from __future__ import annotations

import json

import pytest

from tests.support.rawserver import response, serving
from tests.unit.cli.setting_up import World

CANARY = "canary-0badcafe"


def test_list_names_each_with_its_key_state_and_marks_the_default(world: World) -> None:
    done = world.run("provider", "list", "--json")
    assert done.code == 0
    assert done.data == [
        {
            "name": "local",
            "kind": "mock",
            "model": "mock",
            "base_url": None,
            "key": None,
            "key_state": "none",
            "default": True,
        },
        {
            "name": "openai_compatible",
            "kind": "openai-compatible",
            "model": "local-model",
            "base_url": "http://localhost:1234/v1",
            "key": "OPENAI_API_KEY",
            "key_state": "not set",
            "default": False,
        },
    ]


def test_list_for_people_shows_no_key(world: World) -> None:
    done = world.run("provider", "list", OPENAI_API_KEY=CANARY)
    first, second = done.out.splitlines()
    assert first.split() == ["*", "local", "mock", "mock"]
    assert second.endswith("http://localhost:1234/v1  key OPENAI_API_KEY: set")
    assert CANARY not in done.out + done.err


def test_a_wrong_configuration_is_told(world: World) -> None:
    world.write("x = 1")
    assert world.run("provider", "list").code == 2


def test_an_unknown_name_is_refused_with_a_suggestion(world: World) -> None:
    done = world.run("provider", "test", "lokal")
    assert done.code == 2
    assert "the provider 'lokal' does not exist; did you mean local?" in done.err
    assert "configured: local, openai_compatible" in done.err


def test_the_mock_answers(world: World) -> None:
    done = world.run("provider", "test", "local", "--json")
    assert done.code == 0
    record = json.loads(done.out)
    assert record.pop("latency_ms") >= 0
    assert "mock provider" in record.pop("text")
    assert record == {
        "name": "local",
        "ok": True,
        "model": "mock",
        "usage": {"input": None, "output": None},
    }


def test_a_fixture_is_played_and_an_error_in_it_is_a_provider_error(world: World) -> None:
    world.write("[providers.models.local]\nkind = 'mock'\nfixture = 'f.json'\n")
    fixture = world.home / "f.json"
    fixture.write_text('[{"text": "hello"}]', encoding="utf-8")
    done = world.run("provider", "test", "local")
    assert (done.code, done.out.splitlines()[1]) == (0, "hello")
    fixture.write_text('[{"error": "auth"}]', encoding="utf-8")
    assert world.run("provider", "test", "local").code == 4


def openai(url: str) -> str:
    return f"""
[providers.models.local]
kind = "openai-compatible"
base_url = "{url}/v1"
model = "m"
api_key_env = "MY_KEY"
timeout_s = 5
"""


def test_a_server_is_asked_with_the_key_which_is_never_shown(world: World) -> None:
    answer = {
        "choices": [{"message": {"role": "assistant", "content": f"ok {CANARY}"}}],
        "model": "m-2",
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    with serving(response(json.dumps(answer).encode())) as server:
        world.write(openai(server.url))
        done = world.run("provider", "test", "local", "--json", MY_KEY=CANARY)
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["ok"], record["usage"]) == (True, {"input": 3, "output": 1})
    assert CANARY not in done.out + done.err
    assert any(CANARY.encode() in request for request in server.received)


@pytest.mark.parametrize("status", ["401 Unauthorized", "400 Bad Request"])
def test_a_server_that_refuses_is_a_provider_error(world: World, status: str) -> None:
    with serving(response(f'{{"error": "{CANARY}"}}'.encode(), status)) as server:
        world.write(openai(server.url))
        done = world.run("provider", "test", "local", MY_KEY=CANARY)
    assert done.code == 4
    assert CANARY not in done.out + done.err
