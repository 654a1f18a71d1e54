"""The script file: JSON in, a ``Script`` or every problem with it out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.domain.secret import Secret
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.modelserver.answerfields import ANSWER_FIELDS, read_answer
from coilclaw.modelserver.fields import Fields, Problem, decode, items, repetitions
from coilclaw.modelserver.script import DEFAULT_MODEL, Answer, Script

if TYPE_CHECKING:
    from pathlib import Path

MAX_SCRIPT_BYTES: Final = 64 * 2**20
MAX_ANSWERS: Final = 10_000
MAX_MODELS: Final = 1_000
MAX_SHOWN_PROBLEMS: Final = 100

SCRIPT_FIELDS: Final = frozenset(
    {"answers", "turns", "models", "strict", "otherwise", "stateful", "require_key"}
    | {"context_prefixes"}
)
_END: Final = "(the script has no further answer)"


def parse(data: bytes) -> Script | tuple[Problem, ...]:
    """Read a script; a script with problems yields all of them, none of them twice."""
    if len(data) > MAX_SCRIPT_BYTES:
        return (Problem("$", f"is larger than {MAX_SCRIPT_BYTES} bytes"),)
    try:
        value = decode(data)
    except ValueError as problem:
        return (Problem("$", str(problem)),)
    problems = list(repetitions(value))
    script = _script(value, problems)
    return script if not problems else tuple(dict.fromkeys(problems))


def load(path: Path) -> Script | tuple[Problem, ...]:
    """Read a script file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError) as problem:
        raise UsageError(f"there is no script {path}", rule="script.missing") from problem
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read the script {path}: {problem.strerror or problem}", rule="script.io"
        ) from problem
    return parse(data)


def script_of(value: object) -> Script:
    """Return the script that a JSON value stands for; one with problems is a ``UsageError``."""
    found = parse(json.dumps(value).encode())
    if isinstance(found, Script):
        return found
    shown = "; ".join(map(str, found[:MAX_SHOWN_PROBLEMS]))
    raise UsageError(f"the script has problems: {shown}", rule="script.invalid")


def _script(value: object, problems: list[Problem]) -> Script:
    if isinstance(value, list):
        return Script(answers=_answers(value, "$", problems, stateful=False))
    fields = Fields(value, "$", problems, SCRIPT_FIELDS)
    stateful = fields.flag("stateful") or False
    if isinstance(value, dict) and ("answers" in fields) == ("turns" in fields):
        fields.say(None, "needs either answers or turns")
    answers: tuple[Answer, ...] = ()
    turns = None
    if "answers" in fields:
        answers = _answers(fields["answers"], fields.at("answers"), problems, stateful=stateful)
    if "turns" in fields:
        turns = tuple(
            _answers(item, path, problems, stateful=stateful)
            for item, path in fields.items("turns", MAX_ANSWERS)
        )
    key = fields.text("require_key", empty=False)
    return Script(
        answers=answers,
        turns=turns,
        models=_names(fields, "models", problems) or (DEFAULT_MODEL,),
        otherwise=_otherwise(fields, problems),
        stateful=stateful,
        require_key=Secret(key) if key else None,
        context_prefixes=_names(fields, "context_prefixes", problems),
    )


def _answers(
    value: object, path: str, problems: list[Problem], *, stateful: bool
) -> tuple[Answer, ...]:
    found = items(value, path, MAX_ANSWERS, problems)
    return tuple(read_answer(item, where, problems, stateful=stateful) for item, where in found)


def _otherwise(fields: Fields, problems: list[Problem]) -> Answer | None:
    strict = fields.flag("strict")
    if "otherwise" not in fields:
        return Answer(fields.at("otherwise"), text=_END) if strict is False else None
    if strict:
        fields.say("otherwise", "is never played by a script that is strict")
    # What is played past the end is not counted, so it cannot have faults before it.
    return read_answer(
        fields["otherwise"],
        fields.at("otherwise"),
        problems,
        stateful=False,
        known=ANSWER_FIELDS - {"faults", "when"},
    )


def _names(fields: Fields, key: str, problems: list[Problem]) -> tuple[str, ...]:
    names = []
    for item, path in fields.items(key, MAX_MODELS):
        if isinstance(item, str) and item:
            names.append(item)
        else:
            problems.append(Problem(path, "must be text that is not empty"))
    return tuple(names)
