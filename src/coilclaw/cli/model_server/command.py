"""``coilclaw mock-server``: serve a scripted model on loopback."""

from __future__ import annotations

from pathlib import Path

from coilclaw.cli.command import DONE, USAGE, Console, Namespace, Parser


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("--script", "FILE", "the script, a JSON file", required=True)
    parser.value("--port", "N", "the port; 0 picks a free one", required=True, type=int)
    parser.value("--host", "ADDRESS", "loopback only (default: 127.0.0.1)", default="127.0.0.1")
    parser.value("--log", "FILE", "append every request as a line of JSON")
    parser.value("--key", "KEY", "the key that requests must have (default: any or none)")


def run(args: Namespace, console: Console) -> int:
    """Serve until SIGINT or SIGTERM; list every problem of an invalid script and exit with 2."""
    import signal

    from coilclaw.cli.model_server.script_file import MAX_SHOWN_PROBLEMS, load_script
    from coilclaw.cli.model_server.server import ModelServer

    script = load_script(Path(args.script))
    if isinstance(script, tuple):
        for problem in script[:MAX_SHOWN_PROBLEMS]:
            console.error(f"{args.script}: {problem}", rule="script.invalid")
        if len(script) > MAX_SHOWN_PROBLEMS:
            console.note(f"and {len(script) - MAX_SHOWN_PROBLEMS} more problems")
        return USAGE
    server = ModelServer(
        script,
        host=args.host,
        port=args.port,
        key=args.key,
        log=Path(args.log) if args.log else None,
        kept_requests=0,
    )
    # Blocked before any thread starts, so that only this thread receives them.
    ends = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        with server:
            console.print(f"listening on {server.url}")
            console.out.flush()
            signal.sigwait(ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    console.note("stopped")
    return DONE
