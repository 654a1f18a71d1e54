"""Tests that a change weakens, and changes next to them that weaken nothing."""

from __future__ import annotations

import textwrap

import pytest

from coilclaw.runs.gates.result import Violation
from coilclaw.runs.gates.test_files import is_test, is_test_configuration
from coilclaw.runs.gates.weakened_tests import MAX_TEST_BYTES, find_weakened_tests

PATH = "tests/test_a.py"
OLD = """
    import pytest
    from mine import add, parse

    @pytest.mark.parametrize("a, b", [(1, 2), (3, 4), (5, 6)])
    def test_rows(a, b):
        assert add(a, b) == a + b

    def test_add():
        result = add(1, 2)
        assert result == 3
        assert result != 4

    def test_error():
        with pytest.raises(ValueError):
            parse("x")

    class TestParse:
        def test_one(self):
            assert parse("1") == 1
            assert parse("2") == 2
"""


def source(text: str) -> bytes:
    return textwrap.dedent(text).encode()


def found(old: str | None, new: str | None, path: str = PATH, **other: str | None) -> list[str]:
    before = {path: None if old is None else source(old)}
    after = {path: None if new is None else source(new)}
    for name, text in other.items():
        after[name.replace("__", "/").replace("_DOT_", ".")] = (
            None if text is None else source(text)
        )
    return [violation.rule for violation in find_weakened_tests(before, after)]


def edited(old: str, new: str) -> list[str]:
    assert old in OLD
    return found(OLD, OLD.replace(old, new))


def test_what_is_the_same_is_fine() -> None:
    assert found(OLD, OLD) == []
    assert found(None, OLD) == []
    assert found("", OLD) == []


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("def test_add", "def check_add", "tests.deleted"),
        ("def test_add", "def _test_add", "tests.deleted"),
        (
            "class TestParse:\n        def test_one",
            "class TestParse:\n        def one",
            "tests.deleted",
        ),
        ("        assert result != 4\n", "", "tests.fewer_assertions"),
        ("assert result == 3", "print(result)", "tests.fewer_assertions"),
        ("assert result == 3", "assert result", "tests.loosened"),
        ("assert result == 3", "assert result in (2, 3)", "tests.loosened"),
        ("assert result == 3", "assert True", "tests.trivial"),
        ("assert result == 3", "assert result == 3 or True", "tests.trivial"),
        ("assert result == 3", "assert (result == 3, 'message')", "tests.trivial"),
        ("assert result == 3", "assert result == result", "tests.trivial"),
        ("assert result == 3", "assert 1", "tests.trivial"),
        ("assert result == 3", "assert len([result]) >= 0", "tests.trivial"),
        (
            "assert result == 3",
            "if False:\n            assert result == 3",
            "tests.skipped",
        ),
        ("assert result == 3", "if 0: assert result == 3", "tests.skipped"),
        (
            "        result = add(1, 2)\n",
            "        result = add(1, 2)\n        return\n",
            "tests.changed",
        ),
        (
            "        result = add(1, 2)\n",
            "        pytest.skip('later')\n        result = 3\n",
            "tests.skipped",
        ),
        ("        result = add(1, 2)\n", "        pytest.xfail('later')\n", "tests.skipped"),
        (
            "assert result == 3",
            (
                "try:\n            assert result == 3\n"
                "        except AssertionError:\n            pass"
            ),
            "tests.changed",
        ),
        (
            "assert result == 3",
            (
                "try:\n            assert result == 3\n"
                "        except Exception as e:\n            print(e)"
            ),
            "tests.changed",
        ),
        (
            "assert result == 3",
            "with contextlib.suppress(AssertionError):\n            assert result == 3",
            "tests.changed",
        ),
        ("    def test_add", "    @pytest.mark.skip\n    def test_add", "tests.skipped"),
        (
            "    def test_add",
            "    @pytest.mark.skipif(True, reason='x')\n    def test_add",
            "tests.skipped",
        ),
        (
            "    def test_add",
            "    @pytest.mark.xfail(strict=False)\n    def test_add",
            "tests.skipped",
        ),
        ("    def test_add", "    @unittest.skip('x')\n    def test_add", "tests.skipped"),
        ("    def test_add", "    @unittest.expectedFailure\n    def test_add", "tests.skipped"),
        ("    class TestParse", "    @pytest.mark.skip\n    class TestParse", "tests.skipped"),
        (
            "    class TestParse:\n",
            "    class TestParse:\n        __test__ = False\n",
            "tests.skipped",
        ),
        (
            "    class TestParse:\n",
            "    class TestParse:\n        pytestmark = pytest.mark.skip\n",
            "tests.skipped",
        ),
        (
            "    import pytest\n",
            "    import pytest\n    pytestmark = pytest.mark.skip\n",
            "tests.skipped",
        ),
        (
            "    import pytest\n",
            "    import pytest\n    pytestmark = [pytest.mark.xfail]\n",
            "tests.skipped",
        ),
        (
            "    import pytest\n",
            "    import pytest\n    pytest.skip('x', allow_module_level=True)\n",
            "tests.skipped",
        ),
        (
            "    import pytest\n",
            "    import pytest\n    pytest.importorskip('none')\n",
            "tests.skipped",
        ),
        ("    import pytest\n", "    import pytest, os\n    os._exit(0)\n", "tests.exits"),
        (
            "    import pytest\n",
            "    import pytest, os, atexit\n    atexit.register(os._exit, 0)\n",
            "tests.exits",
        ),
        ("    import pytest\n", "    import pytest, sys\n    sys.exit(0)\n", "tests.exits"),
        ("    import pytest\n", "    import pytest\n    raise SystemExit\n", "tests.exits"),
        ("    import pytest\n", "    import pytest\n    pytest.exit('x', 0)\n", "tests.exits"),
        ("    import pytest\n", "    import pytest\n    __test__ = False\n", "tests.skipped"),
        ("(1, 2), (3, 4), (5, 6)", "(1, 2)", "tests.changed"),
        ("(1, 2),", "pytest.param(1, 2, marks=pytest.mark.skip),", "tests.skipped"),
        (
            "with pytest.raises(ValueError):\n            parse",
            "if True:\n            parse",
            "tests.fewer_assertions",
        ),
        ("    def test_add", "    def test_add(:", "tests.unreadable"),
    ],
)
def test_a_weakened_test_is_found(old: str, new: str, rule: str) -> None:
    assert rule in edited(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "    def test_add",
            "    def test_more():\n        assert add(0, 0) == 0\n\n    def test_add",
        ),
        (
            "    def test_add",
            "    @pytest.mark.skip\n    def test_new():\n        assert 1\n\n    def test_add",
        ),
        ("def test_add", "def test_addition"),
        ("(5, 6)", "(5, 6), (7, 8)"),
        ("result = add(1, 2)", "result = add(1, 2)  # a comment"),
        ("assert result == 3", "skipped = parse.count(3)\n        assert result == 3"),
        ("assert result == 3", "assert result == 3\n        assert add(2, 2) == 4"),
        ("assert result != 4\n", "assert result != 4\n        process.send()\n"),
        ("    class TestParse", "    class TestParsing"),
        (
            "    import pytest\n",
            "    import pytest\n    if __name__ == '__main__':\n        sys.exit(pytest.main())\n",
        ),
    ],
)
def test_a_change_without_loss_is_fine(old: str, new: str) -> None:
    assert edited(old, new) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("assert result == 3", "assert result == 5"),
        ("assert result == 3", "assert 3 == result, 'the sum'"),
        ("assert result == 3", "assert result is THREE"),
        (
            "        assert result == 3\n        assert result != 4\n",
            (
                "        for value in (3,):\n            assert result == value\n"
                "        assert result != 4\n"
            ),
        ),
        (
            "        result = add(1, 2)\n",
            "        skipped = parse.skip(3)\n        result = skip_blanks()\n",
        ),
        (
            "        result = add(1, 2)\n",
            "        if not add:\n            return\n        result = 1\n",
        ),
        ("        result = add(1, 2)\n", "        process.kill()\n        result = 1\n"),
    ],
)
def test_a_test_that_is_rewritten_is_changed(old: str, new: str) -> None:
    assert edited(old, new) == ["tests.changed"]


def test_a_test_whose_assertions_move_into_a_function_is_changed() -> None:
    moved = OLD.replace(
        "        assert result == 3\n        assert result != 4\n", "        check(result)\n"
    )
    whole = (
        moved + "\n    def check(result):\n        assert result == 3\n        assert result != 4\n"
    )
    empty = moved + "\n    def check(result):\n        return True\n"
    assert found(OLD, whole) == ["tests.fewer_assertions"]
    assert found(OLD, empty) == ["tests.fewer_assertions"]


def test_a_test_goes_on_under_another_name_only_as_it_was() -> None:
    old = "def test_a():\n    assert f(1) == 1\n\ndef test_b():\n    assert f(2) == 2\n"
    new = "def test_both():\n    assert f(1) == 1\n    assert f(2) == 2\n"
    assert found(old, new) == ["tests.deleted", "tests.deleted"]
    assert found("def test_a():\n    assert f(1) == 1\n", new) == ["tests.deleted"]
    assert found(old, old.replace("test_a", "test_first")) == []


def test_a_deleted_file() -> None:
    assert find_weakened_tests({PATH: source(OLD)}, {PATH: None}) == (
        Violation(
            "tests.deleted_file",
            "'tests/test_a.py' was deleted with 4 tests: "
            "test_rows, test_add, test_error, TestParse.test_one",
            PATH,
        ),
    )
    assert found("HELPER = 1\n", None, "tests/support.py") == []
    assert found("def test_x(): assert f()\n", None, "src/notes.py") == []


def test_a_file_that_is_renamed_to_a_test_keeps_its_tests() -> None:
    assert found(OLD, None, tests__test_b_DOT_py=OLD) == []
    assert found(OLD, None, tests__sub__test_a_DOT_py=OLD + "\n    def test_new(): pass\n") == []


def test_a_file_that_is_renamed_away_loses_its_tests() -> None:
    assert found(OLD, None, src__old_DOT_py=OLD) == ["tests.renamed"]
    weaker = OLD.replace("assert result == 3", "pass")
    assert found(OLD, None, tests__test_b_DOT_py=weaker) == ["tests.deleted_file"]


def test_one_copy_does_not_stand_for_two_tests() -> None:
    one = "def test_a():\n    assert f(1) == 1\n"
    before: dict[str, bytes | None] = {
        "tests/test_a.py": one.encode(),
        "tests/test_b.py": one.encode(),
    }
    after: dict[str, bytes | None] = {"tests/test_c.py": one.encode()}
    assert [v.rule for v in find_weakened_tests(before, after)] == ["tests.deleted_file"]


@pytest.mark.parametrize(
    "line",
    [
        "collect_ignore = ['tests']",
        "collect_ignore_glob = ['*']",
        "collect_ignore += ['x']",
        "pytest_plugins = ['evil']",
        "def pytest_collection_modifyitems(items): items.clear()",
        "def pytest_ignore_collect(): return True",
        "def pytest_runtest_makereport(item): pass",
        "def pytest_sessionfinish(session): session.exitstatus = 0",
        "import os; os._exit(0)",
    ],
)
@pytest.mark.parametrize("old", [None, "import pytest\n"])
def test_collection_is_not_switched_off_in_a_conftest(old: str | None, line: str) -> None:
    rules = found(old, f"import pytest\n{line}\n", "tests/conftest.py")
    assert rules == (["tests.exits"] if "_exit" in line else ["tests.collection"])


def test_a_fixture_in_a_conftest_is_fine() -> None:
    fixture = "import pytest\n@pytest.fixture\ndef thing():\n    return 1\n"
    assert found("import pytest\n", fixture, "tests/conftest.py") == []
    hook = "def pytest_addoption(parser):\n    pass\n"
    assert found(hook, hook + "X = 1\n", "tests/conftest.py") == []


def test_a_test_that_is_too_large_to_be_read() -> None:
    big = b"# " + b"x" * MAX_TEST_BYTES
    assert [v.rule for v in find_weakened_tests({PATH: b""}, {PATH: big})] == ["tests.size"]


def test_what_nests_too_deep_cannot_be_read() -> None:
    deep = ("x = " + "(" * 5000 + ")" * 5000).encode()
    chain = ("def test_a():\n    assert " + "+".join(["1"] * 20000)).encode()
    assert [v.rule for v in find_weakened_tests({PATH: b""}, {PATH: deep})] == ["tests.unreadable"]
    assert [v.rule for v in find_weakened_tests({PATH: b""}, {PATH: chain})] in (
        [],
        ["tests.unreadable"],
    )


JS = """
import {add} from './add';
describe('add', () => {
  // it('is not a test', () => { expect(1).toBe(2) })
  it('adds', () => {
    const text = "it('neither', () => expect(1))";
    expect(add(1, 2)).toBe(3);
    expect(add(2, 2)).not.toBe(3);
  });
  test.each([
    [1, 2],
    [3, 4],
  ])('row %s', async ({page}) => {
    expect(page).toEqual(1);
  });
});
"""
GO = """
package a

func TestAdd(t *testing.T) {
	for _, c := range []struct{ a int }{
		{1},
		{2},
	} {
		if add(c.a) != 2 {
			t.Errorf("no")
		}
	}
}
"""
RUST = """
pub fn add(a: i32) -> i32 { assert!(a > 0); a }
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn adds() {
        let c = 'x';
        assert_eq!(add(1), 1);
        assert!(add(2) > 1);
    }
}
"""
JAVA = """
class AddTest {
    @Test
    void adds() {
        assertEquals(3, add(1, 2));
        assertTrue(add(1, 1) > 1);
    }
}
"""
CSHARP = """
public class AddTests {
    [Fact]
    public void Adds() {
        Assert.Equal(3, Add(1, 2));
    }
}
"""
RUBY = """
describe Add do
  it "adds" do
    expect(add(1, 2)).to eq(3)
  end
  it "is odd" do
    expect(add(1, 2)).to be_odd
  end
end
"""
PHP = """<?php
class AddTest extends TestCase {
    public function testAdds(): void {
        $this->assertSame(3, add(1, 2));
    }
}
"""
CPP = """
TEST(Add, Adds) {
  EXPECT_EQ(3, add(1, 2));
  EXPECT_TRUE(add(1, 1) > 1);
}
static void test_plain(void) {
  assert(add(1, 1) == 2);
}
"""
BATS = """
@test "adds" {
  run add 1 2
  [ "$output" = 3 ]
}
"""
OTHERS = {
    "web/add.test.ts": JS,
    "a/add_test.go": GO,
    "src/lib.rs": RUST,
    "src/test/java/AddTest.java": JAVA,
    "Shop.Tests/AddTests.cs": CSHARP,
    "spec/add_spec.rb": RUBY,
    "tests/AddTest.php": PHP,
    "tests/add_test.cc": CPP,
    "test/add.bats": BATS,
}


@pytest.mark.parametrize("path", OTHERS)
def test_other_languages_without_loss(path: str) -> None:
    text = OTHERS[path]
    assert found(text, text, path) == []
    assert found(None, text, path) == []
    assert found(text, text + "\n\n", path) == []


@pytest.mark.parametrize("path", OTHERS)
def test_other_languages_lose_their_tests_with_the_file(path: str) -> None:
    assert found(OTHERS[path], None, path) == ["tests.deleted_file"]


@pytest.mark.parametrize(
    ("path", "old", "new", "rule"),
    [
        ("web/add.test.ts", "  it('adds'", "  it.skip('adds'", "tests.skipped"),
        ("web/add.test.ts", "  it('adds'", "  xit('adds'", "tests.skipped"),
        ("web/add.test.ts", "  it('adds'", "  it.only('adds'", "tests.skipped"),
        ("web/add.test.ts", "  it('adds'", "  it.todo('adds'", "tests.skipped"),
        ("web/add.test.ts", "describe('add'", "describe.skip('add'", "tests.skipped"),
        ("web/add.test.ts", "describe('add'", "xdescribe('add'", "tests.skipped"),
        ("web/add.test.ts", "  it('adds'", "  // it('adds'", "tests.deleted"),
        ("web/add.test.ts", "    expect(add(1, 2)).toBe(3);\n", "", "tests.fewer_assertions"),
        (
            "web/add.test.ts",
            "    expect(add(1, 2)).toBe(3);\n",
            "    // expect(add(1, 2)).toBe(3);\n",
            "tests.fewer_assertions",
        ),
        (
            "web/add.test.ts",
            "expect(add(1, 2)).toBe(3)",
            "expect(true).toBe(true)",
            "tests.trivial",
        ),
        (
            "web/add.test.ts",
            "expect(add(1, 2)).toBe(3)",
            "expect(add(1, 2)).toBeTruthy()",
            "tests.loosened",
        ),
        (
            "web/add.test.ts",
            "() => {\n    const",
            "() => {\n    return;\n    const",
            "tests.fewer_assertions",
        ),
        (
            "web/add.test.ts",
            "    expect(add(1, 2)).toBe(3)",
            "    if (false) expect(add(1, 2)).toBe(3)",
            "tests.skipped",
        ),
        (
            "web/add.test.ts",
            "    expect(add(1, 2)).toBe(3);",
            "    try { expect(add(1, 2)).toBe(3); } catch {}",
            "tests.skipped",
        ),
        (
            "web/add.test.ts",
            "    expect(add(1, 2)).toBe(3);",
            "    try { expect(add(1, 2)).toBe(3); } catch (e) { console.log(e); }",
            "tests.skipped",
        ),
        ("web/add.test.ts", "    [3, 4],\n", "", "tests.fewer_assertions"),
        ("web/add.test.ts", "describe('add'", "process.exit(0);\ndescribe('add'", "tests.exits"),
        ("a/add_test.go", "func TestAdd", "func testAdd", "tests.deleted"),
        ("a/add_test.go", "\t\tif add", "\t\tt.Skip()\n\t\tif add", "tests.skipped"),
        ("a/add_test.go", "t.Errorf", "t.Logf", "tests.fewer_assertions"),
        ("a/add_test.go", "\t\t{2},\n", "", "tests.fewer_assertions"),
        ("a/add_test.go", "\npackage a", "//go:build never\n\npackage a", "tests.skipped"),
        ("src/lib.rs", "    #[test]\n", "", "tests.deleted"),
        ("src/lib.rs", "    #[test]\n", "    #[test]\n    #[ignore]\n", "tests.skipped"),
        ("src/lib.rs", "    #[test]\n", "    #[test]\n    #[should_panic]\n", "tests.skipped"),
        ("src/lib.rs", "assert_eq!(add(1), 1)", "assert!(true)", "tests.trivial"),
        ("src/lib.rs", "        assert!(add(2) > 1);\n", "", "tests.fewer_assertions"),
        (
            "src/test/java/AddTest.java",
            "    @Test\n",
            "    @Disabled\n    @Test\n",
            "tests.skipped",
        ),
        (
            "src/test/java/AddTest.java",
            "class AddTest",
            "@Disabled\nclass AddTest",
            "tests.skipped",
        ),
        ("src/test/java/AddTest.java", "    @Test\n", "", "tests.deleted"),
        (
            "src/test/java/AddTest.java",
            "assertEquals(3, add(1, 2))",
            "assertTrue(true)",
            "tests.trivial",
        ),
        ("Shop.Tests/AddTests.cs", "[Fact]", '[Fact(Skip = "x")]', "tests.skipped"),
        (
            "Shop.Tests/AddTests.cs",
            "        Assert.Equal(3, Add(1, 2));\n",
            "",
            "tests.fewer_assertions",
        ),
        ("spec/add_spec.rb", '  it "adds"', '  xit "adds"', "tests.skipped"),
        (
            "spec/add_spec.rb",
            "    expect(add(1, 2)).to eq(3)\n",
            "    skip\n    expect(add(1, 2)).to eq(3)\n",
            "tests.skipped",
        ),
        (
            "spec/add_spec.rb",
            "    expect(add(1, 2)).to eq(3)\n",
            "    # expect(add(1, 2)).to eq(3)\n",
            "tests.fewer_assertions",
        ),
        (
            "tests/AddTest.php",
            "        $this->assertSame(3",
            "        $this->markTestSkipped();\n        $this->assertSame(3",
            "tests.skipped",
        ),
        ("tests/AddTest.php", "testAdds", "adds", "tests.deleted"),
        ("tests/add_test.cc", "TEST(Add, Adds)", "TEST(Add, DISABLED_Adds)", "tests.deleted"),
        ("tests/add_test.cc", "TEST(Add, Adds)", "#if 0\n#endif\nTEST(Add, Adds)", "tests.skipped"),
        ("tests/add_test.cc", "  EXPECT_EQ(3, add(1, 2));\n", "", "tests.fewer_assertions"),
        ("tests/add_test.cc", "assert(add(1, 1) == 2)", "assert(1)", "tests.trivial"),
        ("test/add.bats", "  run add", "  skip\n  run add", "tests.skipped"),
    ],
)
def test_other_languages_weakened(path: str, old: str, new: str, rule: str) -> None:
    assert old in OTHERS[path]
    assert rule in found(OTHERS[path], OTHERS[path].replace(old, new), path)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("web/add.test.ts", "toBe(3);\n    expect", "toBe(5);\n    expect"),
        (
            "web/add.test.ts",
            "  it('adds'",
            "  it('more', () => { expect(1).toBe(2) });\n  it('adds'",
        ),
        (
            "web/add.test.ts",
            "    expect(add(1, 2)).toBe(3);",
            "    try { expect(add(1, 2)).toBe(3); } catch (e) { throw e; }",
        ),
        ("a/add_test.go", "\t\t{2},\n", "\t\t{2},\n\t\t{3},\n"),
        ("src/lib.rs", "{ assert!(a > 0); a }", "{ a }"),
        ("src/lib.rs", "let c = 'x';", "let c = 'y'; let s: &'static str = \"#[ignore]\";"),
        ("src/test/java/AddTest.java", "add(1, 2)", "add(2, 1)"),
        ("web/add.test.ts", "  it('adds'", "  it('sums'"),
        (
            "spec/add_spec.rb",
            '  it "is odd"',
            '  it "is new" do\n    expect(1).to eq(1)\n  end\n  it "is odd"',
        ),
        ("tests/add_test.cc", "  EXPECT_EQ", "  // a comment\n  EXPECT_EQ"),
    ],
)
def test_other_languages_changed_without_loss(path: str, old: str, new: str) -> None:
    assert found(OTHERS[path], OTHERS[path].replace(old, new), path) == []


CONFIGS = {
    "pyproject.toml": "[project]\nname = 'x'\n"
    "[tool.pytest.ini_options]\naddopts = '-q'\ntestpaths = ['tests']\n",
    "pytest.ini": "[pytest]\naddopts = -q\n",
    "tox.ini": "[tox]\nenvlist = py\n[testenv]\ncommands = pytest\n[flake8]\nmax = 1\n",
    "setup.cfg": "[metadata]\nname = x\n[tool:pytest]\ntestpaths = tests\n",
    "package.json": '{"name": "x", "scripts": {"test": "jest", "build": "tsc"},'
    ' "jest": {"bail": 0}}',
    "jest.config.js": "module.exports = {}\n",
    "Makefile": "all:\n\tcc x.c\n\ntest: all\n\tpytest -q\n\nclean:\n\trm x\n",
    "Cargo.toml": "[package]\nname = 'x'\n[lib]\nname = 'x'\ntest = true\n",
    "pom.xml": "<project></project>",
    "build.gradle": "test { useJUnitPlatform() }\n",
    "CMakeLists.txt": "add_test(NAME a COMMAND a)\nadd_test(NAME b COMMAND b)\n",
}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pyproject.toml", "'-q'", "'-q --deselect tests/test_a.py'"),
        ("pyproject.toml", "['tests']", "['tests/unit']"),
        ("pyproject.toml", "addopts = '-q'\n", ""),
        ("pyproject.toml", "addopts", "norecursedirs = ['tests']\naddopts"),
        ("pyproject.toml", "[project]", "[project"),
        ("pytest.ini", "-q", "-q --ignore=tests"),
        ("pytest.ini", "addopts", "python_files = none_*.py\naddopts"),
        ("tox.ini", "commands = pytest", "commands = true"),
        ("setup.cfg", "testpaths = tests", "testpaths = none"),
        ("package.json", '"jest"', '"exit 0"'),
        ("package.json", '"test": "jest"', '"pretest": "exit 0", "test": "jest"'),
        ("package.json", '{"bail": 0}', '{"testPathIgnorePatterns": ["."]}'),
        ("package.json", "}}", "}"),
        ("jest.config.js", "{}", "{testMatch: []}"),
        ("Makefile", "\tpytest -q", "\ttrue"),
        ("Makefile", "\tpytest -q", "\t-pytest -q"),
        ("Makefile", "test: all\n\tpytest -q\n", ""),
        ("Cargo.toml", "test = true", "test = false"),
        ("pom.xml", "><", "><skipTests>true</skipTests><"),
        ("build.gradle", "{ use", "{ ignoreFailures = true; use"),
        ("CMakeLists.txt", "add_test(NAME b COMMAND b)\n", ""),
    ],
)
def test_what_tests_run_is_not_changed_in_a_configuration(path: str, old: str, new: str) -> None:
    assert old in CONFIGS[path]
    assert set(found(CONFIGS[path], CONFIGS[path].replace(old, new), path)) == {
        "tests.configuration"
    }


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pyproject.toml", "name = 'x'", "name = 'y'\ndependencies = ['z']"),
        ("tox.ini", "max = 1", "max = 2"),
        ("setup.cfg", "name = x", "name = y"),
        ("package.json", '"tsc"', '"tsc -p ."'),
        ("package.json", '"build"', '"test:new": "jest new", "build"'),
        ("Makefile", "\tcc x.c", "\tcc -O2 x.c"),
        ("Cargo.toml", "[lib]", "[dependencies]\nserde = '1'\n[lib]"),
        ("pom.xml", "><", "><dependency/><"),
        ("CMakeLists.txt", "add_test(NAME a", "add_test(NAME c COMMAND c)\nadd_test(NAME a"),
    ],
)
def test_the_rest_of_a_configuration_may_change(path: str, old: str, new: str) -> None:
    assert old in CONFIGS[path]
    assert found(CONFIGS[path], CONFIGS[path].replace(old, new), path) == []


@pytest.mark.parametrize("path", CONFIGS)
def test_a_new_configuration_is_fine_unless_it_leaves_tests_out(path: str) -> None:
    assert found(None, CONFIGS[path], path) == []
    assert found(None, "[pytest]\naddopts = --ignore=tests\n", "pytest.ini") == [
        "tests.configuration"
    ]


@pytest.mark.parametrize(
    "path", ["pytest.ini", "tox.ini", "package.json", "Makefile", "jest.config.js"]
)
def test_a_configuration_that_is_deleted(path: str) -> None:
    assert set(found(CONFIGS[path], None, path)) == {"tests.configuration"}


@pytest.mark.parametrize(
    "path",
    [
        "test_a.py",
        "a_test.py",
        "pkg/tests/helper.py",
        "a.spec.tsx",
        "__tests__/a.js",
        "a_test.go",
        "tests/a.rs",
        "src/test/kotlin/A.kt",
        "ATest.java",
        "Shop.Tests/Any.cs",
        "a_spec.rb",
        "FooTest.php",
        "foo_unittest.cc",
        "x.bats",
    ],
)
def test_files_that_are_tests(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize(
    "path", ["src/a.py", "contest.py", "latest.js", "tests/data.json", "attest.go", "Testament.md"]
)
def test_files_that_are_not(path: str) -> None:
    assert not is_test(path)


def test_files_that_decide_what_tests_run() -> None:
    for path in CONFIGS:
        assert is_test_configuration(f"sub/{path}")
    for path in ("src/a.py", "config.json", "makefile.md", "tsconfig.json"):
        assert not is_test_configuration(path)
