"""Open what works on runs, trajectories, SOPs and receipts, with what the configuration says."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coilclaw.app.home import now, open_config, receipts_of
from coilclaw.app.tools import make_redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.agent import (
        Attended,
        HomeReceipts,
        SopAgent,
        SopRuns,
        Sops,
        StageApprover,
    )
    from coilclaw.app.agent_runtime import People, Runtime
    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Checkpoint, Redactor
    from coilclaw.runs import Orchestrator, RoleModel, RunSettings, WaitTerms
    from coilclaw.traces import Tracing
    from coilclaw.workspace import Cancellation, SandboxView


def open_orchestrator(
    start: Path,
    home: Path,
    environ: Mapping[str, str],
    *,
    cancel: Cancellation | None = None,
    terms: WaitTerms | None = None,
    config: Config | None = None,
    redactor: Redactor | None = None,
) -> Orchestrator:
    """Open the runs of a repository; the configuration is read when a run first needs it."""
    from coilclaw.runs import Orchestrator, RunSettings

    def read_settings() -> RunSettings:
        chosen = config or open_config(home, environ)
        known = redactor or make_redactor(chosen, environ)

        def keep_checkpoint(checkpoint: Checkpoint) -> None:
            writer = receipts_of(chosen, home).checkpoint_writer(environ)
            if writer is not None:
                writer.after_seal(checkpoint)

        return RunSettings(
            known,
            lambda: _make_model(chosen, environ, known.redact),
            keep_checkpoint,
            sandbox=chosen.security.sandbox,
            view=chosen.sandbox,
            limits=chosen.limits,
        )

    return Orchestrator(start, home, environ, read_settings, cancel=cancel, terms=terms)


def _make_model(
    config: Config, environ: Mapping[str, str], redact: Callable[[str], str]
) -> RoleModel | None:
    from coilclaw.app import providers
    from coilclaw.runs import RoleModel

    name = config.default_provider
    settings = config.providers.get(name)
    if settings is None or (settings.kind == "mock" and settings.fixture is None):
        # The mock that only echoes can do no work.
        return None
    provider = providers.build_configured(config, name, environ, redact)
    return RoleModel(provider, settings.model or config.default_model)


def open_tracing(home: Path, environ: Mapping[str, str], start: Path, **options: Any) -> Tracing:
    """Return what records trajectories; ``options`` are further fields of ``Tracing``."""
    from coilclaw.traces import Tracing

    def read_settings() -> tuple[SandboxView, Callable[[str], str]]:
        config = open_config(home, environ)
        return config.sandbox, make_redactor(config, environ).redact

    return Tracing(home, environ, start, read_settings, **options)


def open_receipts(home: Path, environ: Mapping[str, str]) -> HomeReceipts:
    """Return the receipts that the configuration of a home names."""
    return receipts_of(open_config(home, environ), home)


def open_sop_runs(home: Path) -> SopRuns:
    """Return the runs of SOPs, for the commands that only look at them."""
    from coilclaw.agent import SopRuns

    return SopRuns(home, now)


@contextmanager
def open_sops(
    home: Path,
    environ: Mapping[str, str],
    people: People,
    *,
    config: Config | None = None,
    attended: Attended | None = None,
    redactor: Redactor | None = None,
    **options: Any,
) -> Iterator[Sops]:
    """Open an agent for SOPs; ``options`` are further arguments of ``Sops``."""
    from coilclaw.agent import Sops, StageApprover
    from coilclaw.app.agent_runtime import People, open_runtime

    approver = StageApprover(people.approve)
    asked = People(approver, people.ask)
    with open_runtime(home, environ, asked, config=config, redactor=redactor) as runtime:
        yield Sops(_sop_agent(runtime, approver), attended, **options)


def sops_of(runtime: Runtime) -> Sops:
    """Return the SOPs of a runtime, to be examined."""
    from coilclaw.agent import Sops, StageApprover

    return Sops(_sop_agent(runtime, StageApprover(runtime.guard.approve)))


def _sop_agent(runtime: Runtime, approver: StageApprover) -> SopAgent:
    from coilclaw.agent import SopAgent

    config = runtime.config
    return SopAgent(
        *(runtime.home, config.workspace_dir, config.receipts.path, runtime.calls, approver),
        *(runtime.memory, lambda: runtime.loop, now),
    )
