"""A system call filter for what Landlock cannot withhold.

Landlock blocks TCP only, and neither the owner of a file nor its extended attributes are among its
rights. Like Landlock, the filter holds for a thread and what it starts, for good.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06

_NUMBER, _ARCH = 0, 4
_X32: Final = 0x40000000
"""System calls of the other convention on x86-64, which the filter would not know."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """The numbers of the system calls that the filter names."""

    architecture: int
    socket: int
    refused: tuple[int, ...]
    """Looking into other processes, then owners, then extended attributes."""


_RING: Final = 425
"""io_uring_setup(2), which has the same number everywhere."""
_EVERYWHERE: Final = (438, 463, 466)
"""pidfd_getfd(2), setxattrat(2) and removexattrat(2), which have the same numbers everywhere."""

_MACHINES: Final = {
    # ptrace, process_vm_readv, process_vm_writev; chown, fchown, lchown, fchownat; [l,f]setxattr,
    # [l,f]removexattr. The second machine has neither chown nor lchown.
    "x86_64": _Machine(
        0xC000003E,
        41,
        (101, 310, 311, 92, 93, 94, 260, 188, 189, 190, 197, 198, 199, *_EVERYWHERE),
    ),
    "aarch64": _Machine(
        0xC00000B7, 198, (117, 270, 271, 55, 54, 5, 6, 7, 14, 15, 16, *_EVERYWHERE)
    ),
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


def refuse_calls(*, sockets: bool) -> None:
    """Hold this thread, and whatever it starts, to the filter.

    It cannot look into other processes, nor change owners or extended attributes. With ``sockets``
    it cannot open any socket either; a pair of its own, by socketpair(2), it still gets.
    """
    _prctl_filter(_program(_MACHINES[os.uname().machine], sockets=sockets))


def _program(machine: _Machine, *, sockets: bool) -> bytes:
    denied = dict.fromkeys(machine.refused, errno.EPERM)
    # A ring could do all of it behind the filter's back.
    denied[_RING] = errno.ENOSYS
    if sockets:
        denied[machine.socket] = errno.EACCES
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for number, reason in denied.items():
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | reason)]
    lines.append((_RETURN, 0, 0, _ALLOW))
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
