"""Build the queries to the model from the project's own files."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from coilclaw.changes import ChangeSet, DeleteFile, WriteFile

if TYPE_CHECKING:
    from collections.abc import Mapping

INITIAL: Final = "initial"
REPAIR: Final = "repair"
MAX_OUTPUT_CHARS: Final = 200_000
"""Characters of a build's output in a repair query."""


def system_prompt(name: str) -> str:
    """Return one of the two system prompts, which are part of the interface."""
    return files(__package__).joinpath("texts", f"{name}.txt").read_text(encoding="utf-8")


def initial_query(query: str, codebase: str) -> str:
    """Return the first query: system prompt, query, codebase."""
    return _join_parts(system_prompt(INITIAL), query, codebase)


def repair_query(output: str, query: str, codebase: str, replacements: Replacements) -> str:
    """Return a repair query: system prompt, build output, query, codebase, replacements."""
    return _join_parts(
        system_prompt(REPAIR), cut_output(output), query, codebase, replacements.render()
    )


def cut_output(output: str, most: int = MAX_OUTPUT_CHARS) -> str:
    """Return the head and the tail of a build's output, with a note of the omitted length."""
    if len(output) <= most:
        return output
    head = output[: most // 2]
    tail = output[len(output) - most // 2 :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    left_out = len(output) - len(head) - len(tail)
    return (
        f"{head}\n[{left_out:,} of {len(output):,} characters of this output are left out here; "
        f"this is its beginning and its end]\n\n{tail}"
    )


def _join_parts(*parts: str) -> str:
    return "".join(part if part.endswith("\n") or not part else part + "\n" for part in parts)


@dataclass(frozen=True, slots=True)
class Replacements:
    """The latest content of every file that answers replaced; ``None`` for a removed one."""

    latest: Mapping[str, str | None]

    def after(self, change_set: ChangeSet) -> Replacements:
        """Return these and the replacements of one more answer."""
        latest = dict(self.latest)
        for operation in change_set.operations:
            name = str(operation.path)
            latest.pop(name, None)
            if isinstance(operation, WriteFile):
                latest[name] = operation.content.decode("utf-8")
            elif isinstance(operation, DeleteFile):
                latest[name] = None
        return Replacements(latest)

    def render(self) -> str:
        """Return the section of a repair query."""
        return "".join(
            f"--- FILE REMOVED {name} ---\n"
            if content is None
            else _join_parts(f"--- FILE REPLACEMENT {name} ---\n", content)
            for name, content in self.latest.items()
        )
