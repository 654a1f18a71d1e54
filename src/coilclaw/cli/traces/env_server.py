"""``coilclaw env serve``: serve an environment over HTTP, on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import Console, Namespace, Parser, find_home
from coilclaw.cli.setup.serve import announce, declare_exposure, read_exposure
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.gateway import GatewaySettings
    from coilclaw.kernel import Json
    from coilclaw.traces import SessionLimits

_MIB: Final = 2**20
_BODY_TIMEOUT_S: Final = 600.0
_GRACE_S: Final = 30.0


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("file", "FILE", "a bundled environment by name, or a directory or file")
    summary = "the address to listen on (default: 127.0.0.1, this machine only)"
    parser.value("--host", "ADDRESS", summary, default="127.0.0.1")
    parser.value("--port", "N", "the port (default: 0, a free one)", type=int, default=0)
    summary = "the file with the token; created if it is missing (default: in the home)"
    parser.value("--token-file", "FILE", summary)
    parser.flag("--no-token", "let every user of this machine connect")
    declare_exposure(parser)
    summary = "a parameter that clients cannot set; the value is JSON or plain text (repeatable)"
    parser.many("--param", "NAME=VALUE", summary)
    summary = "cases to run at once in each session (default: one per processor)"
    parser.value("--jobs", "N", summary, type=int)
    parser.value("--max-sessions", "N", "sessions at once (default: 16)", type=int, default=16)
    summary = "time limit for the tests of one call (default: 3600)"
    parser.value("--timeout", "SECONDS", summary, type=float, default=3600.0)
    for flag, unit, what, most in (
        ("--max-upload", "MIB", "size of an uploaded archive", 256),
        ("--max-unpacked", "MIB", "size of its files", 2048),
        ("--max-files", "N", "number of its files", 100_000),
    ):
        parser.value(flag, unit, f"{what} (default: {most})", type=int, default=most)
    parser.json()


def run(args: Namespace, console: Console) -> None:
    """Serve until SIGINT or SIGTERM."""
    from coilclaw.cli.session import open_logs
    from coilclaw.gateway import open_env_gateway, token_file

    if args.no_token and args.token_file:
        raise UsageError("--no-token and --token-file exclude each other", rule="usage.token")
    token = None
    if not args.no_token:
        token = Path(args.token_file) if args.token_file else token_file(find_home())
    settings, limits = _read_settings(args), _read_limits(args)
    if args.no_token:
        console.warn("without a token, every user of this machine can run programs as tests")
    elif settings.insecure and not settings.tls:
        console.warn("without TLS, everyone on the network path can read the token")
    with (
        open_logs(os.environ),
        open_env_gateway(
            args.file,
            find_home(),
            settings,
            limits,
            os.environ,
            token=token,
            jobs=args.jobs,
            fixed=parse_params(args.param),
        ) as gateway,
    ):
        if names := ", ".join(gateway.choices()):
            console.note(f"clients may set parameters that --param does not fix, such as {names}")
        gateway.serve(lambda url: announce(console, url, token, print_url=True))
    console.note("stopped")


def parse_params(given: list[str]) -> dict[str, Json]:
    """Read parameters of the form NAME=VALUE."""
    params: dict[str, Json] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.isidentifier() or not equals or name in params:
            said = f"{text!r} is not NAME=VALUE, or repeats a name"
            raise UsageError(said, rule="usage.param", hint="give NAME=VALUE")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def require_time_limit(seconds: float) -> None:
    """Raise unless a number of seconds is a time limit."""
    if not 0 < seconds < float("inf"):
        raise UsageError(
            f"a time limit is a positive number of seconds, not {seconds}", rule="usage.timeout"
        )


def _read_settings(args: Namespace) -> GatewaySettings:
    from coilclaw.gateway import FORM_BYTES, GatewaySettings

    return GatewaySettings(
        host=args.host,
        port=args.port,
        allowed_hosts=tuple(args.allow_host or ()),
        max_body_bytes=_require_positive(args.max_upload, "--max-upload") * _MIB + FORM_BYTES,
        body_timeout_s=_BODY_TIMEOUT_S,
        grace_s=_GRACE_S,
        **read_exposure(args),
    )


def _read_limits(args: Namespace) -> SessionLimits:
    from coilclaw.traces import SessionLimits, UploadBounds

    require_time_limit(args.timeout)
    return SessionLimits(
        sessions=_require_positive(args.max_sessions, "--max-sessions"),
        call_s=args.timeout,
        bounds=UploadBounds(
            unpacked_bytes=_require_positive(args.max_unpacked, "--max-unpacked") * _MIB,
            entries=_require_positive(args.max_files, "--max-files"),
        ),
    )


def _require_positive(number: int, flag: str) -> int:
    if not 1 <= number <= 10**9:
        raise UsageError(f"{flag} is {number}", rule="usage.bound", hint="it must be at least 1")
    return number
