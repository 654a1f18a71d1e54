"""One word at a time: where it ends, what it is after quote removal, whether it may expand."""

from __future__ import annotations

import pytest

from coilclaw.policy.shell import expressions
from coilclaw.policy.shell.constructs import ShellReader
from coilclaw.policy.shell.script import Token, Unreadable
from coilclaw.policy.shell.words import WordReader


def read_word(text: str) -> Token:
    return ShellReader(text).word()


@pytest.mark.parametrize(
    "text",
    [
        "rm",
        "r\\m",
        "\\r\\m",
        '"r"m',
        "'r''m'",
        "r''m",
        'r""m',
        '"rm"',
        "$'rm'",
        "$'\\162m'",
        "$'\\x72\\x6d'",
        "$'\\u0072\\U0000006d'",
        "r$'m'",
        "'r'\"m\"",
        '"r\\\nm"',
    ],
)
def test_quoting_does_not_hide_a_name(text: str) -> None:
    assert read_word(text) == Token(0, len(text), "rm")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ('""', ""),
        ("a\\ b", "a b"),
        ("a\\'b", "a'b"),
        ("'a\\b'", "a\\b"),
        ("'a\nb'", "a\nb"),
        ('"a\\b"', "a\\b"),
        ('"a\\\\b"', "a\\b"),
        ('"a\\$b\\`c\\"d"', 'a$b`c"d'),
        ('"a\'b"', "a'b"),
        ("\"$'a'\" ", "$'a'"),
        ('"a$"', "a$"),
        ("a$", "a$"),
        ("$", "$"),
        ("$=", "$="),
        ("a#b", "a#b"),
        ("a=b", "a=b"),
        ("!", "!"),
        ("\\*", "*"),
        ("'*'\"?\"\\[a]", "*?[a]"),
        ("'~'/x", "~/x"),
        ("HEAD~1", "HEAD~1"),
        ("{}", "{}"),
        ("{a}", "{a}"),
        ("{a','b}", "{a,b}"),
        ("{a\\,b}", "{a,b}"),
        ("a[b", "a[b"),
        ("a]b[", "a]b["),
    ],
)
def test_a_word_is_what_it_is_after_quote_removal(text: str, value: str) -> None:
    assert read_word(text) == Token(0, len(text.rstrip(" ")), value)


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "a?",
        "[ab]",
        "a[!b]c",
        "~",
        "~/x",
        "a=~/x",
        "a=b:~/x",
        "{a,b}",
        "x{a,b}y",
        "{1..3}",
        "'a'*",
        '"a"[b]',
        '{"a",b}',
        "{a,'b c'}",
    ],
)
def test_a_word_that_may_expand_says_so(text: str) -> None:
    token = read_word(text)
    assert token == Token(0, len(text), text.replace("'", "").replace('"', ""), globs=True)


@pytest.mark.parametrize(
    "text",
    [
        "$x",
        "a$x",
        '"$x"',
        "${x}",
        "${x:-a}",
        "${#x}",
        "$1",
        "$@",
        "$?",
        "$$",
        "$((1+2))",
        "${x%.py}",
        "${x##*/}",
        "${x//a/b}",
        "${x^^}",
        "${x:1:2}",
        "${a[@]}",
        "${x:-'a b'}",
        "$'\\u00e9'",
        "$'\\001'",
        "$'\\x7f'",
    ],
)
def test_a_word_that_only_running_tells_has_no_text(text: str) -> None:
    assert read_word(text) == Token(0, len(text), None)


def test_what_expands_within_an_unknown_word_is_seen() -> None:
    assert read_word("$x*") == Token(0, 3, None, globs=True)
    assert read_word("{a,$x}") == Token(0, 6, None, globs=True)
    assert read_word('"$x*"') == Token(0, 5, None)


@pytest.mark.parametrize("end", [" b", "\tb", "\nb", ";b", "&b", "|b", "<b", ">b", ")b", "\\\n b"])
def test_a_word_ends_before_a_metacharacter(end: str) -> None:
    assert read_word("a" + end) == Token(0, 1, "a")


def test_a_word_ends_where_its_region_ends() -> None:
    reader = WordReader("abc")
    reader.end = 2
    assert reader.word() == Token(0, 2, "ab")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$'a\\tb\\n'", "a\tb\n"),
        ("$'\\a\\b\\e\\E\\f\\r\\v'", "\a\b\x1b\x1b\f\r\v"),
        ("$'\\\\\\'\\\"\\?'", "\\'\"?"),
        ("$'\\1012'", "A2"),
        ("$'\\x414'", "A4"),
        ("$'\\u41'", "A"),
        ("$'\\cA'", None),
        ("$'\\cz'", "\x1a"),
        ("$'\\z\\-'", "\\z\\-"),
        ("$'\\xc3\\xa9'", "é"),
        ("$'é'", "é"),
        ("$'\\u00e9'", None),
        ("$'\\U0010ffff'", None),
        ("$'\\Uffffffff'", None),
    ],
)
def test_escapes_are_those_of_the_shell(text: str, value: str | None) -> None:
    assert expressions.read_ansi_string(text, 0, len(text)) == (value, len(text))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("$'a", "shell.syntax"),
        ("$'a\\", "shell.syntax"),
        ("$'a\\'", "shell.syntax"),
        ("$'\\x'", "shell.construct"),
        ("$'\\x{41}'", "shell.construct"),
        ("$'\\u'", "shell.construct"),
        ("$'\\c\\'", "shell.syntax"),
        ("$'\\c1'", "shell.construct"),
        ("$'\\0'", "shell.text"),
        ("$'\\400'", "shell.text"),
        ("$'\\u0000'", "shell.text"),
        ("$'\\xc3'", "shell.text"),
    ],
)
def test_escapes_that_nobody_can_trust_are_refused(text: str, rule: str) -> None:
    with pytest.raises(Unreadable) as caught:
        expressions.read_ansi_string(text, 0, len(text))
    assert caught.value.fault.rule == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "x=1",
        "x+=1",
        "x++",
        "--x",
        "x<<=1",
        "x^=1",
        "x|=1",
        "a[0]",
        "a [0]",
        "$(x)",
        "`x`",
        "$1",
        "${x:-1}",
        "16#ff",
        "1a",
        "'1'",
        '"1"',
        "$x[0]",
        "x>>=1",
        "x**=1",
        "x\n",
        "\\x",
        "{",
        "@",
        ":1+2",
        "1 2",
        "1 +",
        "1 ? 2",
        "(1",
    ],
)
def test_arithmetic_that_does_more_than_compute_is_refused(text: str) -> None:
    assert expressions.read_arithmetic(f"{text}))", 0, len(text) + 2) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", set()),
        ("0x1F + 010", set()),
        ("x", {"x"}),
        ("$x + ${y} - z", {"x", "y", "z"}),
        ("(x * (2 - y)) ** 3", {"x", "y"}),
        ("x == 1 && y != 2 || !z", {"x", "y", "z"}),
        ("x <= 1 ? x << 2 : x >> 3", {"x"}),
        ("$# + $? + $$ + ${#x}", set()),
        ("1 - -1", set()),
        ("~x ^ y & z | 1, 2", {"x", "y", "z"}),
    ],
)
def test_arithmetic_tells_the_names_that_it_evaluates(text: str, names: set[str]) -> None:
    expected = (frozenset(names), len(text))
    assert expressions.read_arithmetic(f"{text}))", 0, len(text) + 2) == expected


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", set()),
        ("-1", set()),
        ("x", {"x"}),
        ("$x", {"x"}),
        ('"$x"', {"x"}),
        ("${x}", {"x"}),
        ("$#", set()),
        ('"${#x}"', set()),
        ("${#a[@]}", set()),
        ("$((x+1))", {"x"}),
    ],
)
def test_an_operand_is_a_number_or_names_one(text: str, names: set[str]) -> None:
    assert expressions.read_operand(text) == frozenset(names)


@pytest.mark.parametrize("text", ["", "a b", "a[0]", "'x'", "$(x)", "`x`", "$1", "$((x=1))", "1+1"])
def test_any_other_operand_is_refused(text: str) -> None:
    assert expressions.read_operand(text) is None
