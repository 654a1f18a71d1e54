"""Names: of this process, for good; of calls, turns and conversations; and the time as text."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.workspace import procfs

if TYPE_CHECKING:
    from datetime import datetime

_CONVERSATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def this_process() -> str:
    """This process as pid and start time, which no later process shares."""
    me = procfs.member(os.getpid())
    return f"{os.getpid()}:{me.started if me else 0}"


def alive(process: str) -> bool:
    """Whether the process that ``this_process`` named still runs."""
    pid, _, started = process.partition(":")
    if not pid.isdigit():
        return False
    member = procfs.member(int(pid))
    return member is not None and not member.ended and str(member.started) == started


def this_person() -> str:
    """Name the user of this process, as answers and receipts record it."""
    import pwd

    try:
        return f"person {pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"person uid-{os.getuid()}"


def new_id(kind: str) -> str:
    """An id that nobody else has."""
    return f"{kind}-{os.urandom(8).hex()}"


def conversation(text: str) -> str:
    """Return the id of a conversation that a person gave, if it can be one."""
    if not _CONVERSATION.fullmatch(text):
        raise UsageError(
            f"{text!r} cannot be the id of a conversation",
            rule="conversation.id",
            hint="letters, digits, '.', '_' and '-', at most 128, and a letter or digit first",
        )
    return text


def stamp(now: datetime) -> str:
    """The time in UTC as records hold it."""
    from datetime import UTC

    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
