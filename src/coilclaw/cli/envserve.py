"""``coilclaw env serve``: offer an environment over HTTP, on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json
from coilclaw.cli.serve import declare_exposure

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.environments.sessions import SessionLimits
    from coilclaw.gateway.settings import GatewaySettings

_MIB: Final = 2**20
_BODY_TIMEOUT_S: Final = 600.0
_GRACE_S: Final = 30.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", metavar="FILE", help="the name of one that ships, its directory, or its file"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="the port (default: 0, a free one)"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="holds what clients show; made if it is not there (default: in the home)",
    )
    parser.add_argument(
        "--no-token", action="store_true", help="let everybody on this machine use it"
    )
    declare_exposure(parser)
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter that clients cannot give; the value is JSON, or else a text (repeatable)",
    )
    _declare_bounds(parser)
    add_json(parser)


def _declare_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="cases at once in each session (default: as many as processors)",
    )
    parser.add_argument(
        "--max-sessions", type=int, default=16, metavar="N", help="sessions at once (default: 16)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="for the tests of one call (default: 3600)",
    )
    parser.add_argument(
        "--max-upload", type=int, default=256, metavar="MIB", help="of an archive (default: 256)"
    )
    parser.add_argument(
        "--max-unpacked", type=int, default=2048, metavar="MIB", help="of its files (default: 2048)"
    )
    parser.add_argument(
        "--max-files", type=int, default=100_000, metavar="N", help="in it (default: 100000)"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve until SIGINT or SIGTERM."""
    from coilclaw.app.envserving import open_env_gateway, token_file
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.env import params_of
    from coilclaw.cli.telling import logging_for
    from coilclaw.errors import UsageError

    if args.no_token and args.token_file:
        raise UsageError("--no-token and --token-file exclude each other", rule="usage.token")
    place = home()
    token = Path(args.token_file) if args.token_file else token_file(place)
    settings, limits = _settings(args), _limits(args)

    def ready(url: str) -> None:
        if console.as_json:
            line = {
                "url": url,
                "token_file": None if args.no_token else str(token),
                "pid": os.getpid(),
            }
            console.out.write(json.dumps(line) + "\n")
        else:
            console.print(url)
        console.out.flush()
        if not args.no_token:
            console.note(f"the token is in {token}")
        console.err.flush()

    if args.no_token:
        console.warn("there is no token: everybody on this machine can have programs tested")
    elif settings.insecure and not settings.tls:
        console.warn("there is no TLS: everybody on the way reads the token")
    with (
        logging_for(os.environ),
        open_env_gateway(
            args.file,
            place,
            settings,
            limits,
            token=None if args.no_token else token,
            jobs=args.jobs,
            fixed=params_of(args.param),
        ) as gateway,
    ):
        if gateway.choices():
            names = ", ".join(gateway.choices())
            console.note(f"clients may give parameters that --param does not set, such as {names}")
        gateway.serve(ready)
    console.note("stopped")
    return DONE


def _settings(args: argparse.Namespace) -> GatewaySettings:
    from coilclaw.app.envserving import FORM_BYTES
    from coilclaw.gateway.settings import GatewaySettings

    return GatewaySettings(
        host=args.host,
        port=args.port,
        public=args.public,
        insecure=args.insecure,
        tls_cert=Path(args.tls_cert) if args.tls_cert else None,
        tls_key=Path(args.tls_key) if args.tls_key else None,
        allowed_hosts=tuple(args.allow_host or ()),
        max_body_bytes=_positive(args.max_upload, "--max-upload") * _MIB + FORM_BYTES,
        body_timeout_s=_BODY_TIMEOUT_S,
        grace_s=_GRACE_S,
    )


def _limits(args: argparse.Namespace) -> SessionLimits:
    from coilclaw.environments.sessions import SessionLimits
    from coilclaw.environments.uploads import UploadBounds
    from coilclaw.errors import UsageError

    if not 0 < args.timeout < float("inf"):
        raise UsageError(f"{args.timeout} seconds are no time limit", rule="usage.timeout")
    return SessionLimits(
        sessions=_positive(args.max_sessions, "--max-sessions"),
        call_s=args.timeout,
        bounds=UploadBounds(
            unpacked_bytes=_positive(args.max_unpacked, "--max-unpacked") * _MIB,
            entries=_positive(args.max_files, "--max-files"),
        ),
    )


def _positive(number: int, flag: str) -> int:
    from coilclaw.errors import UsageError

    if not 1 <= number <= 10**9:
        raise UsageError(f"{flag} is {number}", rule="usage.bound", hint="from 1 up")
    return number
