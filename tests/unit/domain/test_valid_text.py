"""The one text cleaner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.text import valid_text


@given(st.text(alphabet=st.characters()))
def test_every_text_can_be_encoded_afterwards_and_good_text_stays(text: str) -> None:
    cleaned = valid_text(text)
    cleaned.encode("utf-8")
    assert valid_text(cleaned) == cleaned
    if not any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        assert cleaned == text


def test_a_lone_surrogate_is_written_as_its_escape() -> None:
    assert valid_text("a\udc80é") == "a\\udc80é"
