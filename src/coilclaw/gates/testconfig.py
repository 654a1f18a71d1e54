"""Settings that decide which tests run and whether they count, and what a change does to them."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import Violation
from coilclaw.gates.scope import legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_TOOLS: Final = ("jest", "mocha", "vitest", "ava", "nyc", "c8", "tap", "vite")
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
        yield _violation(path, f"has more than {MAX_CONFIG_BYTES} bytes")
        return
    was, now = _settings(path, old), _settings(path, new)
    if was is None:
        was = {}
    if now is None:
        yield _violation(path, "cannot be read")
        return
    fresh = old is None
    for key in sorted(was.keys() | now.keys()):
        what = _loss(key, was.get(key), now.get(key), fresh=fresh)
        if what is not None:
            yield _violation(path, what)


def has_pytest_settings(path: str, data: bytes | None) -> bool:
    """Whether a file that holds other settings too has some of pytest."""
    if data is None or len(data) > MAX_CONFIG_BYTES:
        return False
    keys = _settings(path, data) or {}
    return any(key.startswith(("tool.pytest.", "pytest.", "tool:pytest.")) for key in keys)


def _violation(path: str, what: str) -> Violation:
    return Violation("tests.configuration", f"{shown(path)} {what}", legible(path))


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
    for tool in _TOOLS:
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
