"""Tests as the words of their source show them: ``Case`` and ``Source`` for every language.

Comments and texts are blanked out first. The patterns count what a test demands and what keeps it
from running; for Python, whose syntax tree is compared, they only give a change its name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping

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
_OWN: Final = r"(?<![\w.])(?:(?:pytest|unittest|self)\.|(?:pytest\.)?mark\.)?"
_KEPT: Final = re.compile(r"[^\n]")
_TEXT: Final = re.compile(r"""(['"`])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
_OPENS: Final = re.compile(r"(?:=>|\))[\w\s:<>,&?\[\].]{0,120}\{")
_ROW: Final = re.compile(
    r"^[ \t]*(?:['\"][^'\"\n]*['\"]\s*:\s*)?[\[{(][^\n]*[\]}),]\s*$", re.MULTILINE
)
_RETURN: Final = re.compile(r"[{}]|\breturn\b")
_BUILD_TAG: Final = re.compile(r"^//\s*(?:go:build|\+build)\b.*$", re.MULTILINE)
_EXITS: Final = re.compile(r"\b(?:process\.exit|os\.Exit|System\.exit|_exit|_Exit)\b")
MAX_NAME_DISTANCE: Final = 2000


@dataclass(frozen=True, slots=True)
class Grammar:
    """Patterns over a source whose comments and texts are blanked out."""

    noise: str
    """Comments and texts."""
    case: str
    """The head of a test; its group ``name`` is the name, else the first text after it is."""
    assertion: str
    exact: str
    trivial: str
    skip: str
    """What keeps a test from running or failing, in its head, its attributes or its body."""
    marked: str = ""
    """What the group ``marks`` of a head has to hold for it to be a test."""
    braces: bool = True
    """Whether a test is what stands between two braces."""

    def blank(self, text: str) -> str:
        """Blank out comments, and what stands between the quotes of texts; nothing moves."""
        return re.sub(self.noise, _blank_match, text, flags=re.DOTALL)

    def find_skips(self, code: str) -> tuple[str, ...]:
        """Return the marks in blanked code that keep tests from running."""
        found = re.finditer(f"{self.skip}|{_FALSE}", code, re.MULTILINE)
        return tuple(each[0].strip() for each in found)


_C: Final = f"{_SLASHES}|{_DOUBLE}|{_SINGLE}"
_SAME: Final = r"\(\s*([\w.]+)\s*,\s*\1\s*[,)]"

GRAMMARS: Final[Mapping[str, Grammar]] = {
    "python": Grammar(
        f'"""(?:\\\\.|[^\\\\])*?"""|{_DOUBLE}|{_SINGLE}',
        "",
        r"\bassert\b|(?i:\b_*(?:assert|expect|verify|check|ensure|should|fail)\w*\()"
        r"|\b(?:raises|warns|deprecated_call)\(",
        exact=r"==|\bis\b|(?i:\bassert_?(?:is|\w*equals?|called_once_with)\()",
        trivial=r"\bassert (?:True|1|\(|len\(.*\) >= 0|([\w.]+) == \1(?![\w.(\[])|.* or True)",
        skip=rf"{_OWN}(?i:(?:skip|skip_?(?:if|unless|test)|xfail|expectedFailure|importorskip)\b)"
        r"|\bSkipTest\b|\b__test__ = (?:False|0|None)|\bif False:",
    ),
    "javascript": Grammar(
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
    "go": Grammar(
        f"{_C}|{_BACKTICK}",
        r"^func\s+(?P<name>(?:Test|Benchmark|Fuzz|Example)\w*)\s*\(",
        r"\b[tb]\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow|Run)\s*\(|\b(?:assert|require)\.\w+\s*\(",
        exact=r"\b(?:assert|require)\.(?:Equal|Same|EqualValues|JSONEq)\w*\s*\(|!=\s|==\s",
        trivial=r"(?:assert|require)\.True\(\s*t\s*,\s*true\s*[,)]"
        r"|(?:assert|require)\.Equal\(\s*t\s*,\s*([\w.]+)\s*,\s*\1\s*[,)]",
        skip=r"\b[tb]\.Skip(?:Now|f)?\s*\(",
    ),
    "rust": Grammar(
        rf"{_SLASHES}|r(#{{0,5}})\".*?\"\1|{_DOUBLE}|'(?:\\.[^'\n]{{0,8}}|[^'\\\n])'",
        r"(?P<marks>(?:#\[[^\]]{0,300}\]\s*){1,20})(?:pub\s+)?(?:async\s+)?fn\s+(?P<name>\w+)",
        r"\b(?:debug_|prop_)?assert\w*!\s*[(\[{]|\bpanic!\s*\(|\.unwrap_err\s*\(",
        exact=r"\b(?:debug_|prop_)?assert_eq!|\bassert_matches!",
        trivial=r"assert!\(\s*true\s*[,)]|assert_eq!" + _SAME,
        skip=r"#!?\[\s*(?:ignore|should_panic|cfg_attr|cfg\((?!test\b))",
        marked=r"#\[(?:\w+::)*(?:\w*test\w*|test_case|quickcheck)\b",
    ),
    "jvm": Grammar(
        f'""".*?"""|{_C}',
        r"(?P<marks>(?:@[\w.]+(?:\([^)]{0,500}\))?\s*){1,20})[\w<>\[\],.?\s]{0,200}?"
        r"\b(?:void|fun)\s+(?P<name>\w+|`[^`\n]+`)\s*\(",
        r"\b(?:assert\w*|verify\w*|fail|expect\w*|should\w*)\s*[({<]",
        exact=r"\bassert(?:Equals|Same|ArrayEquals|IterableEquals)\b|\bisEqualTo\b|\bshouldBe\b",
        trivial=r"assertTrue\(\s*true\s*[,)]|assertEquals" + _SAME,
        skip=r"@(?:Disabled\w*|Ignore|EnabledIf\w*)\b|\bassume\w*\s*\(|\babort\s*\(",
        marked=r"@(?:\w+\.)*(?:\w*Test\w*|Property)\b",
    ),
    "csharp": Grammar(
        f'@"(?:""|[^"])*"|{_C}',
        r"(?P<marks>(?:\[[^\]]{0,300}\]\s*){1,40})(?:public|private|internal|protected)"
        r"[\w<>\[\],.?\s]{0,200}?\s(?P<name>\w+)\s*\(",
        r"\bAssert\.\w+|\.Should\w*\s*\(",
        exact=r"\bAssert\.(?:Equal|AreEqual|Same|AreSame|StrictEqual)\b|\.Be\s*\(",
        trivial=r"Assert\.(?:True|IsTrue)\(\s*true\s*[,)]|Assert\.(?:Are)?Equal" + _SAME,
        skip=r"\bSkip\s*=|\[\s*(?:Ignore|Explicit)\b|\bAssert\.(?:Ignore|Inconclusive)\b",
        marked=r"\[\s*(?:Fact|Theory|Test\w*|DataTestMethod)\b",
    ),
    "ruby": Grammar(
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
    "php": Grammar(
        f"{_SLASHES}|{_HASH}|{_DOUBLE}|{_SINGLE}",
        r"\bfunction\s+(?P<name>test\w*)\s*\(|^[ \t]*(?:it|test)\s*\(",
        r"(?:\$this->|self::|static::)(?:assert|expect)\w*|\bexpect\s*\(",
        exact=r"assert(?:Same|Equals)\b|->toBe\s*\(|->toEqual\s*\(",
        trivial=r"assertTrue\(\s*true\s*[,)]|assert(?:Same|Equals)" + _SAME,
        skip=r"markTest(?:Skipped|Incomplete)|->(?:skip|todo|only)\s*\(|#\[\s*Requires",
    ),
    "c": Grammar(
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
    "shell": Grammar(
        f"{_HASH}|{_DOUBLE}|{_SINGLE}",
        r"^[ \t]*@test\s+['\"]|^(?:function\s+)?(?P<name>test_\w+)\s*\(\)",
        r"\bassert\w*|\brefute\w*|^\s*\[\[?\s|\btest\s",
        exact=r"\bassert_(?:equal|output)\b|=",
        trivial=r"\bassert\s+true\b",
        skip=r"^\s*skip\b",
    ),
}


@dataclass(frozen=True, slots=True)
class CaseBlock:
    """One test. Only what can be reached and can fail is counted."""

    name: str
    assertions: tuple[str, ...] = ()
    """Each demand as it stands in its line."""
    weight: int = 0
    """How many demands there are, with every row of parameters counted."""
    exact: int = 0
    """How many of them ask for equality or identity."""
    trivial: int = 0
    """Demands that can never fail."""
    skips: tuple[str, ...] = ()
    """Marks that keep it from running, or its failure from counting."""
    ground: str = ""
    """All but its name, with what it stands on, where it is known again by that alone."""
    loose: frozenset[str] = field(default=frozenset(), repr=False)
    """What the file does on its own, and may do to each test of it."""

    def find_losses(self, new: CaseBlock) -> Iterator[tuple[str, str]]:
        """Say what the test lost: the rule and what happened."""
        for mark in sorted((Counter(new.skips) - Counter(self.skips)).elements()):
            yield "tests.skipped", f"is kept from running or failing by {mark}"
        if new.weight < self.weight:
            yield "tests.fewer_assertions", f"makes {new.weight} assertions and made {self.weight}"
        elif new.exact < self.exact:
            what = f"asks for {new.exact} exact results and asked for {self.exact}"
            yield "tests.loosened", what
        if new.trivial > self.trivial:
            what = f"has {new.trivial} assertions that cannot fail, and had {self.trivial}"
            yield "tests.trivial", what

    def is_kept_by(self, new: CaseBlock) -> bool:
        """Whether another test makes all demands of this one."""
        if self.ground or new.ground:
            return self.ground == new.ground != UNKNOWN and new.loose <= self.loose
        if self.name.rpartition(".")[2] != new.name.rpartition(".")[2] and (
            not self.assertions or Counter(self.assertions) - Counter(new.assertions)
        ):
            return False
        return not [*self.find_losses(new)]


UNKNOWN: Final = "unknown"
"""The ground of a test that needs too much of its file to be known again elsewhere."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """All tests of one file."""

    cases: tuple[CaseBlock, ...] = ()
    marks: tuple[str, ...] = ()
    """What keeps more than one test of the file from running."""
    exits: int = 0
    """Calls that end the test process."""
    hooks: tuple[str, ...] = ()
    """Hooks into the collection or the outcome of tests, with their content."""
    tree: ast.Module | None = field(default=None, compare=False, repr=False)
    """The syntax tree, where there is one: then all but additions to a test is a change."""

    def by_name(self) -> dict[str, CaseBlock]:
        """Return the cases by name; the second of the same name in a file has ``#2`` after it."""
        counts: Counter[str] = Counter()
        found = {}
        for case in self.cases:
            counts[case.name] += 1
            number = counts[case.name]
            found[case.name if number == 1 else f"{case.name}#{number}"] = case
        return found


def read_tokens(data: bytes, language: str) -> SourceText:
    """Return the tests of a file in a language that has a grammar."""
    grammar = GRAMMARS[language]
    text = data.decode("utf-8", "replace")
    code = grammar.blank(text)
    heads = [
        head
        for head in re.finditer(grammar.case, code, re.MULTILINE)
        if not grammar.marked or re.search(grammar.marked, head["marks"])
    ]
    limits = [*(head.start() for head in heads[1:]), len(code)]
    cases, outside, at = [], "", 0
    for head, limit in zip(heads, limits, strict=False):
        end = _find_end(code, head.end(), limit) if grammar.braces else limit
        cases.append(_read_case(grammar, text, code, head, end))
        outside += code[at : head.start()] + "\n"
        at = max(at, end)
    marks = grammar.find_skips(outside + code[at:])
    if language == "go":
        marks += tuple(found[0] for found in _BUILD_TAG.finditer(text))
    return SourceText(tuple(cases), marks, len(_EXITS.findall(code)))


def count_demands(grammar: Grammar, name: str, whole: str, body: str, lines: str = "") -> CaseBlock:
    """Return a test with what its blanked code demands; ``lines`` is its body as it stands."""
    trivial = len(re.findall(grammar.trivial, body))
    found = [item.start() for item in re.finditer(grammar.assertion, body)]
    return CaseBlock(
        name,
        tuple(_line_at(lines, at) for at in found),
        max(len(found) - trivial, 0) + len(_ROW.findall(whole)),
        len(re.findall(grammar.exact, body)),
        trivial,
        grammar.find_skips(whole),
    )


def _blank_match(found: re.Match[str]) -> str:
    whole = found[0]
    if whole[0] in "'\"`" and len(whole) > 1:
        return whole[0] + _KEPT.sub(" ", whole[1:-1]) + whole[-1]
    return _KEPT.sub(" ", whole)


def _find_end(code: str, start: int, limit: int) -> int:
    """Return the end of the braces that open after a head."""
    opening = _OPENS.search(code, max(start - 1, 0), limit)
    at = opening.end() - 1 if opening is not None else code.find("{", start, limit)
    if at < 0:
        return limit
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, at, limit):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return limit


def _read_case(grammar: Grammar, text: str, code: str, head: re.Match[str], end: int) -> CaseBlock:
    body = code[head.end() : end]
    if grammar.braces:
        body = _cut_after_return(body)
    groups = head.groupdict()
    group = next((group for group in ("name", "plain") if groups.get(group)), "")
    if group:
        name = " ".join(text[head.start(group) : head.end(group)].split())
    else:
        # The quote may belong to the head.
        found = _TEXT.search(text, max(head.end() - 1, 0), head.end() + MAX_NAME_DISTANCE)
        name = found[2] if found is not None else ""
    return count_demands(grammar, name, code[head.start() : end], body, text[head.end() :])


def _line_at(text: str, at: int) -> str:
    """Return an assertion as it stands in its line, whatever the blanks."""
    end = text.find("\n", at)
    return "".join(text[at : end if end >= 0 else len(text)].split()).rstrip(";,")


def _cut_after_return(body: str) -> str:
    """Return a body up to the first return that nothing decides over."""
    depth = 0
    for found in _RETURN.finditer(body):
        if found[0] == "return":
            before = body[: found.start()].rstrip()[-1:]
            if depth == 1 and before in {"{", ";", "}"}:
                end = body.find(";", found.end())
                return body[: end if end >= 0 else found.end()]
        else:
            depth += 1 if found[0] == "{" else -1
    return body
