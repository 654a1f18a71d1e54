"""``coilclaw serve``: serve the agent over HTTP, on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from coilclaw.cli.command import Console, Namespace, Parser, find_home, load_config


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    summary = "the address to listen on (default: 127.0.0.1, this machine only)"
    parser.value("--host", "ADDRESS", summary)
    parser.value("--port", "N", "the port (default: 8737; 0 picks a free one)", type=int)
    declare_exposure(parser)
    summary = "serve the runs of this repository (default: the one around the current directory)"
    parser.value("--repo", "DIR", summary)
    summary = "let clients use runners that start programs or read files: process:, scripted:"
    parser.flag("--allow-run-programs", summary).json()


def declare_exposure(parser: Parser) -> None:
    """Declare what lets other machines reach a server."""
    parser.flag("--public", "allow an address that other machines can reach")
    parser.value("--tls-cert", "FILE", "the certificate, with its chain (PEM)")
    parser.value("--tls-key", "FILE", "its key (PEM)")
    parser.flag("--insecure", "allow --public without TLS: others can read the token")
    summary = "another host name that clients use (repeatable)"
    parser.value("--allow-host", "NAME", summary, action="append")


def read_exposure(args: Namespace) -> dict[str, Any]:
    """Return the settings of a server from the arguments."""
    given: dict[str, Any] = {
        "public": args.public,
        "insecure": args.insecure,
        "tls_cert": Path(args.tls_cert) if args.tls_cert else None,
        "tls_key": Path(args.tls_key) if args.tls_key else None,
    }
    return {name: value for name, value in given.items() if value}


def announce(console: Console, url: str, token: Path | None, *, print_url: bool = False) -> None:
    """Print where a server listens and where its token is."""
    if console.as_json:
        line = {"url": url, "token_file": token and str(token), "pid": os.getpid()}
        console.out.write(json.dumps(line) + "\n")
    elif print_url:
        console.print(url)
    console.out.flush()
    if not print_url:
        console.note(f"listening on {url}")
    if token is not None:
        console.note(f"the token is in {token}")
    console.err.flush()


def run(args: Namespace, console: Console) -> None:
    """Serve until SIGINT or SIGTERM."""
    from coilclaw.app import make_gateway_settings, open_gateway
    from coilclaw.cli.session import open_logs
    from coilclaw.gateway import check, operator_token

    place = find_home()
    config = load_config()
    configured = make_gateway_settings(config)
    settings = replace(
        configured,
        host=args.host or configured.host,
        port=configured.port if args.port is None else args.port,
        allowed_hosts=(*configured.allowed_hosts, *(args.allow_host or ())),
        repo=Path(args.repo) if args.repo else None,
        allow_run_programs=args.allow_run_programs,
        **read_exposure(args),
    )
    check(settings)
    if settings.insecure and not settings.tls:
        console.warn("without TLS, everyone on the network path can read the token")
    with (
        open_logs(os.environ, config),
        open_gateway(place, os.environ, settings, config=config) as gateway,
    ):
        gateway.serve(lambda url: announce(console, url, place / operator_token.TOKEN_NAME))
    console.note("stopped")
