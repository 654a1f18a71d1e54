"""A client of its own for the four dialects: asks over a real socket, and reads what comes back.

It shares nothing with the server, so that the two can disagree.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from coilclaw.cli.model_server.server import ModelServer
from tests.support.children import PATIENCE_S

DIALECTS = ("chat", "responses", "messages", "gemini")
MODES = (False, True)

Json = Any


@dataclass(frozen=True)
class Got:
    """An HTTP answer that came whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)


@dataclass(frozen=True)
class Heard:
    """What a model said, in no dialect at all."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    stop: str = ""
    usage: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Turn:
    """One entry of a history: a prompt, or what the model said and its tools returned."""

    prompt: str | None = None
    text: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A request in one of the dialects."""

    dialect: str
    stream: bool = False
    turns: tuple[Turn, ...] = (Turn(prompt="hello"),)
    model: str = "some-model"
    extra: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        if self.dialect == "gemini":
            verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
            return f"/v1beta/models/{self.model}:{verb}"
        return {
            "chat": "/v1/chat/completions",
            "responses": "/v1/responses",
            "messages": "/v1/messages",
        }[self.dialect]

    @property
    def body(self) -> dict[str, Json]:
        history = {
            "chat": _chat_history,
            "responses": _responses_history,
            "messages": _messages_history,
            "gemini": _gemini_history,
        }[self.dialect](self.turns)
        key = {"responses": "input", "gemini": "contents"}.get(self.dialect, "messages")
        body: dict[str, Json] = {key: history, **self.extra}
        if self.dialect != "gemini":
            body = {"model": self.model, "stream": self.stream, **body}
        if self.dialect == "messages":
            body = {"max_tokens": 100, **body}
        if self.dialect == "chat" and self.stream:
            body = {"stream_options": {"include_usage": True}, **body}
        return body

    @property
    def all_headers(self) -> dict[str, str]:
        fixed = {"content-type": "application/json"}
        if self.dialect == "messages":
            fixed["anthropic-version"] = "2023-06-01"
        return {**fixed, **self.headers}


def connect(server: ModelServer) -> http.client.HTTPConnection:
    parts = urlsplit(server.url)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)


def ask(server: ModelServer, question: Question, *, prefix: str = "") -> Got:
    body = json.dumps(question.body).encode()
    return send(server, "POST", prefix + question.path, body, question.all_headers)


def send(
    server: ModelServer,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Got:
    connection = connect(server)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return Got(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def hear(question: Question, got: Got) -> Heard:
    """Read an answer as a client does; one that is not of the dialect's form fails."""
    assert got.status == 200, got
    if question.stream:
        assert got.headers["content-type"].startswith("text/event-stream")
        return _STREAM_READERS[question.dialect](events(got.body))
    assert got.headers["content-type"] == "application/json"
    return _WHOLE_READERS[question.dialect](got.json)


def events(body: bytes) -> list[tuple[str | None, Json]]:
    """Return name and data of every server-sent event; data that is not JSON stays text."""
    found = []
    text = body.decode("utf-8").replace("\r\n", "\n")
    assert text == "" or text.endswith("\n\n"), "the stream ends within an event"
    for block in text.split("\n\n")[:-1]:
        name, data = None, []
        for line in block.split("\n"):
            key, _, value = line.partition(": ")
            assert key in {"event", "data"}, line
            if key == "event":
                name = value
            else:
                data.append(value)
        joined = "\n".join(data)
        found.append((name, joined if joined == "[DONE]" else json.loads(joined)))
    return found


# ---- histories ------------------------------------------------------------------------------


def _chat_history(turns: Iterable[Turn]) -> list[Json]:
    found: list[Json] = [{"role": "system", "content": "be good"}]
    for turn in turns:
        if turn.prompt is not None:
            found.append({"role": "user", "content": turn.prompt})
            continue
        calls = [
            {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for name in turn.calls
        ]
        found.append({"role": "assistant", "content": turn.text, "tool_calls": calls})
        found += [{"role": "tool", "tool_call_id": name, "content": "ok"} for name in turn.calls]
    return found


def _responses_history(turns: Iterable[Turn]) -> list[Json]:
    found: list[Json] = [{"role": "developer", "content": "be good"}]
    for turn in turns:
        if turn.prompt is not None:
            part = {"type": "input_text", "text": turn.prompt}
            found.append({"type": "message", "role": "user", "content": [part]})
            continue
        said = [{"type": "output_text", "text": turn.text}]
        found.append({"type": "reasoning", "id": "rs", "summary": []})
        found.append({"type": "message", "role": "assistant", "content": said})
        found += [
            {"type": "function_call", "call_id": name, "name": name, "arguments": "{}"}
            for name in turn.calls
        ]
        found += [
            {"type": "function_call_output", "call_id": name, "output": "ok"} for name in turn.calls
        ]
    return found


def _messages_history(turns: Iterable[Turn]) -> list[Json]:
    found: list[Json] = []
    for turn in turns:
        if turn.prompt is not None:
            found.append({"role": "user", "content": [{"type": "text", "text": turn.prompt}]})
            continue
        uses = [{"type": "tool_use", "id": n, "name": n, "input": {}} for n in turn.calls]
        found.append({"role": "assistant", "content": [{"type": "text", "text": turn.text}, *uses]})
        if turn.calls:
            results = [{"type": "tool_result", "tool_use_id": n} for n in turn.calls]
            note = {"type": "text", "text": "a note beside the results"}
            found.append({"role": "user", "content": [*results, note]})
    return found


def _gemini_history(turns: Iterable[Turn]) -> list[Json]:
    found: list[Json] = []
    for turn in turns:
        if turn.prompt is not None:
            found.append({"role": "user", "parts": [{"text": turn.prompt}]})
            continue
        calls = [{"functionCall": {"name": name, "args": {}}} for name in turn.calls]
        found.append({"role": "model", "parts": [{"text": turn.text}, *calls]})
        if turn.calls:
            results = [{"functionResponse": {"name": n, "response": {}}} for n in turn.calls]
            found.append({"role": "user", "parts": results})
    return found


# ---- answers --------------------------------------------------------------------------------


def _chat(body: Json) -> Heard:
    (choice,) = body["choices"]
    message, usage = choice["message"], body["usage"]
    assert (body["object"], message["role"]) == ("chat.completion", "assistant")
    return Heard(
        text=message["content"] or "",
        reasoning=message.get("reasoning_content", ""),
        calls=tuple(_chat_call(call) for call in message.get("tool_calls", [])),
        stop=choice["finish_reason"],
        usage=(usage["prompt_tokens"], usage["completion_tokens"]),
    )


def _chat_call(call: Json) -> tuple[str, Json]:
    inner = call[call["type"]]
    if call["type"] == "custom":
        return inner["name"], inner["input"]
    return inner["name"], json.loads(inner["arguments"])


def _chat_stream(chunks: list[tuple[str | None, Json]]) -> Heard:
    *body, (_, done) = chunks
    *deltas, (_, last) = body
    assert (done, last["choices"]) == ("[DONE]", [])
    assert {chunk["id"] for _, chunk in body} == {last["id"]}
    assert all(chunk["usage"] is None for _, chunk in deltas)
    message: dict[str, Json] = {"content": "", "reasoning_content": ""}
    calls: list[Json] = []
    finish = None
    for _, chunk in deltas:
        assert finish is None, "something came after the end"
        (choice,) = chunk["choices"]
        delta, finish = choice["delta"], choice["finish_reason"]
        message["role"] = delta.get("role", message.get("role"))
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key, "")
        for part in delta.get("tool_calls", []):
            if "id" in part:
                assert part["index"] == len(calls)
                calls.append({**part, part["type"]: dict(part[part["type"]])})
            else:
                call = calls[part["index"]]
                kind = call["type"]
                key = "input" if kind == "custom" else "arguments"
                call[kind][key] += part[kind][key]
    message["tool_calls"] = calls
    choice = {"message": message, "finish_reason": finish}
    return _chat({"object": "chat.completion", "choices": [choice], "usage": last["usage"]})


def _responses(body: Json) -> Heard:
    assert body["object"] == "response"
    output = body["output"]
    reason = (body["incomplete_details"] or {}).get("reason")
    return Heard(
        text="".join(p["text"] for o in output if o["type"] == "message" for p in o["content"]),
        reasoning="".join(
            p["text"] for o in output if o["type"] == "reasoning" for p in o["summary"]
        ),
        calls=tuple(_response_call(o) for o in output if o["type"].endswith("_call")),
        stop=f"{body['status']}:{reason}" if reason else body["status"],
        usage=(body["usage"]["input_tokens"], body["usage"]["output_tokens"]),
    )


def _response_call(item: Json) -> tuple[str, Json]:
    assert item["call_id"]
    if item["type"] == "local_shell_call":
        return "local_shell", item["action"]["command"]
    if item["type"] == "custom_tool_call":
        return item["name"], item["input"]
    name = f"{item['namespace']}/{item['name']}" if "namespace" in item else item["name"]
    return name, json.loads(item["arguments"])


def _responses_stream(found: list[tuple[str | None, Json]]) -> Heard:
    assert all(name == data["type"] for name, data in found)
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    kinds = [name for name, _ in found]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    final = found[-1][1]["response"]
    assert kinds[-1] == f"response.{final['status']}"
    built: dict[int, str] = {}
    done: list[Json] = []
    for name, data in found[2:-1]:
        assert name is not None
        index = data["output_index"]
        if name.endswith(".delta"):
            built[index] = built.get(index, "") + data["delta"]
        elif name.endswith("output_item.added"):
            assert index == len(done), "items overlap"
            assert data["item"].get("status", "in_progress") == "in_progress"
        elif name.endswith("output_item.done"):
            done.append(data["item"])
        elif name.endswith((".done", "_text.done")) and "part" not in name:
            whole = next(data[key] for key in ("text", "arguments", "input") if key in data)
            assert whole == built.get(index, "")
    assert done == final["output"]
    return _responses(final)


def _messages(body: Json) -> Heard:
    assert (body["type"], body["role"]) == ("message", "assistant")
    blocks = body["content"]
    return Heard(
        text="".join(b["text"] for b in blocks if b["type"] == "text"),
        reasoning="".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
        calls=tuple((b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"),
        stop=body["stop_reason"],
        usage=(body["usage"]["input_tokens"], body["usage"]["output_tokens"]),
    )


def _messages_stream(found: list[tuple[str | None, Json]]) -> Heard:
    assert all(name == data["type"] for name, data in found)
    kinds = [name for name, _ in found]
    assert kinds[:2] == ["message_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    message = dict(found[0][1]["message"])
    blocks: list[Json] = []
    for name, data in found[2:-2]:
        if name == "content_block_start":
            assert data["index"] == len(blocks)
            blocks.append({**data["content_block"], "json": ""})
        elif name == "content_block_delta":
            delta, block = data["delta"], blocks[data["index"]]
            assert data["index"] == len(blocks) - 1
            key = {
                "text_delta": "text",
                "thinking_delta": "thinking",
                "signature_delta": "signature",
                "input_json_delta": "partial_json",
            }[delta["type"]]
            target = "json" if key == "partial_json" else key
            block[target] += delta[key]
        else:
            assert name == "content_block_stop"
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"])
    end = found[-2][1]
    message |= {"content": blocks, **end["delta"], "usage": end["usage"]}
    return _messages(message)


def _gemini(body: Json) -> Heard:
    (candidate,) = body["candidates"]
    parts, usage = candidate["content"]["parts"], body["usageMetadata"]
    assert candidate["content"]["role"] == "model"
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    return Heard(
        text="".join(p["text"] for p in parts if "text" in p and not p.get("thought")),
        reasoning="".join(p["text"] for p in parts if p.get("thought")),
        calls=tuple((call["name"], call["args"]) for call in calls),
        stop=candidate["finishReason"],
        usage=(usage["promptTokenCount"], usage["candidatesTokenCount"]),
    )


def _gemini_stream(found: list[tuple[str | None, Json]]) -> Heard:
    bodies = [data for _, data in found]
    assert {body["responseId"] for body in bodies} == {bodies[0]["responseId"]}
    candidates = [body["candidates"][0] for body in bodies]
    assert all("finishReason" not in candidate for candidate in candidates[:-1])
    parts = [part for candidate in candidates for part in candidate["content"]["parts"]]
    whole = {**candidates[-1], "content": {"role": "model", "parts": parts}}
    return _gemini({**bodies[-1], "candidates": [whole]})


_WHOLE_READERS = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
_STREAM_READERS = {
    "chat": _chat_stream,
    "responses": _responses_stream,
    "messages": _messages_stream,
    "gemini": _gemini_stream,
}


# ---- raw sockets ----------------------------------------------------------------------------


def dial(server: ModelServer) -> socket.socket:
    """Return a plain connection to the server."""
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port or 0), timeout=PATIENCE_S)


def raw_request(question: Question, *, version: str = "1.1", headers: str = "") -> bytes:
    """Return a request as bytes."""
    body = json.dumps(question.body).encode()
    given = "".join(f"{name}: {value}\r\n" for name, value in question.all_headers.items())
    head = f"POST {question.path} HTTP/{version}\r\ncontent-length: {len(body)}\r\n{given}{headers}"
    return head.encode() + b"\r\n" + body


def read_all(connection: socket.socket) -> bytes:
    """Return everything until the server closes the connection."""
    data = b""
    while chunk := connection.recv(2**16):
        data += chunk
    return data


def silent(connection: socket.socket, seconds: float = 0.15) -> bool:
    """Tell whether nothing comes, and the connection stays open, for a while."""
    readable, _, _ = select.select([connection], [], [], seconds)
    return not readable
