"""How a run is carried out: as somebody asks, else as its contract says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts.reading import parse
from coilclaw.errors import UsageError
from coilclaw.orchestrator.starting import Options

if TYPE_CHECKING:
    from coilclaw.orchestrator.planning import Request

WITH_ARGUMENT: Final = ("scripted", "process")
"""Runners that mean nothing without what stands behind their names."""


def options_of(
    request: Request,
    *,
    runner: str | None,
    reviewer: str | None,
    merge: bool,
    diagnostic: bool,
    baseline: bool,
    hint: str,
) -> Options:
    """Return the options of a run; ``hint`` says how a runner is named with its argument."""
    named = "" if runner else _said(request, "runner")
    if named in WITH_ARGUMENT:
        raise UsageError(
            f"the contract names the runner {named}, which needs something behind its name",
            rule="runner.argument",
            hint=hint,
        )
    return Options(
        runner=runner or named or "builtin",
        reviewer=reviewer or _said(request, "reviewer") or "rules",
        merge=merge,
        diagnostic=diagnostic,
        baseline=baseline,
    )


def _said(request: Request, name: str) -> str:
    """What a contract says in ``runtime_options``; whether it is valid is the gate's matter."""
    if request.contract is None:
        return ""
    try:
        value = parse(request.contract).get("runtime_options")
    except UsageError:
        return ""
    text = value.get(name) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
