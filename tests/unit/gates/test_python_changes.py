"""Ways to take the force out of a Python test, and additions next to them that take nothing."""

from __future__ import annotations

import textwrap
import time

import pytest

from coilclaw.runs.gates.result import Violation
from coilclaw.runs.gates.weakened_tests import MAX_TEST_BYTES, find_weakened_tests
from tests.support.children import PATIENCE_S

PATH = "tests/test_price.py"
HEAD = "import unittest\nfrom shop.price import total\n"
A = "    def test_a(self):\n"
LINE = "        self.assertEqual(total([1, 2], 1), 2)\n"
DEEP = "    " + LINE
B = "    def test_b(self):\n        self.assertEqual(total([1, 2], 0), 3)\n"
CALL = LINE.strip()
TRY = A + "        try:\n" + DEEP


def of(
    body: str = A + LINE,
    base: str = "unittest.TestCase",
    *,
    before: str = "",
    after: str = "",
    deco: str = "",
) -> str:
    return f"{HEAD}{before}{deco}class T({base}):\n{body}{B}{after}"


OLD = of()


def found(new: str, old: str = OLD) -> tuple[Violation, ...]:
    compile(new, PATH, "exec")
    return find_weakened_tests({PATH: old.encode()}, {PATH: new.encode()})


UNREACHED = {
    "if true return": of(A + "        if True: return\n" + LINE),
    "if equal return": of(A + "        if 1 == 1: return\n" + LINE),
    "if something return": of(A + "        if total: return\n" + LINE),
    "nothing to loop over": of(A + "        for _ in range(0):\n" + DEEP),
    "while not true": of(A + "        while not True:\n" + DEEP),
    "if not 1": of(A + "        if not 1:\n" + DEEP),
    "if it differs from itself": of(A + "        if total != total:\n" + DEEP),
    "match": of(A + "        match 0:\n            case 1:\n    " + DEEP),
    "raise": of(A + "        raise SystemExit(0)\n" + LINE),
    "lambda": of(A + f"        f = lambda: {CALL}\n"),
    "or": of(A + f"        True or {CALL}\n"),
    "conditional": of(A + f"        None if True else {CALL}\n"),
    "generator": of(A + f'        ({CALL} for _ in "x")\n'),
    "yield": of(A + LINE + "        yield\n"),
    "yield in a call": of(A + LINE + "        print((yield))\n"),
    "async": of(A.replace("def", "async def") + LINE),
}
SWALLOWED = {
    "assertRaises": of(A + "        with self.assertRaises(AssertionError):\n" + DEEP),
    "finally return": of(TRY + "        finally:\n            return\n"),
    "group": of(TRY + "        except* AssertionError:\n            pass\n"),
    "alias": of(
        TRY + "        except E:\n            pass\n",
        before="E = AssertionError\n",
    ),
    "attribute": of(TRY + "        except self.failureException:\n            pass\n"),
    "suppress": of(
        A + "        with sup(AssertionError):\n" + DEEP,
        before="from contextlib import suppress as sup\n",
    ),
}
SKIPPED = {
    "skip": of('    @unittest.skip("x")\n' + A + LINE),
    "attribute": of("    __unittest_skip__ = True\n" + A + LINE),
    "setattr": of(after='setattr(T, "__unittest_skip__", True)\n'),
    "setUp": of('    def setUp(self):\n        self.skipTest("x")\n' + A + LINE),
    "setUp raises": of('    def setUp(self):\n        raise unittest.SkipTest("x")\n' + A + LINE),
    "setUpModule": of(before="def setUpModule():\n    raise unittest.SkipTest\n"),
    "alias": of('    @sk("x")\n' + A + LINE, before="sk = unittest.skip\n"),
    "import": of('    @sk("x")\n' + A + LINE, before="from unittest import skip as sk\n"),
    "getattr": of(
        "    @xf\n" + A + LINE,
        before='xf = getattr(unittest, "expected" + "Failure")\n',
    ),
    "import for the file": of(before="from pytest import skip as s\nX = s('x')\n"),
    "setattr by map": of(before="X = list(map(setattr, [unittest], ['a'], [1]))\n"),
    "main": of(before="from unittest import main as m\nm()\n"),
    "called helper": of(before="def f():\n    raise unittest.SkipTest\nX = f()\n"),
    "decorator of a new test": of(
        before="def f(g):\n    raise unittest.SkipTest\n@f\ndef test_new(): pass\n"
    ),
    "default of a new function": of(
        before="def f():\n    raise unittest.SkipTest\ndef helper(x=f()): pass\n"
    ),
    "body of a new class": of(
        before="def f():\n    raise unittest.SkipTest\nclass New:\n    x = f()\n"
    ),
    "called in the test": of(
        A + "        later()\n" + LINE,
        before="def later():\n    raise unittest.SkipTest\n",
    ),
    "autouse": of(
        before="import pytest\n@pytest.fixture(autouse=True)\ndef f():\n    pytest.skip('x')\n"
    ),
}
REPLACED = {
    "name": of(before="total = lambda p, d=0: sum(p) - d\n"),
    "function": of(before="def total(p, d=0):\n    return sum(p) - d\n"),
    "import": of().replace(
        "from shop.price import total", "def total(p, d=0):\n    return sum(p) - d"
    ),
    "other import": of().replace("from shop.price", "from shop.stub"),
    "second import": of(before="from shop.stub import total\n"),
    "star": of(before="from shop.stub import *\n"),
    "local": of(A + "        total = lambda *a: 2\n" + LINE),
    "walrus": of(A + "        print(total := 1)\n" + LINE),
    "local import": of(A + "        from shop.stub import total\n" + LINE),
    "assertion": of(before="unittest.TestCase.assertEqual = lambda *a: None\n"),
    "assertion of the class": of("    def assertEqual(self, a, b): pass\n" + A + LINE),
    "assertion by name": of("    assertEqual = print\n" + A + LINE),
    "assertion of the object": of(A + "        self.assertEqual = print\n" + LINE),
    "assertion in a new test": of(
        after="def test_new():\n    unittest.TestCase.assertEqual = print\n"
    ),
    "setattr in a new test": of(after='def test_new():\n    setattr(T, "test_a", print)\n'),
    "global in a new test": of(after="def test_new():\n    global total\n    total = print\n"),
    "test": of(after="T.test_a = lambda self: None\n"),
    "del": of(after="del T.test_a\n"),
    "delattr": of(after='delattr(T, "test_a")\n'),
    "base": of(base="object"),
    "metaclass": of(
        base="unittest.TestCase, metaclass=M",
        before="class M(type):\n    def __new__(*a): return object\n",
    ),
    "decorator": of(
        "    @nop\n" + A + LINE,
        before="def nop(f):\n    return lambda self: None\n",
    ),
    "class decorator": of(deco="@print\n"),
    "second": of(A + LINE + A + "        pass\n"),
    "first": of(A + "        pass\n" + A + LINE),
    "class": of(
        after="class T(unittest.TestCase):\n"
        "    def test_c(self):\n        self.assertEqual(1, total([1]))\n"
    ),
    "run": of("    def run(self, result=None): return None\n" + A + LINE),
    "load_tests": of(after="def load_tests(l, t, p):\n    return unittest.TestSuite()\n"),
    "exit by name": of(before='import os\ngetattr(os, "_ex"+"it")(0)\n'),
    "exit": of(before="from os import _exit\n_exit(0)\n"),
    "tolerance": of(A + "        self.assertAlmostEqual(total([1, 2], 1), 2, delta=100)\n"),
    "expected value": of(A + LINE.replace("2)\n", "5)\n")),
    "argument": of(A + LINE.replace("total([1, 2]", "total([1, 1]")),
    "arguments": of("    def test_a(self, total=print):\n" + LINE),
    "order": of(B.replace("_b", "_a") + A.replace("_a", "_c") + LINE),
}
EVERY = {
    f"{kind}: {name}": text
    for kind, texts in (
        ("unreached", UNREACHED),
        ("swallowed", SWALLOWED),
        ("skipped", SKIPPED),
        ("replaced", REPLACED),
    )
    for name, text in texts.items()
}
FINE = {
    "nothing": of(),
    "comment": of(A + '        """Says why."""\n        # because\n' + LINE),
    "import": of(before="import atexit\n"),
    "more of an import": of().replace("import total", "import total, net"),
    "sub-test": of(A + "        with self.subTest():\n" + DEEP),
    "assertion before": of(A + "        self.assertTrue(total([1]))\n" + LINE),
    "assertion after": of(A + LINE + "        self.assertEqual(total([]), 0)\n"),
    "assignment": of(A + "        value = total([3])\n" + LINE + "        assert value == 3\n"),
    "raises": of(A + LINE + "        with self.assertRaises(TypeError):\n            total()\n"),
    "loop": of(A + LINE + "        for n in (1, 2):\n            assert total([n]) == n\n"),
    "new test": of("    def test_c(self):\n        self.fail()\n" + A + LINE),
    "new skipped test": of('    @unittest.skip("x")\n    def test_c(self): pass\n' + A + LINE),
    "new helper": of(before="def helper(x):\n    return x\nX = helper(1)\n"),
    "new method": of("    def make(self):\n        return [1]\n" + A + LINE),
    "new class": of(
        before="from dataclasses import dataclass\n@dataclass\nclass Row:\n    n: int = 1\n"
        "ROWS = [Row(1), Row(2)]\n"
    ),
    "new fixture": of(before="import pytest\n@pytest.fixture\ndef basket():\n    return [1]\n"),
    "renamed": of(A.replace("test_a", "test_first") + LINE),
    "moved": of(after="", body="") + A + LINE,
    "main": of(after="if __name__ == '__main__':\n    unittest.main()\n"),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_test_that_can_no_longer_fail_is_found(name: str) -> None:
    assert found(EVERY[name]) != ()


@pytest.mark.parametrize("name", FINE)
def test_an_addition_is_fine(name: str) -> None:
    assert found(FINE[name]) == ()


def test_the_test_and_what_changed_are_named() -> None:
    assert found(REPLACED["expected value"]) == (
        Violation(
            "tests.changed",
            "'tests/test_price.py' T.test_a does not have"
            " 'self.assertEqual(total([1, 2], 1), 2)' as it was",
            PATH,
        ),
    )
    assert found(UNREACHED["if true return"]) == (
        Violation("tests.changed", "'tests/test_price.py' T.test_a adds return", PATH),
    )
    assert found(REPLACED["base"]) == (
        Violation("tests.changed", "'tests/test_price.py' T has other bases", PATH),
    )
    assert found(REPLACED["name"]) == (
        Violation("tests.changed", "'tests/test_price.py' binds total anew", PATH),
    )


PYTEST = textwrap.dedent(
    """
    import pytest
    from mine import add, cut

    LIMIT = 3

    @pytest.fixture
    def basket():
        return [1, 2]

    def check(value):
        assert value == LIMIT

    @pytest.mark.parametrize("n", [1, 2])
    def test_rows(n):
        assert add(n) == n

    def test_basket(basket, client):
        check(add(*basket))

    def test_cut():
        assert cut(1) == 0
    """
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = 3\nLIMIT = 4"),
        ("return [1, 2]", "return []"),
        ("    return [1, 2]", "    pytest.skip('x')\n    return [1, 2]"),
        ("assert value == LIMIT", "return"),
        ("[1, 2])\ndef test_rows", "[1])\ndef test_rows"),
        ("[1, 2])\ndef test_rows", "[2, 1])\ndef test_rows"),
        ("[1, 2])\ndef test_rows", "[])\ndef test_rows"),
        ("@pytest.mark.parametrize", "@pytest.mark.slow\n@pytest.mark.parametrize"),
        ("def check", "@pytest.fixture\ndef client(): return None\n\ndef check"),
        ("(basket, client)", "(basket, client, later)"),
        ("LIMIT = 3", "LIMIT = 3\npytestmark = pytest.mark.slow"),
        ("LIMIT = 3", "LIMIT = 3\nadd.limit = 1"),
    ],
)
def test_what_tests_stand_on_may_not_change(old: str, new: str) -> None:
    assert old in PYTEST
    rules = {violation.rule for violation in found(PYTEST.replace(old, new), PYTEST)}
    assert rules & {"tests.changed", "tests.skipped", "tests.fewer_assertions"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[1, 2])\ndef test_rows", "[1, 2, 3])\ndef test_rows"),
        ("[1, 2])\ndef test_rows", "[0, 1, pytest.param(5), 2])\ndef test_rows"),
        ("LIMIT = 3", "LIMIT = 3\nOTHER = 4"),
        ("import add, cut", "import (\n    add,  # sums\n    cut,\n    glue,\n)"),
        ("def check", "@pytest.fixture\ndef customer(): return None\n\ndef check"),
        ("def test_rows(n)", "def test_rows(n: int) -> None"),
    ],
)
def test_what_tests_stand_on_may_be_added_to(old: str, new: str) -> None:
    assert old in PYTEST
    assert found(PYTEST.replace(old, new), PYTEST) == ()


CUT = "def test_cut():\n    assert cut(1) == 0\n"


@pytest.mark.parametrize(
    ("there", "rules"),
    [
        ("from mine import cut\n" + CUT, []),
        ("from mine import cut, more\n\n" + CUT + "def test_more():\n    assert more\n", []),
        ("from stub import cut\n" + CUT, ["tests.deleted"]),
        ("def cut(n): return 0\n" + CUT, ["tests.deleted"]),
        ("from mine import cut\n" + CUT + "def test_cut(): pass\n", ["tests.deleted"]),
        ("from mine import cut\nif False:\n    def test_cut():\n        assert cut(1) == 0\n",
         ["tests.deleted"]),
        ("from mine import cut\n" + CUT + "cut.limit = 1\n", ["tests.deleted"]),
        ("from mine import cut\npytestmark = slow\n" + CUT, ["tests.deleted"]),
        ("from mine import cut\nclass C(Odd):\n    def test_cut():\n        assert cut(1) == 0\n",
         ["tests.deleted"]),
    ],
)  # fmt: skip
def test_a_test_moves_with_all_it_stands_on(there: str, rules: list[str]) -> None:
    left = PYTEST.replace(CUT, "").replace("import add, cut", "import add")
    after: dict[str, bytes | None] = {PATH: left.encode(), "tests/test_cut.py": there.encode()}
    violations = find_weakened_tests({PATH: PYTEST.encode()}, after)
    assert [violation.rule for violation in violations] == rules


def test_a_script_keeps_what_it_demands() -> None:
    script = (
        "import sys\n\nsys.path.insert(0, '.')\nfrom calc import add\n\nassert add(1, 1) == 2\n"
    )
    assert found(script + "assert add(2, 2) == 4\nprint('fine')\n", script) == ()
    for old, new in (
        ("== 2", "== 3"),
        ("from calc", "from stub"),
        ("assert add", "if __name__ == '__main__':\n    sys.exit(0)\nassert add"),
        ("sys.path.insert(0, '.')", "sys.path.insert(0, 'stub')"),
        ("assert add", "sys.modules['calc'] = sys\nassert add"),
    ):
        assert [v.rule for v in found(script.replace(old, new), script)] == ["tests.changed"]


def _filled(line: str, head: str = "") -> str:
    room = (MAX_TEST_BYTES // 5 - len(head)) // (len(line.format(99999)))
    return head + "".join(line.format(number) for number in range(room))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_filled("def test_a{}():f\n"), _filled("def test_b{}():g\n")),
        (_filled("def test_{}():\n h()\n", "def h(): h2()\n"), _filled("def g{}(): g()\n")),
        (
            "".join(f"def h{n}():\n" + f" h{n + 1}()\n" * 3000 for n in range(5)) + "def h5(): x\n",
            "def test_a():\n" + " h0()\n" * 5000 + "def h0(): h1()\n",
        ),
        ("def test_a():\n" + " f()\n" * 10000, "def test_a():\n" + " f();g()\n" * 10000),
        ("a = b" + "." + ".".join("c" * 500) + "\n", "a = b" + ".c()" * 900 + "\n"),
    ],
    ids=["names", "helpers", "calls", "statements", "chain"],
)
def test_hostile_files_take_bounded_time(old: str, new: str) -> None:
    begun = time.process_time()
    find_weakened_tests({PATH: old.encode()}, {PATH: new.encode()})
    find_weakened_tests({PATH: new.encode()}, {PATH: old.encode()})
    assert time.process_time() - begun < PATIENCE_S
