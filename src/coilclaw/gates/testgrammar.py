"""How tests are written in languages that are read by their words, not by a syntax tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOUBLE: Final = r'"(?:\\.|[^"\\\n])*"'
_SINGLE: Final = r"'(?:\\.|[^'\\\n])*'"
_BACKTICK: Final = r"`(?:\\.|[^`\\])*`"
_SLASHES: Final = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_HASH: Final = r"(?<![\w\"'$])#(?![\[{!])[^\n]*"
_REGEX: Final = r"(?<=[(,=:\[!&|?{};])[ ]?/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/"
_FALSE: Final = (
    r"\bif\s*\(?\s*(?:false|0)\s*\)?\s*[{:\n]|\b(?:if|while)\s*\(\s*(?:false|0|!1|!true)\s*\)"
)
_SWALLOWED: Final = (
    r"\bcatch\s*(?:\([^()]{0,100}\)\s*)?\{"
    r"(?:(?!throw|expect|assert|fail|reject|done)[^{}]){0,300}\}"
    r"|\.catch\(\s*(?:\(?\w*\)?\s*=>|function\s*\(\w*\))\s*\{\s*\}\s*\)"
    r"|\bfinally\s*\{\s*return\b"
)


@dataclass(frozen=True, slots=True)
class Grammar:
    """Patterns over a source whose comments and texts are blanked out."""

    noise: re.Pattern[str]
    """Comments and texts."""
    case: re.Pattern[str]
    """The head of a test; its group ``name`` is the name, else the first text after it is."""
    assertion: re.Pattern[str]
    exact: re.Pattern[str]
    trivial: re.Pattern[str]
    skip: re.Pattern[str]
    """What keeps a test from running or failing, in its head, its attributes or its body."""
    marked: re.Pattern[str] | None = None
    """What the group ``marks`` of a head has to hold for it to be a test."""
    exits: re.Pattern[str] = re.compile(r"\b(?:process\.exit|os\.Exit|System\.exit|_exit|_Exit)\b")
    braces: bool = True
    """Whether a test is what stands between two braces."""


def _grammar(
    noise: str,
    case: str,
    assertion: str,
    *,
    exact: str,
    trivial: str,
    skip: str,
    marked: str = "",
    braces: bool = True,
) -> Grammar:
    return Grammar(
        re.compile(noise, re.DOTALL),
        re.compile(case, re.MULTILINE),
        re.compile(assertion),
        re.compile(exact),
        re.compile(trivial),
        re.compile(f"{skip}|{_FALSE}", re.MULTILINE),
        re.compile(marked) if marked else None,
        braces=braces,
    )


_C: Final = f"{_SLASHES}|{_DOUBLE}|{_SINGLE}"
_SAME: Final = r"\(\s*([\w.]+)\s*,\s*\1\s*[,)]"

GRAMMARS: Final[Mapping[str, Grammar]] = {
    "javascript": _grammar(
        f"{_C}|{_BACKTICK}|{_REGEX}",
        r"(?<![\w$.])[xf]?(?:it|test|specify)(?:\.\w+)*\s*[(`]",
        r"(?<![\w$])(?:expect|assert)(?:\.\w+)*\s*[(<]|(?<![\w$])t\.\w+\s*\(|\.should\b",
        exact=r"\.to(?:Be|Equal|StrictEqual|MatchObject|HaveBeenCalledWith)\s*\("
        r"|\b(?:deep|strict|deepStrict)?[eE]qual\s*\(|\.eql\s*\(|\bt\.(?:is|same)\s*\(",
        trivial=r"expect\(\s*(?:true|1)\s*\)\.(?:to(?:Be|Equal|StrictEqual)\(\s*(?:true|1)\s*\)"
        r"|toBeTruthy|toBeDefined|to\.be)|expect\(\s*([\w.]+)\s*\)\.\w+\(\s*\1\s*\)"
        r"|assert(?:\.ok|\.isTrue)?\(\s*(?:true|1)\s*[,)]"
        r"|assert\.\w*[eE]qual\(\s*([\w.]+)\s*,\s*\2\s*[,)]",
        skip=r"(?<![\w$.])[xf](?:it|test|specify|describe|context)\b"
        r"|(?<![\w$.])(?:it|test|specify|describe|context|suite)(?:\.\w+)*"
        r"\.(?:skip|only|todo|failing|fails|fixme|skipIf|runIf)\b|\bthis\.skip\s*\(|\bt\.skip\s*\("
        rf"|{_SWALLOWED}",
    ),
    "go": _grammar(
        f"{_C}|{_BACKTICK}",
        r"^func\s+(?P<name>(?:Test|Benchmark|Fuzz|Example)\w*)\s*\(",
        r"\b[tb]\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow|Run)\s*\(|\b(?:assert|require)\.\w+\s*\(",
        exact=r"\b(?:assert|require)\.(?:Equal|Same|EqualValues|JSONEq)\w*\s*\(|!=\s|==\s",
        trivial=r"(?:assert|require)\.True\(\s*t\s*,\s*true\s*[,)]"
        r"|(?:assert|require)\.Equal\(\s*t\s*,\s*([\w.]+)\s*,\s*\1\s*[,)]",
        skip=r"\b[tb]\.Skip(?:Now|f)?\s*\(",
    ),
    "rust": _grammar(
        rf"{_SLASHES}|r(#{{0,5}})\".*?\"\1|{_DOUBLE}|'(?:\\.[^'\n]{{0,8}}|[^'\\\n])'",
        r"(?P<marks>(?:#\[[^\]]{0,300}\]\s*){1,20})(?:pub\s+)?(?:async\s+)?fn\s+(?P<name>\w+)",
        r"\b(?:debug_|prop_)?assert\w*!\s*[(\[{]|\bpanic!\s*\(|\.unwrap_err\s*\(",
        exact=r"\b(?:debug_|prop_)?assert_eq!|\bassert_matches!",
        trivial=r"assert!\(\s*true\s*[,)]|assert_eq!" + _SAME,
        skip=r"#!?\[\s*(?:ignore|should_panic|cfg_attr|cfg\((?!test\b))",
        marked=r"#\[(?:\w+::)*(?:\w*test\w*|test_case|quickcheck)\b",
    ),
    "jvm": _grammar(
        f'""".*?"""|{_C}',
        r"(?P<marks>(?:@[\w.]+(?:\([^)]{0,500}\))?\s*){1,20})[\w<>\[\],.?\s]{0,200}?"
        r"\b(?:void|fun)\s+(?P<name>\w+|`[^`\n]+`)\s*\(",
        r"\b(?:assert\w*|verify\w*|fail|expect\w*|should\w*)\s*[({<]",
        exact=r"\bassert(?:Equals|Same|ArrayEquals|IterableEquals)\b|\bisEqualTo\b|\bshouldBe\b",
        trivial=r"assertTrue\(\s*true\s*[,)]|assertEquals" + _SAME,
        skip=r"@(?:Disabled\w*|Ignore|EnabledIf\w*)\b|\bassume\w*\s*\(|\babort\s*\(",
        marked=r"@(?:\w+\.)*(?:\w*Test\w*|Property)\b",
    ),
    "csharp": _grammar(
        f'@"(?:""|[^"])*"|{_C}',
        r"(?P<marks>(?:\[[^\]]{0,300}\]\s*){1,40})(?:public|private|internal|protected)"
        r"[\w<>\[\],.?\s]{0,200}?\s(?P<name>\w+)\s*\(",
        r"\bAssert\.\w+|\.Should\w*\s*\(",
        exact=r"\bAssert\.(?:Equal|AreEqual|Same|AreSame|StrictEqual)\b|\.Be\s*\(",
        trivial=r"Assert\.(?:True|IsTrue)\(\s*true\s*[,)]|Assert\.(?:Are)?Equal" + _SAME,
        skip=r"\bSkip\s*=|\[\s*(?:Ignore|Explicit)\b|\bAssert\.(?:Ignore|Inconclusive)\b",
        marked=r"\[\s*(?:Fact|Theory|Test\w*|DataTestMethod)\b",
    ),
    "ruby": _grammar(
        f"{_HASH}|{_DOUBLE}|{_SINGLE}",
        r"^[ \t]*(?:def\s+(?P<name>test_\w+)"
        r"|[xf]?(?:it|specify|test|scenario|example)\b\s*\(?\s*['\"])",
        r"\bexpect\b|\bassert\w*|\brefute\w*|\.should\b|\b(?:must|wont)_\w+",
        exact=r"\bassert_(?:equal|same)\b|\.to\s+(?:eq|eql|equal|be)\b|\bmust_equal\b",
        trivial=r"\bassert\s*\(?\s*true\b|expect\(\s*true\s*\)\.to\s",
        skip=r"^[ \t]*(?:[xf](?:it|specify|describe|context|scenario|example)\b|skip\b|pending\b)"
        r"|[:,]\s*(?:skip|pending|focus)\b",
        braces=False,
    ),
    "php": _grammar(
        f"{_SLASHES}|{_HASH}|{_DOUBLE}|{_SINGLE}",
        r"\bfunction\s+(?P<name>test\w*)\s*\(|^[ \t]*(?:it|test)\s*\(",
        r"(?:\$this->|self::|static::)(?:assert|expect)\w*|\bexpect\s*\(",
        exact=r"assert(?:Same|Equals)\b|->toBe\s*\(|->toEqual\s*\(",
        trivial=r"assertTrue\(\s*true\s*[,)]|assert(?:Same|Equals)" + _SAME,
        skip=r"markTest(?:Skipped|Incomplete)|->(?:skip|todo|only)\s*\(|#\[\s*Requires",
    ),
    "c": _grammar(
        _C,
        r"\b(?:TYPED_)?(?:TEST(?:_[FP]|_CASE)?|BOOST_AUTO_TEST_CASE|SCENARIO)\s*\((?P<name>[^)]{0,200})\)"
        r"|^(?:static\s+)?(?:void|int|bool)\s+(?P<plain>test_?\w+|\w+_test)\s*\(",
        r"\b(?:EXPECT|ASSERT|REQUIRE|CHECK|BOOST_(?:CHECK|REQUIRE|TEST)|TEST_ASSERT|CU_ASSERT)\w*\s*\("
        r"|\b(?:cr_|ck_|g_)?assert\w*\s*\(",
        exact=r"(?:EXPECT|ASSERT)_(?:EQ|STREQ)\b|_EQUAL\w*\s*\(|==",
        trivial=r"\b(?:EXPECT_TRUE|ASSERT_TRUE|REQUIRE|CHECK|assert)\(\s*(?:true|1)\s*\)"
        r"|(?:EXPECT|ASSERT)_EQ" + _SAME,
        skip=r"\bDISABLED_\w*|\bGTEST_SKIP\b|\bSKIP\s*\(|\bTEST_IGNORE\w*|^\s*#\s*if\s+0\b",
    ),
    "shell": _grammar(
        f"{_HASH}|{_DOUBLE}|{_SINGLE}",
        r"^[ \t]*@test\s+['\"]|^(?:function\s+)?(?P<name>test_\w+)\s*\(\)",
        r"\bassert\w*|\brefute\w*|^\s*\[\[?\s|\btest\s",
        exact=r"\bassert_(?:equal|output)\b|=",
        trivial=r"\bassert\s+true\b",
        skip=r"^\s*skip\b",
    ),
}
