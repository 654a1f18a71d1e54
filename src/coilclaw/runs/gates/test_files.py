"""Which files of a tree are tests, and which decide what tests run."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import quote_text
from coilclaw.runs.gates.scope import blame

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from coilclaw.runs.gates.result import Violation

_TEST_DIRECTORIES: Final = frozenset(
    {"test", "tests", "__tests__", "spec", "specs", "unittests", "e2e", "testing"}
)
_EXTENSIONS: Final = {
    "python": ("py", "pyi", "pyx"),
    "javascript": ("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts"),
    "go": ("go",),
    "rust": ("rs",),
    "jvm": ("java", "kt", "kts", "groovy", "scala"),
    "csharp": ("cs",),
    "ruby": ("rb",),
    "php": ("php",),
    "c": ("c", "cc", "cpp", "cxx", "h", "hh", "hpp", "m", "mm"),
    "shell": ("sh", "bats"),
}
_LANGUAGES: Final = {ext: name for name, exts in _EXTENSIONS.items() for ext in exts}
_TEST_NAMES: Final = {
    "python": r"tests?\.py|test_.*\.py|.*_tests?\.py",
    "javascript": r".*[.\-_](test|spec|e2e)\.[cm]?[jt]sx?",
    "go": r".*_test\.go",
    "rust": r"tests?\.rs|.*_tests?\.rs",
    "jvm": r"Test.*|.*(Tests?|IT|TestCase|Spec)\.\w+",
    "csharp": r".*Tests?\.cs",
    "ruby": r".*_(spec|test)\.rb|test_.*\.rb",
    "php": r".*Test\.php",
    "c": r"(?i:tests?|test_.*|.*[_-](unit)?tests?)\.\w+",
    "shell": r".*\.bats|(test_.*|.*_test)\.sh",
}
_PATTERNS: Final = {name: re.compile(text) for name, text in _TEST_NAMES.items()}
_CONFIGURATION: Final = re.compile(
    r"conftest\.py|\.?pytest\.ini|tox\.ini|setup\.cfg|pyproject\.toml|noxfile\.py"
    r"|package\.json|(jest|vitest|vite|karma|playwright|cypress|ava|wtr|web-test-runner)"
    r"[.\-]?(config|conf|preset|setup|workspace)?\.([cm]?[jt]s|json)|\.mocharc(\..+)?"
    r"|(GNU)?[Mm]akefile|.*\.mk|justfile|Taskfile\.ya?ml"
    r"|Cargo\.toml|pom\.xml|build\.gradle(\.kts)?|.*\.csproj|.*\.runsettings"
    r"|phpunit\.xml(\.dist)?|\.rspec|Rakefile|CMakeLists\.txt|CTestTestfile\.cmake|BUILD(\.bazel)?"
)


def language(path: str) -> str | None:
    """The language of a source file, by its name; ``None`` if it is not known."""
    return _LANGUAGES.get(path.rpartition("/")[2].rpartition(".")[2].lower())


def is_test(path: str) -> bool:
    """Whether a file is a test, or code that only tests use."""
    *directories, name = path.split("/")
    kind = language(path)
    if kind is None:
        return False
    if any(part.lower() in _TEST_DIRECTORIES or _is_test_project(part) for part in directories):
        return True
    return _PATTERNS[kind].fullmatch(name) is not None


def may_hold_tests(path: str) -> bool:
    """Whether tests may stand in a file that is otherwise no test: Rust keeps them beside code."""
    return language(path) == "rust" or is_test(path)


def is_test_configuration(path: str) -> bool:
    """Whether a file has a say in which tests run, or how."""
    return _CONFIGURATION.fullmatch(path.rpartition("/")[2]) is not None


def _is_test_project(directory: str) -> bool:
    """A directory such as ``Shop.Tests``."""
    return directory.endswith((".Tests", ".Test", ".UnitTests", ".IntegrationTests"))


MAX_CONFIG_BYTES: Final = 2**20
_RESTRICTING: Final = re.compile(
    r"--?(?:ignore(?:-glob)?|deselect|collect-only|co|noconftest|lf|last-failed|ff|sw|stepwise"
    r"|maxfail|exitfirst|x|k|m|p)\b|passWithNoTests|testPathIgnorePatterns|testFailureIgnore"
    r"|skipTests|maven\.test\.skip|ignoreFailures|collect_ignore|\bexclude\w*|\|\|\s*(?:true|:)"
    r"|;\s*(?:true|exit 0)|continue-on-error|WILL_FAIL|DISABLED"
)
_NARROWING: Final = frozenset(
    {"testpaths", "python_files", "python_classes", "python_functions", "norecursedirs"}
    | {"collect_ignore", "minversion", "xfail_strict", "required_plugins"}
)
_TEST_KEY: Final = re.compile(
    r"(?:pre|post)?(?:tests?|check|ci|coverage|verify|jest|mocha|vitest|unit|e2e)(?:[:\-_].*)?"
)
_TARGET: Final = re.compile(
    r"^((?:[\w.\-/ ]*\s)?(?:tests?|check|ci|coverage|verify|unittests?)[\w.\-]*)\s*::?(?!=)"
)
_PACKAGE_TOOLS: Final = ("jest", "mocha", "vitest", "ava", "nyc", "c8", "tap", "vite")
_TOKENS: Final[Mapping[str, re.Pattern[str]]] = {
    "pom.xml": re.compile(r"skipTests|maven\.test\.skip|testFailureIgnore|<excludes?>|<skip>"),
    "gradle": re.compile(r"ignoreFailures|\benabled\s*=\s*false|\bexclude\w*|onlyIf|setEnabled"),
    "cmake": re.compile(r"WILL_FAIL|DISABLED|SKIP_RETURN_CODE|SKIP_REGULAR_EXPRESSION"),
    "csproj": re.compile(r"<IsTestProject>\s*false|<Compile\s+Remove|VSTestNoBuild", re.IGNORECASE),
}
_CMAKE_TESTS: Final = re.compile(
    r"\b(?:add_test|gtest_discover_tests|catch_discover_tests|enable_testing)\b"
)


def configuration_losses(path: str, old: bytes | None, new: bytes | None) -> Iterator[Violation]:
    """Say how a change of a configuration file takes something from the tests."""
    if old == new or path.endswith(("conftest.py", "noxfile.py")):
        return
    if max(len(old or b""), len(new or b"")) > MAX_CONFIG_BYTES:
        yield blame("tests.configuration", path, f"has more than {MAX_CONFIG_BYTES} bytes")
        return
    was, now = _settings(path, old), _settings(path, new)
    if was is None:
        was = {}
    if now is None:
        yield blame("tests.configuration", path, "cannot be read")
        return
    fresh = old is None
    for key in sorted(was.keys() | now.keys()):
        what = _loss(key, was.get(key), now.get(key), fresh=fresh)
        if what is not None:
            yield blame("tests.configuration", path, what)


def has_pytest_settings(path: str, data: bytes | None) -> bool:
    """Whether a file that holds other settings too has some of pytest."""
    if data is None or len(data) > MAX_CONFIG_BYTES:
        return False
    keys = _settings(path, data) or {}
    return any(key.startswith(("tool.pytest.", "pytest.", "tool:pytest.")) for key in keys)


def _loss(key: str, was: str | None, now: str | None, *, fresh: bool) -> str | None:
    """Say what is wrong with the change of one setting."""
    if was == now:
        return None
    if was is not None:
        if key.startswith("count:") and now is not None:
            sign = -1 if key.startswith("count:+") else 1
            return f"changes {key[7:]}" if sign * (int(now) - int(was)) > 0 else None
        return f"changes {key}" if now is not None else f"drops {key}"
    if now is not None and _RESTRICTING.search(now):
        return f"adds {key}, which leaves tests out"
    name = key.rpartition(".")[2]
    if not fresh and (name in _NARROWING or name.startswith(("pretest", "posttest"))):
        return f"adds {key}"
    return None


def _settings(path: str, data: bytes | None) -> dict[str, str] | None:
    """The settings of a file that concern tests, as texts; ``None`` if it cannot be read."""
    if data is None:
        return {}
    name = path.rpartition("/")[2]
    text = data.decode("utf-8", "replace")
    try:
        if name.endswith(".toml"):
            return dict(_of_toml(tomllib.loads(text), name))
        if name.endswith((".ini", ".cfg")):
            return dict(_of_ini(text))
        if name == "package.json":
            return dict(_of_package(json.loads(text)))
    except (ValueError, RecursionError, configparser.Error, AttributeError):
        return None
    if name.lower() in {"makefile", "gnumakefile", "justfile"} or name.endswith(".mk"):
        return dict(_of_makefile(text))
    for kind, tokens in _TOKENS.items():
        if kind in name or (kind == "cmake" and name == "CMakeLists.txt"):
            found = {"count:-" + "what leaves tests out": str(len(tokens.findall(text)))}
            if kind == "cmake":
                found["count:+" + "the tests"] = str(len(_CMAKE_TESTS.findall(text)))
            return found
    return {"the settings of the tests": text}


def _of_toml(document: Mapping[str, object], name: str) -> Iterator[tuple[str, str]]:
    if name == "Cargo.toml":
        yield from _of_cargo(document)
        return
    for tools in _tables(document.get("tool")):
        for pytest in _tables(tools.get("pytest")):
            for options in _tables(pytest.get("ini_options", pytest)):
                for key, value in options.items():
                    yield f"tool.pytest.{key}", json.dumps(value, default=str, sort_keys=True)
        for tool in ("tox", "nox", "hatch", "pdm", "poe", "taskipy"):
            if tool in tools:
                yield f"tool.{tool}", json.dumps(tools[tool], default=str, sort_keys=True)
        for coverage in _tables(tools.get("coverage")):
            for report in _tables(coverage.get("report")):
                if "fail_under" in report:
                    yield "tool.coverage.report.fail_under", json.dumps(report["fail_under"])


def _of_cargo(document: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for section in ("lib", "bin", "test", "bench", "package"):
        for item in _tables(document.get(section)):
            for key in ("test", "doctest", "harness", "autotests", "required-features"):
                if key in item:
                    yield f"{section}.{item.get('name', '')}.{key}", json.dumps(item[key])


def _tables(value: object) -> list[dict[str, object]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _of_ini(text: str) -> Iterator[tuple[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    for section in parser.sections():
        if section in {"pytest", "tool:pytest", "tox", "coverage:report"} or section.startswith(
            "testenv"
        ):
            for key, value in parser.items(section):
                yield f"{section}.{key}", " ".join(value.split())


def _of_package(document: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    scripts = document.get("scripts")
    if isinstance(scripts, dict):
        for key, value in scripts.items():
            if _TEST_KEY.fullmatch(key):
                yield f"scripts.{key}", json.dumps(value)
    for tool in _PACKAGE_TOOLS:
        if tool in document:
            yield tool, json.dumps(document[tool], sort_keys=True)


def _of_makefile(text: str) -> Iterator[tuple[str, str]]:
    """Every target that tests, with its recipe."""
    target, recipe = "", list[str]()
    for line in [*text.replace("\\\n", " ").split("\n"), "end:"]:
        if line.startswith(("\t", "    ", "#")) or not line.strip():
            recipe.append(line.strip())
            continue
        if target:
            yield f"the target {target}", "\n".join(part for part in recipe if part)
        found = _TARGET.match(line)
        target, recipe = (found[1].strip(), [line.strip()]) if found else ("", [])


if TYPE_CHECKING:
    Files = Mapping[str, bytes | None]

_MODULE: Final = re.compile(r"([A-Za-z_]\w*)(?:\.[\w-]+)*\.(?:pyc?|pyd|so)")
_TOOLS: Final = frozenset(
    {"pytest", "_pytest", "unittest", "pluggy", "doctest", "nose2", "iniconfig", "packaging"}
    | {"pygments", "ast", "inspect", "traceback", "linecache", "importlib", "warnings", "site"}
)
"""What runs the tests, and what that imports."""
_IMPORT_ROOTS: Final = frozenset({"", "src", "lib", "test", "tests"})
_UNASKED: Final = frozenset({"sitecustomize.py", "usercustomize.py", "pytest.ini", ".pytest.ini"})
_STRICT: Final = frozenset({"pytest.toml", ".pytest.toml"})
"""Read before all other settings of pytest, since its version 9."""
_METADATA: Final = (".dist-info", ".egg-info")
_SECTIONED: Final = frozenset({"pyproject.toml", "tox.ini", "setup.cfg"})
_CONFTEST: Final = "conftest.py"


def find_intrusions(old: Files, new: Files, tree: Collection[str]) -> Iterator[Violation]:
    """Say what a change puts beside the tests; ``tree`` is every path after it."""
    added = {path for path, data in new.items() if data is not None and old.get(path) is None}
    before = [path for path in tree if path not in added and _is_python_test(path)]
    before += [path for path, data in old.items() if data is not None and _is_python_test(path)]
    yield from _changed_settings(old, new)
    if before:
        yield from _shadows(added, tree)
        yield from _tools(added)
        yield from _new_settings(added, old, new)


def is_read_unasked(path: str) -> bool:
    """Whether Python or the test tool reads a file by its name alone, for all tests there are."""
    return path.rpartition("/")[2] in _UNASKED or _is_never_changed(path)


def module_of(path: str) -> tuple[str, str] | None:
    """Return the directory and the name under which Python would import a file."""
    folder, _, name = path.rpartition("/")
    found = _MODULE.fullmatch(name)
    if found is None or "__pycache__" in folder.split("/"):
        return None
    if found[1] == "__init__":
        above, _, package = folder.rpartition("/")
        return (above, package) if package else None
    return folder, found[1]


def _is_python_test(path: str) -> bool:
    return path.endswith(".py") and is_test(path)


def _shadows(added: set[str], tree: Collection[str]) -> Iterator[Violation]:
    new = {path: module for path in sorted(added) if (module := module_of(path)) is not None}
    wanted = set(new.values())
    beside: dict[tuple[str, str], list[str]] = {}
    for path in tree:
        module = module_of(path)
        if module in wanted and path not in added and module is not None:
            beside.setdefault(module, []).append(path)
    for path, module in new.items():
        for other in sorted(beside.get(module, ())):
            # A package is a test, too, if a module of its name would be one.
            if is_test("/".join(filter(None, module)) + ".py") or module[1] == "conftest":
                what = f"would be imported for {quote_text(other)}, or keep it from being imported"
                yield blame("tests.shadowed", path, what)


def _tools(added: set[str]) -> Iterator[Violation]:
    for path in sorted(added):
        module = module_of(path)
        if module is not None and module[1] in _TOOLS and module[0] in _IMPORT_ROOTS:
            what = f"would be imported for {module[1]}, which runs the tests"
            yield blame("tests.shadowed", path, what)


def _changed_settings(old: Files, new: Files) -> Iterator[Violation]:
    for path in sorted(old):
        changed = old[path] is not None and old[path] != new.get(path)
        if changed and _is_never_changed(path):
            yield blame("tests.configuration", path, "is read unasked by tests, and changed")


def _new_settings(added: set[str], old: Files, new: Files) -> Iterator[Violation]:
    for path in sorted(added):
        if is_read_unasked(path):
            yield blame("tests.configuration", path, "is new, and read unasked by tests")
    for path, data in sorted(new.items()):
        if path.rpartition("/")[2] in _SECTIONED and data is not None:
            was = old.get(path)
            if has_pytest_settings(path, data) and not has_pytest_settings(path, was):
                what = "has settings of pytest, which had none there"
                yield blame("tests.configuration", path, what)


def _is_never_changed(path: str) -> bool:
    """Whether a file that is read unasked stays as it was, whatever a change makes of it."""
    name = path.rpartition("/")[2]
    return name in _STRICT or _is_startup(name) or _is_loose_conftest(path) or _names_plugins(path)


def _names_plugins(path: str) -> bool:
    """Whether a file says, as if a package were installed, which plugins pytest loads."""
    folder, _, name = path.rpartition("/")
    return name == "entry_points.txt" and folder.endswith(_METADATA)


def _is_startup(name: str) -> bool:
    """Whether Python itself reads a file when it starts."""
    return name in {"sitecustomize.py", "usercustomize.py"} or name.endswith(".pth")


def _is_loose_conftest(path: str) -> bool:
    """A ``conftest.py`` outside the tests: nothing else compares it with what it was."""
    return path.rpartition("/")[2] == _CONFTEST and not is_test(path)
