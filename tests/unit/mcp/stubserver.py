"""A server without any SDK, so that it starts fast and can misbehave: ``stubserver.py TOOLS.json``.

Which tools it offers stands in the file, which is read at every listing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    send({"id": request["id"], "result": result})


def text(request: dict[str, Any], said: str) -> None:
    answer(request, {"content": [{"type": "text", "text": said}]})


def asks_back(request: dict[str, Any]) -> None:
    """Ask for everything that a server may ask a client, and tell what came of it."""
    sampling = {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
        "maxTokens": 5,
    }
    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    asked: dict[str, dict[str, Any]] = {
        "sampling/createMessage": sampling,
        "elicitation/create": {"mode": "form", "message": "your key?", "requestedSchema": schema},
        "roots/list": {},
    }
    came = {}
    for number, (method, params) in enumerate(asked.items()):
        send({"id": f"s{number}", "method": method, "params": params})
        reply = json.loads(sys.stdin.readline())
        came[method] = "error" if "error" in reply else "result"
    text(request, json.dumps(came, sort_keys=True))


def endless_line(_: dict[str, Any]) -> None:
    for _number in range(64):
        sys.stdout.write("y" * 2**20)


def flood(_: dict[str, Any]) -> None:
    for _number in range(50_000):
        send({"method": "notifications/message", "params": {"level": "info", "data": "z"}})


def garbage(request: dict[str, Any]) -> None:
    sys.stdout.write("this is no JSON\n[1, 2]\n\n{}\n")
    text(request, "after the garbage")


def die(_: dict[str, Any]) -> None:
    sys.stderr.write("gone because of \x1b[31mreasons\n")
    sys.stderr.flush()
    os._exit(3)


def hang(_: dict[str, Any]) -> None:
    subprocess.Popen(["/bin/sleep", "1000.5"])
    with open("hanging", "w", encoding="utf-8") as file:
        file.write("yes")
    time.sleep(1000)


def reach(request: dict[str, Any]) -> None:
    """Try what the arguments name, and tell what works."""

    def works(attempt: Callable[[], object]) -> bool:
        try:
            attempt()
        except OSError:
            return False
        return True

    def write(path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write("x")

    def read(path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    def connect() -> None:
        socket.create_connection(("127.0.0.1", given(request, "port")), 2).close()

    place = given(request, "outside")
    temporary = os.path.join(os.environ.get("TMPDIR", "/tmp"), "probe")
    found = {
        "workspace": works(lambda: write("probe")),
        "temporary": works(lambda: write(temporary)),
        "outside": works(lambda: write(os.path.join(place, "probe"))),
        "home": works(lambda: read(os.path.join(given(request, "home"), "key"))),
        "network": works(connect),
    }
    text(request, json.dumps(found))


def given(request: dict[str, Any], name: str) -> Any:
    return (request["params"].get("arguments") or {}).get(name, "")


KINDS = [
    {"type": "text", "text": "first"},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {"type": "audio", "data": "AAAAAAAA", "mimeType": "audio/\u200bogg"},
    {"type": "resource_link", "name": "a link", "uri": "file:///x"},
    {"type": "resource", "resource": {"uri": "file:///y", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "file:///z", "blob": "AAAA"}},
]

TOOLS: dict[str, Callable[[dict[str, Any]], None]] = {
    "echo": lambda request: text(request, given(request, "text")),
    "environment": lambda request: text(request, json.dumps(dict(os.environ))),
    "big": lambda request: text(request, "x" * given(request, "size")),
    "endless_line": endless_line,
    "flood": flood,
    "garbage": garbage,
    "die": die,
    "hang": hang,
    "refuse": lambda request: send(
        {"id": request["id"], "error": {"code": -32000, "message": "no\u202e way"}}
    ),
    "fail": lambda request: answer(
        request, {"content": [{"type": "text", "text": "it broke"}], "isError": True}
    ),
    "malformed": lambda request: answer(request, {"content": "not a list"}),
    "ask_back": asks_back,
    "reach": reach,
    "kinds": lambda request: answer(request, {"content": KINDS}),
    "structured": lambda request: answer(request, {"content": [], "structuredContent": {"sum": 3}}),
}


def main() -> None:
    while line := sys.stdin.readline():
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                answer(
                    request,
                    {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "stub", "version": "1"},
                    },
                )
            case "tools/list":
                with open(sys.argv[1], encoding="utf-8") as file:
                    answer(request, {"tools": json.load(file)})
            case "tools/call":
                TOOLS[request["params"]["name"]](request)
            case method if "id" in request:
                error = {"code": -32601, "message": f"no method {method}"}
                send({"id": request["id"], "error": error})


if __name__ == "__main__":
    main()
