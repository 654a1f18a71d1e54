"""The logs of a command: on stderr, redacted, and quiet where a person looks on."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from coilclaw.telemetry.logs import VARIABLE, configure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.config.values import Config
    from coilclaw.telemetry.logs import Logs


def logging_for(environ: Mapping[str, str], config: Config | None = None) -> Logs:
    """Log until the result is closed; on a terminal only warnings, unless logs are asked for."""
    quiet = sys.stderr.isatty() and not environ.get(VARIABLE)
    return configure(
        environ,
        sys.stderr,
        redact=_redact(environ, config),
        level=logging.WARNING if quiet else logging.INFO,
        audit=config is None or config.security.audit_log,
    )


def _redact(environ: Mapping[str, str], config: Config | None) -> Callable[[str], str]:
    if config is None:
        return str
    from coilclaw.app.toolbox import redactor_of

    return redactor_of(config, environ).redact
