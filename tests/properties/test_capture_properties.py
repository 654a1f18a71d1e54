"""A capture keeps exactly the beginning and the end, however the stream is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.workspace.process.capture import Capture, Captured

pieces = st.lists(st.binary(max_size=40), max_size=30)
limits = st.integers(min_value=0, max_value=200)


def captured(chunks: list[bytes], limit: int) -> Captured:
    capture = Capture(limit)
    for chunk in chunks:
        capture.feed(chunk)
    return capture.read_captured()


@given(pieces, limits)
def test_head_and_tail_are_those_of_the_stream(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    kept = captured(chunks, limit)
    if len(whole) <= limit:
        assert (kept.data, kept.dropped) == (whole, 0)
    else:
        head, tail = limit - limit // 2, limit // 2
        expected = Captured(whole[:head], whole[len(whole) - tail :], len(whole) - limit)
        assert kept == expected
    assert kept.total == len(whole)


@given(pieces, limits)
def test_the_pieces_do_not_matter(chunks: list[bytes], limit: int) -> None:
    assert captured(chunks, limit) == captured([b"".join(chunks)], limit)


@given(pieces, limits)
def test_looking_at_it_does_not_change_it(chunks: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for chunk in chunks:
        capture.feed(chunk)
        capture.read_captured()
    assert capture.read_captured() == captured(chunks, limit)


@given(pieces, limits)
def test_memory_stays_within_three_limits(chunks: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for chunk in chunks:
        capture.feed(chunk)
        assert len(capture._head) + len(capture._tail) <= limit - limit // 2 + 2 * (limit // 2)


@given(pieces, limits)
def test_text_shows_a_marker_exactly_when_bytes_are_missing(
    chunks: list[bytes], limit: int
) -> None:
    kept = captured([chunk.replace(b"\xe2", b"") for chunk in chunks], limit)
    marker = f"[… {kept.dropped} bytes dropped …]"
    assert (marker in kept.text()) == (kept.dropped > 0)
