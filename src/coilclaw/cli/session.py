"""Open the session of a command: its logs, and the user at the terminal who approves."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coilclaw.app import VARIABLE, configure
from coilclaw.cli.command import find_home, load_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.app import Config, Logs, People, Runtime
    from coilclaw.kernel import ApprovalAnswer, ApprovalRequest
    from coilclaw.policy import Autonomy


def open_logs(environ: Mapping[str, str], config: Config | None = None) -> Logs:
    """Log until the result is closed; on a terminal only warnings, unless logs are requested."""
    from coilclaw.app import make_redactor

    quiet = sys.stderr.isatty() and not environ.get(VARIABLE)
    return configure(
        environ,
        sys.stderr,
        redact=str if config is None else make_redactor(config, environ).redact,
        level=logging.WARNING if quiet else logging.INFO,
        audit=config is None or config.security.audit_log,
    )


@contextmanager
def open_session(config: Config | None = None) -> Iterator[Runtime]:
    """Open the runtime of this home with its logs, for the user at this terminal."""
    from coilclaw.app import open_runtime

    config = config or load_config()
    people = people_at_terminal(config.security.autonomy)
    with (
        open_logs(os.environ, config),
        open_runtime(find_home(), os.environ, people, config=config) as runtime,
    ):
        yield runtime


def people_at_terminal(autonomy: Autonomy) -> People:
    """Ask at the terminal; the modules for that are imported with the first question."""
    from coilclaw.app import People

    def approve(request: ApprovalRequest) -> ApprovalAnswer:
        from coilclaw.agent import TerminalApprover

        return TerminalApprover(os.environ, autonomy=autonomy)(request)

    def ask(question: str) -> str | None:
        from coilclaw.agent import TerminalAsker

        return TerminalAsker(os.environ)(question)

    return People(approve, ask)
