"""Showing the configuration: valid TOML, complete, and never a secret."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from coilclaw.app.config import show
from coilclaw.app.config.load import examine_config_text
from coilclaw.app.config.values import Config

HOME = Path("/home/u/.coilclaw")
CANARY = "canary-77aa99bb"


def read(text: str, environ: dict[str, str]) -> Config:
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=environ)
    assert result.config is not None, result.problems
    return result.config


TEXT = """
default_provider = "a"
[providers.models.a]
kind = "gemini"
model = "g"
api_key_env = "MY_VARIABLE"
[providers.models.b]
kind = "anthropic"
model = "c"
api_key_file = "KEYFILE"
temperature = 0.5
[providers.models.c]
kind = "router"
routes = { "a b" = "a" }
"""


def test_what_is_shown_can_be_read_again_and_is_the_same() -> None:
    environ = {"HOME": "/home/u"}
    config = read(TEXT, environ)
    again = read("\n".join(show.lines(config, environ)), environ)
    assert again == config


def test_the_state_of_a_key_is_shown_and_the_key_is_not(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(CANARY, encoding="utf-8")
    text = TEXT.replace("KEYFILE", str(key))
    environ = {"HOME": "/home/u", "MY_VARIABLE": CANARY}
    config = read(text, environ)
    lines = show.lines(config, environ)
    assert 'api_key_env = "MY_VARIABLE"  # set' in lines
    assert f'api_key_file = "{key}"  # there' in lines
    key.unlink()
    del environ["MY_VARIABLE"]
    lines = show.lines(config, environ)
    assert 'api_key_env = "MY_VARIABLE"  # not set' in lines
    assert f'api_key_file = "{key}"  # missing' in lines
    record = json.loads(json.dumps(show.record(config, environ)))
    assert record["providers"]["models"] == {
        "a": {
            "kind": "gemini",
            "model": "g",
            "api_key_env": "MY_VARIABLE",
            "timeout_s": 120.0,
            "key_state": "not set",
        },
        "b": {
            "kind": "anthropic",
            "model": "c",
            "api_key_file": str(key),
            "timeout_s": 120.0,
            "temperature": 0.5,
            "key_state": "missing",
        },
        "c": {"kind": "router", "routes": {"a b": "a"}, "key_state": "none"},
    }


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("API_TOKEN", "OTHER"),
        ("MY_KEY", "OTHER"),
        ("DB_PASSWORD", "OTHER"),
        ("SECRET_THING", "OTHER"),
        ("AWS_CREDENTIALS", "OTHER"),
        ("UNSUSPICIOUS", "UNSUSPICIOUS"),
    ],
)
def test_a_secret_that_came_in_through_a_variable_is_not_shown(name: str, key: str) -> None:
    environ = {"HOME": "/home/u", name: CANARY, "PLAIN": "plain-value"}
    config = read(
        f"""
workspace_dir = "/w/${name}"
[security]
forbidden_paths = ["/x/${{{name}}}/y", "/$PLAIN"]
[providers.models.local]
kind = "gemini"
model = "g"
base_url = "https://h/${name}/$PLAIN"
api_key_env = "{key}"
""",
        environ,
    )
    said = "\n".join(show.lines(config, environ)) + json.dumps(show.record(config, environ))
    assert CANARY not in said
    assert said.count("plain-value") == 4
    assert show.MARK in said


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"http://u:{CANARY}@h:1/v1", "http://[redacted]@h:1/v1"),
        (f"http://{CANARY}@h", "http://[redacted]@h"),
        (f"http://a@{CANARY}@h", "http://[redacted]@h"),
        (f"http://h/?k={CANARY}", "http://h/?[redacted]"),
        (f"http://h/#{CANARY}", "http://h/"),
        (f"http://[{CANARY}", "[redacted]"),
        ("http://localhost:1234/v1", "http://localhost:1234/v1"),
        ("http://[::1]:1/", "http://[::1]:1/"),
    ],
)
def test_credentials_in_an_address_are_not_shown(url: str, said: str) -> None:
    assert show.shown_url(url) == said


def test_the_record_has_the_shape_of_the_file() -> None:
    environ = {"HOME": "/home/u"}
    config = read("", environ)
    record = show.record(config, environ)
    data = tomllib.loads("\n".join(show.lines(config, environ)))
    for entry in record["providers"]["models"].values():  # type: ignore[index]  # tables inside
        del entry["key_state"]
    assert record == data
