"""The ``opencode`` runner: a real opencode, spoken with over ACP.

Of its three interfaces this is the one that asks before it acts and can be told to stop, over two
pipes; it also tells each part with its input, output and exit code. What it does not tell, the
tokens of a whole turn, opencode is asked for afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agents import acpprocess, finding, opencodehome, testtool
from coilclaw.agents.deadline import Deadline
from coilclaw.domain.messages import Usage
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from coilclaw.agents.acpprocess import Start
    from coilclaw.agents.acpturn import Turn
    from coilclaw.agents.runner import Assignment, Ending, Means
    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

EXPORT_S: Final = 60.0
MAX_EXPORT_BYTES: Final = 64 * 2**20
_TITLE: Final = "opencode"


@dataclass(frozen=True, slots=True)
class OpencodeRunner:
    """Performs assignments with opencode."""

    settings: Path | None = None
    """The template of its settings, ``opencode.json``; of it only the model is taken."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Where PATH, ``$COILCLAW_OPENCODE`` and the key of the model are looked up."""
    home: Path | None = None
    """Our own home, below which agents may be installed."""

    @property
    def name(self) -> str:
        return "opencode"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start opencode, give it the task, and see it through."""
        deadline = Deadline.of(assignment.budget)
        program = finding.find(finding.KNOWN["opencode"], self.environ, self.home)
        tests = None if means.run_tests is None else testtool.TestTool(assignment.home)
        turns: list[Turn] = []
        with opencodehome.prepared(assignment, self.settings, self.environ, tests) as home:
            start = acpprocess.Start(
                title=_TITLE,
                argv=[str(program), "acp"],
                env=home.environment(assignment.environ),
                sandbox=assignment.sandbox.showing(program),
                targets=home.targets,
                place=assignment.home,
                on_session=home.forget_settings,
                tools_in_settings=True,
            )
            ending = yield from acpprocess.perform(start, assignment, means, deadline, turns)
        if ending.usage is None or not turns[0].updates.tool_calls:
            # One answer of the model: what was told of it is all there is.
            return ending
        return replace(ending, usage=_counted(program, start, assignment, means, ending))


def _counted(
    program: Path, start: Start, assignment: Assignment, means: Means, ending: Ending
) -> Usage | None:
    """Return the tokens of all answers of the last turn; else those that were told."""
    result = process.run(
        [str(program), "export", ending.thread_id],
        cwd=assignment.directory,
        timeout_s=EXPORT_S,
        env={name: value for name, value in start.env.items() if name != "OPENCODE_CONFIG"},
        limit_bytes=MAX_EXPORT_BYTES,
        sandbox=replace(start.sandbox, network=start.sandbox.kind == "none"),
        support=means.support,
        cancel=means.cancel,
    )
    if result.exit_code != 0 or result.stdout.dropped:
        return ending.usage
    try:
        session: Json = json.loads(result.stdout.data)
    except (ValueError, RecursionError):
        return ending.usage
    messages = session.get("messages") if isinstance(session, dict) else None
    return usage_of(messages if isinstance(messages, list) else []) or ending.usage


def usage_of(messages: list[Json]) -> Usage | None:
    """Return the tokens of the answers after the last question."""
    read = written = 0
    for message in reversed(messages):
        info = message.get("info") if isinstance(message, dict) else None
        if not isinstance(info, dict) or info.get("role") == "user":
            break
        tokens = info.get("tokens")
        if isinstance(tokens, dict):
            cache = tokens.get("cache")
            kept = list(cache.values()) if isinstance(cache, dict) else []
            read += sum(_number(value) for value in (tokens.get("input"), *kept))
            written += _number(tokens.get("output")) + _number(tokens.get("reasoning"))
    return Usage(read, written) if read or written else None


def _number(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
