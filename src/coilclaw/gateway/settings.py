"""What the gateway listens on, and its bounds, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT: Final = 8737


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """``[gateway]`` of the configuration, and the flags of ``coilclaw serve``."""

    host: str = "127.0.0.1"
    """An address of this machine; anything but loopback needs ``public``."""
    port: int = DEFAULT_PORT
    """0 picks a free one."""
    public: bool = False
    """Listen where other machines can reach it; needs TLS files, or ``insecure``."""
    insecure: bool = False
    """Do without TLS: anything on the way can read the token."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    """More names under which clients reach it, as ``name`` or ``name:port``."""
    max_body_bytes: int = 2 * 2**20
    max_header_bytes: int = 16 * 2**10
    """Request line and headers together."""
    max_connections: int = 512
    max_turns: int = 256
    """Turns that run at once, those that wait for an approval included."""
    max_waiting: int = 1024
    """Messages that wait for their turn."""
    requests_per_minute: int = 6000
    """Of all clients together, since they share the token; a tenth of it may come at once."""
    head_timeout_s: float = 10.0
    """Until the headers of a request are complete."""
    body_timeout_s: float = 30.0
    """Until its body is."""
    write_timeout_s: float = 30.0
    """How long a client may leave what it is sent unread."""
    keep_alive_s: float = 15.0
    """How long a connection may be idle between two requests."""
    grace_s: float = 10.0
    """How long running turns may go on after the signal to stop."""
    cancel_s: float = 5.0
    """How long cancelled ones may take to put things in order."""
    repo: Path | None = None
    """The repository whose runs are offered; without one it is that around the directory in which
    the gateway was started, if there is one."""
    allow_run_programs: bool = False
    """Let clients name runners that start programs or read files of the user's: ``process:``,
    ``scripted:``."""
    max_runs: int = 8
    """Runs that are carried out at once, those that wait for an approval included."""
    approval_expiry_s: float = 24 * 3600.0
    self_approval: bool = False
    """Let a client approve what it asked for itself, if its role allows it to approve."""
    completions_approval: Literal["notice", "refuse"] = "notice"
    """What ``/v1`` does with a call that needs an approval: say so and wait, or refuse it."""
    completions_wait_s: float = 600.0
    """How long ``/v1`` waits for an approval."""
    queue_parts: int = 1000
    """Parts or events that wait for a client; a slower one is disconnected."""

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None
