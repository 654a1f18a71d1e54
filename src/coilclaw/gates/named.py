"""Lists of names that a policy or a contract gives, which are only as good as their form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_NAMES: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,199}")


def malformed(rule: str, key: str, names: Sequence[object]) -> Iterator[Violation]:
    """Say what is wrong with a list of names; a text is not a list of its letters."""
    if isinstance(names, str) or len(names) > MAX_NAMES:
        yield Violation(rule, f"{key} is no list of at most {MAX_NAMES} names", key)
        return
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield Violation(rule, f"{key} holds {shown(str(name))}, which is no name", key)
