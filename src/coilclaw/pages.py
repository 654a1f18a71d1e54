"""Package pages: the public names of a package, imported when they are first used (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, names: Mapping[str, str], modules: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a page.

    ``names`` maps a module of the package to what it offers to other packages; ``modules`` lists
    the modules that are offered as a whole.
    """
    homes = {name: module for module, offered in names.items() for name in offered.split()}
    whole = {module.rpartition(".")[2]: module for module in modules.split()}

    def load(name: str) -> object:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        if name in whole:
            return import_module(f"{package}.{whole[name]}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted([*homes, *whole])
