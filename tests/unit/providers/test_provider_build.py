"""Providers, wired from settings: denials first, then who asks whom over real sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from coilclaw.app.providers import build_provider, list_provider_secrets
from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderRejected,
    ProviderServer,
    UsageError,
)
from coilclaw.kernel.messages import ChatRequest, Message, Provider
from coilclaw.kernel.secret import Secret
from coilclaw.models.endpoint import ProviderSettings
from coilclaw.models.event_stream import ask

KEY = "sk-canary-0123456789abcdef"
REQUEST = ChatRequest("", (Message("user", "hi"),), "m")


def made(
    name: str,
    *settings: ProviderSettings,
    environ: Mapping[str, str] | None = None,
    report: list[str] | None = None,
) -> Provider:
    return build_provider(
        name,
        {each.name: each for each in settings},
        environ=environ or {},
        max_response_bytes=2**20,
        redact=lambda text: text.replace(KEY, "[redacted]"),
        report=(list[str]() if report is None else report).append,
    )


def wire(name: str, url: str, **options: object) -> ProviderSettings:
    return ProviderSettings(name, "openai-compatible", "m", url, **options)  # type: ignore[arg-type]


def echo(name: str = "local") -> ProviderSettings:
    return ProviderSettings(name, "mock", "mock")


WRONG: list[tuple[str, tuple[ProviderSettings, ...], str, str]] = [
    ("locl", (echo(),), "provider.unknown", "no provider is called 'locl'; known are local"),
    (
        "r",
        (ProviderSettings("r", "reliable", providers=("none",)),),
        "provider.unknown",
        "no provider is called 'none', which r names",
    ),
    ("r", (ProviderSettings("r", "reliable"),), "provider.empty", "r names no provider to ask"),
    ("r", (ProviderSettings("r", "router"),), "provider.empty", "r names no provider to ask"),
    ("r", (ProviderSettings("r", "recorded"),), "provider.empty", "r names no file"),
    (
        "r",
        (ProviderSettings("r", "recorded", file=Path("x")),),
        "provider.empty",
        "r names no provider to record",
    ),
    (
        "a",
        (
            ProviderSettings("a", "reliable", providers=("b",)),
            ProviderSettings("b", "router", default="c"),
            ProviderSettings("c", "recorded", provider="a", file=Path("x")),
        ),
        "provider.loop",
        "a asks itself: a → b → c → a",
    ),
    ("a", (ProviderSettings("a", "router", default="a"),), "provider.loop", "a asks itself"),
    ("o", (ProviderSettings("o", "openai-compatible", "m"),), "provider.address", "no base_url"),
    ("o", (wire("o", "ftp://x"),), "provider.address", "not an http or https address"),
    (
        "o",
        (ProviderSettings("o", "openai-compatible", base_url="http://127.0.0.1"),),
        "provider.model",
        "has no model",
    ),
    (
        "o",
        (wire("o", "https://h", api_key_env="NO_SUCH_KEY"),),
        "provider.key",
        "the environment variable NO_SUCH_KEY is not set",
    ),
    (
        "o",
        (wire("o", "https://h", api_key_env="EMPTY"),),
        "provider.key",
        "the environment variable EMPTY is not set",
    ),
    ("g", (ProviderSettings("g", "gemini", "g"),), "provider.key", "GEMINI_API_KEY is not set"),
    (
        "a",
        (ProviderSettings("a", "anthropic", "a"),),
        "provider.key",
        "ANTHROPIC_API_KEY is not set",
    ),
    (
        "m",
        (ProviderSettings("m", "mock", fixture=Path("/no/such/fixture")),),
        "provider.fixture",
        "cannot be read",
    ),
]


@pytest.mark.parametrize(("name", "settings", "rule", "said"), WRONG)
def test_what_cannot_be_built_is_told(
    name: str, settings: tuple[ProviderSettings, ...], rule: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        made(name, *settings, environ={"EMPTY": "  "})
    assert caught.value.rule == rule
    assert said in caught.value.message


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    with pytest.raises(UsageError) as caught:
        made("locl", echo(), echo("other"))
    assert caught.value.hint == "did you mean local?"


@pytest.mark.parametrize(
    "content", [b"", b"  \n", f"{KEY} {KEY}".encode(), b"\xff" + KEY.encode(), b"x" * 20_000]
)
def test_a_key_file_without_one_key_is_told_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.txt"
    path.write_bytes(content)
    settings = wire("o", "https://h", api_key_file=path)
    with pytest.raises(UsageError, match="must hold exactly one key") as caught:
        made("o", settings)
    assert caught.value.rule == "provider.key"
    assert str(path) in caught.value.message
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert list_provider_secrets({"o": settings}, {}) == ()


def test_a_key_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file") as caught:
        made("o", wire("o", "https://h", api_key_file=tmp_path / "none"))
    assert caught.value.rule == "provider.key"


def test_a_key_does_not_travel_in_clear() -> None:
    with pytest.raises(UsageError) as caught:
        made("o", wire("o", "http://10.0.0.1", api_key_env="K"), environ={"K": KEY})
    assert caught.value.rule == "provider.clear"
    assert KEY not in caught.value.message


def test_the_mock_needs_nothing() -> None:
    assert "mock provider" in made("local", echo()).chat(REQUEST).final_text


@pytest.mark.parametrize("kind", ["openai-compatible", "gemini", "anthropic"])
def test_every_wire_is_built_with_its_key_from_a_variable_or_a_file(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "key.txt"
    path.write_text(f"\ufeff{KEY}\n", encoding="utf-8")
    with ModelServer([{"text": "hello"}], key=KEY) as server:
        for place in ({"api_key_env": "K"}, {"api_key_file": path}):
            settings = ProviderSettings("w", kind, "model-x", server.url, **place)
            provider = made("w", settings, environ={"K": f" {KEY}\n"})
            found = ask(provider, REQUEST, lambda _: None)
            assert (found.final_text, found.model, provider.name) == ("hello", "model-x", "w")
        with pytest.raises(ProviderAuth):
            made("w", ProviderSettings("w", kind, "m", server.url)).chat(REQUEST)


def test_the_key_of_a_vendor_goes_to_no_other_address() -> None:
    with ModelServer([{"text": "hello"}]) as server:
        settings = ProviderSettings("g", "gemini", "g", server.url)
        made("g", settings, environ={"GEMINI_API_KEY": KEY}).chat(REQUEST)
        assert KEY not in repr(server.requests)
        assert "x-goog-api-key" not in repr(server.requests[0].headers).lower()
    assert list_provider_secrets({"g": settings}, {"GEMINI_API_KEY": KEY}) == ()


def test_every_key_that_could_be_used_is_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "key.txt"
    path.write_text("file-key-0123\n", encoding="utf-8")
    settings = {
        "a": wire("a", "https://h", api_key_env="ONE"),
        "b": wire("b", "https://h", api_key_env="ONE"),
        "c": wire("c", "https://h", api_key_file=path),
        "d": wire("d", "https://h", api_key_file=tmp_path / "none"),
        "e": wire("e", "https://h", api_key_env="SHORT"),
        "f": ProviderSettings("f", "gemini", "g"),
        "g": wire("g", "https://h", api_key_env="UNSET"),
        "h": echo("h"),
    }
    environ = {"ONE": f"{KEY}\n", "SHORT": "none", "GEMINI_API_KEY": "gemini-key-1"}
    assert list_provider_secrets(settings, environ) == (
        Secret(KEY),
        Secret("file-key-0123"),
        Secret("gemini-key-1"),
    )


def test_a_key_that_comes_back_in_an_error_is_not_told() -> None:
    answer = {"status": 401, "body": {"error": {"message": f"wrong key {KEY}"}}}
    with ModelServer([answer]) as server:
        provider = made("o", wire("o", server.url, api_key_env="K"), environ={"K": KEY})
        with pytest.raises(ProviderAuth) as caught:
            provider.chat(REQUEST)
    assert "wrong key [redacted]" in caught.value.message
    assert KEY not in repr(vars(caught.value))


@pytest.mark.parametrize(
    "bad", [{"hang": True}, {"status": 401}, {"status": 403}, {"cut": {"after_bytes": 5}}]
)
def test_reliable_falls_back_on_network_auth_and_time_with_a_warning(
    bad: object, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    with ModelServer([bad]) as server:
        settings = (
            ProviderSettings("steady", "reliable", providers=("bad", "local")),
            wire("bad", server.url, timeout_s=0.3),
            echo(),
        )
        provider = made("steady", *settings, report=told)
        assert "mock provider" in provider.chat(REQUEST).final_text
    assert provider.name == "steady"
    assert told == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("fallback from bad to local: ")
    assert vars(record)["event"] == "provider_fallback"


def test_reliable_falls_back_when_a_key_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    provider = made(
        "steady",
        ProviderSettings("steady", "reliable", providers=("cloud", "local")),
        wire("cloud", "https://h", api_key_env="NO_SUCH_KEY"),
        echo(),
    )
    assert "mock provider" in provider.chat(REQUEST).final_text
    assert "fallback from cloud to local: no API key for cloud" in caplog.text


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ({"status": 400}, ProviderRejected),
        ({"malformed": "json", "text": "x"}, ProviderMalformed),
        ({"status": 500, "retry_after": 0}, ProviderServer),
    ],
)
def test_reliable_does_not_fall_back_on_anything_else(
    bad: object, kind: type[ProviderError]
) -> None:
    with ModelServer([bad]) as server:
        provider = made(
            "steady",
            ProviderSettings("steady", "reliable", providers=("bad", "local")),
            wire("bad", server.url),
            echo(),
        )
        with pytest.raises(kind):
            provider.chat(REQUEST)


def test_a_busy_model_is_asked_again() -> None:
    told: list[str] = []
    script = {
        "stateful": True,
        "answers": [{"text": "hello", "faults": [{"status": 429, "retry_after": 0}]}],
    }
    with ModelServer(script) as server:
        provider = made("o", wire("o", server.url), report=told)
        assert provider.chat(REQUEST).final_text == "hello"
    assert len(told) == 1
    assert told[0].startswith("retry 1 of 2 in 0.1 s: o asks to wait")


def test_a_router_asks_whom_the_hint_names() -> None:
    with ModelServer([{"text": "from the model"}]) as server:
        settings = (
            ProviderSettings("r", "router", routes={"deep": "model"}, default="local"),
            wire("model", server.url),
            echo(),
        )
        provider = made("r", *settings)

        def said(**metadata: str) -> str:
            request = ChatRequest("", REQUEST.messages, "m", metadata=metadata)
            return provider.chat(request).final_text

        assert said(hint="deep") == "from the model"
        assert "mock provider" in said(hint="other")
        assert "mock provider" in said()


def test_a_router_without_a_default_says_what_it_knows() -> None:
    provider = made("r", ProviderSettings("r", "router", routes={"a": "local"}), echo())
    assert provider.chat(ChatRequest("", REQUEST.messages, "m", metadata={"hint": "a"})).final_text
    with pytest.raises(ProviderRejected, match="no route for the hint 'b'") as caught:
        provider.chat(ChatRequest("", REQUEST.messages, "m", metadata={"hint": "b"}))
    assert caught.value.rule == "provider.route"
    with pytest.raises(ProviderRejected, match="no route for no hint"):
        provider.chat(REQUEST)


def test_a_recording_is_made_and_played_without_whom_it_recorded(tmp_path: Path) -> None:
    path = tmp_path / "exchanges.jsonl"
    with ModelServer([{"text": f"hello {KEY}"}], key=KEY) as server:
        model = wire("model", server.url, api_key_env="K")
        taped = ProviderSettings("taped", "recorded", provider="model", file=path)
        found = made("taped", taped, model, environ={"K": KEY}).chat(REQUEST)
    assert found.final_text == f"hello {KEY}"
    assert KEY not in path.read_text(encoding="utf-8")
    played = ProviderSettings("taped", "recorded", provider="model", file=path, mode="play")
    assert made("taped", played, model).chat(REQUEST).final_text == "hello [redacted]"


def test_the_nearest_temperature_counts() -> None:
    with ModelServer([{"text": "hello"}]) as server:
        settings = (
            ProviderSettings("r", "router", default="one", temperature=0.1, routes={"b": "two"}),
            wire("one", server.url),
            wire("two", server.url, temperature=0.7),
        )
        provider = made("r", *settings)
        hinted = ChatRequest("", REQUEST.messages, "m", metadata={"hint": "b"})
        said = ChatRequest("", REQUEST.messages, "m", temperature=0.9)
        for request in (REQUEST, hinted, said):
            provider.chat(request)
        bodies = [json.loads(json.dumps(each.body)) for each in server.requests]
    assert [body["temperature"] for body in bodies] == [0.1, 0.7, 0.9]


def test_an_answer_beyond_the_bound_is_told() -> None:
    with ModelServer([{"text": "x" * 2000}]) as server:
        provider = build_provider(
            "o",
            {"o": wire("o", server.url)},
            environ={},
            max_response_bytes=1024,
            redact=str,
        )
        with pytest.raises(ProviderMalformed, match="larger than 1,024 bytes"):
            provider.chat(REQUEST)
