"""Reports of runs: every text is escaped, every bundle can be told, nothing is unbounded."""

from __future__ import annotations

import dataclasses
import os
import shutil
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from coilclaw.runs.evidence.verification import verify_run
from coilclaw.runs.report import page_elements, report_reader
from coilclaw.runs.report.page_elements import Element
from coilclaw.runs.report.patch_view import DiffRow, DiffSide, FileDiff, show_file
from coilclaw.runs.report.report_page import render_page
from coilclaw.runs.report.report_reader import RunReport, read_report
from coilclaw.runs.report.report_sections import TestedCommand
from coilclaw.runs.report.report_source import MAX_TEXT_CHARS, Excerpt, ReportSource
from tests.support.bundles import CHILD, TASK, World, sealed
from tests.support.html_page import EVIL, Page


def report_of(world: World, redact: Any = lambda text: text) -> RunReport:
    return read_report(
        world.directory, verify_run(world.directory, key_path=world.key_path), redact
    )


def page_of(world: World, redact: Any = lambda text: text) -> Page:
    return Page(render_page(report_of(world, redact))).check()


def evil(kind: Any) -> Any:
    """Make a value of a type with hostile text wherever it can hold text."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Element:
        child = Element("span", (EVIL,), (("class", EVIL), ("title", EVIL)))
        return Element("p", (EVIL, child), (("title", EVIL),))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, vars(report_reader), {"Node": Element, "Mapping": dict})
        return kind(**{f.name: evil(hints[f.name]) for f in dataclasses.fields(kind)})  # type: ignore[operator]  # a class
    if origin is dict:
        return {"Outcome": evil(arguments[1]), "Done later": evil(arguments[1])}
    if origin is typing.Literal:
        return arguments[-1]
    if origin is tuple:
        inner = arguments[:1] if arguments[-1] is Ellipsis else arguments
        made = tuple(evil(each) for each in inner)
        return made * 2 if arguments[-1] is Ellipsis else made
    if origin in {typing.Union, types.UnionType}:
        return evil(next(each for each in arguments if each is not type(None)))
    return {str: EVIL, int: 7, float: 1.5, bool: False}[kind]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A run that was repaired and passed; tests copy what they change."""
    return sealed(tmp_path_factory.mktemp("report"))


@pytest.fixture
def copy(world: World, tmp_path: Path) -> World:
    made = world.copied(tmp_path)
    for path in (made.directory, *made.directory.rglob("*")):
        path.chmod(0o755)
    return made


def test_hostile_text_in_every_field_stays_text() -> None:
    report = evil(RunReport)
    for state in ("holds", "broken", "unfinished"):
        page = Page(render_page(dataclasses.replace(report, verification=state))).check()
        assert "<script>alert(1)</script>" in page.text
        assert "\\u202e" in page.text
        assert "\\x1b[2J" in page.text


def test_hostile_text_in_every_part_of_a_section_stays_text() -> None:
    output = Excerpt(EVIL, EVIL)
    sides = (DiffSide(1, f"same {EVIL} 1"), DiffSide(1, f"same {EVIL} 2"))
    rows = (DiffRow(heading=EVIL), DiffRow(*sides), DiffRow(*sides, changed=True))
    parts = {
        "file": show_file(FileDiff(EVIL, f"{EVIL}.old", "renamed", 1, 1, rows, (EVIL,))),
        "passed": TestedCommand(EVIL, EVIL, True, 0, 1.5, output, output).show(),
        "failed": TestedCommand(EVIL, EVIL, True, 7, None, output, output).show_end(),
        "excerpt": page_elements.show_excerpt(output),
        "facts": page_elements.show_facts([(EVIL, EVIL)]),
        "table": page_elements.make_table((EVIL,), [(EVIL, page_elements.make_code(EVIL))]),
        "nothing": page_elements.make_table((), [], EVIL),
        "details": page_elements.make_details(EVIL, page_elements.make_pill(EVIL, "bad")),
        "list": page_elements.make_list("codes", [EVIL, page_elements.join_dots(EVIL, EVIL)]),
        "heading": page_elements.add_heading(EVIL, page_elements.make_note(EVIL)),
    }
    page = Page(render_page(dataclasses.replace(evil(RunReport), sections=parts))).check()
    assert list(page.sections) == list(parts)
    for name in parts:
        assert "<script>alert(1)</script>" in page.sections[name], name
        assert "\\u202e" in page.sections[name], name


def test_a_sealed_run_is_told_from_end_to_end(world: World) -> None:
    page = page_of(world)
    assert list(page.sections) == [
        "outcome", "verification", "timeline", "contract", "tasks", "changes", "gates", "tests",
        "reviews", "approvals", "tokens", "audits",
    ]  # fmt: skip
    run_id = world.run_id
    for section, words in {
        "outcome": ("Passed", "Make one into two — schön."),
        "verification": ("The evidence holds", f"coilclaw runs verify {run_id}"),
        "timeline": ("The acceptance tests failed.", f"{CHILD} repairs it", "attempt 2"),
        "contract": ("src/app",),
        "tasks": (TASK, CHILD),
        "changes": ("src/app/a.py",),
        "gates": ("1 red", "tests_gate"),
        "tests": ("passed: False", "passed: True", "pytest -q 'tests/a b'", "may fail"),
        "reviews": ("A name could be better.", "reviewer-1"),
        "approvals": ("No approval was needed.",),
    }.items():
        for word in words:
            assert word in page.sections[section], (section, word)


def test_known_secrets_are_taken_out_of_what_the_bundle_keeps_as_it_is(world: World) -> None:
    assert "src/app/a.py" in page_of(world).sections["changes"]
    page = page_of(world, lambda text: text.replace("a.py", "[redacted]"))
    assert "a.py" not in page.source
    assert "src/app/[redacted]" in page.sections["changes"]


def test_a_run_that_goes_on_is_told_as_far_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin()
    report = report_of(world)
    assert (report.standing, report.verification) == ("interrupted", "unfinished")
    assert report.next_commands == (f"coilclaw runs resume {world.run_id}",)
    assert "is not sealed yet" in page_of(world).sections["verification"]


def test_tokens_of_a_task_are_summed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin()
    usage = '{"type":"text","usage":{"input_tokens":%d,"output_tokens":%s}}'
    for line in (usage % (10, 3), usage % (5, "null"), "no json", '{"type":"text"}'):
        world.bundle.append(f"codex/{TASK}/events.jsonl", line)
    page = page_of(world)
    assert f"<tr><td>{TASK}</td><td></td><td>2</td><td>15</td><td>3</td></tr>" in page.source
    assert page.sections["tokens"].count(TASK) == 1
    assert "What the agent did (3 parts)" in page.sections["tasks"]


def test_a_directory_without_anything_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    shutil.rmtree(world.directory, ignore_errors=True)
    world.directory.mkdir(parents=True)
    page = page_of(world)
    assert "Nothing was recorded" in page.sections["outcome"]


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    match how:
        case "garbage":
            path.write_bytes(b'{"a": [' + b"[" * 100_000)
        case "other":
            path.write_bytes(b'[1, {"commands": [1, {"cmd_argv": 7}], "findings": {}}]')
        case "link":
            (path.parent / ".there").write_bytes(data)
            path.symlink_to(".there")
        case "directory":
            path.mkdir()
        case "changed":
            path.write_bytes(data + b" ")


@pytest.mark.parametrize("how", ["gone", "garbage", "other", "link", "directory", "changed"])
@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "events.jsonl",
        "contract.json",
        "patch.diff",
        f"tasks/{CHILD}.json",
        f"ci/{CHILD}/report-1.json",
        f"reviews/{TASK}.json",
    ],
)
def test_spoilt_evidence_is_said_at_the_top_and_the_rest_is_told(
    copy: World, name: str, how: str
) -> None:
    spoil(copy.directory / name, how)
    report = report_of(copy)
    assert report.verification == "broken"
    page = Page(render_page(report)).check()
    assert "The evidence does not hold" in page.text.partition("Outcome")[0]
    assert "Claimed, and not proven" in page.sections["outcome"]


def test_paths_in_events_lead_nowhere_else(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"summary": "outside"}')
    source = ReportSource(world.directory, lambda text: text)
    up = os.path.relpath(secret, world.directory)
    assert source.load(up) is None
    assert source.load(str(secret)) is None
    assert source.tail(up, 10).text == ""
    assert source.load("reports/task_result.json") is not None


def test_long_output_is_cut_to_its_end_and_says_so(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100_000)]
    (tmp_path / "log").write_text("\n".join([*lines, "y" * 10_000, "last"]))
    (tmp_path / "one").write_text("z" * 2**20)
    source = ReportSource(tmp_path, lambda text: text)
    tail = source.tail("log", 50)
    assert tail.text.startswith("line 99952\n")
    assert tail.text.endswith("(8000 more characters)\nlast")
    assert tail.note.endswith("all of it is in log")
    assert len(source.tail("one", 50).text) < MAX_TEXT_CHARS
    assert source.excerpt("a" * (MAX_TEXT_CHARS + 5)).note == "5 more characters are left out"
    assert source.excerpt("short") == Excerpt("short")


def test_no_part_of_a_secret_is_left_where_a_text_is_cut(tmp_path: Path) -> None:
    secret = "s3cret-" * 20

    def redact(text: str) -> str:
        return text.replace(secret, "[redacted]")

    source = ReportSource(tmp_path, redact)
    text = "a" * (MAX_TEXT_CHARS - 10) + secret + "b" * 100
    assert "s3cret" not in source.excerpt(text).text
    (tmp_path / "log").write_text(secret * 5000)
    tail = source.tail("log", 10).text
    assert "[redacted]" in tail
    assert "s3cret" not in tail
