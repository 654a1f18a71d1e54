"""What the output of a test runner says about whether any test ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.trivial import runner

if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL_BYTES: Final = 64 * 2**10
"""A summary stands at the end; what a test printed before it proves nothing."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_UNITTEST: Final = re.compile(r"^Ran (\d+) tests? in [\d.]+s\s*$", re.MULTILINE)
_SKIPPED: Final = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)\b.*\bskipped=(\d+)", re.MULTILINE)
_PYTEST: Final = re.compile(
    r"^(?:=+ )?(?:no tests ran|no tests collected|(\d+ \w+(?:, \d+ \w+)*)) in [\d.]+s.*$",
    re.MULTILINE,
)
_PYTEST_RAN: Final = re.compile(r"\b(?:passed|failed|xfailed|xpassed|errors?)\b")
_NONE_COLLECTED: Final = re.compile(r"^collected 0 items", re.MULTILINE)
# All that is left of it under -qq, or in the looks that a plugin gives it.
_PROGRESS: Final = re.compile(r"^\S*[.xXFE]\S*\s+\[100%\]\s*$|^\s+\d+ passed\b", re.MULTILINE)


def ran(argv: Sequence[str], stdout: bytes, stderr: bytes) -> bool | None:
    """Whether a command ran at least one test; ``None`` where the runner is not known."""
    if not argv:
        return None
    name, _ = runner(argv)
    if name == "unittest":
        return _unittest(_text(stderr))
    return _pytest(_text(stdout)) if name in {"pytest", "py.test"} else None


def _text(data: bytes) -> str:
    return _COLOUR.sub("", data[-TAIL_BYTES:].decode("utf-8", "replace")).replace("\r\n", "\n")


def _unittest(text: str) -> bool:
    summary = [*_UNITTEST.finditer(text)]
    if not summary:
        return False
    skipped = _SKIPPED.search(text, summary[-1].end())
    return int(summary[-1][1]) > (int(skipped[1]) if skipped else 0)


def _pytest(text: str) -> bool:
    summary = [*_PYTEST.finditer(text)]
    if summary:
        return _PYTEST_RAN.search(summary[-1][1] or "") is not None
    return not _NONE_COLLECTED.search(text) and _PROGRESS.search(text) is not None
