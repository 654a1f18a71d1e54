"""What a process may do beyond the rights of its user, and who may look into it."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_SET_DUMPABLE: Final = 4
_AMBIENT: Final = 47
_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION: Final = 0x20080522


def drop_capabilities() -> None:
    """Take every capability from this thread, which gains no new privileges.

    So whatever it starts has none either, root's programs included.
    """
    control_process(_AMBIENT, _AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    call_kernel("capset", header, (ctypes.c_uint32 * 6)())


def forbid_inspection() -> None:
    """Keep the memory and the environment of this process from every process of its user.

    None but root reads them through /proc or attaches to it, and it leaves no core file.
    """
    if sys.platform == "linux":
        control_process(_SET_DUMPABLE, 0)


def control_process(option: int, value: int, pointer: object = None) -> None:
    """Call prctl(2) for this thread."""
    zero = ctypes.c_ulong(0)
    third = zero if pointer is None else pointer
    call_kernel("prctl", ctypes.c_int(option), ctypes.c_ulong(value), third, zero, zero)


def call_kernel(name: str, *arguments: object) -> int:
    """Call a function of the C library that returns a negative number on failure."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    result: int = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
