"""Each way to deceive a reader, with its harmless neighbour."""

from __future__ import annotations

import pytest

from coilclaw.agent.channels.visible import SafeText, harmless, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2K\rls", "<ESC>[2K<CR>ls"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\nb", "a<LF>b"),
        ("\tx", "<TAB>x"),
        ("user\u202egnp.exe", "user<U+202E>gnp.exe"),
        ("a\u2066b\u2069", "a<U+2066>b<U+2069>"),
        ("rm\u200b -rf", "rm<U+200B> -rf"),
        ("a\u00adb", "a<U+00AD>b"),
        ("ok\U000e0065\U000e0076", "ok<U+E0065><U+E0076>"),
        ("\ue000", "<U+E000>"),
        ("\u0378", "<U+0378>"),
        ("\ud83d", "<U+D83D>"),
        ("e\u0301", "e<U+0301>"),
        ("a\u00a0b", "a<NBSP>b"),
        ("a\u2003b", "a<U+2003>b"),
        ("a\u3000b", "a<U+3000>b"),
        ("\u3164", "<U+3164>"),
        ("\u2800", "<U+2800>"),
        ("c\u0430t", "c<U+0430>t"),
        ("pa\u0436pal", "pa<U+0436>pal"),
        ("\u0441\u043e\u0440\u0443", "<U+0441><U+043E><U+0440><U+0443>"),
        ("\u03bf", "<U+03BF>"),
        ("ls \uff5c sh", "ls <U+FF5C> sh"),
        ("a\u2215b", "a<U+2215>b"),
        ("\u2018x\u2019", "<U+2018>x<U+2019>"),
        ("\u05d0\u05d1", "<U+05D0><U+05D1>"),
        ("x ", "x<U+0020>"),
        ("x   ", "x<U+0020 x3>"),
        ("a" + " " * 33 + "b", "a<U+0020 x33>b"),
        ("<U+202E>", "<U+003C>U+202E>"),
        ("<ESC>", "<U+003C>ESC>"),
    ],
)
def test_what_deceives_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf 'a b' \\x1b \\n",
        "if a < b: return <b>",
        "caf\u00e9 \u017b\u00f3\u0142w",
        "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
        "\u03b3\u03b5\u03b9\u03ac",
        "\u540d\u524d.txt \u30c6\u30b9\u30c8 file\u540d",
        "\ud55c\uad6d\uc5b4",
        "a \u2192 b \u2014 c \u2022 \u2026",
        "a" + " " * 32 + "b",
        "\u251c\u2500\u2500 src",
        "",
    ],
)
def test_what_deceives_nobody_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_screen_without_these_letters_gets_ascii() -> None:
    assert visible("caf\u00e9", ascii_only=True) == "caf<U+00E9>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "<ESC>]0;title<BEL>"),
        ("\x9b2J", "<U+009B>2J"),
        ("a\rb", "a<CR>b"),
        ("a\r\nb\n", "a\nb\n"),
        ("\u202eabc", "<U+202E>abc"),
        ("\U000e0041", "<U+E0041>"),
        ("\ud800", "<U+D800>"),
    ],
)
def test_an_answer_has_no_power_over_the_terminal(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.parametrize(
    "text", ["a\tb\n", "\u05e9\u05dc\u05d5\u05dd", "\U0001f469\u200d\U0001f4bb", "e\u0301"]
)
def test_an_answer_in_any_script_is_left_alone(text: str) -> None:
    assert harmless(text) == text


def test_a_sequence_that_comes_in_pieces_is_dead_too() -> None:
    safe = SafeText()
    assert [safe.feed(piece) for piece in ("a\x1b", "[3", "1mb\r", "\nc\r")] == [
        "a<ESC>",
        "[3",
        "1mb",
        "\nc",
    ]
    assert safe.finish() == "<CR>"
    assert safe.finish() == ""
