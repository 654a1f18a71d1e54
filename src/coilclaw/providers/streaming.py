"""Asking a provider for an answer as it comes, whether it can give one or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider, StreamingProvider

    Draft: TypeAlias = Callable[[str], None]


def ask(provider: Provider, request: ChatRequest, draft: Draft | None) -> ChatResponse:
    """Ask once; ``draft`` is given the text, in one piece where the provider cannot stream.

    What was drafted before a failure stays drafted: the answer is ``final_text``.
    """
    if draft is None:
        return provider.chat(request)
    if provider.capabilities.streaming:
        return cast("StreamingProvider", provider).stream(request, draft)
    response = provider.chat(request)
    if response.final_text:
        draft(response.final_text)
    return response


class Drafted:
    """A draft that knows whether it was begun, so that a new attempt starts on a new line."""

    __slots__ = ("_begun", "_draft")

    def __init__(self, draft: Draft) -> None:
        self._draft, self._begun = draft, False

    def __call__(self, piece: str) -> None:
        self._begun = True
        self._draft(piece)

    def anew(self) -> None:
        """Say that what follows is another attempt."""
        if self._begun:
            self._draft("\n")
            self._begun = False
