"""An environment behind HTTP: its schema, its sessions, and the token of its clients."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.app.environments import FOLDER, judge_of
from coilclaw.environments.sessions import Sessions
from coilclaw.errors import UsageError
from coilclaw.gateway import token as tokens
from coilclaw.gateway.envserver import EnvGateway, check_open
from coilclaw.gateway.listening import check
from coilclaw.workspace.sandbox import probe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.environments.judging import Judge
    from coilclaw.environments.sessions import SessionLimits
    from coilclaw.gateway.settings import GatewaySettings

NAME: Final = "environment.token"
"""Not that of the gateway: who may have something tested may not talk with the agent."""
SESSIONS: Final = "sessions"
FORM_BYTES: Final = 2**20
"""What a form may have beside its file."""


def token_file(home: Path) -> Path:
    """Where the token is unless another place is named."""
    return home / NAME


@contextmanager
def open_env_gateway(
    file: str,
    home: Path,
    settings: GatewaySettings,
    limits: SessionLimits,
    *,
    token: Path | None,
    jobs: int | None = None,
    fixed: Mapping[str, Json] | None = None,
) -> Iterator[EnvGateway]:
    """Open an environment to be served; ``token`` names the file, ``None`` does without.

    ``fixed`` are parameters that hold in every session, and that no client can give.
    """
    check(settings)
    check_open(settings, open_to_all=token is None)
    support = probe()
    judge = judge_of(file, home, jobs=jobs, support=support)
    schema = judge.schema()
    if fixed:
        schema = {**schema, **_cases(fixed, judge)}
    secret = None if token is None else tokens.load_file(token)
    with Sessions(
        judge.place,
        support=support,
        home=home / FOLDER / SESSIONS,
        jobs=judge.jobs,
        limits=limits,
        fixed=fixed,
        hidden=_secrets(home, settings, token),
    ) as sessions:
        yield EnvGateway(sessions, schema, settings, secret)


def _secrets(home: Path, settings: GatewaySettings, token: Path | None) -> tuple[Path, ...]:
    """What no program that is tested may read, even where it reads all around it."""
    files = (token, settings.tls_key)
    return (home, *(Path(os.path.abspath(file)) for file in files if file is not None))


def _cases(fixed: Mapping[str, Json], judge: Judge) -> dict[str, Json]:
    """Return which cases there are with these parameters, if that can be told by them alone.

    Those that nobody takes, or of a wrong type, are refused before any client has to hear it.
    """
    try:
        return {"cases": list(judge.cases(params=fixed))}
    except UsageError as problem:
        if problem.rule != "environment.parameter.missing":  # clients give the others
            raise
        return {}
