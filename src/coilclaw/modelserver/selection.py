"""Which answer to play: a function of the script and of the request, and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.modelserver.history import History
    from coilclaw.modelserver.script import Answer, DialectName, Script, When


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about a request when an answer is chosen; header names are lower case."""

    dialect: DialectName
    history: History
    model: str
    stream: bool
    headers: Mapping[str, str]


def choose(script: Script, situation: Situation) -> Answer:
    """Return the answer to play; past the end of a strict script it is a ``UsageError``."""
    answers = script.answers
    prompt = max(1, len(situation.history.prompts))
    if script.turns is not None:
        if prompt > len(script.turns):
            return _past_end(
                script,
                f"the script has nothing at index {prompt - 1} of turns: it has answers for "
                f"{len(script.turns)} prompts, and the request is at prompt {prompt}",
            )
        answers = script.turns[prompt - 1]
    eligible = [answer for answer in answers if holds(answer.when, situation)]
    index = situation.history.answered
    if index < len(eligible):
        return eligible[index]
    where = f" for prompt {prompt}" if script.turns is not None else ""
    return _past_end(
        script,
        f"the script has no answer at index {index}{where}: of its {len(answers)} answers, "
        f"{len(eligible)} are eligible for this request",
    )


def holds(when: When, situation: Situation) -> bool:
    """Tell whether everything an answer asks of a request is so."""
    return (
        all(words in situation.history.prompt for words in when.prompt)
        and all(words in situation.history.system for words in when.system)
        and when.model in {None, situation.model}
        and when.dialect in {None, situation.dialect}
        and when.stream in {None, situation.stream}
        and all(
            name in situation.headers and text in situation.headers[name]
            for name, text in when.headers
        )
    )


def _past_end(script: Script, message: str) -> Answer:
    if script.otherwise is None:
        raise UsageError(message, rule="script.exhausted")
    return script.otherwise
