"""Where a conversation stands, as its own history tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Agents put these before or between the words of their user, in the user's name.
CONTEXT_PREFIXES: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "<skills_instructions>",
    "<recommended_plugins>",
    "<turn_aborted>",
    "<system-reminder>",
    "<session_context>",
    "# AGENTS.md",
)


class Speaker(Enum):
    """Who says something."""

    USER = auto()
    MODEL = auto()
    TOOL = auto()
    SYSTEM = auto()


@dataclass(frozen=True, slots=True)
class Said:
    """One entry of a history; ``texts`` are the parts of it that are text."""

    speaker: Speaker
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What decides which answer is next."""

    prompts: tuple[str, ...] = ()
    answered: int = 0
    """The turns of the model since the last prompt."""
    system: str = ""

    @property
    def prompt(self) -> str:
        return self.prompts[-1] if self.prompts else ""


def history(said: Iterable[Said], prefixes: Sequence[str] = ()) -> History:
    """Count the prompts, and the turns of the model since the last of them.

    Whatever the model says without a word from anybody else in between is one turn. Results of
    tools, and context that an agent adds in its user's name, are no prompts.
    """
    context = (*CONTEXT_PREFIXES, *prefixes)
    prompts: list[str] = []
    system: list[str] = []
    answered = 0
    before: Speaker | None = None
    for entry in said:
        if entry.speaker is Speaker.MODEL:
            answered += before is not Speaker.MODEL
        elif entry.speaker is Speaker.SYSTEM:
            system += entry.texts
        elif entry.speaker is Speaker.USER:
            words = [text for text in entry.texts if not text.lstrip().startswith(context)]
            if words or not entry.texts:
                prompts.append("\n".join(words))
                answered = 0
        before = entry.speaker
    return History(tuple(prompts), answered, "\n".join(system))
