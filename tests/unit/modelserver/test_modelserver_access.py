"""Keys where they belong, foreign pages kept out, and a log that holds no key."""

from __future__ import annotations

import base64
import json
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server.request_log import Recorded
from coilclaw.cli.model_server.server import ModelServer
from tests.unit.modelserver.asking import DIALECTS, Question, ask, hear, send

KEY = "sk-very-secret-0123456789"
HASH = "sha256:" + sha256(KEY.encode()).hexdigest()
HEADERS = {
    "chat": "authorization",
    "responses": "authorization",
    "messages": "x-api-key",
    "gemini": "x-goog-api-key",
}
every = pytest.mark.parametrize("dialect", DIALECTS)


def with_key(dialect: str, key: str, **fields: Any) -> Question:
    header = HEADERS[dialect]
    value = f"Bearer {key}" if header == "authorization" else key
    return Question(dialect, headers={header: value}, **fields)


# ---- keys -----------------------------------------------------------------------------------


@every
def test_the_right_key_in_the_right_header(dialect: str) -> None:
    with ModelServer({"answers": [{"text": "x"}], "require_key": KEY}) as server:
        question = with_key(dialect, KEY)
        assert hear(question, ask(server, question)).text == "x"


@every
@pytest.mark.parametrize("key", [KEY[:-1], KEY + "x", "x", "é"])
def test_a_wrong_key(dialect: str, key: str) -> None:
    with ModelServer({"answers": [{"text": "x"}], "require_key": KEY}) as server:
        got = ask(server, with_key(dialect, key))
    assert got.status == 401
    assert got.json["error"]["message"] == f"the key in the header {HEADERS[dialect]} is wrong"
    if dialect == "messages":
        assert got.json["error"]["type"] == "authentication_error"
    elif dialect == "gemini":
        assert got.json["error"]["status"] == "UNAUTHENTICATED"
    else:
        assert got.json["error"]["code"] == "invalid_api_key"


@every
def test_a_missing_key(dialect: str) -> None:
    with ModelServer([{"text": "x"}], key=KEY) as server:
        got = ask(server, Question(dialect))
        assert got.status == 401
        assert "a key is required in the header" in got.json["error"]["message"]
        # The header of another dialect does not do.
        for header in {"authorization", "x-api-key", "x-goog-api-key"} - {HEADERS[dialect]}:
            value = f"Bearer {KEY}" if header == "authorization" else KEY
            assert ask(server, Question(dialect, headers={header: value})).status == 401


@pytest.mark.parametrize("value", [KEY, f"Basic {KEY}", f"bearer{KEY}", "Bearer", "Bearer "])
def test_a_key_that_is_no_bearer(value: str) -> None:
    with ModelServer([{"text": "x"}], key=KEY) as server:
        assert ask(server, Question("chat", headers={"authorization": value})).status == 401
        good = Question("chat", headers={"authorization": f"bearer  {KEY}"})
        assert ask(server, good).status == 200


def test_a_key_given_to_the_server_wins_over_the_scripts() -> None:
    with ModelServer({"answers": [{"text": "x"}], "require_key": "other"}, key=KEY) as server:
        assert ask(server, with_key("chat", KEY)).status == 200
        assert ask(server, with_key("chat", "other")).status == 401


def test_a_list_of_models_needs_the_key_too() -> None:
    with ModelServer([], key=KEY) as server:
        assert send(server, "GET", "/v1beta/models").status == 401
        assert send(server, "GET", "/v1beta/models", headers={"x-goog-api-key": KEY}).status == 200


@every
def test_without_a_required_key_any_or_none_will_do(dialect: str) -> None:
    with ModelServer([{"text": "x"}]) as server:
        for question in (Question(dialect), with_key(dialect, "whatever")):
            assert ask(server, question).status == 200


@every
@pytest.mark.parametrize("name", ["key", "api_key", "API-Key", "access_token"])
@pytest.mark.parametrize("required", [None, KEY])
def test_a_key_in_the_address_is_always_refused(
    dialect: str, name: str, required: str | None
) -> None:
    question = with_key(dialect, KEY)
    path = f"{question.path}?{name}={KEY}"
    with ModelServer([{"text": "x"}], key=required) as server:
        body = json.dumps(question.body).encode()
        got = send(server, "POST", path, body, question.all_headers)
        assert KEY not in str(server.requests)
    assert got.status == 400
    assert got.json["error"]["message"] == (
        f"the URL has a key in the parameter {name}; send it in the header "
        f"{HEADERS[dialect]}, because URLs end up in logs"
    )


def test_other_parameters_are_welcome() -> None:
    question = Question("messages")
    with ModelServer([{"text": "x"}]) as server:
        body = json.dumps(question.body).encode()
        got = send(server, "POST", question.path + "?beta=true", body, question.all_headers)
    assert got.status == 200


# ---- foreign pages --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("host", "evil.example"),
        ("host", "evil.example:80"),
        ("host", "127.0.0.1.evil.example"),
        ("host", "localhost.evil.example:1"),
        ("host", "[::2]"),
        ("host", "["),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1.evil.example"),
    ],
)
def test_a_page_from_elsewhere_is_refused(header: str, value: str) -> None:
    with ModelServer([{"text": "x"}]) as server:
        got = ask(server, Question("chat", headers={header: value}))
        assert [record.answer for record in server.requests] == [None]
    assert got.status == 403
    said = f"the header {header} is {value!r}, and only loopback addresses are accepted"
    assert got.json["error"]["message"] == said
    assert not [name for name in got.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("host", "localhost"),
        ("host", "LOCALHOST:8080"),
        ("host", "127.0.0.1:1"),
        ("host", "127.9.9.9"),
        ("host", "[::1]:80"),
        ("origin", "http://localhost:3000"),
        ("origin", "https://127.0.0.1"),
    ],
)
def test_this_machine_is_welcome_by_any_name(header: str, value: str) -> None:
    with ModelServer([{"text": "x"}]) as server:
        assert ask(server, Question("chat", headers={header: value})).status == 200


# ---- the log --------------------------------------------------------------------------------


def test_a_record_of_a_request(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    question = with_key("chat", KEY, extra={"temperature": 0.5})
    with ModelServer([{"text": "x"}], log=log, clock=lambda: 1_700_000_000.25) as server:
        port = server.port
        ask(server, question, prefix="/pre")
        (record,) = server.requests
    size = len(json.dumps(question.body).encode())
    assert record == Recorded(
        time="2023-11-14T22:13:20.250+00:00",
        method="POST",
        path="/pre/v1/chat/completions",
        headers={
            "host": f"127.0.0.1:{port}",
            "accept-encoding": "identity",
            "content-length": str(size),
            "content-type": "application/json",
            "authorization": f"Bearer {HASH}",
        },
        body=question.body,
        dialect="chat",
        answer="$[0]",
        problem=None,
    )
    assert json.loads(log.read_text()) == {
        name: getattr(record, name) for name in Recorded.__dataclass_fields__
    }
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_line_is_there_before_the_answer(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("older\n")
    with ModelServer([{"hang": {"after_bytes": 0}}], log=log) as server:
        from tests.unit.modelserver.asking import dial, raw_request

        with dial(server) as client:
            client.sendall(raw_request(Question("gemini")))
            assert client.recv(1) == b"H"
            older, line = log.read_text().splitlines()
    assert older == "older"
    assert json.loads(line)["dialect"] == "gemini"


def test_no_line_no_answer() -> None:
    with ModelServer([{"text": "x"}], log=Path("/dev/full")) as server:
        got = ask(server, Question("messages"))
    assert (got.status, got.json["error"]["type"]) == (500, "api_error")
    assert "cannot write the log /dev/full: No space left" in got.json["error"]["message"]


def test_what_is_refused_is_in_the_log_with_the_reason() -> None:
    with ModelServer([], key=KEY) as server:
        ask(server, with_key("gemini", "wrong-key-0000"))
        send(server, "POST", "/v1/messages", b"not json", {"x-api-key": KEY})
        send(server, "GET", "/nowhere", headers={"x-api-key": KEY})
        found = [
            (record.path, record.dialect, record.body, record.problem) for record in server.requests
        ]
    assert found == [
        (
            "/v1beta/models/some-model:generateContent",
            "gemini",
            Question("gemini").body,
            "the key in the header x-goog-api-key is wrong",
        ),
        (
            "/v1/messages",
            "messages",
            "not json",
            "the body is not valid JSON: Expecting value at line 1, column 1",
        ),
        ("/nowhere", "chat", None, "nothing is served at /nowhere"),
    ]


@every
@pytest.mark.parametrize("required", [None, KEY, "sk-another-key-9876543210"])
def test_no_key_enters_the_log_wherever_it_stands(
    tmp_path: Path, dialect: str, required: str | None
) -> None:
    escaped = "".join(f"\\u{ord(char):04x}" for char in KEY)
    data = (
        json.dumps({**with_key(dialect, KEY).body, "user": f"me {KEY}", KEY: [KEY, {KEY: 1}]})[:-1]
        + f', "escaped": "{escaped}"}}'
    )
    question = with_key(dialect, KEY)
    headers = {**question.all_headers, "x-other": f"a {KEY} b", "cookie": f"a=1; k={KEY}"}
    log = tmp_path / "log.jsonl"
    path = f"/{KEY}{question.path}"
    with ModelServer([{"text": "x"}], key=required, log=log) as server:
        send(server, "POST", path, data.encode(), headers)
        send(server, "POST", path + "?key=" + KEY, b"broken " + KEY.encode(), headers)
        send(server, "POST", "/?key=short&token=%73k-encoded-key-1234", b"", {})
        assert KEY not in str(server.requests)
        first = server.requests[0]
    text = log.read_text()
    assert KEY not in text
    assert "sk-encoded-key-1234" not in text
    assert "%73k" not in text
    assert "short" not in text
    assert first.headers["x-other"] == f"a {HASH} b"
    assert isinstance(first.body, dict)
    assert first.body["user"] == f"me {HASH}"
    assert first.body["escaped"] == HASH
    assert first.body[HASH] == [HASH, {HASH: 1}]


def test_a_key_of_figures_is_not_left_as_a_number() -> None:
    headers = {"x-api-key": "1234567890123"}
    with ModelServer([]) as server:
        send(server, "POST", "/x", b'{"a": 1234567890123, "b": 1.5, "c": true}', headers)
        (record,) = server.requests
    digest = "sha256:" + sha256(b"1234567890123").hexdigest()
    assert record.body == {"a": digest, "b": 1.5, "c": True}


def test_a_short_key_is_replaced_in_its_header_only() -> None:
    question = Question("messages", headers={"x-api-key": "x"}, model="x-model")
    with ModelServer([{"text": "x"}]) as server:
        ask(server, question)
        (record,) = server.requests
    assert record.headers["x-api-key"] == "sha256:" + sha256(b"x").hexdigest()
    assert record.body == question.body


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"Bearer {KEY}", f"Bearer {HASH}"),
        (f"Bearer  {KEY} ", f"Bearer {HASH}"),
        (KEY, HASH),
        (
            "Basic " + base64.b64encode(b"user:password").decode(),
            "Basic sha256:" + sha256(base64.b64encode(b"user:password")).hexdigest(),
        ),
    ],
)
def test_the_scheme_stays_readable(value: str, shown: str) -> None:
    with ModelServer([{"text": "x"}]) as server:
        ask(server, Question("chat", headers={"authorization": value}))
        assert server.requests[0].headers["authorization"] == shown


def test_only_the_last_requests_are_kept() -> None:
    with ModelServer([{"text": "x"}], kept_requests=2) as server:
        for name in ("a", "b", "c"):
            ask(server, Question("gemini", model=name))
        kept = [record.path for record in server.requests]
    assert kept == [f"/v1beta/models/{name}:generateContent" for name in ("b", "c")]
