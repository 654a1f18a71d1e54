"""``[providers.models.NAME]``: per kind the keys it needs and the keys it may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.app.config.keys import BELONGING
from coilclaw.app.config.load import examine_config_text
from coilclaw.app.config.values import Config
from coilclaw.kernel.document import Problem
from coilclaw.models.services import KINDS

HOME = Path("/home/u/.coilclaw")
CANARY = "canary-5f2c9b"
ENVIRON = {"HOME": "/home/u", "SET": "x", "WITH_USER": f"http://u:{CANARY}@h/"}

MINIMAL = {
    "mock": "",
    "openai-compatible": "model = 'm'\nbase_url = 'http://h'",
    "gemini": "model = 'm'",
    "anthropic": "model = 'm'",
    "reliable": "providers = ['local']",
    "router": "default = 'local'",
    "recorded": "provider = 'local'\nfile = 'f'",
}
LOCAL = "[providers.models.local]\nkind = 'mock'\n"


def problems(entry: str, before: str = "") -> list[Problem]:
    text = f"{before}[providers.models.x]\n{entry}\n{LOCAL}"
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    return list(result.problems)


def config(text: str) -> Config:
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert result.config is not None, result.problems
    return result.config


def test_there_is_an_example_of_every_kind() -> None:
    assert tuple(MINIMAL) == KINDS == tuple(BELONGING)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_needs_is_enough(kind: str) -> None:
    assert problems(f"kind = '{kind}'\n{MINIMAL[kind]}") == []


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("openai-compatible", ["model", "base_url"]),
        ("gemini", ["model"]),
        ("anthropic", ["model"]),
        ("reliable", ["providers"]),
        ("router", ["routes"]),
        ("recorded", ["provider", "file"]),
    ],
)
def test_what_a_kind_needs_is_missed(kind: str, keys: list[str]) -> None:
    found = problems(f"kind = '{kind}'")
    assert sorted(p.key for p in found) == sorted(f"providers.models.x.{key}" for key in keys)
    assert all("is missing" in p.message and p.line == 1 for p in found)


VALUES = {
    "base_url": "'http://h'",
    "api_key_env": "'SET'",
    "api_key_file": "'/k'",
    "timeout_s": "1",
    "temperature": "1",
    "fixture": "'f'",
    "providers": "['local']",
    "routes": "{ a = 'local' }",
    "default": "'local'",
    "provider": "'local'",
    "file": "'f'",
    "mode": "'record'",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", VALUES)
def test_a_key_counts_for_its_kinds_and_is_refused_for_others(kind: str, key: str) -> None:
    lines = [line for line in MINIMAL[kind].splitlines() if not line.startswith(f"{key} ")]
    entry = "\n".join([f"kind = '{kind}'", f"{key} = {VALUES[key]}", *lines])
    found = problems(entry)
    if key in BELONGING[kind]:
        assert found == []
        return
    assert found == [
        Problem(
            f"providers.models.x.{key}",
            f"does not belong to a provider of kind {kind}",
            3,
            ("kind", "model", *BELONGING[kind]),
        )
    ]


def test_an_unknown_kind_lists_the_kinds() -> None:
    assert problems("kind = 'openai'\nbase_url = 'http://h'") == [
        Problem("providers.models.x.kind", "is 'openai'", 2, KINDS)
    ]
    assert problems("model = 'm'") == [Problem("providers.models.x.kind", "is missing", 1, KINDS)]
    (near,) = problems("kind = 'gemni'")
    assert near.message == "is 'gemni'; did you mean 'gemini'?"


@pytest.mark.parametrize(
    "name",
    ["api_key", "key", "token", "API_KEY", "api-key", "apikey", "secret", "password", "auth_token"],
)
@pytest.mark.parametrize("table", ["providers.models.x", "security", "", "providers", "limits"])
def test_a_key_in_the_file_is_refused_and_not_repeated(name: str, table: str) -> None:
    head = f"[{table}]\n" if table else ""
    kind = "kind = 'mock'\n" if table.endswith(".x") else ""
    text = f"{head}{kind}{name} = '{CANARY}'\n"
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    (problem,) = (p for p in result.problems if p.key.endswith(name))
    assert "api_key_env" in problem.message
    assert "api_key_file" in problem.message
    assert CANARY not in repr(result)


@pytest.mark.parametrize(
    "value",
    ["sk-canary", "has space", "1ABC", "AIzaSyA1b2C3d4E5f6G7h8I9", ""],
)
def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated(value: str) -> None:
    found = problems(f"kind = 'gemini'\nmodel = 'm'\napi_key_env = '{value}'")
    assert [p.key for p in found] == ["providers.models.x.api_key_env"]
    assert not value or value not in repr(found)


@pytest.mark.parametrize("value", ["SET", "gemini_key", "_K2", "A_LONG_NAME_OF_A_VARIABLE_2"])
def test_the_name_of_a_variable_is_taken(value: str) -> None:
    assert problems(f"kind = 'gemini'\nmodel = 'm'\napi_key_env = '{value}'") == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{CANARY}@h/v1",
        f"http://{CANARY}@h/v1",
        f"http://h/v1?key={CANARY}",
        f"http://h/v1#{CANARY}",
        "$WITH_USER",
        f"ftp://{CANARY}/",
        f"{CANARY}",
        f"http://[{CANARY}",
        f"http://h:{CANARY}/",
        f"http://h/a b{CANARY}",
        "http:///x",
        "$NOPE",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_not_repeated(url: str) -> None:
    found = problems(f"kind = 'gemini'\nmodel = 'm'\nbase_url = '{url}'")
    assert {p.key for p in found} == {"providers.models.x.base_url"}
    assert CANARY not in repr(found)


@pytest.mark.parametrize("url", ["http://h", "https://h:8080/v1/", "http://[::1]:1/v1"])
def test_an_address_is_taken(url: str) -> None:
    assert problems(f"kind = 'gemini'\nmodel = 'm'\nbase_url = '{url}'") == []


def test_two_places_for_one_key_are_refused() -> None:
    found = problems("kind = 'gemini'\nmodel = 'm'\napi_key_env = 'A'\napi_key_file = '/k'")
    assert [(p.key, p.line) for p in found] == [("providers.models.x.api_key_file", 5)]


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("kind = 'reliable'\nproviders = ['local', 'lokal']", "providers[1]"),
        ("kind = 'router'\nroutes = { fast = 'lokal' }", "routes.fast"),
        ("kind = 'router'\ndefault = 'lokal'", "default"),
        ("kind = 'recorded'\nfile = 'f'\nprovider = 'lokal'", "provider"),
    ],
)
def test_a_provider_that_is_not_there_is_missed(entry: str, key: str) -> None:
    (problem,) = problems(entry)
    assert problem.key == f"providers.models.x.{key}"
    assert problem.message == "names no provider of this file; did you mean 'local'?"
    assert problem.allowed == ("x", "local")
    assert problem.line == entry.count("\n") + 2


def test_a_provider_that_asks_itself_is_refused() -> None:
    text = """
[providers.models.local]
kind = "reliable"
providers = ["b", "c"]
[providers.models.b]
kind = "router"
routes = { x = "c", y = "local" }
[providers.models.c]
kind = "mock"
"""
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert [(p.key, p.line, p.message) for p in result.problems] == [
        ("providers.models.local", 2, "asks itself: local → b → local"),
        ("providers.models.b", 5, "asks itself: b → local → b"),
    ]


def test_asking_the_same_one_twice_is_allowed() -> None:
    assert problems("kind = 'router'\nroutes = { a = 'local', b = 'local' }") == []


@pytest.mark.parametrize("name", ["a.b", "a b", "ä", "x" * 65, ""])
def test_a_name_is_made_of_few_characters(name: str) -> None:
    text = f"[providers.models.'{name}']\nkind = 'mock'\n{LOCAL}"
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert [p.message for p in result.problems] == [
        "is not a name: letters, digits, - and _ only, at most 64 of them"
    ]


def test_too_many_providers_are_refused() -> None:
    text = "".join(f"[providers.models.p{n}]\nkind = 'mock'\n" for n in range(201))
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert result.problems[0].message == "has more than 200 providers"


def test_the_only_provider_is_the_default() -> None:
    one = config("[providers.models.only]\nkind = 'gemini'\nmodel = 'g'\n")
    assert (one.default_provider, one.default_model) == ("only", "g")


def test_among_several_the_default_must_be_named() -> None:
    text = "[providers.models.a]\nkind = 'mock'\n[providers.models.b]\nkind = 'mock'\n"
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert result.problems == (Problem("default_provider", "is missing", None, ("a", "b")),)
    assert config("default_provider = 'b'\n" + text).default_provider == "b"


def test_a_vendor_has_its_usual_variable_unless_the_file_says_where_the_key_is() -> None:
    def variable(entry: str) -> str | None:
        read = config(f"[providers.models.local]\nmodel = 'm'\n{entry}")
        return read.providers["local"].api_key_env

    assert variable("kind = 'gemini'") == "GEMINI_API_KEY"
    assert variable("kind = 'anthropic'") == "ANTHROPIC_API_KEY"
    assert variable("kind = 'anthropic'\napi_key_env = 'OTHER'") == "OTHER"
    assert variable("kind = 'anthropic'\napi_key_file = '/k'") is None
    assert variable("kind = 'gemini'\nbase_url = 'http://localhost'") is None
    assert variable("kind = 'openai-compatible'\nbase_url = 'http://localhost'") is None


def test_what_is_only_played_needs_nobody_to_ask() -> None:
    assert problems("kind = 'recorded'\nfile = 'f'\nmode = 'play'") == []


def test_a_provider_without_a_model_asks_the_default_one() -> None:
    text = "default_model = 'd'\n[providers.models.local]\nkind = 'gemini'\n"
    assert config(text).providers["local"].model == "d"
