"""The characters a command line may be made of: what a person sees is what the shell gets."""

from __future__ import annotations

import re
from typing import Final

from coilclaw.security.shellfault import Unreadable

MAX_BYTES: Final = 32 * 1024

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Letters and marks that are drawn as nothing at all, beside the categories below.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_EMOJI_PRESENTATION: Final = "\ufe0f"


def check(command: str) -> None:
    """Refuse text that is too long or that shows otherwise than it is."""
    if len(command) > MAX_BYTES or len(command.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise Unreadable(
            "shell.bound", f"the command is longer than {MAX_BYTES} bytes", command[:40]
        )
    control = _CONTROL.search(command)
    if control is not None:
        raise _unseen(command, control.start())
    if not command.isascii():
        _check_unicode(command)


def _check_unicode(command: str) -> None:
    from unicodedata import category

    for at, char in enumerate(command):
        if char.isascii():
            continue
        if char == _EMOJI_PRESENTATION and at and category(command[at - 1]) == "So":
            continue
        if category(char) in _UNSEEN or _INVISIBLE.match(char):
            raise _unseen(command, at)


def _unseen(command: str, at: int) -> Unreadable:
    name = f"U+{ord(command[at]):04X}"
    return Unreadable("shell.text", f"the command holds the invisible character {name}", name)
