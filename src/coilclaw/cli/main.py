"""The entry point: choose the command, run it, turn errors into exit codes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence  # noqa: TC003 - ``typing`` would cost more than this does


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; without ``argv``, exit the process."""
    if argv is None:
        prepare_process()
        return exit_process(_run(sys.argv[1:]))
    return _run(list(argv))


def run_program(prog: str, command: str, arguments: Sequence[str] | None = None) -> int:
    """Run an executable that is one of the commands, then exit the process."""
    prepare_process()
    from coilclaw.cli.dispatch import perform
    from coilclaw.cli.parser import single_parser

    return exit_process(perform(single_parser(prog, command).parse_args(arguments)))


def exit_process(code: int) -> int:
    """Exit at once: tearing down all modules would take longer than most commands do.

    Everything that matters is on disk or closed by now; only the streams are left to flush.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            continue  # the reader has closed the pipe, as in `… | head`
        except (OSError, ValueError):
            code = code or 5  # output was lost
    os._exit(code)


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from coilclaw import __version__

        sys.stdout.write(f"coilclaw {__version__}\n")
        return 0
    from coilclaw.cli.dispatch import dispatch

    return dispatch(arguments)


def prepare_process() -> None:
    """Ensure three open streams and file names in UTF-8, however the process was started."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        # Names are bytes; in another locale the same name would become another file.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    # Startup creates many objects that stay; collecting garbage among them wastes time.
    gc.set_threshold(20_000, 20, 20)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good
