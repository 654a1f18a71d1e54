"""The ``/`` commands of the REPL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.agent.handle import RuntimeHandle

MAX_SHOWN: Final = 400
"""Characters of one description or excerpt."""


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """One command with its line in ``/help``."""

    name: str
    argument: str
    meaning: str

    @property
    def usage(self) -> str:
        return f"{self.name} {self.argument}".rstrip()


COMMANDS: Final = (
    ChatCommand("/exit", "", "leave; Ctrl-D does the same"),
    ChatCommand("/tools", "", "list the tools that are active"),
    ChatCommand("/memory", "QUERY", "search earlier conversations"),
    ChatCommand("/policy", "", "show autonomy and the boundary of the workspace"),
    ChatCommand("/receipts", "", "show the last receipts"),
    ChatCommand("/undo", "", "take back the files that the last turn changed"),
    ChatCommand("/model", "[NAME]", "show the models, or ask another one from now on"),
    ChatCommand("/help", "", "show this list"),
)


class ChatCommands:
    """Performs commands for one conversation; each returns the lines to print."""

    __slots__ = ("_conversation_id", "_handle")

    def __init__(self, handle: RuntimeHandle, conversation_id: str) -> None:
        self._handle = handle
        self._conversation_id = conversation_id

    def perform(self, line: str) -> Iterator[str]:
        """Return the output lines of a command; raise ``UsageError`` for an unknown one."""
        name, _, argument = line.strip().partition(" ")
        argument = argument.strip()
        command = next((one for one in COMMANDS if one.name == name != "/exit"), None)
        if command is None:
            raise _unknown(name)
        if argument and not command.argument:
            raise UsageError(f"{name} takes no argument", rule="command.argument")
        actions = {
            "/tools": self._list_tools,
            "/memory": lambda: self._search(argument),
            "/policy": lambda: (f"{key}: {text}" for key, text in self._handle.policy().items()),
            "/receipts": self._list_receipts,
            "/undo": self._undo,
            "/model": lambda: self._choose_model(argument),
            "/help": _list_commands,
        }
        return actions[name]()

    def complete(self, line: str, word: str) -> list[str]:
        """Return the completions of the last word of a line."""
        before = line[: len(line) - len(word)]
        if not before.strip():
            names = [f"{c.name} " if c.argument else c.name for c in COMMANDS]
            return [name for name in names if word[:1] == "/" and name.startswith(word)]
        if before.split() == ["/model"]:
            return sorted(name for name in self._handle.models() if name.startswith(word))
        return []

    def _list_tools(self) -> Iterator[str]:
        tools = self._handle.tools()
        if not tools:
            yield "No tool is active."
        width = max((len(tool.name) for tool in tools), default=0)
        for tool in tools:
            first = tool.description.strip().partition("\n")[0]
            yield f"{tool.name:<{width}}  {_shorten(first)}"

    def _search(self, query: str) -> Iterator[str]:
        if not query:
            raise UsageError("/memory needs something to look for", rule="command.argument")
        found = self._handle.search(query)
        if not found:
            yield "Nothing found."
        for hit in found:
            excerpt = _shorten(" ".join(hit.excerpt.split()))
            yield f"{hit.conversation_id}  {hit.timestamp}  {hit.role}: {excerpt}"

    def _list_receipts(self) -> Iterator[str]:
        receipts = self._handle.receipts()
        if not receipts:
            yield "No receipts yet."
        for receipt in receipts:
            shown = (receipt.get(key, "") for key in ("timestamp", "id", "tool", "status", "risk"))
            yield "  ".join(str(value) for value in shown)

    def _undo(self) -> Iterator[str]:
        undone = self._handle.undo(self._conversation_id)
        if not undone.paths and not undone.left:
            yield "The last turn changed no file."
        yield from (f"restored {path}" for path in undone.paths)
        yield from (f"left {path}: {reason}" for path, reason in undone.left)

    def _choose_model(self, wanted: str) -> Iterator[str]:
        if wanted:
            self._handle.use(wanted)
        for name, model in self._handle.models().items():
            chosen = name == self._handle.model
            if chosen or not wanted:
                yield f"{'*' if chosen else ' '} {name} ({model})"


def _list_commands() -> Iterator[str]:
    width = max(len(command.usage) for command in COMMANDS)
    for command in COMMANDS:
        yield f"{command.usage:<{width}}  {command.meaning}"
    yield "A line that ends in \\ continues on the next line. Ctrl-C cancels a turn."


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    names = [command.name for command in COMMANDS]
    close = get_close_matches(name, names, n=1) or [n for n in names if n.startswith(name)][:1]
    meant = f"did you mean {close[0]}? " if close else ""
    return UsageError(
        f"unknown command {_shorten(name)}",
        rule="command.unknown",
        hint=f"{meant}/help lists the commands; a message that begins with / needs a space first",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
