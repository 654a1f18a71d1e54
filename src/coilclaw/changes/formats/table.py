"""The table of answer formats: a new one is a module in this folder and a row here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.changes.formats import (
    blocks,
    envelope,
    fence,
    git_extent,
    git_patch,
    json_delivery,
)
from coilclaw.changes.formats.answer_text import malformed_error
from coilclaw.changes.operations import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.changes.formats.answer_text import AnswerSegment, BlockScan
    from coilclaw.changes.operations import AnswerOptions, Operation
    from coilclaw.kernel import CoilClawError


Failures: TypeAlias = "list[CoilClawError]"
Operations: TypeAlias = "tuple[Operation, ...]"


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How the blocks of one format are found and read."""

    read: Callable[[AnswerSegment, AnswerOptions, Failures], Operations]
    """Return the operations of a block; what is wrong with its parts is added to the failures."""
    marks: str = ""
    """What the first line of a block looks like, if it needs no code block around it."""
    take: Callable[[BlockScan, int], int] = lambda scan, start: scan.after(start)
    """Keep the block that a line with such a mark begins; return the line start to resume from."""
    in_code: bool = True
    """Blocks are found inside code blocks too."""
    by_lines: bool = True
    """Its lines are bounded over the whole answer."""


def _read_git(segment: AnswerSegment, options: AnswerOptions, failures: Failures) -> Operations:
    if options.lenient and segment.more_line is not None:
        raise malformed_error(
            segment.more_line,
            "git.corrupt",
            "what looks like more of the patch follows the end of its code block",
            hint="a line of ``` in a patch needs its mark: a blank, a plus or a minus",
        )
    return git_patch.parse(
        segment.text,
        first_line=segment.first_line,
        options=options,
        whole=segment.closed,
        failures=failures,
    )


_JSON: Final = AnswerFormat(json_delivery.parse, by_lines=False)

FORMATS: Final = {
    Format.FENCE: AnswerFormat(
        lambda segment, _options, _failures: fence.parse(segment.text, segment.first_line),
        fence.MARKS,
        fence.take,
        by_lines=False,
    ),
    Format.ENVELOPE: AnswerFormat(
        lambda segment, _options, failures: envelope.parse(
            segment.text, first_line=segment.first_line, failures=failures
        ),
        envelope.MARKS,
        envelope.take,
    ),
    Format.BLOCKS: AnswerFormat(
        lambda segment, _options, _failures: blocks.parse(
            segment.text, first_line=segment.first_line
        ),
        blocks.MARKS,
        blocks.take,
    ),
    Format.GIT: AnswerFormat(_read_git, git_extent.MARKS, git_extent.take, in_code=False),
    # One object may hold both lists; it is read once, as what its first list makes it.
    **dict.fromkeys(json_delivery.KEYS, _JSON),
}
