"""``time``: what time it is, here and in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Consults
from coilclaw.tools.basis import Basis, Ready, closed, success

if TYPE_CHECKING:
    from datetime import datetime

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext


class Time(Basis):
    """Tells the time."""

    name: Final = "time"
    description: Final = "Tell the current local time, UTC time and time zone."
    parameters_schema: Final[dict[str, Json]] = closed({})

    def effects(self, args: Arguments) -> tuple[Effect, ...]:  # noqa: ARG002 - it takes none
        return (Consults("clock"),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:  # noqa: ARG002 - as above
        return Ready(("look at the clock",), lambda: _told(context.now()))


def _told(now: datetime) -> ToolResult:
    from datetime import UTC

    local = now.astimezone() if now.tzinfo is None else now
    offset = local.strftime("%z")
    zone = f"{local.tzname() or 'local'} (UTC{offset[:3]}:{offset[3:5]})"
    times = {
        "local": local.isoformat(timespec="seconds"),
        "utc": f"{local.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "zone": zone,
    }
    output = "\n".join(f"{label}: {value}" for label, value in times.items())
    return success(output, {**times})
