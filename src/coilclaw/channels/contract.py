"""What a channel is: a place where messages come in and answers go out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from coilclaw.runtime.handle import RuntimeHandle


class Channel(Protocol):
    """One place where a conversation takes place."""

    @property
    def name(self) -> str: ...

    @property
    def supports_draft_updates(self) -> bool:
        """Whether pieces of an answer can be shown before it is whole."""

    def start(self, runtime_handle: RuntimeHandle) -> None:
        """Take messages to the runtime until there are no more."""

    def send(self, conversation_id: str, message: str) -> None:
        """Say something in a conversation that nobody asked for just now."""
