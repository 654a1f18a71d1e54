"""``RuntimeHandle``: the interface of the runtime for channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.kernel import Recollection, ToolSpec


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The result of one message."""

    conversation_id: str
    turn_id: str
    text: str
    """The final answer, or the reason why the turn has none."""
    tool_rounds: int
    tool_calls: int
    denials: int
    provider: str
    model: str
    exhausted: bool = False
    """Whether the turn ended because ``max_tool_rounds`` was reached."""


@dataclass(frozen=True, slots=True)
class UndoneTurn:
    """The paths that ``undo`` restored, and those that it left, each with the reason."""

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
        """Run one turn; ``draft`` gets pieces of the answer as the model produces them.

        Raise ``ProviderError`` if the provider fails. After a ``KeyboardInterrupt`` the
        conversation can continue.
        """

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the active tools."""

    def search(self, query: str, limit: int = 20) -> tuple[Recollection, ...]: ...

    def policy(self) -> Mapping[str, str]:
        """Return the policy in force as label → text, in display order."""

    def receipts(self, limit: int = 10) -> Sequence[Mapping[str, object]]:
        """Return the last receipts, newest last."""

    def undo(self, conversation_id: str) -> UndoneTurn:
        """Undo the changes of the last turn; raise ``UndoRefused`` if that is not possible."""

    def models(self) -> Mapping[str, str]:
        """Return the model of each configured provider, by the name of the provider."""

    @property
    def model(self) -> str:
        """The name of the provider in use."""

    def use(self, provider: str) -> None:
        """Use another provider from now on; raise ``UsageError`` for an unknown name."""


def check_message(message: str) -> None:
    """Raise ``UsageError`` for a message that holds NUL or is not valid Unicode."""
    if "\0" in message:
        raise UsageError("the message holds the character NUL", rule="text.nul")
    try:
        message.encode("utf-8")
    except UnicodeEncodeError:
        raise not_unicode_error() from None


def not_unicode_error() -> UsageError:
    """Return the error for a message that is not valid Unicode."""
    return UsageError(
        "the message is not valid Unicode", rule="text.unicode", hint="write it in UTF-8"
    )
