"""What a person is shown: reversible, made of characters that show, and broken only by us."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coilclaw.agent.channels.visible import (
    FIRST_ROW_PREFIX,
    LEAST_WIDTH,
    NEXT_ROW_PREFIX,
    SafeText,
    break_rows,
    harmless,
    visible,
)
from tests.support.scale import scaled

_NAMES = {
    "NUL": "\0",
    "BEL": "\a",
    "BS": "\b",
    "TAB": "\t",
    "LF": "\n",
    "CR": "\r",
    "ESC": "\x1b",
    "DEL": "\x7f",
    "NBSP": "\xa0",
}
_ESCAPE = re.compile(r"<(?:U\+([0-9A-F]{4,6})(?: x([0-9]+))?|([A-Z]+))>")

# Any code point, surrogates included, and many of those that are there to deceive.
_DECEIVING = (
    "<>U+0123456789ABCDEF xNULTABESCLF \\|\t\n\r\x1b\x7f\x85\x9b\xa0\xad\u034f\u0301\u0430\u0435"
    "\u03bf\u115f\u17b4\u1680\u180e\u2000\u200b\u200d\u200e\u2028\u202e\u2060\u2066\u2069\u2800"
    "\u3000\u3164\ud800\udfff\ue000\ufe0f\ufeff\uff0f\uffa0\uffff\U000e0041\U000e0100\U0001f1e6"
    "\U0001f3fb\U0010ffff"
)
# What is left out at the default scale are long stretches of the same kind.
_CODES = (
    range(0x110000)
    if scaled(full=1, default=0)
    else [
        *range(0x3500),
        *range(0xD700, 0x10000),
        *range(0x1F000, 0x1FB00),
        *range(0xE0000, 0xE0200),
    ]
)
_TEXTS = st.text(st.one_of(st.sampled_from(_DECEIVING), st.characters(codec=None)), max_size=60)
_MANY = settings(max_examples=scaled(full=3000, default=300))


def decode(shown: str) -> str:
    """Take the visible form back to the text: that this can be done means that no two share one."""

    def character(match: re.Match[str]) -> str:
        if match[3]:
            return _NAMES[match[3]]
        return chr(int(match[1], 16)) * int(match[2] or 1)

    return _ESCAPE.sub(character, shown)


@_MANY
@given(_TEXTS, st.integers(1, 40), st.booleans())
@example("<U+202E>", 32, False)
@example("<ESC>\x1b", 32, False)
@example("<<U+0041>", 32, True)
@example("a" + " " * 41 + "b  ", 32, False)
def test_the_shown_form_can_be_taken_back(text: str, run: int, ascii_only: bool) -> None:
    assert decode(visible(text, longest_run=run, ascii_only=ascii_only)) == text


@_MANY
@given(_TEXTS, st.booleans())
def test_the_shown_form_holds_only_characters_that_show(text: str, ascii_only: bool) -> None:
    shown = visible(text, ascii_only=ascii_only)
    assert shown.isprintable()
    assert shown == shown.rstrip()
    assert not ascii_only or shown.isascii()
    for char in shown:
        assert unicodedata.combining(char) == 0
        assert unicodedata.category(char)[0] in "LNPS" or char == " "
        assert unicodedata.bidirectional(char) not in {"R", "AL", "AN", "RLO", "RLE", "RLI", "NSM"}
        assert char.isascii() or unicodedata.normalize("NFKC", char).isascii() is (char == "…")


@pytest.mark.slow
def test_every_code_point_can_be_taken_back() -> None:
    shown = [visible(chr(code)) for code in _CODES]
    assert len(set(shown)) == len(_CODES)
    assert all(text.isprintable() and text.strip() == text for text in shown)


@_MANY
@given(_TEXTS, st.integers(0, 120), st.sampled_from([FIRST_ROW_PREFIX, "args: ", "reason: "]))
def test_rows_are_the_line_and_never_wider_than_the_screen(
    text: str, width: int, first: str
) -> None:
    shown = list(break_rows(text, width, first=first))
    wide = max(width, LEAST_WIDTH)
    assert shown[0].startswith(first)
    assert all(row.startswith(NEXT_ROW_PREFIX) for row in shown[1:])
    joined = shown[0].removeprefix(first) + "".join(
        row[len(NEXT_ROW_PREFIX) :] for row in shown[1:]
    )
    assert decode(joined) == text
    for row in shown:
        cells = sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in row)
        assert cells < wide
    assert all(not row.endswith(" ") for row in shown[:-1] if row != first)
    assert not joined.endswith(" ")


@_MANY
@given(_TEXTS, st.lists(st.integers(0, 60), max_size=6))
def test_an_answer_is_as_powerless_in_pieces_as_it_is_whole(text: str, cuts: list[int]) -> None:
    safe = SafeText()
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    shown = "".join([*(safe.feed(piece) for piece in pieces), safe.finish()])
    assert shown == harmless(text)
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    assert not [
        char
        for char in shown
        if unicodedata.category(char) in hidden and char not in "\n\t\u200c\u200d"
    ]
