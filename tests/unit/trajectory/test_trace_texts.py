"""Texts of a record: valid, within their bounds, and short where they are a summary."""

from __future__ import annotations

import json

import pytest

from coilclaw.traces.trajectory.checkpoints import readable
from coilclaw.traces.trajectory.trace import MAX_SUMMARY, bound_text, replace_surrogates, summarize


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8"))


@pytest.mark.parametrize("text", ["\0" * 1000, "ä" * 1000, "x" * 1000, "\U0001f600" * 1000])
def test_a_long_text_is_cut_in_the_middle_and_says_so(text: str) -> None:
    cut = bound_text(text, 600)
    assert _size(cut) <= 600
    assert "characters left out" in cut
    assert cut[0] == cut[-1] == text[0]


def test_a_text_that_fits_stays() -> None:
    assert bound_text("x" * 598, 600) == "x" * 598
    assert bound_text("\0" * 99, 600) == "\0" * 99


def test_half_a_surrogate_pair_becomes_a_mark() -> None:
    assert replace_surrogates("a\ud800b") == "a?b"
    assert bound_text("a\ud800b", 600) == "a?b"
    assert summarize("a\ud800b") == "a?b"


def test_a_summary_is_one_short_line() -> None:
    assert summarize("  one\n\n two\t") == "one two"
    assert len(summarize("word " * 1000)) == MAX_SUMMARY
    assert summarize("word " * 1000).endswith("…")


def test_a_name_that_is_not_text_is_escaped() -> None:
    assert readable(b"a\xffb") == readable("a\udcffb") == "a\\xffb"
    assert readable("a\ud800b") == "a?b"
    assert readable("ä") == "ä"
