"""sed, find, test, printf, cp and mv: programs with a grammar of their own."""

from __future__ import annotations

import pytest

from coilclaw.policy.commands.stream_editors import find_impurity
from tests.support.judging import verdict

PURE = [
    *(
        "p",
        "1,5p",
        "$p",
        "1~2p",
        "/a/p",
        "/a/,/b/p",
        "/a/,+3p",
        "/a/I,$d",
        "2!d",
        "\\,a,p",
        "1{p;q}",
    ),
    *(
        "s/a/b/",
        "s/a/b/gI2p",
        "s,a,b,",
        "s|[^/]*/||",
        "s/[[:alpha:]_]*/x/",
        "s/\\//x/",
        "y/abc/xyz/",
    ),
    *("N;P;D", ":a;N;$!ba;s/\\n/ /g", "=", "q5", "l", "h;G;x", "# only a comment", "1d;$d", "{p}"),
    *(
        "i\\text",
        "a hello",
        "c\\\nnew text",
        "/x/{=;p}",
        "s/a/b/;s/c/d/",
        "",
        "0,/x/d",
        "z",
        "F",
        "s/e w/r/",
    ),
]
IMPURE = [
    *("e", "1e id", "e id", "w x", "1w x", "r x", "R x", "W x", "s/a/b/e", "s/a/b/w x", "s/a/b/ge"),
    *(
        "s/a/b/gw x",
        "p;e id",
        "{e id\n}",
        "/a/e id",
        "p\ne id",
        ":x e id",
        ":x;e id",
        "b x;e id",
        "$!e id",
    ),
    *(
        "1!{p;w x\n}",
        "s/[/]/x/e",
        "a text\ne id",
        "i\\\ntext\ne id",
        "# x\ne id",
        "y/a/b/;w x",
        "s/a/b/mew",
    ),
    *(
        "}",
        "{",
        "s/a/b",
        "/a",
        "v",
        "k",
        "s",
        "1,p",
        "s/a/b/k",
        "p p",
        "\\\na\np",
        "1,2,3p",
        "}e id",
    ),
]


@pytest.mark.parametrize("script", PURE)
def test_a_sed_script_that_only_selects_and_changes_text_is_pure(script: str) -> None:
    assert find_impurity(script) is None


@pytest.mark.parametrize("script", IMPURE)
def test_a_sed_script_that_does_more_or_is_not_understood_is_not(script: str) -> None:
    assert find_impurity(script) is not None


def test_a_sed_script_is_bounded() -> None:
    assert str(find_impurity("p;" * 6000)) == "its script is too long"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sed -n p a.txt", "low"),
        ("sed -i s/a/b/ a.txt", "medium"),
        ("sed -i '1e id' a.txt", "high"),
        ("sed -i s/a/b/ .git/config", "forbidden"),
        ("sed -i s/a/b/", "medium"),
        ('sed "$X" a.txt', "high"),
        ("sed", "high"),
        ("cp a.txt docs", "medium"),
        ("cp a.txt docs/b.txt", "medium"),
        ("cp a.txt", "high"),
        ("cp -r src/. docs", "high"),
        ("cp x/.git docs", "forbidden"),
        ("cp a.txt /tmp/x", "forbidden"),
        ("cp link docs", "forbidden"),
        ("cp a.txt .git", "forbidden"),
        ("cp a.txt $X", "high"),
        ("mv a.txt b.txt", "medium"),
        ("mv .git/config a.txt", "forbidden"),
        ("mv a.txt out/x", "forbidden"),
        ("mv a.txt ..", "forbidden"),
        ("cp src/.g* docs/", "high"),
        ("test -f a.txt -a -d src", "low"),
        ("test -f /etc/passwd", "forbidden"),
        ("[ a = b ]", "low"),
        ('[ "$X" = b ]', "high"),
        ("[ x -nt /etc/passwd ]", "forbidden"),
        ("[ -R x ]", "high"),
        ("[ -o errexit ]", "low"),
        ("[[ abc =~ a.c ]]", "low"),
        ("printf '%s' /etc/passwd", "low"),
        ("printf -v x a", "high"),
        ("printf '%5n' x", "high"),
        ("echo -v /etc", "low"),
        ("find . -printf '%p'", "low"),
        ("find . -maxdepth", "high"),
        ("find . -regex", "high"),
        ("find -name x", "low"),
        ("find . -name $X", "high"),
        ("find . '(' -exec rm {} ';' ')'", "forbidden"),
        ("find link -type f", "forbidden"),
        ("find -P . -type f", "low"),
    ],
)
def test_programs_with_a_grammar_of_their_own(command: str, expected: str) -> None:
    assert verdict(command)[0] == expected
