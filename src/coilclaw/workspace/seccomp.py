"""A system call filter that leaves a process no socket but those of its own machine's files.

Landlock alone blocks TCP only. Like it, the filter holds for a thread and what it starts, for good.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_AF_UNIX: Final = 1

_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06

_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_X32: Final = 0x40000000
"""System calls of the other convention on x86-64, which the filter would not know."""

_MACHINES: Final = {
    # audit architecture, socket(2), io_uring_setup(2)
    "x86_64": (0xC000003E, 41, 425),
    "aarch64": (0xC00000B7, 198, 425),
}


def available() -> bool:
    """Whether this kernel takes filters, and we know its numbers."""
    if os.uname().machine not in _MACHINES:
        return False
    try:
        _prctl_filter(None)
    except OSError as problem:
        # It looked at the filter, and there is none: so it would take one.
        return problem.errno == errno.EFAULT
    return False


def leave_no_internet() -> None:
    """Refuse this thread, and whatever it starts, every socket but Unix ones."""
    _prctl_filter(_program(*_MACHINES[os.uname().machine]))


def _program(arch: int, socket: int, ring: int) -> bytes:
    refused, missing = _ERRNO | errno.EACCES, _ERRNO | errno.ENOSYS
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 6, 0, _X32),
        # A ring could open sockets behind the filter's back.
        (_EQUAL, 5, 0, ring),
        (_EQUAL, 0, 2, socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, refused),
        (_RETURN, 0, 0, missing),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _prctl_filter(program: bytes | None) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    pointer = None
    if program is not None:
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
        pointer = ctypes.create_string_buffer(header, len(header))
    mode = ctypes.c_ulong(_MODE_FILTER)
    if libc.prctl(ctypes.c_int(_PR_SET_SECCOMP), mode, pointer, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
