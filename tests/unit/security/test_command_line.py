"""Words of a program, read against its option table as the program itself reads them."""

from __future__ import annotations

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.policy.commands.options import (
    CommandLine,
    Given,
    Operand,
    Option,
    option_table,
    read_line,
)
from coilclaw.policy.shell.script import Word

TABLE = option_table(
    "-a --all -n=<number> --lines=<number> --color[=<text>] --sort=name|size --recursive "
    "--reverse -c[=<text>] -<number>",
    refused="-o=<write> --output=<write> --compress-program=<text>",
)


def words(*texts: str) -> list[Word]:
    return [Word(text, text) for text in texts]


def read(*texts: str) -> CommandLine:
    return read_line(words(*texts), TABLE)


def given(line: CommandLine) -> list[tuple[str, str | None]]:
    return [(each.option.name, each.value.text if each.value else None) for each in line.given]


def test_a_whole_line_is_told_apart() -> None:
    line = read_line(words("-an5", "x", "--lines", "3", "--", "-a"), TABLE)
    assert line == CommandLine(
        given=(
            Given(Option("-a")),
            Given(Option("-n", "number"), Word("5", "5")),
            Given(Option("--lines", "number"), Word("3", "3")),
        ),
        operands=(Operand(Word("x", "x")), Operand(Word("-a", "-a"), literal=True)),
        problems=(),
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("--all",), [("--all", None)]),
        (("--al",), [("--all", None)]),
        (("--lines=3",), [("--lines", "3")]),
        (("--li", "3"), [("--lines", "3")]),
        (("-n", "3"), [("-n", "3")]),
        (("-n3",), [("-n", "3")]),
        (("-an", "3"), [("-a", None), ("-n", "3")]),
        (("--color",), [("--color", None)]),
        (("--color=auto",), [("--color", "auto")]),
        (("-cauto",), [("-c", "auto")]),
        (("--sort=size",), [("--sort", "size")]),
        (("-5",), []),
        (("--rec",), [("--recursive", None)]),
        (("-n", "-3"), [("-n", "-3")]),
    ],
)
def test_options_are_resolved(texts: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    line = read(*texts)
    assert (given(line), line.operands, line.problems) == (expected, (), ())


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (("-z",), "option -z is not in the table"),
        (("-az",), "option -z is not in the table"),
        (("--unknown",), "option --unknown is not in the table"),
        (("--re",), "option --re can mean --recursive, --reverse"),
        (("--all=x",), "option --all takes no value"),
        (("-n",), "option -n lacks its value"),
        (("--sort=time",), "option --sort is permitted with name or size only"),
        (("-o", "x"), "option -o is not permitted"),
        (("-ox",), "option -o is not permitted"),
        (("-aox",), "option -o is not permitted"),
        (("--output=x",), "option --output is not permitted"),
        (("--out", "x"), "option --output is not permitted"),
        (("--comp=x",), "option --compress-program is not permitted"),
    ],
)
def test_what_the_table_does_not_permit_is_a_problem(texts: tuple[str, ...], problem: str) -> None:
    assert read(*texts).problems == (problem,)


def test_operands_are_known_after_a_problem() -> None:
    assert [operand.word.text for operand in read("-z", "x", "--no", "y").operands] == ["x", "y"]


def test_a_first_operand_ends_the_options_when_it_is_told_to() -> None:
    line = read_line(words("-a", "cmd", "-z"), TABLE, stop=True)
    assert (given(line), [each.word.text for each in line.operands], line.problems) == (
        [("-a", None)],
        ["cmd", "-z"],
        (),
    )


def test_a_pattern_in_an_option_is_a_problem_and_in_its_attached_value_is_none() -> None:
    name = read_line([Word("--al*", "--al*", globs=True)], TABLE)
    value = read_line([Word("--color=*", "--color=*", globs=True)], TABLE)
    apart = read_line([*words("-n"), Word("*", "*", globs=True)], TABLE)
    assert name.problems == ("option --al* is not in the table",)
    assert value.problems == ()
    assert apart.problems == (
        "the value of -n is an unquoted pattern, which may become other options",
    )


@pytest.mark.parametrize("item", ["a", "-", "--x=<what>", "-x[=<text>", "-x=<text>]", "-x=", "-ä"])
def test_what_is_not_of_the_notation_is_refused(item: str) -> None:
    with pytest.raises(UsageError) as caught:
        option_table(item)
    assert caught.value.rule == "policy.option"


def test_an_option_cannot_be_permitted_and_refused() -> None:
    with pytest.raises(UsageError, match="both permitted and refused"):
        option_table("-a", refused="-a")


def test_single_dash_names_are_read_whole() -> None:
    table = option_table("-run=<text> -v -O[=<text>] -o=<write>", style="single")
    line = read_line(words("-run", "X", "-O2", "-run=Y", "--v", "-ofile"), table)
    assert given(line) == [
        ("-run", "X"),
        ("-O", "2"),
        ("-run", "Y"),
        ("-v", None),
        ("-o", "file"),
    ]
    assert line.problems == ()
    assert read_line(words("-vv"), table).problems == ("option -vv is not in the table",)
