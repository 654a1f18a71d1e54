from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.agent.tools import output
from coilclaw.workspace.process.capture import Captured

TEXTS = st.text(max_size=600) | st.text(st.sampled_from("aé😀\n"), min_size=200, max_size=600)
BYTES = st.binary(max_size=600)
LIMITS = st.integers(0, 1000)


@given(TEXTS, LIMITS, st.integers(0, 10**6))
def test_a_cut_text_keeps_its_bound_its_beginning_and_its_end(
    text: str, limit: int, dropped: int
) -> None:
    cut = output.middle_cut(text, limit, dropped=dropped)
    assert output.text_size(cut) <= limit
    if output.text_size(text) <= limit and not dropped:
        assert cut == text
    elif limit >= 2 * output.NOTICE_BYTES:
        head, _, tail = cut.partition("\n[… ")
        assert text.encode("utf-8", "replace").decode().startswith(head)
        assert text.encode("utf-8", "replace").decode().endswith(tail.partition(" …]\n")[2])


@given(TEXTS, LIMITS)
def test_the_end_of_a_text_is_cut_by_whole_characters(text: str, limit: int) -> None:
    kept, lost = output.end_cut(text, limit)
    assert output.text_size(kept) <= limit
    assert output.text_size(kept) + lost == output.text_size(text)


@given(BYTES, BYTES, st.integers(0, 1000), LIMITS)
def test_what_a_process_wrote_keeps_its_bound(
    head: bytes, tail: bytes, dropped: int, limit: int
) -> None:
    stream = Captured(head, tail, dropped) if dropped else Captured(head + tail)
    told = output.cut_captured(stream, limit)
    assert output.text_size(told) <= limit
    whole = (head + tail).decode("utf-8", "replace")
    if not dropped and output.text_size(whole) <= limit:
        assert told == whole


def test_the_cut_is_said_where_it_is() -> None:
    text = "a" * 500 + "b" * 500
    assert output.middle_cut(text, 280) == (
        "a" * 100 + "\n[… 800 bytes are cut here …]\n" + "b" * 100
    )
    whole = output.cut_captured(Captured(b"begin", b"end", 7), 1000)
    assert whole == "begin\n[… 7 bytes are cut here …]\nend"
