"""Areas import downwards, and each other only through what they name as public."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.repository import ROOT, Module, modules

_LINT_IMPORTS = "from importlinter.cli import lint_imports_command as main; main()"


def _public_modules(package: Module) -> tuple[str, ...] | None:
    """Return what the package lists in ``PUBLIC_MODULES``, or None when it has no such list."""
    for node in package.tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="PUBLIC_MODULES"), value=ast.expr() as value):
                return tuple(ast.literal_eval(value))
            case ast.Assign(targets=[ast.Name(id="PUBLIC_MODULES")], value=value):
                return tuple(ast.literal_eval(value))
    return None


def _imported(module: Module, existing: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each import, also those inside functions and for types only."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*above, node.module] if node.module else above)
            source = (node.module or "") if node.level == 0 else source
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield node.lineno, whole if whole in existing else source
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            if called in {"import_module", "__import__"}:
                yield node.lineno, str(node.args[0].value)


def _reaches_inside(
    module: Module, existing: Collection[str], public: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the imports that reach into another area past what it names as public."""
    found = []
    for line, name in _imported(module, existing):
        root, _, rest = name.partition(".")
        area, _, inner = rest.partition(".")
        if root != "coilclaw" or area in {"", module.area} or not inner:
            continue
        # What is no module is a name in one: `from coilclaw.errors import UsageError`.
        if f"coilclaw.{area}.{inner.partition('.')[0]}" not in existing:
            continue
        if inner not in public.get(area, ()):
            found.append(f"{module.name}:{line} imports {name}, which {area} keeps to itself")
    return found


def _facts() -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    existing = frozenset(module.name for module in modules())
    packages = [m for m in modules() if m.is_package and m.name.count(".") == 1]
    return existing, {m.area: _public_modules(m) or () for m in packages}


def _module(name: str, source: str) -> Module:
    return Module(name=name, path=Path("m.py"), is_package=False, tree=ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import coilclaw.low.inside",
        "from coilclaw.low import inside",
        "from coilclaw.low.inside import thing",
        "from ..low.inside import thing",
        "def f() -> None:\n    from coilclaw.low.inside import thing",
        "if TYPE_CHECKING:\n    from coilclaw.low.inside import thing",
        "import_module('coilclaw.low.inside')",
        "from coilclaw.low.open.deeper import thing",
    ],
)
def test_an_import_past_the_public_modules_is_found(source: str) -> None:
    existing = {"coilclaw.low", "coilclaw.low.inside", "coilclaw.low.open"}
    module = _module("coilclaw.high.user", source)
    assert _reaches_inside(module, existing, {"low": ("open",)})


@pytest.mark.parametrize(
    "source",
    [
        "from coilclaw.low.open import thing",
        "from coilclaw.low import open",
        "from coilclaw.low import NAME",
        "from coilclaw.errors import UsageError",
        "from coilclaw.high.inside import thing",
        "from .inside import thing",
        "import os.path",
    ],
)
def test_an_import_of_a_public_module_is_not(source: str) -> None:
    existing = {"coilclaw.low", "coilclaw.low.inside", "coilclaw.low.open", "coilclaw.high.inside"}
    module = _module("coilclaw.high.user", source)
    assert _reaches_inside(module, existing, {"low": ("open",)}) == []


def test_areas_import_each_other_through_public_modules_only() -> None:
    existing, public = _facts()
    assert [line for m in modules() for line in _reaches_inside(m, existing, public)] == []


def test_every_area_names_its_public_modules_and_they_exist() -> None:
    existing, public = _facts()
    packages = [m for m in modules() if m.is_package and m.name.count(".") == 1]
    assert [m.name for m in packages if _public_modules(m) is None] == []
    named = [f"coilclaw.{area}.{name}" for area, names in public.items() for name in names]
    assert [name for name in named if name not in existing] == []


def test_the_import_contracts_hold() -> None:
    argv = [sys.executable, "-c", _LINT_IMPORTS, "--no-logo", "--no-cache"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_areas_are_two_levels_deep() -> None:
    deeper = [m.name for m in modules() if m.name.count(".") > 2]
    assert deeper == []
