"""What a channel sees of the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.kernel import Recollection, ToolSpec


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What one message came to."""

    conversation_id: str
    turn_id: str
    text: str
    """The final answer, or the sentence that says why there is none."""
    tool_rounds: int
    tool_calls: int
    denials: int
    provider: str
    model: str
    exhausted: bool = False
    """Whether the turn ended because ``max_tool_rounds`` was reached."""


@dataclass(frozen=True, slots=True)
class UndoneTurn:
    """What ``undo`` took back: paths, and those that it had to leave, each with the reason."""

    turn_id: str
    paths: tuple[str, ...]
    left: tuple[tuple[str, str], ...] = ()


class RuntimeHandle(Protocol):
    """The runtime as a channel uses it."""

    def new_conversation(self) -> str: ...

    def turn(
        self,
        message: str,
        *,
        conversation_id: str | None = None,
        draft: Callable[[str], None] | None = None,
    ) -> TurnOutcome:
        """Run one turn; ``draft`` is given pieces of the answer while it is being made.

        Provider failures raise ``ProviderError``; ``KeyboardInterrupt`` during a turn leaves a
        conversation that goes on.
        """

    def tools(self) -> tuple[ToolSpec, ...]:
        """The active tools."""

    def search(self, query: str, limit: int = 20) -> tuple[Recollection, ...]: ...

    def policy(self) -> Mapping[str, str]:
        """Autonomy, workspace boundary and the rest, as label → text, in the order to show."""

    def receipts(self, limit: int = 10) -> Sequence[Mapping[str, object]]:
        """The last receipts, newest last."""

    def undo(self, conversation_id: str) -> UndoneTurn:
        """Take back what the last turn changed; ``UndoRefused`` says why it cannot be."""

    def models(self) -> Mapping[str, str]:
        """Provider name → model; what can be chosen."""

    @property
    def model(self) -> str:
        """The name of the provider in use."""

    def use(self, provider: str) -> None:
        """Ask another provider from now on; ``UsageError`` if there is none of that name."""


def check_message(message: str) -> None:
    """Refuse a message with NUL or with what is not Unicode, rather than change it."""
    if "\0" in message:
        raise UsageError("the message holds the character NUL", rule="text.nul")
    try:
        message.encode("utf-8")
    except UnicodeEncodeError:
        raise not_unicode_error() from None


def not_unicode_error() -> UsageError:
    """Return the error for a message that is not text."""
    return UsageError(
        "the message is not valid Unicode", rule="text.unicode", hint="write it in UTF-8"
    )
