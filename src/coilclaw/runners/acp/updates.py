"""What an ACP agent reports of its session, as ``Part``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Part, UsageError, canonical_json
from coilclaw.runners.agent_answer import (
    DECLINED,
    FORBIDDEN,
    SHELL_TOOL,
    count_of,
    items_of,
    object_of,
    relative,
    show_path,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.kernel import Json, PartKind

MAX_CALLS: Final = 100_000
MAX_DIFF_CHARACTERS: Final = 200_000
"""A longer text is shown whole, before and after, instead of being compared."""
MAX_TEXT_CHARACTERS: Final = 4 * 2**20
"""A message is split into parts of this length."""
CHANGES: Final = frozenset({"edit", "delete", "move"})
"""The kinds of a tool call that change files."""
RUNS: Final = "execute"

_CHUNKS: Final[Mapping[str, PartKind]] = {
    "agent_message_chunk": "text",
    "agent_thought_chunk": "reasoning",
}
_CALLS: Final = ("tool_call", "tool_call_update")
_ENDED: Final = ("completed", "failed")
_NAME: Final = re.compile(r"[\w./:-]{1,100}")
_EXIT_CODES: Final = (
    ("metadata", "exit"),
    ("exit",),
    ("exit_code",),
    ("exitCode",),
    ("exitStatus", "exitCode"),
)
"""Where agents put the exit code of a command; the protocol has no place for it."""
_EXIT_TEXT: Final = re.compile(r"Exit code (\d{1,9})(?:\n|$)")


@dataclass(slots=True)
class AcpToolCall:
    """A tool call, assembled from the updates about it."""

    call_id: str
    name: str = ""
    fields: dict[str, Json] = field(default_factory=dict)
    raw: str = ""
    """The last update about it."""

    def take(self, update: Mapping[str, Json], raw: str = "") -> None:
        """Merge the fields of an update; fields that it leaves out stay."""
        given = {name: value for name, value in update.items() if value not in (None, {}, [])}
        if not self.name:
            # Later titles tell what the call is about; the first one is often the tool's name.
            title = text_of(given.get("title"))
            self.name = title if _NAME.fullmatch(title) else ""
        self.fields |= given
        self.raw = raw or self.raw

    @property
    def kind(self) -> str:
        return text_of(self.fields.get("kind"))

    @property
    def title(self) -> str:
        return text_of(self.fields.get("title"))

    @property
    def command(self) -> str:
        """The command of a call that runs one, as far as the agent reports it."""
        given = object_of(self.fields.get("rawInput"))
        said = given.get("command", given.get("cmd"))
        if isinstance(said, list):
            return canonical_json.render_json(said)
        return text_of(said) or self.title

    @property
    def diffs(self) -> list[dict[str, Json]]:
        return [one for one in items_of(self.fields.get("content")) if one.get("type") == "diff"]

    @property
    def paths(self) -> list[str]:
        """The files that it is about."""
        places = [text_of(one.get("path")) for one in items_of(self.fields.get("locations"))]
        places += [text_of(one.get("path")) for one in self.diffs]
        return list(dict.fromkeys(path for path in places if path))

    @property
    def output(self) -> str:
        told = self.fields.get("rawOutput")
        if self.kind == RUNS and isinstance(told, str):
            return told
        texts = [
            text_of(inner.get("text")) or canonical_json.render_json(inner)
            for one in items_of(self.fields.get("content"))
            if one.get("type") == "content" and isinstance(inner := one.get("content"), dict)
        ]
        texts += ["\n".join(diff_lines(self.diffs))] if self.diffs else []
        if texts:
            return "\n".join(texts)
        said = object_of(told).get("output", told)
        told = said if isinstance(said, str) else told
        return text_of(told) or ("" if told in (None, "") else canonical_json.render_json(told))

    @property
    def exit_code(self) -> int | None:
        for way in _EXIT_CODES:
            value: Json = self.fields.get("rawOutput")
            for name in way:
                value = object_of(value).get(name)
            if count_of(value) is not None:
                return count_of(value)
        # Another agent writes it before the output of a command that failed.
        found = _EXIT_TEXT.match(text_of(self.fields.get("rawOutput")))
        return int(found[1]) if found else None


@dataclass(slots=True)
class Updates:
    """Makes parts of updates, and remembers what has begun."""

    directory: Path
    shell_denied: bool
    text: str = ""
    """What the agent said last."""
    tool_calls: int = 0
    """How many have ended."""
    _calls: dict[str, AcpToolCall] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    _said: list[str] = field(default_factory=list)
    _length: int = 0
    _saying: tuple[PartKind, str] | None = None
    _raw: str = ""

    def heard(self, update: Mapping[str, Json], raw: str) -> list[Part]:
        """Return the parts that are complete with this update."""
        word = text_of(update.get("sessionUpdate"))
        if word in _CHUNKS:
            return self._chunk(_CHUNKS[word], update, raw)
        if word not in _CALLS:
            return []
        name = text_of(update.get("toolCallId"))
        if name in self._done:
            return []
        begins = name not in self._calls
        call = self.call(name)
        call.take(update, raw)
        if update.get("status") in _ENDED:
            return [*self._flush(), self._end_call(call)]
        return self._flush() if begins else []

    def call(self, name: str) -> AcpToolCall:
        """Return what is known of a tool call."""
        if len(self._calls) + len(self._done) >= MAX_CALLS:
            raise UsageError(f"more than {MAX_CALLS:,} tool calls", rule="acp.calls")
        return self._calls.setdefault(name, AcpToolCall(name))

    def note_question(self, name: str, tool_call: Mapping[str, Json]) -> AcpToolCall:
        """Return a call as the agent asks for it.

        A request uses other words than updates do, and does not replace theirs.
        """
        call = self.call(name)
        wanted = AcpToolCall(name, call.name, dict(call.fields))
        wanted.take(tool_call)
        call.take({key: value for key, value in tool_call.items() if key not in call.fields})
        return wanted

    def note_refusal(self, name: str) -> None:
        """Remember that a call was not allowed."""
        self._refused.add(name)

    def finish(self) -> list[Part]:
        """Return the parts that the end of the turn completes, and the unfinished calls."""
        left = list(self._calls.values())
        return [*self._flush(), *(self._end_call(call, text="inProgress") for call in left)]

    def _chunk(self, kind: PartKind, update: Mapping[str, Json], raw: str) -> list[Part]:
        text = text_of(object_of(update.get("content")).get("text"))
        whose = (kind, text_of(update.get("messageId")))
        parts = self._flush() if self._saying is not None and whose != self._saying else []
        self._saying = whose
        self._said.append(text)
        self._raw = raw
        self._length += len(text)
        return [*parts, *self._flush()] if self._length >= MAX_TEXT_CHARACTERS else parts

    def _flush(self) -> list[Part]:
        saying, text = self._saying, "".join(self._said)
        self._saying = None
        self._said.clear()
        self._length = 0
        if saying is None or not text:
            return []
        if saying[0] == "text":
            self.text = text
        word = "agent_message" if saying[0] == "text" else "agent_thought"
        return [Part(saying[0], text=text, item_type=word, raw=self._raw)]

    def _end_call(self, call: AcpToolCall, text: str = "") -> Part:
        self._calls.pop(call.call_id, None)
        self._done.add(call.call_id)
        self.tool_calls += 1
        runs, changes = call.kind == RUNS, call.kind in CHANGES
        failed = call.fields.get("status") == "failed"
        if call.call_id in self._refused:
            text = DECLINED
        elif failed:
            text = "failed"
        if runs and self.shell_denied:
            text = FORBIDDEN
        given = call.fields.get("rawInput")
        return Part(
            "patch" if changes else "tool",
            text=text,
            tool=SHELL_TOOL if runs else call.name or call.kind or "tool",
            call_id=call.call_id,
            input=canonical_json.render_json({"title": call.title} if given is None else given),
            output=call.output,
            exit_code=call.exit_code if runs else None,
            files=tuple(
                dict.fromkeys(relative(path, self.directory) for path in call.paths)
                if changes and not text
                else ()
            ),
            item_type=call.kind,
            raw=call.raw,
        )


def diff_lines(diffs: list[dict[str, Json]]) -> list[str]:
    """Return what changes do, line by line; what is indented is the content of files."""
    import difflib

    lines = []
    for one in diffs:
        old, new = text_of(one.get("oldText")), text_of(one.get("newText"))
        lines.append(f"change {show_path(text_of(one.get('path')))}")
        if len(old) + len(new) > MAX_DIFF_CHARACTERS:
            lines += [f"  -{line}" for line in old.split("\n")]
            lines += [f"  +{line}" for line in new.split("\n")]
            continue
        compared = difflib.unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=3)
        lines += [f"  {line}" for line in list(compared)[2:]]
    return lines
