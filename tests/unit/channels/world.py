"""A runtime for channels to talk to; run as a program, it is a conversation at a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coilclaw.agent.channels.prompts import TerminalApprover, TerminalAsker
from coilclaw.agent.channels.terminal import TerminalChannel, run_one_turn
from coilclaw.agent.handle import RuntimeHandle, TurnOutcome, UndoneTurn
from coilclaw.kernel.effects import Decision, Risk, Verdict
from coilclaw.kernel.errors import ProviderTimeout, UndoRefused, UsageError
from coilclaw.kernel.messages import ApprovalRequest, Approve, Recollection, ToolSpec

REQUEST = ApprovalRequest(
    tool="shell",
    arguments='{"command":"make"}',
    verdict=Verdict(Decision.ASK, Risk.MEDIUM, "command.allowed", "runs an allowlisted command"),
    detail=("make", "echo \u202e"),
    digest="ab" * 32,
)


@dataclass
class World:
    """Answers by what the message says, and remembers what it was asked."""

    asked: list[tuple[str, str | None]] = field(default_factory=list)
    used: str = "local"
    approve: Approve | None = None
    ask: Callable[[str], str | None] | None = None

    def new_conversation(self) -> str:
        return "conversation-1"

    def turn(
        self,
        message: str,
        *,
        conversation_id: str | None = None,
        draft: Callable[[str], None] | None = None,
    ) -> TurnOutcome:
        self.asked.append((message, conversation_id))
        if message == "fail":
            raise ProviderTimeout("local gave no answer\nwithin 5 s", provider="local")
        pieces = self._pieces(message)
        if draft:
            for piece in pieces:
                draft(piece)
        if message == "slow":
            while True:
                time.sleep(60)
        text = "".join(pieces)
        return TurnOutcome(conversation_id or "new", "turn-1", text, 0, 0, 0, "local", "mock")

    def _pieces(self, message: str) -> list[str]:
        if message == "slow":
            return ["working on it"]
        if message == "approve":
            assert self.approve
            return [f"reply: {self.approve(REQUEST).reply}"]
        if message == "ask":
            assert self.ask
            return [f"answer: {self.ask('Which one?' + chr(10) + chr(27) + '[2J')!r}"]
        return ["echo: ", message, "\x1b", "[2J"]

    def tools(self) -> tuple[ToolSpec, ...]:
        return (
            ToolSpec("time", "Tells the time.\nAlways.", {}),
            ToolSpec("file_read", "Reads \x1b[31ma file.", {}),
        )

    def search(self, query: str, limit: int = 20) -> tuple[Recollection, ...]:
        if query != "aardvark":
            return ()
        hit = Recollection("c-9", "t-1", "2026-05-12T14:00:00Z", "user", "the\naardvark", 1.0)
        return (hit,)[:limit]

    def policy(self) -> Mapping[str, str]:
        return {"autonomy": "supervised", "workspace": "/w"}

    def receipts(self, limit: int = 10) -> Sequence[Mapping[str, object]]:
        names = ("id", "timestamp", "tool", "status", "risk")
        receipt = dict(zip(names, ("receipt-1", "T", "time", "allowed", "low"), strict=True))
        return [receipt][:limit]

    def undo(self, conversation_id: str) -> UndoneTurn:
        if conversation_id not in {conversation for _, conversation in self.asked}:
            raise UndoRefused("there is no turn to take back", hint="say something first")
        return UndoneTurn("turn-1", ("a.txt",), (("b.txt", "it changed since"),))

    def models(self) -> Mapping[str, str]:
        return {"local": "mock", "lofty": "large", "other": "small"}

    @property
    def model(self) -> str:
        return self.used

    def use(self, provider: str) -> None:
        if provider not in self.models():
            raise UsageError(f"there is no provider {provider}", rule="provider.unknown")
        self.used = provider


def _main(arguments: list[str]) -> None:
    world = World(approve=TerminalApprover(os.environ), ask=TerminalAsker(os.environ))
    handle: RuntimeHandle = world
    if arguments[0] == "once":
        run_one_turn(handle, arguments[1], out=sys.stdout, environ=os.environ)
        return
    repl = TerminalChannel(os.environ, history=Path(arguments[1]))
    repl.start(handle)
    sys.stderr.write("left\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
