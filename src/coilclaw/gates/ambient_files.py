"""What stands beside the tests that were there, and would decide over them.

A module that is found in a test's place, a module that is found in the test tool's place, and
files that the test tool or Python itself reads unasked: whatever of that is new, or changed, makes
green tests say nothing. Where no test was there before, nothing can be taken from one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import Violation
from coilclaw.gates.scope import legible
from coilclaw.gates.testconfig import has_pytest_settings
from coilclaw.gates.testfiles import is_test

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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
                what = f"would be imported for {shown(other)}, or keep it from being imported"
                yield _violation("tests.shadowed", path, what)


def _tools(added: set[str]) -> Iterator[Violation]:
    for path in sorted(added):
        module = module_of(path)
        if module is not None and module[1] in _TOOLS and module[0] in _IMPORT_ROOTS:
            what = f"would be imported for {module[1]}, which runs the tests"
            yield _violation("tests.shadowed", path, what)


def _changed_settings(old: Files, new: Files) -> Iterator[Violation]:
    for path in sorted(old):
        changed = old[path] is not None and old[path] != new.get(path)
        if changed and _is_never_changed(path):
            yield _violation("tests.configuration", path, "is read unasked by tests, and changed")


def _new_settings(added: set[str], old: Files, new: Files) -> Iterator[Violation]:
    for path in sorted(added):
        if is_read_unasked(path):
            yield _violation("tests.configuration", path, "is new, and read unasked by tests")
    for path, data in sorted(new.items()):
        if path.rpartition("/")[2] in _SECTIONED and data is not None:
            was = old.get(path)
            if has_pytest_settings(path, data) and not has_pytest_settings(path, was):
                what = "has settings of pytest, which had none there"
                yield _violation("tests.configuration", path, what)


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


def _violation(rule: str, path: str, what: str) -> Violation:
    return Violation(rule, f"{shown(path)} {what}", legible(path))
