"""``ask_user``: a question to the person at the other end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Consults
from coilclaw.tools import output
from coilclaw.tools.basis import Basis, Ready, closed, failure, success, text

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext

MAX_QUESTION: Final = 2000


class AskUser(Basis):
    """Asks the user."""

    name: Final = "ask_user"
    description: Final = (
        "Ask the user one question and wait for the answer. Only for what cannot be found out."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUESTION,
                "description": "the question, in one or two sentences",
            }
        },
        "question",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        text(args, "question")
        return (Consults("user"),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        question = text(args, "question")
        return Ready((f"ask: {question}",), lambda: _asked(question, context))


def _asked(question: str, context: ToolContext) -> ToolResult:
    answer = context.ask(question)
    if answer is None:
        return failure("nobody can be asked", rule="ask.nobody")
    return success(output.middle_cut(answer, context.limits.output_bytes))
