"""``coilclaw serve``: offer the agent over HTTP, on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.gateway.settings import GatewaySettings


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--host", metavar="ADDRESS", help="where to listen (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help="the port (default: 8737; 0 picks a free one)"
    )
    declare_exposure(parser)
    parser.add_argument(
        "--repo",
        metavar="DIR",
        help="offer the runs of this repository (default: the one around the current directory)",
    )
    parser.add_argument(
        "--allow-run-programs",
        action="store_true",
        help="let clients name runners that start programs or read files: process:, scripted:",
    )
    add_json(parser)


def declare_exposure(parser: argparse.ArgumentParser) -> None:
    """Declare what lets other machines reach a server."""
    parser.add_argument(
        "--public", action="store_true", help="allow an address that other machines can reach"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the certificate, with its chain (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="its key (PEM)")
    parser.add_argument(
        "--insecure", action="store_true", help="allow --public without TLS: others read the token"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="another name under which clients reach it; can be given again",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve until SIGINT or SIGTERM."""
    from coilclaw.app.agentwiring import open_config
    from coilclaw.app.home import home
    from coilclaw.app.serving import open_gateway, settings_of
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.telling import logging_for
    from coilclaw.gateway import token
    from coilclaw.gateway.listening import check

    place = home()
    config = open_config(place, os.environ)
    settings = _settings(args, settings_of(config))
    check(settings)
    token_file = place / token.NAME

    def ready(url: str) -> None:
        if console.as_json:
            line = {"url": url, "token_file": str(token_file), "pid": os.getpid()}
            console.out.write(json.dumps(line) + "\n")
            console.out.flush()
        console.note(f"listening on {url}")
        console.note(f"the token is in {token_file}")
        console.err.flush()

    if settings.insecure and not settings.tls:
        console.warn("there is no TLS: everybody on the way reads the token")
    with (
        logging_for(os.environ, config),
        open_gateway(place, os.environ, settings, config=config) as gateway,
    ):
        gateway.serve(ready)
    console.note("stopped")
    return DONE


def _settings(args: argparse.Namespace, configured: GatewaySettings) -> GatewaySettings:
    """What is configured, with what the command line says instead."""
    return replace(
        configured,
        host=args.host or configured.host,
        port=configured.port if args.port is None else args.port,
        public=args.public or configured.public,
        insecure=args.insecure or configured.insecure,
        tls_cert=Path(args.tls_cert) if args.tls_cert else configured.tls_cert,
        tls_key=Path(args.tls_key) if args.tls_key else configured.tls_key,
        allowed_hosts=(*configured.allowed_hosts, *(args.allow_host or ())),
        repo=Path(args.repo) if args.repo else None,
        allow_run_programs=args.allow_run_programs,
    )
