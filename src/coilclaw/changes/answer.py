"""A model's answer → one change set, whatever formats it mixes, or the refusal it holds."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes import answer_blocks
from coilclaw.changes.formats.answer_text import MAX_LINES, collect_failures, malformed_error
from coilclaw.changes.formats.table import FORMATS
from coilclaw.changes.operations import (
    Answer,
    AnswerLimits,
    AnswerOptions,
    ChangeSet,
    EditText,
    Format,
    NoChanges,
    Operation,
    PatchBinary,
    PatchFile,
    Refusal,
)
from coilclaw.kernel import AnswerError, combine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.kernel import CoilClawError, TreePath


NO_PATCH: Final = "A patch cannot be safely generated with the information provided."
NO_PATCH_ASK: Final = f"{NO_PATCH} Please allow a full Aptix file bundle instead."
NO_GIT: Final = "Unable to generate a safe Git patch; fallback to Aptix file bundle."
NO_GIT_ASK: Final = (
    "Unable to generate a safe Git patch; fallback to Aptix file bundle or structured patch."
)
SENTENCES: Final = (NO_PATCH, NO_PATCH_ASK, NO_GIT, NO_GIT_ASK)

_QUOTES: Final = "`\"'“”„‘’«»"
# Quotes, emphasis, block quotes, headings and list marks a sentence may be dressed in.
_MARKS: Final = f" \t\u00a0>*_~#{_QUOTES}-"
_DRESS: Final = f"[{re.escape(_MARKS)}]"
# Between two words: blanks, or one line break with the block quote of the next line.
_BREAK: Final = r"(?:\r?\n[ \t>]*)"
_GAP: Final = rf"(?:[ \t\u00a0]+{_BREAK}?|{_BREAK})"
_MAX_DRESS: Final = 40
"""Characters before a sentence that are looked at to see how it is dressed."""
# What follows a quoted sentence when the one around it goes on.
_GOES_ON: Final = re.compile(rf"[.]?[{re.escape(_QUOTES)}*_]+[ \t\u00a0]*{_BREAK}?[ \t,;]*[a-z]")


def _words(sentence: str) -> str:
    return _GAP.join(map(re.escape, sentence.strip(" .").split(" "))) + r"(?![^\W_])"


_PATTERN: Final = re.compile(
    rf"(?<![^\W_])(?P<words>(?P<patch>{_words(NO_PATCH)})"
    # Bounded, because what may stand between the two sentences overlaps.
    rf"(?P<ask_patch>\.?{_DRESS}{{0,8}}{_BREAK}?{_DRESS}{{0,8}}"
    rf"{_words(NO_PATCH_ASK.removeprefix(NO_PATCH))})?"
    f"|{_words(NO_GIT)}(?P<ask_git>{_GAP}{_words(NO_GIT_ASK.removeprefix(NO_GIT[:-1]))})?)",
    re.IGNORECASE,
)


def find_refusal(text: str, taken: Iterable[tuple[int, int]] = ()) -> Refusal | None:
    """Return the first refusal in the text outside the spans that are taken.

    A sentence that is quoted within another is talked about and not said.
    """
    begin = 0
    for start, end in (*taken, (len(text), len(text))):
        for match in _PATTERN.finditer(text, begin, start):
            if _is_talked_about(text, match):
                continue
            asks = match["ask_patch"] is not None or match["ask_git"] is not None
            first = 0 if match["patch"] is not None else 2
            return Refusal(SENTENCES[first + asks], 1 + text.count("\n", 0, match.start("words")))
        begin = end
    return None


def _is_talked_about(text: str, match: re.Match[str]) -> bool:
    """Say whether a sentence stands in quotes in the middle of another."""
    place = match.start()
    before = text[max(place - _MAX_DRESS, 0) : place].rpartition("\n")[2]
    lead_in = before.rstrip(_MARKS)
    if lead_in == "" or not set(before[len(lead_in) :]) & set(_QUOTES):
        return False
    if lead_in[-1] in ".!?":
        return False
    return lead_in[-1] != ":" or _GOES_ON.match(text, match.end()) is not None


_STRICT: Final = AnswerOptions()
_LIMITS: Final = AnswerLimits()
_BOM: Final = "\ufeff"


def decode_answer(raw: bytes) -> str:
    """Return the text of an answer, which is UTF-8 without NUL; a byte order mark is dropped."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = 1 + raw.count(b"\n", 0, problem.start)
        raise malformed_error(line, "answer.encoding", "the answer is not UTF-8") from problem
    _refuse_nul(text)
    return text.removeprefix(_BOM)


def parse_answer(
    text: str,
    *,
    format: Format | None = None,  # noqa: A002 - the word of the command line
    options: AnswerOptions = _STRICT,
    limits: AnswerLimits = _LIMITS,
    failures: list[CoilClawError] | None = None,
) -> Answer:
    """Read all blocks of an answer, or only those of one format; the rest of it is prose.

    What is wrong with its parts is raised as one error, or added to ``failures`` if that is given;
    then the parts that can be read are returned.
    """
    text = _normalise_answer(text, limits)
    wanted = answer_blocks.EVERY if format is None else frozenset({format})
    found = answer_blocks.AnswerSplitter(text, wanted, most=limits.operations).split()
    declined = find_refusal(text, ((segment.start, segment.end) for segment in found))
    if declined:
        return declined
    operations: list[Operation] = []
    failed: list[CoilClawError] = [] if failures is None else failures
    size = inflated = lines = 0
    for segment in found:
        form = FORMATS[segment.kind]
        lines += segment.text.count("\n") if form.by_lines else 0
        if lines > MAX_LINES:
            what = f"the patches of the answer have more than {MAX_LINES:,} lines"
            raise malformed_error(segment.first_line, "answer.bounds", what)
        read: tuple[Operation, ...] = ()
        with collect_failures(failed, segment.first_line):
            read = form.read(segment, options, failed)
        operations += read
        for operation in read:
            # An operation counts as often as it makes us search its file for a text.
            size += len(operation.replacements) if isinstance(operation, EditText) else 1
            inflated += len(operation.data) if isinstance(operation, PatchBinary) else 0
        if inflated > limits.total_bytes:
            what = f"the answer's binary patches hold more than {limits.total_bytes:,} bytes"
            raise malformed_error(segment.first_line, "answer.bounds", what)
        if size > limits.operations:
            what = f"the answer holds more than the bound of {limits.operations:,} operations"
            raise malformed_error(segment.first_line, "answer.bounds", what)
    if failed and failures is None:
        raise combine(failed)
    return ChangeSet(_merge_blocks(operations)) if operations else NoChanges()


def _normalise_answer(text: str, limits: AnswerLimits) -> str:
    """Check an answer as a whole; return it without the carriage returns that a transport added."""
    try:
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
    except UnicodeEncodeError as problem:
        line = 1 + text.count("\n", 0, problem.start)
        raise malformed_error(
            line, "answer.encoding", "the answer is not valid Unicode"
        ) from problem
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
        raise malformed_error(line, "answer.encoding", "the answer holds a NUL")


def _merge_blocks(operations: list[Operation]) -> tuple[Operation, ...]:
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
