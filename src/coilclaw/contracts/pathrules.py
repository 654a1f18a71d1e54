"""What must hold of the paths of a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.contracts import paths
from coilclaw.contracts.schemas import Problem
from coilclaw.domain.treepath import fold, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract


def problems(contract: TaskContract, policies: PolicySet) -> tuple[Problem, ...]:
    """Return what is wrong with ``allowed_paths``, ``binary_paths`` and ``locks``."""
    return (*_allowed(contract, policies), *_inner(contract, policies))


def _allowed(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    most = policies.pack.limits.max_allowed_paths
    if len(contract.allowed_paths) > most:
        yield Problem(
            "/allowed_paths", f"has more than the {most} paths that {policies.pack.pack} allows"
        )
    seen: set[str] = set()
    for index, path in enumerate(contract.allowed_paths):
        where = f"/allowed_paths/{index}"
        wrong = paths.flaw(path)
        if wrong:
            yield Problem(where, wrong)
            continue
        plain = path.removesuffix("/")
        if plain in seen:
            yield Problem(where, f"{shown(path)} is there twice")
        seen.add(plain)
        for protected in policies.forbidden.protected_paths:
            if _reaches(plain, protected):
                yield Problem(where, f"{shown(path)} is protected by {shown(protected)}")


def _reaches(path: str, protected: str) -> bool:
    """Whether a scope is a protected path or lies in it; a bare name is protected everywhere."""
    if len(paths.segments(protected)) == 1:
        return any(_is(part, protected) for part in paths.segments(path))
    return paths.overlap(path, protected)


def _is(name: str, protected: str) -> bool:
    """Whether a name is protected; with ``.env`` its variants are, but not the example."""
    plain = fold(name)
    return plain == fold(protected) or (
        plain.startswith(f"{fold(protected)}.") and not plain.endswith(".example")
    )


def _inner(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    for key, listed in (("binary_paths", contract.binary_paths), ("locks", contract.locks)):
        for index, path in enumerate(listed or ()):
            where = f"/{key}/{index}"
            wrong = paths.flaw(path)
            if wrong:
                yield Problem(where, wrong)
            elif not paths.within(path, contract.allowed_paths):
                yield Problem(where, f"{shown(path)} is not in allowed_paths")
    if contract.binary_paths and not policies.pack.binary_changes:
        yield Problem("/binary_paths", f"{policies.pack.pack} allows no binary changes")
