"""An agent that speaks ACP with the official package, as a process: it plays a script.

``python acpserver.py SCRIPT.json SEEN.json``. The script is an object: ``modes``, ``models``,
``loads``, ``resumes``, ``session_error``, and ``turn``, a list of what happens in a turn, each with
one key: ``update`` (a session update), ``ask`` (a permission request), ``shell`` (a command that is
run for real), ``tests`` (the tool server is called), ``raw`` (a line as it is), ``exit``, ``kill``,
``hang``, ``error``. ``answer`` is the end of the turn. What it saw is written to SEEN.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import RequestError, run_agent
from acp.schema import (
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    RequestPermissionRequest,
    ResumeSessionResponse,
    SessionNotification,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

SESSION = "session-1"
OPTIONS = [
    {"optionId": "a", "kind": "allow_always", "name": "Always"},
    {"optionId": "o", "kind": "allow_once", "name": "Once"},
    {"optionId": "r", "kind": "reject_once", "name": "No"},
]


@dataclass
class Player:
    """The agent."""

    script: dict[str, Any]
    place: Path
    seen: dict[str, Any] = field(default_factory=dict)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    servers: list[Any] = field(default_factory=list)
    conn: Any = None

    def on_connect(self, conn: Any) -> None:
        self.conn = conn

    def note(self, name: str, value: Any) -> None:
        self.seen.setdefault(name, []).append(value)
        self.place.write_text(json.dumps(self.seen))

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        self.note("environ", dict(os.environ))
        can: dict[str, Any] = {"loadSession": bool(self.script.get("loads"))}
        if self.script.get("resumes"):
            can["sessionCapabilities"] = {"resume": {}}
        return InitializeResponse.model_validate(
            {
                "protocolVersion": protocol_version,
                "agentCapabilities": can,
                "agentInfo": {"name": "player", "version": "4.2"},
            }
        )

    def _session(self, servers: Any) -> dict[str, Any]:
        self.servers = servers or []
        if "session_error" in self.script:
            raise RequestError(-32000, "Authentication required", self.script["session_error"])
        made: dict[str, Any] = {}
        if "modes" in self.script:
            current, *_ = modes = self.script["modes"]
            named = [{"id": mode, "name": mode} for mode in modes]
            made["modes"] = {"currentModeId": current, "availableModes": named}
        if "models" in self.script:
            made["configOptions"] = [self._option(self.script["models"][0])]
        return made

    def _option(self, current: str) -> dict[str, Any]:
        offered = [{"value": model, "name": model} for model in self.script["models"]]
        return {
            "id": "m",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": current,
            "options": offered,
        }

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> NewSessionResponse:
        self.note("new", cwd)
        return NewSessionResponse.model_validate(
            {"sessionId": SESSION, **self._session(mcp_servers)}
        )

    async def load_session(
        self, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> LoadSessionResponse:
        self.note("load", session_id)
        old = {"sessionUpdate": "agent_message_chunk", "content": _text("of old")}
        await self.update(old)
        return LoadSessionResponse.model_validate(self._session(mcp_servers))

    async def resume_session(
        self, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> ResumeSessionResponse:
        self.note("resume", session_id)
        return ResumeSessionResponse.model_validate(self._session(mcp_servers))

    async def set_session_mode(self, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self.note("mode", mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, value: Any, **_: Any
    ) -> SetSessionConfigOptionResponse:
        self.note("option", [config_id, value])
        return SetSessionConfigOptionResponse.model_validate(
            {"configOptions": [self._option(value)]}
        )

    async def cancel(self, **_: Any) -> None:
        self.note("cancel", True)
        if not self.script.get("deaf"):
            self.cancelled.set()

    async def update(self, update: dict[str, Any]) -> None:
        made = SessionNotification.model_validate({"sessionId": SESSION, "update": update})
        await self.conn.session_update(session_id=SESSION, update=made.update)

    async def prompt(self, prompt: list[Any], **_: Any) -> PromptResponse:
        self.note("prompt", prompt[0].text)
        for action in self.script.get("turn", []):
            await self._act(action)
            if self.cancelled.is_set():
                return PromptResponse(stop_reason="cancelled")
        answer = self.script.get("answer", {"stopReason": "end_turn"})
        return PromptResponse.model_validate(answer)

    async def _act(self, action: dict[str, Any]) -> None:
        ((word, value),) = action.items()
        match word:
            case "update":
                await self.update(value)
            case "ask":
                await self._ask(value)
            case "shell":
                done = subprocess.run(value, shell=True, capture_output=True, check=False)
                self.note("shell", [done.returncode, done.stdout.decode()])
            case "tests":
                self.note("tests", _call(self.servers[0], value))
            case "raw":
                os.write(1, value.encode() + b"\n")
            case "exit":
                os._exit(value)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                await self.cancelled.wait()
            case "error":
                raise RequestError(-32603, "Internal error", {"details": value})

    async def _ask(self, value: dict[str, Any]) -> None:
        options = value.pop("options", OPTIONS)
        asked = RequestPermissionRequest.model_validate(
            {"sessionId": SESSION, "toolCall": value, "options": options}
        )
        answer = await self.conn.request_permission(
            session_id=SESSION, tool_call=asked.tool_call, options=asked.options
        )
        self.note("answers", answer.outcome.model_dump(by_alias=True, exclude_none=True))


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _call(server: Any, path: str) -> Any:
    """Start the tool server as an agent does, and call its tool."""
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {
            "id": 3,
            "method": "tools/call",
            "params": {"name": "run_tests", "arguments": {"test_path": path}},
        },
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in messages)
    with subprocess.Popen(
        [server.command, *server.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(lines.encode())
        child.stdin.flush()
        answers = [json.loads(child.stdout.readline()) for _ in range(3)]
        child.stdin.close()
        child.wait(60)
    return [server.name, *answers]


def main() -> None:
    """Play the script."""
    script = json.loads(Path(sys.argv[1]).read_text())
    player: Any = Player(script, Path(sys.argv[2]))
    asyncio.run(run_agent(player, use_unstable_protocol=True))


if __name__ == "__main__":
    main()
