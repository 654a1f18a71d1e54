"""``pdf_extract``: real files, real child processes, and files that mean harm."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.agent.tools import contract, pdf_extract
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.pdf_extract import PdfExtract
from coilclaw.kernel.effects import Reads
from coilclaw.kernel.errors import DeniedError, UsageError
from coilclaw.kernel.messages import ToolResult
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.children import PATIENCE_S
from tests.support.sandboxes import supported
from tests.support.toolworld import World, world


def document(*objects: bytes, root: int = 1) -> bytes:
    """A PDF of these objects, numbered from 1."""
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return data + trailer % (len(objects) + 1, root, start)


def stream(content: bytes, extra: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), extra, content)


def pdf(*texts: str) -> bytes:
    """A PDF with one page for each text."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * index) for index in range(len(texts)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(texts)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(texts):
        shown = b"BT /F1 12 Tf 50 700 Td (%s) Tj ET" % text.encode("latin-1")
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * index),
            stream(shown),
        ]
    return document(*objects)


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


@pytest.fixture
def here(tmp_path: Path, support: SandboxSupport) -> Iterator[World]:
    with world(tmp_path.resolve()) as made:
        (made.workspace / "three.pdf").write_bytes(pdf("alpha", "beta", "gamma"))
        yield made.using(support=lambda: support)


def written(here: World, data: bytes) -> World:
    (here.workspace / "x.pdf").write_bytes(data)
    return here


def failed(told: ToolResult, rule: str) -> bool:
    return (told.success, told.output, told.metadata.get("rule")) == (False, "", rule)


def test_all_pages_are_told_with_their_numbers(here: World) -> None:
    told = here.call(PdfExtract(), path="three.pdf")
    data = (here.workspace / "three.pdf").read_bytes()
    assert told == ToolResult(
        True,
        "[page 1 of 3]\nalpha\n[page 2 of 3]\nbeta\n[page 3 of 3]\ngamma\n",
        None,
        {
            "bytes": len(data),
            "sha256": told.metadata["sha256"],
            "sandbox": "bubblewrap fs=read-only net=blocked",
            "pages": 3,
            "last": 3,
        },
    )
    assert PdfExtract().effects({"path": "three.pdf"}) == (Reads("three.pdf"),)
    prepared = PdfExtract().prepare({"path": "three.pdf", "pages": "2"}, here.context)
    assert prepared.detail == ("read the text of three.pdf, pages 2 to 2",)


@pytest.mark.parametrize("kind", ["landlock", "none"])
def test_other_sandboxes_and_none_at_all_do(here: World, kind: str) -> None:
    other = supported("landlock") if kind == "landlock" else SandboxSupport()
    told = here.using(sandbox=kind, support=lambda: other).call(PdfExtract(), path="three.pdf")
    assert told.output.startswith("[page 1 of 3]\nalpha\n")
    assert str(told.metadata["sandbox"]).startswith(kind)


@pytest.mark.parametrize(
    ("pages", "output"),
    [
        ("1", "[page 1 of 3]\nalpha\n[continue with pages '2-']\n"),
        ("2-3", "[page 2 of 3]\nbeta\n[page 3 of 3]\ngamma\n"),
        ("2-", "[page 2 of 3]\nbeta\n[page 3 of 3]\ngamma\n"),
        ("3-100", "[page 3 of 3]\ngamma\n"),
    ],
)
def test_a_range_of_pages(here: World, pages: str, output: str) -> None:
    assert here.call(PdfExtract(), path="three.pdf", pages=pages).output == output


@pytest.mark.parametrize("pages", ["0", "3-2", "1-201", "x", "", "1,2", "-3", "1-2-3", "1000000"])
def test_what_is_no_range_is_refused(here: World, pages: str) -> None:
    with pytest.raises(UsageError) as problem:
        here.call(PdfExtract(), path="three.pdf", pages=pages)
    assert problem.value.rule == "pdf.pages"


def test_the_schema_takes_what_the_tool_takes() -> None:
    tool = PdfExtract()
    for pages in ("1", "2-5", "7-"):
        assert contract.check(tool.parameters_schema, {"path": "x", "pages": pages}) == ()
    for pages in ("0", "x", "1,2", "1 ", "-1"):
        assert contract.check(tool.parameters_schema, {"path": "x", "pages": pages})


def test_pages_that_are_not_there_are_said(here: World) -> None:
    told = here.call(PdfExtract(), path="three.pdf", pages="4")
    assert failed(told, "pdf.pages")
    assert told.error == "'three.pdf' has only 3 pages; page 4 was requested"


def test_files_are_reached_like_those_of_file_read(here: World) -> None:
    tool = PdfExtract()
    for path, rule in (("none.pdf", "file.missing"), (".", None), ("folder", "file.kind")):
        (here.workspace / "folder").mkdir(exist_ok=True)
        if rule is None:
            with pytest.raises(DeniedError):
                here.call(tool, path=path)
        else:
            assert failed(here.call(tool, path=path), rule), path
    for path in ("../x.pdf", "/etc/x.pdf"):
        with pytest.raises(DeniedError) as denied:
            here.call(tool, path=path)
        assert denied.value.rule == "path.outside"
    (here.workspace / "link.pdf").symlink_to("/etc/passwd")
    with pytest.raises(DeniedError):
        here.call(tool, path="link.pdf")
    (here.workspace / "private").mkdir()
    (here.workspace / "private" / "x.pdf").write_bytes(pdf("secret"))
    hidden = here.using(forbidden_paths=(str(here.workspace / "private"),))
    with pytest.raises(DeniedError) as denied:
        hidden.call(tool, path="private/x.pdf")
    assert denied.value.rule == "path.forbidden"
    assert here.call(tool, path="private/x.pdf").success
    os.mkfifo(here.workspace / "pipe.pdf")
    assert failed(here.call(tool, path="pipe.pdf"), "file.kind")


def test_a_file_that_is_too_large_is_not_read(here: World) -> None:
    with (here.workspace / "x.pdf").open("wb") as file:
        file.truncate(pdf_extract.FILE_BYTES + 1)
    assert failed(here.call(PdfExtract(), path="x.pdf"), "file.unfit")


def test_an_encrypted_file_is_said_to_be_one(here: World) -> None:
    import pypdf

    made, out = pypdf.PdfWriter(), io.BytesIO()
    made.append(io.BytesIO(pdf("secret")))
    made.encrypt("word", algorithm="RC4-128")
    made.write(out)
    told = written(here, out.getvalue()).call(PdfExtract(), path="x.pdf")
    assert failed(told, "pdf.encrypted")
    assert told.error == "'x.pdf' is encrypted and cannot be read without its password"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"%PDF-1.4",
        b"%PDF-1.4\n" + b"\0" * 5000,
        pdf("alpha")[:200],
        pdf("alpha").replace(b"/Pages 2 0 R", b"/Pages 9 0 R"),
        document(b"<< /Type /Catalog >>"),
        b"%PDF-1.4\n" + b"[" * 100_000,
    ],
)
def test_what_is_malformed_is_a_failure(here: World, data: bytes) -> None:
    told = written(here, data).call(PdfExtract(), path="x.pdf")
    assert told.success is False
    assert str(told.metadata["rule"]).startswith("pdf.")
    assert told.error
    assert "\n" not in told.error


def test_a_tree_of_pages_that_holds_itself_ends(here: World) -> None:
    data = document(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>",
    )
    quick = here.using(limits=ToolLimits(tool_timeout_s=5))
    began = time.monotonic()
    told = written(quick, data).call(PdfExtract(), path="x.pdf")
    assert time.monotonic() - began < PATIENCE_S
    assert not told.success or told.metadata["pages"] == 0


def bomb(size: int) -> bytes:
    """A page whose content is a small stream that inflates to something large."""
    packed = zlib.compressobj(9)
    data = packed.compress(b"BT /F1 12 Tf ")
    data += b"".join(packed.compress(b"(x) Tj " * 2**17) for _ in range(size // (7 * 2**17)))
    data += packed.flush()
    return document(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 1 1] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        stream(data, b"/Filter /FlateDecode"),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )


def test_a_bomb_hurts_nobody_but_the_child(here: World) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    quick = here.using(limits=ToolLimits(tool_timeout_s=4))
    began = time.monotonic()
    told = written(quick, bomb(2**29)).call(PdfExtract(), path="x.pdf")
    assert time.monotonic() - began < PATIENCE_S
    assert told.success is False
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_child_that_takes_too_long_is_ended(here: World) -> None:
    quick = here.using(limits=ToolLimits(tool_timeout_s=0.5))
    told = written(quick, bomb(2**22)).call(PdfExtract(), path="x.pdf")
    assert failed(told, "pdf.process")
    assert told.error == "'x.pdf' could not be read within 0.5 s"


def child(data: bytes, *, memory: int, seconds: int) -> subprocess.CompletedProcess[bytes]:
    """The program itself, without the sandbox and the time limit around it."""
    program = Path(pdf_extract.__file__).with_name("pdfchild.py")
    numbers = ("1", "200", "65536", str(memory), str(seconds))
    library = str(pdf_extract._library())
    line = [sys.executable, "-I", "-S", "-B", str(program), library, *numbers]
    return subprocess.run(line, input=data, capture_output=True, timeout=60, check=False)


def test_the_child_limits_itself(here: World) -> None:
    done = child(pdf("alpha"), memory=pdf_extract.MEMORY_BYTES, seconds=60)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"total": 1},
        {"page": 1, "text": "alpha", "cut": False},
    ]
    done = child(pdf("alpha") + b"\n" * 2**27, memory=2**27, seconds=60)
    assert json.loads(done.stdout) == {"error": "memory"}
    done = child(bomb(2**22), memory=pdf_extract.MEMORY_BYTES, seconds=1)
    assert done.returncode in {-signal.SIGXCPU, -signal.SIGKILL}


def test_a_stop_is_heard(here: World) -> None:
    cancel = Cancellation()
    cancel.cancel("the emergency stop is set")
    told = here.using(cancel=cancel).call(PdfExtract(), path="three.pdf")
    assert failed(told, "pdf.process")
    assert told.error == "'three.pdf' was not read to its end: the emergency stop is set"


def test_what_does_not_fit_is_left_for_the_next_call(here: World) -> None:
    pages = [f"{number} " + "word " * 60 for number in range(10)]
    narrow = here.using(limits=ToolLimits(output_bytes=1200))
    told = written(narrow, pdf(*pages)).call(PdfExtract(), path="x.pdf")
    assert told.success
    assert len(told.output.encode()) <= 1200
    last = told.metadata["last"]
    assert isinstance(last, int)
    assert 1 <= last < 10
    assert told.output.endswith(f"[continue with pages '{last + 1}-']\n")
    following = narrow.call(PdfExtract(), path="x.pdf", pages=f"{last + 1}-")
    assert following.output.startswith(f"[page {last + 1} of 10]\n{last} word")


def test_one_page_that_does_not_fit_is_cut_and_said_so(here: World) -> None:
    narrow = here.using(limits=ToolLimits(output_bytes=600))
    told = written(narrow, pdf("word " * 1000, "next")).call(PdfExtract(), path="x.pdf")
    assert told.success
    assert len(told.output.encode()) <= 600
    assert "[page 1 is cut; " in told.output
    assert told.output.endswith("[continue with pages '2-']\n")


def test_the_child_sees_nothing_and_writes_nothing(here: World) -> None:
    """What holds for it, in so many words: neither workspace nor home, and no network."""
    for kind in ("bubblewrap", "landlock"):
        context = replace(here.context, sandbox=kind)
        held = pdf_extract._sandbox(context, ())
        assert held.writable == ()
        assert held.network is False
        shown = [os.path.realpath(path) for path in held.readable or ("/",)]
        for private in (here.workspace, here.home):
            assert not any(str(private).startswith(f"{path}/") for path in shown)
