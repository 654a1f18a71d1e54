"""``Rollout``: follows what Codex writes down of a thread, beside what it prints.

``codex exec`` prints no item for a call that was refused, nor for a command that failed with words
that sound like a sandbox; but it writes down every call with its result, to go on with later.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agents.codexcalls import text_of

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.agents.codexcalls import Calls
    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

COUNTED: Final = frozenset(
    {"agent_message", "command_execution", "file_change", "mcp_tool_call", "web_search"}
)
"""The kinds of printed items by which the two are kept at the same place."""
MAX_LINE_BYTES: Final = 16 * 2**20
MAX_BYTES: Final = 2 * 2**30
"""All that is read of one turn."""

_WRITTEN: Final = frozenset(
    {"AgentMessage", "CommandExecution", "FileChange", "McpToolCall", "WebSearch"}
)
"""The same kinds as they are written down."""
_THREAD: Final = re.compile(r"[0-9A-Za-z-]{1,100}")
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class Rollout:
    """The file of one thread, from the beginning of this turn on."""

    home: Path
    """``$CODEX_HOME``."""
    calls: Calls
    resumed: str = ""
    """The thread that is gone on with; what it did before is passed over."""
    _path: Path | None = None
    _at: int = 0
    _read: int = 0
    _rest: bytes = b""
    _skip: bool = False
    _waiting: deque[tuple[dict[str, Json], str]] = field(default_factory=deque)
    _items: set[str] = field(default_factory=set)
    _count: int = 0
    _closed: bool = False

    def __post_init__(self) -> None:
        if self.resumed:
            self.begin(self.resumed)
            if self._path is None:
                self._closed = True  # Where this turn begins could not be told.
            else:
                with suppress(OSError):
                    self._at = self._path.lstat().st_size

    def begin(self, thread: str) -> None:
        """Find the file of a thread, once its name is known."""
        if self._path is None and _THREAD.fullmatch(thread):
            found = sorted(self.home.glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl"))
            self._path = found[0] if found else None

    def parts(self, thread: str, printed: int | None) -> list[Part]:
        """Return the calls that became no item, as far as ``printed`` counted items reach.

        ``None`` is for the end, when nothing more will be printed.
        """
        if self._closed:
            return []
        self.begin(thread)
        self._look()
        found: list[Part] = []
        while self._waiting:
            payload, raw = self._waiting[0]
            item = payload.get("item")
            if payload.get("type") == "item_completed" and isinstance(item, dict):
                if item.get("type") in _WRITTEN:
                    if printed is not None and self._count >= printed:
                        break
                    self._count += 1
                self._items.add(text_of(item.get("id")))
            elif self._items:
                # The first item of a turn is the question. A Codex that writes down no items does
                # not tell which calls became one.
                part = self.calls.heard(payload, raw, self._items)
                found += [part] if part is not None else []
            self._waiting.popleft()
        return found

    def _look(self) -> None:
        """Take in what was written since the last look."""
        if self._path is None:
            return
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            file.seek(self._at)
            while self._read < MAX_BYTES and (data := file.read(_CHUNK)):
                self._at += len(data)
                self._read += len(data)
                self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self._skip:
                self._keep(line)
            self._skip = False
        # A line that is too long is passed over, up to its end.
        self._skip = self._skip or len(rest) > MAX_LINE_BYTES
        self._rest = b"" if self._skip else rest

    def _keep(self, line: bytes) -> None:
        with suppress(ValueError, RecursionError):
            raw = line.decode("utf-8")
            value = json.loads(raw)
            payload = value.get("payload") if isinstance(value, dict) else None
            if isinstance(payload, dict) and value.get("type") in ("response_item", "event_msg"):
                self._waiting.append((payload, raw))
