"""``Script``: what a scripted agent does, turn by turn; checked as a whole before anything happens.

A script is a list of turns, or ``{"turns": […]}``, or ``{"tasks": {"TASK": [turns…]}}`` where TASK
is a task id or a glob over it. A turn is a list of parts, each an object with one key:

``{"reasoning": TEXT}``, ``{"text": TEXT}``, ``{"write": {PATH: CONTENT}}``, ``{"delete": [PATH]}``,
``{"shell": COMMAND}``, ``{"run_tests": PATH}``, ``{"commit": MESSAGE}``, ``{"sleep_s": SECONDS}``,
``{"crash": true}``, ``{"result": OBJECT}`` (the agent's answer; ``task_id`` may be left out).

Paths are not looked at: a script may be as hostile as an agent, and the sandbox holds both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.kernel import AnswerError, Document, UsageError
from coilclaw.runners import agent_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.kernel import DocumentPlace, Json

MAX_BYTES: Final = 16 * 2**20
MAX_TURNS: Final = 10_000
MAX_PARTS: Final = 100_000
MAX_SLEEP_S: Final = 86_400.0
ANY_TASK: Final = "*"

ActionKind: TypeAlias = Literal[
    "reasoning",
    "text",
    "write",
    "delete",
    "shell",
    "run_tests",
    "commit",
    "sleep_s",
    "crash",
    "result",
]
KINDS: Final[tuple[ActionKind, ...]] = get_args(ActionKind)
_FIX: Final = re.compile(r"-fix-([0-9]{1,6})(?=-fix-|\Z)")


@dataclass(frozen=True, slots=True)
class Action:
    """One part of a script."""

    kind: ActionKind
    value: Json


Turn: TypeAlias = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class AgentScript:
    """The turns of every task; the key is a task id or a glob."""

    tasks: Mapping[str, tuple[Turn, ...]]

    def turns(self, task_id: str) -> tuple[Turn, ...]:
        """Return the turns of a task: by its id, by that of the task it repairs, by a glob."""
        root = root_of(task_id)
        for name in (task_id, root):
            if name in self.tasks:
                return self.tasks[name]
        # The longest glob says most about the task.
        for key in sorted(self.tasks, key=lambda key: (-len(key), key)):
            if fnmatchcase(root, key):
                return self.tasks[key]
        return ()


def root_of(task_id: str) -> str:
    """Return the id of the task that a chain of repairs began with."""
    found = _FIX.search(task_id)
    return task_id[: found.start()] if found else task_id


def attempt_of(task_id: str) -> int:
    """Return the number of a repair: 2 for ``t-fix-2`` and for ``t-fix-1-fix-1``, 0 for ``t``."""
    numbers = [int(number) for number in _FIX.findall(task_id)]
    return max(len(numbers), numbers[-1]) if numbers else 0


def read(data: bytes, *, where: str = "the script") -> AgentScript:
    """Read a script; everything that is wrong with it is said at once."""
    try:
        value = agent_answer.read(data, what=where, bound=MAX_BYTES)
    except AnswerError as problem:
        rule = problem.rule.replace("answer.", "script.")
        raise UsageError(problem.message, rule=rule) from problem
    document = Document()
    script = AgentScript(
        {name: _read_turns(document, *named) for name, named in _find_tasks(value)}
    )
    turns = [turn for turns in script.tasks.values() for turn in turns]
    if len(turns) > MAX_TURNS:
        document.note((), f"there are more than {MAX_TURNS:,} turns")
    if sum(map(len, turns)) > MAX_PARTS:
        document.note((), f"there are more than {MAX_PARTS:,} parts")
    if not script.tasks:
        document.note((), "it is neither a list of turns nor {turns} nor {tasks} with a task")
    if document.problems:
        shown = "; ".join(map(str, document.problems))
        raise UsageError(f"{where} is wrong: {shown}", rule="script.form")
    return script


def _find_tasks(value: Json) -> Iterator[tuple[str, tuple[Json, DocumentPlace]]]:
    """Yield each name with its turns and where they stand; a list of turns is for any task."""
    match value:
        case {"tasks": dict(named), **rest} if not rest:
            for name, turns in named.items():
                yield name, (turns, ("tasks", name))
        case {"turns": turns, **rest} if not rest:
            yield ANY_TASK, (turns, ("turns",))
        case list():
            yield ANY_TASK, (value, ("turns",))


def _read_turns(document: Document, value: Json, place: DocumentPlace) -> tuple[Turn, ...]:
    if not isinstance(value, list) or not value:
        document.note(place, "it is not a list of turns, or has none")
        return ()
    return tuple(_read_turn(document, turn, (*place, index)) for index, turn in enumerate(value))


def _read_turn(document: Document, value: Json, place: DocumentPlace) -> Turn:
    if not isinstance(value, list):
        document.note(place, "a turn is a list of parts")
        return ()
    found = (_read_action(document, part, (*place, index)) for index, part in enumerate(value))
    return tuple(action for action in found if action is not None)


def _read_action(document: Document, value: Json, place: DocumentPlace) -> Action | None:
    if not isinstance(value, dict) or len(value) != 1:
        document.note(place, "a part is an object with one key")
        return None
    ((kind, argument),) = value.items()
    if kind not in KINDS:
        document.note(place, f"the part {kind!r} is not known", KINDS)
        return None
    wanted, is_right = _CHECKS[kind]
    if is_right(argument):
        return Action(kind, argument)
    places: list[DocumentPlace] = [(*place, kind)]
    if kind == "write" and isinstance(argument, dict) and argument:
        places = [
            (*place, kind, path) for path in argument if not _is_contents({path: argument[path]})
        ]
    for each in places:
        document.note(each, f"it must be {wanted}")
    return None


def _is_path(value: Json) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_contents(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and any(value)
        and all(map(_is_path, value))
        and all(isinstance(content, str) for content in value.values())
    )


_TEXT: Final = ("a text", lambda value: isinstance(value, str))
_COMMAND: Final = (
    "a text that is not empty and holds no NUL",
    lambda value: _is_path(value) and bool(value.strip()),
)
_CHECKS: Final[Mapping[ActionKind, tuple[str, Callable[[Json], bool]]]] = {
    "reasoning": _TEXT,
    "text": _TEXT,
    "write": ("an object of paths and their contents, and not empty", _is_contents),
    "delete": (
        "a list of paths that is not empty",
        lambda value: isinstance(value, list) and value != [] and all(map(_is_path, value)),
    ),
    "shell": _COMMAND,
    "run_tests": _TEXT,
    "commit": _COMMAND,
    "sleep_s": (
        f"a number of seconds from 0 to {MAX_SLEEP_S:g}",
        lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 <= value <= MAX_SLEEP_S
        ),
    ),
    "crash": ("true", lambda value: value is True),
    "result": ("an object", lambda value: isinstance(value, dict)),
}
