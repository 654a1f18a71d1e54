"""The walks of the architecture page are those that calls really take, and they stay short."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.sandboxes import supported
from tests.support.walks import (
    BEGIN,
    END,
    PAGE,
    Walk,
    follow_change,
    follow_tool_call,
    render_walks,
)

# Functions, modules and packages that one call may pass; these only fall.
LIMITS: Mapping[Callable[[Path], Walk], Mapping[str, int]] = {
    follow_change: {"functions": 150, "modules": 26, "packages": 4},
    follow_tool_call: {"functions": 350, "modules": 60, "packages": 7},
}


@pytest.mark.slow
def test_the_page_shows_the_walks_as_they_are() -> None:
    supported("bubblewrap")
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert BEGIN + shown + END == render_walks(), "python -m tests.support.walks --write"


@pytest.mark.parametrize("follow", LIMITS, ids=lambda follow: follow.__name__)
def test_a_call_passes_few_functions(follow: Callable[[Path], Walk], tmp_path: Path) -> None:
    counts, limits = follow(tmp_path).counts, LIMITS[follow]
    assert {what: count for what, count in counts.items() if count > limits[what]} == {}
