"""``pdf_extract``: the text of a PDF, extracted in a sandbox because the file may be hostile."""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import output, workspace_path
from coilclaw.agent.tools.contract import (
    ReadyCall,
    Tool,
    failure,
    object_schema,
    success,
    text_argument,
)
from coilclaw.agent.tools.file_read import read_file
from coilclaw.kernel import (
    JsonFault,
    Reads,
    RegularFile,
    ToolResult,
    UsageError,
    quote_text,
    read_json_object,
)
from coilclaw.policy import Terms

if TYPE_CHECKING:
    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.agent.tools.workspace_path import WorkspacePath
    from coilclaw.kernel import Effect, Json
    from coilclaw.workspace import ProcessResult, Sandbox

FILE_BYTES: Final = 32 * 2**20
MAX_PAGES: Final = 200
"""Pages of one call."""
MEMORY_BYTES: Final = 2**30
_HEADER_BYTES: Final = 1024
_PAGES: Final = re.compile(r"([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5})?)?")
_ESCAPES: Final = 7
"""Bytes that one byte of text may take in JSON, with a margin."""

_WHY: Final = {
    "encrypted": "is encrypted and cannot be read without its password",
    "memory": f"needs more than {MEMORY_BYTES // 2**20} MiB to be read",
    "depth": "is nested too deeply",
}


@dataclass(frozen=True, slots=True)
class _Pages:
    """The requested pages, from 1, both included."""

    first: int
    last: int


class PdfExtract(Tool):
    """Reads the text of a PDF."""

    name = "pdf_extract"
    description = (
        "Get the text of a PDF of the workspace, page by page. 'pages' is one page or a range, "
        f"such as '3' or '2-5', at most {MAX_PAGES} pages; without it, from the beginning. "
        "Scanned pages have no text."
    )
    parameters_schema = object_schema(
        {
            "path": workspace_path.FILE_SCHEMA,
            "pages": {
                "type": "string",
                "pattern": f"^{_PAGES.pattern}$",
                "description": "a page or a range of pages, from 1: '3', '2-5' or '7-'",
            },
        },
        "path",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text_argument(args, "path")),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        where = workspace_path.find_path(text_argument(args, "path"), context)
        where.to_read()
        pages = _parse_pages(text_argument(args, "pages", "1-"))
        detail = f"read the text of {where}, pages {pages.first} to {pages.last}"
        return ReadyCall((detail,), lambda: _extract(where, pages, context))


def _parse_pages(given: str) -> _Pages:
    found = _PAGES.fullmatch(given)
    if found is None:
        raise UsageError("'pages' is neither a page nor a range", rule="pdf.pages")
    first = int(found[1])
    last = first if "-" not in given else first + MAX_PAGES - 1
    last = int(found[2]) if found[2] else last
    if not first <= last < first + MAX_PAGES:
        message = f"'pages' is a range of 1 to {MAX_PAGES} pages, the smaller number first"
        raise UsageError(message, rule="pdf.pages")
    return _Pages(first, last)


def _extract(where: WorkspacePath, pages: _Pages, context: ToolContext) -> ToolResult:
    name = quote_text(str(where))
    found = read_file(where, FILE_BYTES, context)
    if not isinstance(found, RegularFile):
        return found
    if b"%PDF-" not in found.content[:_HEADER_BYTES]:
        return failure(f"{name} is not a PDF", rule="pdf.malformed")
    return _report(name, found, _run(found.content, pages, context), pages, context)


def _run(content: bytes, pages: _Pages, context: ToolContext) -> ProcessResult:
    from coilclaw.workspace import command

    library, program = _library(), Path(__file__).with_name("pdfchild.py")
    limits = context.limits
    numbers = (
        *(pages.first, pages.last, limits.output_bytes, MEMORY_BYTES),
        math.ceil(limits.tool_timeout_s) + 1,
    )
    return command.run(
        # Without site, only the standard library and the given directory are importable.
        (sys.executable, "-I", "-S", "-B", str(program), str(library), *map(str, numbers)),
        cwd="/",
        timeout_s=limits.tool_timeout_s,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        stdin=content,
        limit_bytes=limits.output_bytes * _ESCAPES + 2**16,
        sandbox=_sandbox(context, (library, program)),
        support=context.probe_sandboxes(),
        cancel=context.cancel,
    )


def _library() -> Path:
    """Return the directory that holds pypdf, without importing it."""
    spec = find_spec("pypdf")
    if spec is None or spec.origin is None:
        raise UsageError("pypdf is not installed", rule="pdf.library", hint="pip install pypdf")
    return Path(spec.origin).parent.parent


def _sandbox(context: ToolContext, shown_paths: tuple[Path, ...]) -> Sandbox:
    """Return the sandbox of the process: it sees programs, but not the workspace or the file."""
    from coilclaw.agent.tools import command_environment
    from coilclaw.workspace import NO_SANDBOX

    if context.sandbox == "none":
        return NO_SANDBOX
    base = command_environment.command_sandbox(Terms(writable=False, network=False), context)
    system = [path for path in base.readable if path != context.root.path]
    python = (Path(sys.executable).parent, Path(sys.prefix), Path(sys.base_prefix))
    readable = tuple(dict.fromkeys((*system, *python, *shown_paths)))
    real = [os.path.realpath(path) for path in readable]
    return replace(
        base,
        readable=readable,
        hidden=tuple(path for path in base.hidden if any(path.is_relative_to(r) for r in real)),
        # Without a sandbox, a separate process with limits is still safer than this one.
        required=False,
    )


def _report(
    name: str, found: RegularFile, result: ProcessResult, pages: _Pages, context: ToolContext
) -> ToolResult:
    from coilclaw.agent.tools import command_environment

    lines, is_whole = _read_lines(result)
    metadata: dict[str, Json] = {
        "bytes": len(found.content),
        "sha256": found.digest,
        "sandbox": command_environment.describe_sandbox(result.enforced, writable=False),
    }
    wrong = next((line for line in lines if "error" in line), None)
    total = lines[0].get("total") if lines else None
    if wrong is not None:
        rule = str(wrong["error"])
        what = _WHY.get(rule) or f"is malformed: {quote_text(str(wrong.get('detail', '')))}"
    elif not result.ok or not is_whole or not isinstance(total, int):
        rule, what = "process", _explain_end(result, context)
    elif pages.first > total:
        rule, what = "pages", f"has only {total} pages; page {pages.first} was requested"
        metadata["pages"] = total
    else:
        metadata["pages"] = total
        return _show_pages(lines[1:], total, metadata, context.limits.output_bytes)
    return ToolResult(False, "", f"{name} {what}", {**metadata, "rule": f"pdf.{rule}"})


def _show_pages(
    lines: list[dict[str, Json]], total: int, metadata: dict[str, Json], bound: int
) -> ToolResult:
    """Return as many pages as fit, and where to continue."""
    told, last = "", 0
    for line in lines:
        page = int(str(line["page"]))
        written = str(line["text"]).encode("utf-8", "replace").decode("utf-8").rstrip()
        piece = f"[page {page} of {total}]\n{written}\n"
        room = bound - output.text_size(told) - 2 * output.NOTICE_BYTES
        if output.text_size(piece) > room or line["cut"]:
            if not told:
                kept, lost = output.end_cut(piece, room)
                note = f"[page {page} is cut; {lost} bytes or more are missing]"
                told, last = f"{kept}\n{note}\n", page
            break
        told, last = told + piece, page
    more = f"[continue with pages '{last + 1}-']\n" if last < total else ""
    return success(told + more, {**metadata, "last": last})


def _read_lines(result: ProcessResult) -> tuple[list[dict[str, Json]], bool]:
    """Return the lines of the process, and whether all of them could be read."""
    found: list[dict[str, Json]] = []
    try:
        found.extend(map(read_json_object, result.stdout.head.splitlines()))
    except JsonFault:
        return found, False
    return found, not result.stdout.dropped


def _explain_end(result: ProcessResult, context: ToolContext) -> str:
    if result.outcome == "cancelled":
        return f"was not read to its end: {context.cancel.reason or 'it was cancelled'}"
    if result.outcome == "timed_out":
        return f"could not be read within {context.limits.tool_timeout_s:g} s"
    said = result.stderr.data[-200:].decode("utf-8", "replace").strip()
    return f"could not be read: the reader ended early ({quote_text(said)})"
