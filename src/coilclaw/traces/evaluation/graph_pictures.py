"""Pictures of a ``Graph``: progress, suites, cases, tokens and time; as SVG and as PNG.

The only module that uses the plotting library, which is loaded when something is drawn.
"""

from __future__ import annotations

import io
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from coilclaw.traces.evaluation.graph import Graph

Picture: TypeAlias = Literal["progress", "suites", "cases", "cost"]
PICTURES: Final[tuple[Picture, ...]] = ("progress", "suites", "cases", "cost")
FileForm: TypeAlias = Literal["svg", "png"]

COLOURS: Final = {
    "passed": "#009e73",
    "failed": "#f3cdb6",
    "error": "#cc79a7",
    "timeout": "#e69f00",
    "skipped": "#bbbbbb",
}
"""Distinguishable for people with colour blindness, too."""
UNKNOWN: Final = "#ffffff"
BAD: Final = "#c44e00"
LINE: Final = "#0072b2"
DARK: Final = "#333333"
WIDTH_IN: Final = 11.0
DPI: Final = 120
MAX_NAMED_CASES: Final = 80
MAX_SUITES: Final = 48
MAX_CASE_HEIGHT_IN: Final = 24.0
MAX_MARKED: Final = 2000
NOTHING: Final = "nothing was judged"
_NAME: Final = 60
_COLUMNS: Final = 4


def draw(graph: Graph, picture: Picture, form: FileForm) -> bytes:
    """Draw one picture into a file of its own."""
    with _apply_settings():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, _measure_height(graph, picture)), layout="constrained")
        _DRAWN[picture](graph, figure)
        return _save(figure, form)


def draw_all(graph: Graph, form: FileForm) -> bytes:
    """Draw all pictures below each other into one file."""
    heights = [_measure_height(graph, picture) for picture in PICTURES]
    with _apply_settings():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, sum(heights)), layout="constrained")
        rows: Any = figure.subfigures(len(PICTURES), 1, height_ratios=heights)
        for picture, row in zip(PICTURES, rows, strict=True):
            _DRAWN[picture](graph, row)
        figure.suptitle(_format_title(graph), fontsize=13, fontweight="bold")
        return _save(figure, form)


@contextmanager
def _apply_settings() -> Iterator[None]:
    import matplotlib as mpl

    wanted: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "svg.fonttype": "path",
        # The same graph gives the same bytes.
        "svg.hashsalt": "coilclaw",
        # Names of cases are names, and no formulas.
        "text.parse_math": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        # Whatever settings lie in the current directory have no say.
        mpl.rcdefaults()
        mpl.rcParams.update(wanted)
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _save(figure: Figure, form: FileForm) -> bytes:
    target = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(target, format=form, dpi=DPI, metadata=metadata)
    return target.getvalue()


def _format_title(graph: Graph) -> str:
    said = " · ".join(
        _shorten(one) for one in (graph.trajectory_id, graph.agent, graph.agent_model) if one
    )
    return f"{said} · {graph.end}"


def _measure_height(graph: Graph, picture: Picture) -> float:
    if picture == "suites":
        shown = min(len(graph.suites), MAX_SUITES)
        return 0.5 + 1.7 * max(1, -(-shown // _COLUMNS))
    if picture == "cases":
        named = len(graph.cases) <= MAX_NAMED_CASES
        height = len(graph.cases) * (0.17 if named else 0.03)
        return 1.3 + min(max(height, 1.0), MAX_CASE_HEIGHT_IN)
    return 3.6 if picture == "progress" else 2.8


def _draw_progress(graph: Graph, figure: Any) -> None:
    axes: Axes = figure.subplots()
    judged = [(point.part, point.score) for point in graph.points if point.score is not None]
    parts, passed = _make_stairs(
        [part for part, _ in judged], [score.passed for _, score in judged]
    )
    totals = [score.total for _, score in judged]
    axes.plot(
        parts, passed, color=LINE, linewidth=2, marker=_choose_marker(parts), label="cases passed"
    )
    axes.fill_between(parts, passed, color=LINE, alpha=0.12)
    if totals:
        stairs = _make_stairs([part for part, _ in judged], totals)
        axes.plot(*stairs, "--", color=DARK, linewidth=1, label="cases")
    _mark_points(graph, axes)
    axes.set(title="Progress", xlabel="part", ylabel="cases")
    axes.set_ylim(0, max([*totals, 1]) * 1.12)
    _set_part_axis(graph, axes)
    if judged:
        axes.legend(loc="lower right", frameon=False)


def _mark_points(graph: Graph, axes: Axes) -> None:
    """Mark regressions, commits that do not build, and the best point."""
    down = [point for point in graph.regressions if point.score is not None]
    parts = [point.part for point in down]
    passed = [point.score.passed for point in down if point.score]
    label = "regression" if down else None
    axes.plot(parts, passed, "v", markersize=9, color=BAD, label=label, zorder=4)
    near: dict[str, Any] = {"textcoords": "offset points", "xytext": (11, 3), "ha": "left"}
    for point, at in list(zip(down, passed, strict=True))[:MAX_MARKED]:
        said = f"−{len(point.change.newly_broken)}"
        axes.annotate(said, (point.part, at), color=BAD, fontsize=8, **near)
    best = graph.best
    if best is not None and best.score is not None and best.score.passed:
        label = f"best: {best.score} at part {best.part}"
        star: dict[str, Any] = {"markersize": 13, "color": COLOURS["passed"], "zorder": 5}
        axes.plot([best.part], [best.score.passed], "*", label=label, **star)


def _draw_suites(graph: Graph, figure: Any) -> None:
    shown = graph.suites[:MAX_SUITES]
    hidden = len(graph.suites) - len(shown)
    title = "Suites" if not hidden else f"Suites (the first {len(shown)}; {hidden} more)"
    figure.suptitle(title, fontsize=11)
    if not shown:
        figure.text(0.5, 0.5, NOTHING, ha="center")
        return
    rows = max(1, -(-len(shown) // _COLUMNS))
    grid = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index >= len(shown):
            axes.set_axis_off()
            continue
        points = [
            (point.part, point.suites[shown[index]])
            for point in graph.points
            if shown[index] in point.suites
        ]
        parts, shares = _make_stairs(
            [part for part, _ in points], [100 * score.share for _, score in points]
        )
        axes.plot(parts, shares, color=LINE, linewidth=1.5, marker=_choose_marker(parts))
        axes.fill_between(parts, shares, color=LINE, alpha=0.12)
        axes.set_title(f"{_shorten(shown[index], 24)}  {points[-1][1]}", fontsize=9)
        axes.set_ylim(0, 105)
        axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])
        _set_part_axis(graph, axes)


def _draw_cases(graph: Graph, figure: Any) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    axes: Axes = figure.subplots()
    known = list(COLOURS)
    values = [
        [0 if status is None else known.index(status) + 1 for status in row]
        for row in graph.statuses
    ]
    axes.set(title="Cases", xlabel="part")
    axes.grid(visible=False)
    if not values or not graph.points:
        axes.text(0.5, 0.5, NOTHING, ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    height, width = len(graph.cases), len(graph.points)
    axes.imshow(
        values,
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap([UNKNOWN, *COLOURS.values()]),
        vmin=0,
        vmax=len(COLOURS),
        extent=(0.5, width + 0.5, height - 0.5, -0.5),
    )
    _mark_broken(graph, axes)
    if height <= MAX_NAMED_CASES:
        axes.set_yticks(range(height), [_shorten(name) for name in graph.cases], fontsize=7)
    else:
        axes.set_ylabel(f"{height} cases")
    _set_part_axis(graph, axes)
    there = {status for row in graph.statuses for status in row}
    shown = [Patch(color=colour, label=name) for name, colour in COLOURS.items() if name in there]
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "frameon": False}
    axes.legend(handles=shown, ncols=len(COLOURS), **place)


def _mark_broken(graph: Graph, axes: Axes) -> None:
    rows = {name: index for index, name in enumerate(graph.cases)}
    cells = [
        (point.part, rows[name])
        for point in graph.regressions
        for name in point.change.newly_broken
    ]
    if cells and len(cells) <= MAX_MARKED:
        axes.plot(*zip(*cells, strict=True), "x", markersize=5, color=BAD)


def _draw_cost(graph: Graph, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    parts = [point.part for point in graph.points]
    for name, values, colour in (
        ("in", [point.input_tokens for point in graph.points], LINE),
        ("out", [point.output_tokens for point in graph.points], COLOURS["timeout"]),
    ):
        left.plot(
            *_make_stairs(parts, values), color=colour, marker=_choose_marker(parts), label=name
        )
    left.set(title="Tokens, all together", xlabel="part")
    left.ticklabel_format(axis="y", style="plain", useOffset=False)
    left.legend(loc="upper left", frameon=False)
    minutes = [point.elapsed_ms / 60_000 for point in graph.points]
    right.plot(parts, minutes, color=DARK, marker=_choose_marker(parts))
    right.set(title="Time", xlabel="part", ylabel="minutes")
    if graph.points and not graph.points[-1].input_tokens + graph.points[-1].output_tokens:
        left.set_title("Tokens: the agent told none")
        left.set_ylim(0, 1)
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        _set_part_axis(graph, axes)


def _set_part_axis(graph: Graph, axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.5, max(len(graph.points), 1) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _choose_marker(parts: Sequence[int]) -> str:
    """Return the marker of points; a line through a single one is invisible."""
    return "o" if len(parts) == 1 else ""


def _make_stairs(parts: Sequence[int], values: Sequence[float]) -> tuple[list[int], list[float]]:
    """Return the corners of a line that stays level until the next part."""
    xs: list[int] = []
    ys: list[float] = []
    for part, value in zip(parts, values, strict=True):
        if ys:
            xs.append(part)
            ys.append(ys[-1])
        xs.append(part)
        ys.append(value)
    return xs, ys


def _shorten(name: str, limit: int = _NAME) -> str:
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return clean if len(clean) <= limit else f"{clean[: limit // 2]}…{clean[-limit // 2 + 1 :]}"


_DRAWN: Final[dict[Picture, Callable[[Graph, Any], None]]] = {
    "progress": _draw_progress,
    "suites": _draw_suites,
    "cases": _draw_cases,
    "cost": _draw_cost,
}
