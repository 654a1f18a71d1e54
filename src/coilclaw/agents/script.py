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

from coilclaw.agents import answers
from coilclaw.errors import AnswerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.domain.messages import Json

MAX_BYTES: Final = 16 * 2**20
MAX_TURNS: Final = 10_000
MAX_PARTS: Final = 100_000
MAX_SLEEP_S: Final = 86_400.0
MAX_SHOWN_PROBLEMS: Final = 50
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
class Script:
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


def read(data: bytes, *, where: str = "the script") -> Script:
    """Read a script; everything that is wrong with it is said at once."""
    try:
        value = answers.read(data, what=where, bound=MAX_BYTES)
    except AnswerError as problem:
        rule = problem.rule.replace("answer.", "script.")
        raise UsageError(problem.message, rule=rule) from problem
    checking = _Checking([])
    script = Script(dict(checking.tasks(value)))
    if checking.problems:
        shown = checking.problems[:MAX_SHOWN_PROBLEMS]
        more = len(checking.problems) - len(shown)
        rest = f"; and {more} more" if more else ""
        raise UsageError(f"{where} is wrong: {'; '.join(shown)}{rest}", rule="script.form")
    return script


@dataclass(slots=True)
class _Checking:
    """Walks through a script and remembers everything that is wrong."""

    problems: list[str]
    parts: int = 0
    all_turns: int = 0

    def tasks(self, value: Json) -> Iterator[tuple[str, tuple[Turn, ...]]]:
        if isinstance(value, dict) and set(value) == {"tasks"}:
            named = value["tasks"]
            if not isinstance(named, dict) or not named:
                self.problems.append("tasks: it is no object with at least one task")
                return
            for name, turns in named.items():
                yield name, self.turns(turns, f"tasks[{name!r}]")
        elif isinstance(value, dict) and set(value) == {"turns"}:
            yield ANY_TASK, self.turns(value["turns"], "turns")
        elif isinstance(value, list):
            yield ANY_TASK, self.turns(value, "turns")
        else:
            self.problems.append("it is neither a list of turns nor {turns} nor {tasks}")

    def turns(self, value: Json, at: str) -> tuple[Turn, ...]:
        if not isinstance(value, list) or not value:
            self.problems.append(f"{at}: it is no list of turns, or has none")
            return ()
        self.all_turns += len(value)
        if self.all_turns > MAX_TURNS:
            self.problems.append(f"{at}: there are more than {MAX_TURNS:,} turns")
            return ()
        return tuple(self.turn(turn, f"{at}[{index}]") for index, turn in enumerate(value))

    def turn(self, value: Json, at: str) -> Turn:
        if not isinstance(value, list):
            self.problems.append(f"{at}: a turn is a list of parts")
            return ()
        self.parts += len(value)
        if self.parts > MAX_PARTS:
            self.problems.append(f"{at}: there are more than {MAX_PARTS:,} parts")
            return ()
        found = (self.action(part, f"{at}[{index}]") for index, part in enumerate(value))
        return tuple(action for action in found if action is not None)

    def action(self, value: Json, at: str) -> Action | None:
        if not isinstance(value, dict) or len(value) != 1:
            self.problems.append(f"{at}: a part is an object with one key")
            return None
        ((kind, argument),) = value.items()
        if kind not in KINDS:
            self.problems.append(f"{at}: there is no part {kind!r}; use {', '.join(KINDS)}")
            return None
        problem = _CHECKS[kind](argument)
        if problem:
            self.problems.append(f"{at}.{kind}: {problem}")
            return None
        return Action(kind, argument)


def _is_text(value: Json) -> str:
    return "" if isinstance(value, str) else "it is no text"


def _is_command(value: Json) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        return "it is no text, is empty, or holds a NUL"
    return ""


def _is_contents(value: Json) -> str:
    if not isinstance(value, dict) or not value:
        return "it is no object of paths and contents, or is empty"
    wrong = [path for path, content in value.items() if not _is_path(path) or _is_text(content)]
    return f"no path, or no text as content, at {wrong[0]!r}" if wrong else ""


def _is_paths(value: Json) -> str:
    if not isinstance(value, list) or not value:
        return "it is no list of paths, or is empty"
    return "" if all(_is_path(path) for path in value) else "it holds what is no path"


def _is_path(value: Json) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_seconds(value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "it is no number of seconds"
    return "" if 0 <= value <= MAX_SLEEP_S else f"it is not between 0 and {MAX_SLEEP_S:g}"


def _is_true(value: Json) -> str:
    return "" if value is True else "it is not true"


def _is_object(value: Json) -> str:
    return "" if isinstance(value, dict) else "it is no object"


_CHECKS: Final[Mapping[ActionKind, Callable[[Json], str]]] = {
    "reasoning": _is_text,
    "text": _is_text,
    "write": _is_contents,
    "delete": _is_paths,
    "shell": _is_command,
    "run_tests": _is_text,
    "commit": _is_command,
    "sleep_s": _is_seconds,
    "crash": _is_true,
    "result": _is_object,
}
