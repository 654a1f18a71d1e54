"""A model's answer → one change set, whatever formats it mixes, or the refusal it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes import (
    blocks,
    bundle,
    envelope,
    fence,
    gitpatch,
    refusal,
    segments,
    structured,
)
from coilclaw.changes.cursor import MAX_LINES
from coilclaw.changes.fault import collect, malformed
from coilclaw.changes.operations import (
    Answer,
    ChangeSet,
    EditText,
    Format,
    Limits,
    NoChanges,
    Operation,
    Options,
    PatchBinary,
    PatchFile,
)
from coilclaw.errors import AnswerError, combine

if TYPE_CHECKING:
    from coilclaw.changes.segments import Segment
    from coilclaw.domain.treepath import TreePath
    from coilclaw.errors import CoilClawError

_STRICT: Final = Options()
_LIMITS: Final = Limits()
_BY_LINES: Final = frozenset({Format.GIT, Format.ENVELOPE, Format.BLOCKS})
_BOM: Final = "\ufeff"


def decode(raw: bytes) -> str:
    """Return the text of an answer, which is UTF-8 without NUL; a byte order mark is dropped."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = 1 + raw.count(b"\n", 0, problem.start)
        raise malformed(line, "answer.encoding", "the answer is not UTF-8") from problem
    _refuse_nul(text)
    return text.removeprefix(_BOM)


def parse(
    text: str,
    *,
    format: Format | None = None,  # noqa: A002 - the word of the command line
    options: Options = _STRICT,
    limits: Limits = _LIMITS,
    failures: list[CoilClawError] | None = None,
) -> Answer:
    """Read all blocks of an answer, or only those of one format; the rest of it is prose.

    What is wrong with its parts is raised as one error, or added to ``failures`` if that is given;
    then the parts that can be read are returned.
    """
    text = _transported(text, limits)
    wanted = segments.EVERY if format is None else frozenset({format})
    found = segments.split(text, wanted, most=limits.operations)
    declined = refusal.find(text, ((segment.start, segment.end) for segment in found))
    if declined:
        return declined
    operations: list[Operation] = []
    failed: list[CoilClawError] = [] if failures is None else failures
    size = inflated = lines = 0
    for segment in found:
        if segment.kind in _BY_LINES:
            lines += segment.text.count("\n")
        if lines > MAX_LINES:
            raise malformed(
                segment.first_line,
                "answer.bounds",
                f"the patches of the answer have more than {MAX_LINES:,} lines",
            )
        read = _operations(segment, options, failed)
        size += sum(_size(operation) for operation in read)
        inflated += sum(len(item.data) for item in read if isinstance(item, PatchBinary))
        if inflated > limits.total_bytes:
            raise malformed(
                segment.first_line,
                "answer.bounds",
                f"the answer's binary patches hold more than {limits.total_bytes:,} bytes",
            )
        if size > limits.operations:
            raise malformed(
                segment.first_line,
                "answer.bounds",
                f"the answer holds more than the bound of {limits.operations:,} operations",
            )
        operations += read
    if failed and failures is None:
        raise combine(failed)
    return ChangeSet(_merged(operations)) if operations else NoChanges()


def _transported(text: str, limits: Limits) -> str:
    """Check an answer as a whole, and take away line ends that only the way here has added."""
    try:
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
    except UnicodeEncodeError as problem:
        line = 1 + text.count("\n", 0, problem.start)
        raise malformed(line, "answer.encoding", "the answer is not valid Unicode") from problem
    if size > limits.answer_bytes:
        raise AnswerError(
            f"the answer has {size:,} bytes, more than the bound of {limits.answer_bytes:,}",
            rule="answer.bounds",
        )
    _refuse_nul(text)
    text = text.removeprefix(_BOM)
    if text.count("\n") == text.count("\r\n"):
        return text.replace("\r\n", "\n")
    return text


def _refuse_nul(text: str) -> None:
    place = text.find("\0")
    if place >= 0:
        line = 1 + text.count("\n", 0, place)
        raise malformed(line, "answer.encoding", "the answer holds a NUL")


def _operations(
    segment: Segment, options: Options, failures: list[CoilClawError]
) -> tuple[Operation, ...]:
    """Read one block; what is wrong with it is added to the failures."""
    read: list[Operation] = []
    with collect(failures):
        read += _read(segment, options, failures)
    return tuple(read)


def _read(
    segment: Segment, options: Options, failures: list[CoilClawError]
) -> tuple[Operation, ...]:
    text, line = segment.text, segment.first_line
    match segment.kind:
        case Format.FENCE:
            return fence.parse(text, first_line=line)
        case Format.GIT:
            return _git(segment, options, failures)
        case Format.ENVELOPE:
            return envelope.parse(text, first_line=line, options=options, failures=failures)
        case Format.BLOCKS:
            return blocks.parse(text, first_line=line, options=options)
        case Format.BUNDLE | Format.PATCH:
            # One object may hold both lists; it is taken whole.
            document = segment.document
            assert document is not None
            files = bundle.KEY in document.members
            patches = structured.KEY in document.members
            return (
                *(bundle.parse(document, options=options, failures=failures) if files else ()),
                *(structured.parse(document, failures=failures) if patches else ()),
            )


def _git(
    segment: Segment, options: Options, failures: list[CoilClawError]
) -> tuple[Operation, ...]:
    if options.lenient and segment.more_line is not None:
        raise malformed(
            segment.more_line,
            "git.corrupt",
            "what looks like more of the patch follows the end of its code block",
            hint="a line of ``` in a patch needs its mark: a blank, a plus or a minus",
        )
    return gitpatch.parse(
        segment.text,
        first_line=segment.first_line,
        options=options,
        whole=segment.closed,
        failures=failures,
    )


def _size(operation: Operation) -> int:
    """Count an operation as often as it makes us search its file for a text."""
    return len(operation.replacements) if isinstance(operation, EditText) else 1


def _merged(operations: list[Operation]) -> tuple[Operation, ...]:
    """Join search-and-replace blocks of one file, which may stand far apart in the answer."""
    merged: list[Operation] = []
    places: dict[TreePath, int] = {}
    for operation in operations:
        source = operation.source
        if isinstance(operation, PatchFile) and source and source.format is Format.BLOCKS:
            place = places.setdefault(operation.path, len(merged))
            if place < len(merged):
                earlier = merged[place]
                assert isinstance(earlier, PatchFile)
                merged[place] = replace(earlier, hunks=(*earlier.hunks, *operation.hunks))
                continue
        merged.append(operation)
    return tuple(merged)
