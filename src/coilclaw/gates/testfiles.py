"""Which files of a tree are tests, and which decide what tests run."""

from __future__ import annotations

import re
from typing import Final

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
