"""Opening the entries of an open directory: no link is followed, no FIFO waited for."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, EnvironmentFault, quote_text

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_NO_LONGER: Final = frozenset(
    (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.ENODEV)
)
"""What the kernel answers when a name is not what it was a moment ago."""


class Changing(Exception):
    """A name is not what it was a moment ago; the scan looks at it again."""


@contextmanager
def open_entry(parent: int, name: str, flags: int) -> Iterator[int]:
    """Open an entry of an open directory for as long as the block lasts."""
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def fault(problem: OSError, path: str) -> Changing | CoilClawError:
    """Say what the kernel's refusal means for a scan that came by."""
    if problem.errno in _NO_LONGER:
        return Changing(path)
    return EnvironmentFault(
        f"cannot read {quote_text(path)}: {problem.strerror}", rule="snapshot.unreadable"
    )
