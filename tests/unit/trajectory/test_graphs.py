"""Graphs: figures, pictures, the report that holds nothing foreign, and the table."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coilclaw.traces.environments.results import Delta
from coilclaw.traces.evaluation import graph_pictures
from coilclaw.traces.evaluation.evaluation import evaluate
from coilclaw.traces.evaluation.graph import Graph, Score, graph_of
from coilclaw.traces.evaluation.graph_pictures import PICTURES, draw, draw_all
from coilclaw.traces.evaluation.recorded_trace import Recording
from coilclaw.traces.evaluation.report import (
    format_duration,
    format_number,
    html_report,
    render_table,
)
from coilclaw.traces.trajectory.trace import TokenUsage
from tests.support.recordings import (
    BUILD_FAILS,
    CASES,
    VANISHES,
    FakeJudge,
    court,
    passing,
    recording,
)

EVIL = '"><script src="https://evil.invalid/x.js">alert(1)</script>\u202e\x1b[2J$\\frac{$'

STORY = [
    None,
    passing("basics/get"),
    passing("basics/get", "basics/set", "edge/empty"),
    None,
    passing("basics/set", "edge/empty"),
    passing(BUILD_FAILS),
    passing(*CASES),
]


def graph_in(folder: Path) -> Graph:
    return graph_of(evaluate(recording(folder, STORY), court(folder, FakeJudge())))


def test_the_points_say_what_each_part_broke_and_fixed(tmp_path: Path) -> None:
    graph = graph_in(tmp_path)
    told = [(point.part, point.new_tree, str(point.score)) for point in graph.points]
    assert told == [
        (1, False, "0/5"),
        (2, True, "1/5"),
        (3, True, "3/5"),
        (4, False, "3/5"),
        (5, True, "2/5"),
        (6, True, "0/5"),
        (7, True, "5/5"),
    ]
    assert [point.part for point in graph.regressions] == [5, 6]
    assert graph.points[4].change == Delta(newly_broken=("basics/get",))
    assert graph.points[5].error == "build.sh ended with exit code 1"
    assert graph.best == graph.points[6]
    assert [point.part for point in graph.rows] == [2, 3, 5, 6, 7]
    assert graph.suites == ("basics", "edge", "durability")
    assert graph.points[2].suites["basics"] == Score(2, 2)
    assert graph.cases[0] == "basics/get"
    assert graph.statuses[0] == (
        "failed",
        "passed",
        "passed",
        "passed",
        "failed",
        "failed",
        "passed",
    )


def test_the_first_part_that_reached_a_share(tmp_path: Path) -> None:
    graph = graph_in(tmp_path)
    found = {share: graph.first_at(share) for share in (0.2, 0.5, 1.0)}
    assert {share: point.part for share, point in found.items() if point} == {
        0.2: 2,
        0.5: 3,
        1.0: 7,
    }


def test_tokens_are_summed_and_those_of_a_turn_count_where_parts_tell_none(tmp_path: Path) -> None:
    graph = graph_in(tmp_path)
    assert (graph.points[-1].input_tokens, graph.points[-1].output_tokens) == (700, 70)
    recorded = recording(tmp_path / "other", STORY)
    trace = recorded.trace
    usage = TokenUsage(input_tokens=900, output_tokens=None)
    both = replace(trace, turns=(replace(trace.turns[0], token_usage=usage),))
    silent = replace(both, parts=tuple(replace(part, token_usage=None) for part in trace.parts))
    told = {}
    for name, told_by in (("both", both), ("turns alone", silent)):
        other = Recording(told_by, recorded.git, recorded.trees)
        points = graph_of(evaluate(other, court(tmp_path / "other", FakeJudge()))).points
        told[name] = [(point.input_tokens, point.output_tokens) for point in points][-2:]
    assert told == {"both": [(600, 60), (700, 70)], "turns alone": [(0, 0), (900, 0)]}


def test_what_could_not_be_judged_has_no_score_and_breaks_nothing(tmp_path: Path) -> None:
    parts = [passing("basics/get"), passing(VANISHES), passing("basics/get", "x")]
    graph = graph_of(evaluate(recording(tmp_path, parts), court(tmp_path, FakeJudge())))
    assert [point.score for point in graph.points] == [Score(1, 5), None, Score(1, 5)]
    assert graph.regressions == ()
    assert graph.statuses[0] == ("passed", None, "passed")
    assert draw(graph, "cases", "svg")
    assert b"the judge is gone" in html_report(graph)


@pytest.mark.parametrize("picture", PICTURES)
def test_each_picture_is_drawn_and_the_same_twice(tmp_path: Path, picture: str) -> None:
    graph = graph_in(tmp_path)
    chosen = next(one for one in PICTURES if one == picture)
    svg = draw(graph, chosen, "svg")
    assert svg.startswith(b"<?xml")
    assert svg == draw(graph, chosen, "svg")


def test_all_pictures_in_one_file(tmp_path: Path) -> None:
    graph = graph_in(tmp_path)
    png = draw_all(graph, "png")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    assert width == 1320
    assert height > 1000


def test_one_part_is_seen_at_its_whole_number(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    one = recording(tmp_path, [passing("basics/get")])
    graph = graph_of(evaluate(one, court(tmp_path, FakeJudge())))
    for picture in (
        graph_pictures._draw_progress,
        graph_pictures._draw_suites,
        graph_pictures._draw_cost,
    ):
        figure = Figure()
        picture(graph, figure)
        shown = [axes for axes in figure.axes if axes.lines]
        assert shown
        for axes in shown:
            assert axes.lines[0].get_marker() == "o"
            assert all(tick == int(tick) for tick in axes.get_xticks())


def test_a_trajectory_without_parts_can_be_drawn_too(tmp_path: Path) -> None:
    graph = graph_of(evaluate(recording(tmp_path, []), court(tmp_path, FakeJudge())))
    assert graph.points == ()
    assert draw_all(graph, "png")
    assert b"Trajectory made-by-hand" in html_report(graph)
    assert len(render_table(graph)) == 2


ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "h2",
        "p",
        "div",
        "b",
        "span",
    ),
    *("figure", "img", "table", "thead", "tbody", "tr", "th", "td", "code", "footer"),
}


class _Page(HTMLParser):
    """What a page loads and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in {"src", "href", "action", "srcset"}:
                self.sources.append(value or "")


def test_the_report_loads_nothing_and_runs_nothing_whatever_it_is_told(tmp_path: Path) -> None:
    graph = graph_in(tmp_path)
    cases = tuple(f"{name}{EVIL}" for name in graph.cases)
    point = replace(
        graph.points[4],
        summary=EVIL,
        error=EVIL,
        commit=EVIL,
        suites={EVIL: Score(1, 2)},
        change=Delta(newly_broken=(cases[0],)),
    )
    evil = replace(
        graph,
        trajectory_id=EVIL,
        agent=EVIL,
        agent_model=EVIL,
        environment=EVIL,
        end=EVIL,
        started_at=EVIL,
        points=(*graph.points[:4], point),
        suites=(EVIL,),
        cases=cases,
        statuses=tuple(row[:5] for row in graph.statuses),
    )
    text = html_report(evil).decode("utf-8")
    page = _Page()
    page.feed(text)
    assert "script" not in page.tags
    assert set(page.tags) <= ALLOWED
    assert len(page.sources) == len(PICTURES)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert "default-src 'none'" in text
    assert not re.search(r"[\u202e\x1b]", text)
    assert "&lt;script" in text
    assert draw_all(evil, "png")


def test_the_report_names_what_broke_and_who_repaired_it(tmp_path: Path) -> None:
    text = html_report(graph_in(tmp_path)).decode("utf-8")
    rows = re.findall(r"<tr[^>]*>.*?</tr>", text)
    (broke,) = [row for row in rows if "all by part 7" in row and "basics/get" in row]
    assert '<td class="n">5</td>' in broke
    assert "what part 5 did" in broke


def test_the_table_has_a_line_a_state(tmp_path: Path) -> None:
    lines = [line for line, _ in render_table(graph_in(tmp_path))]
    assert lines[0].split() == [
        "part", "turn", "commit", "time", "in", "out", "basics", "edge", "durability", "all",
    ]  # fmt: skip
    assert len(lines) == 2 + 5
    assert "▼ 1 broken" in lines[4]
    assert [broken for _, broken in render_table(graph_in(tmp_path / "again"))][2:] == [
        False,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0.0 s"), (59_900, "59.9 s"), (245_000, "4:05"), (3_723_000, "1:02:03")],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text


def test_thousands() -> None:
    assert format_number(1234567) == "1\u202f234\u202f567"
