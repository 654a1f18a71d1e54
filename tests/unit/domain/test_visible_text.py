"""Text that can be nothing but text."""

from __future__ import annotations

import pytest

from coilclaw.kernel.text import escape_hidden, escape_html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain schön 日本", "plain schön 日本"),
        ("a\tb", "a\tb"),
        ("a\nb\r", "a\\x0ab\\x0d"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb\u2066\u200b", "a\\u202eb\\u2066\\u200b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_hides_or_moves_text_is_shown(text: str, shown: str) -> None:
    assert escape_hidden(text) == shown


def test_html_keeps_lines_and_escapes_marks_and_quotes() -> None:
    hostile = "<script>alert('\"&')</script>\n\t\x00\u202e"
    assert (
        escape_html(hostile)
        == "&lt;script&gt;alert(&#x27;&quot;&amp;&#x27;)&lt;/script&gt;\n\t\\x00\\u202e"
    )
    assert escape_html(7) == "7"
