"""Tell a command that could not do its job from one whose answer is no."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.orchestrator.commands import Finished

NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
_TAIL_BYTES: Final = 64 * 2**10
_MODULE: Final = re.compile(r"No module named '?([A-Za-z_][A-Za-z0-9_.]*)'?")
_MADE: Final = re.compile(r"\bError (126|127)\s*$", re.MULTILINE)
"""What make says of a program that its recipe could not start."""


def describe_fault(done: Finished) -> str:
    """Say why the environment kept a command from doing its job; empty if it did its job."""
    if done.outcome == "not_started":
        said = done.stderr.decode("utf-8", "replace").strip().removesuffix(".")
        return said or f"{done.argv[0]} could not be started"
    if done.outcome != "exited" or done.exit_code == 0:
        return ""
    if done.exit_code == NOT_EXECUTABLE:
        return f"{done.argv[0]} started a program that cannot be executed (exit code 126)"
    if done.exit_code == NOT_FOUND:
        return f"{done.argv[0]} started a program that was not found (exit code 127)"
    said = (done.stdout[-_TAIL_BYTES:] + done.stderr[-_TAIL_BYTES:]).decode("utf-8", "replace")
    for found in _MODULE.finditer(said):
        if _is_run_as_module(found.group(1), done.argv):
            return f"{done.argv[0]} has no module named {found.group(1)}"
    if (made := _MADE.search(said)) is not None:
        return f"{done.argv[0]} started a program that failed with exit code {made.group(1)}"
    return ""


def _is_run_as_module(name: str, argv: tuple[str, ...]) -> bool:
    """Whether a command names a module to run: ``python -m pytest``."""
    return any(
        option == "-m" and word.split(".")[0] == name.split(".", maxsplit=1)[0]
        for option, word in itertools.pairwise(argv)
    )
