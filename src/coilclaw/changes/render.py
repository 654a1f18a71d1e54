"""A change set → the answer that a model would have written, in one format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from coilclaw.changes import blocks, bundle, envelope, fence, gitpatch, structured
from coilclaw.changes.fault import inexpressible
from coilclaw.changes.operations import Format

if TYPE_CHECKING:
    from coilclaw.changes.operations import ChangeSet, Operation


def render(change_set: ChangeSet, format: Format) -> str:  # noqa: A002 - the word of the command line
    """Return an answer that reads as the change set; raise ``UsageError`` if there is none."""
    if not change_set.operations:
        raise inexpressible("an answer cannot hold a change set without operations")
    text = _written(change_set.operations, format)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise inexpressible("an answer cannot hold content that is not UTF-8") from problem
    if "\0" in text:
        raise inexpressible("an answer cannot hold content with a NUL")
    return text


def _written(operations: tuple[Operation, ...], form: Format) -> str:
    match form:
        case Format.FENCE:
            return fence.render(operations)
        case Format.BUNDLE:
            return bundle.render(operations)
        case Format.PATCH:
            return structured.render(operations)
        case Format.GIT:
            return _in_code_block("patch", gitpatch.render(operations))
        case Format.ENVELOPE:
            return envelope.render(operations)
        case Format.BLOCKS:
            return blocks.render(operations)


def _in_code_block(label: str, text: str) -> str:
    longest = max(map(len, re.findall(r"^[ \t]*(`+)", text, re.MULTILINE)), default=0)
    fence_line = "`" * max(3, longest + 1)
    return f"{fence_line}{label}\n{text}{fence_line}\n"
