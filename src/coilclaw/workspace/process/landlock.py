"""Landlock: the kernel's own sandbox, which needs no program and no privilege.

It restricts a thread and its children permanently. So a child is started from a thread that
restricts itself and then ends; the rest of our process stays unrestricted.
"""

from __future__ import annotations

import errno
import gc
import os
import stat
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.kernel import EnvironmentFault, is_below
from coilclaw.workspace.process.confinement import Confinement, Enforced
from coilclaw.workspace.process.privileges import call_kernel, control_process, drop_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coilclaw.workspace.process.confinement import NetworkState

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
    """Apply the filter to this thread and its children.

    It cannot look into other processes, nor change owners or extended attributes. With ``sockets``
    it cannot open any socket either; a pair of its own, by socketpair(2), it still gets.
    """
    machine = _MACHINES[os.uname().machine]
    denied = dict.fromkeys(machine.refused, errno.EPERM)
    # A ring could do all of it without the filter seeing it.
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
    _prctl_filter(b"".join(struct.pack("=HBBI", *line) for line in lines))


def _prctl_filter(program: bytes | None) -> None:
    import ctypes

    pointer = None
    if program is not None:
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
        pointer = ctypes.create_string_buffer(header, len(header))
    control_process(_PR_SET_SECCOMP, _MODE_FILTER, pointer)


_T = TypeVar("_T")

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
_FIRST_RIGHTS: Final = (1 << 13) - 1
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15

_READ: Final = EXECUTE | READ_FILE | READ_DIR
_ON_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_TCP: Final = 0b11
_SCOPE_ABSTRACT_SOCKETS: Final = 1 << 0
_SCOPE_SIGNALS: Final = 1 << 1

ABI_TRUNCATE: Final = 3
ABI_TCP: Final = 4
ABI_SCOPE: Final = 6

NOT_HELD: Final = "Modes and times of files outside can be changed."
NOT_HELD_UNFILTERED: Final = (
    "Modes, times, owners and extended attributes of files outside can be changed."
)
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
MAX_GRANTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on a file, or on a directory and everything in it."""

    path: str
    rights: int


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 if it has none."""
    # These two number their system calls differently from all others.
    if os.uname().machine.startswith(("mips", "alpha")):
        return 0
    try:
        return _syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def rights_of(abi_version: int) -> int:
    """Return every right on files that this version can withhold."""
    rights = _FIRST_RIGHTS
    for since, right in ((2, REFER), (ABI_TRUNCATE, TRUNCATE), (5, IOCTL_DEV)):
        if abi_version >= since:
            rights |= right
    return rights


def grants(confinement: Confinement) -> list[Grant]:
    """Return what is allowed; all else is denied. Nothing grants a hidden place."""
    everything = rights_of(5)
    # It cannot be a private one here; what is another's in there, Landlock withholds.
    processes = ("/proc",) if confinement.processes else ()
    found = [Grant(path, everything) for path in confinement.writable]
    # Nothing can be put in the place of another file here, but the file can be withheld.
    away = (*confinement.hidden, *(path for path, _ in confinement.replaced))
    for hidden, path in product(away, confinement.writable):
        if is_below(hidden, path):
            raise EnvironmentFault(
                f"Landlock cannot hide {hidden!r} inside the writable {path!r}.",
                rule="sandbox.hidden",
                hint="Install bubblewrap, or keep what is secret out of writable directories.",
            )
    for path in (*confinement.readable, *confinement.shown, *processes):
        for part in _spread(path, away):
            found.append(Grant(part, _READ))
            if len(found) > MAX_GRANTS:
                raise EnvironmentFault(
                    f"Landlock needs more than {MAX_GRANTS} rules to hide {away}.",
                    rule="sandbox.hidden",
                    hint="Install bubblewrap.",
                )
    devices = (f"/dev/{name}" for name in _DEVICES)
    found += [Grant(path, READ_FILE | WRITE_FILE | IOCTL_DEV) for path in devices]
    return found


def _spread(path: str, hidden: Sequence[str]) -> Iterator[str]:
    """Yield ``path``, or if something in it is hidden, everything around that."""
    inside = [place for place in hidden if is_below(place, path)]
    if not inside:
        yield path
    elif path not in inside:
        try:
            # A link needs no right of its own, and granting it would grant what it points to.
            names = [entry.name for entry in os.scandir(path) if not entry.is_symlink()]
        except OSError:
            # What we cannot list, the child shall not read.
            return
        for name in sorted(names):
            yield from _spread(os.path.join(path, name), inside)


def describe_enforced(
    confinement: Confinement, abi_version: int, *, seccomp: bool = False
) -> Enforced:
    """Return the restrictions of a child under this version of Landlock, and their gaps."""
    notes = list(confinement.notes)
    truncation = abi_version >= ABI_TRUNCATE
    if not truncation:
        notes.append(f"Landlock {abi_version} cannot keep files from being truncated.")
    if confinement.private_tmp:
        notes.append("Landlock gives no private /tmp: it is shared, and writable only if listed.")
    if confinement.hidden:
        notes.append("Directories above a hidden path cannot be listed.")
    network: NetworkState = "open"
    if confinement.network:
        notes.append("With the network, Unix sockets in the file system stay open.")
    elif seccomp:
        network = "blocked"
    elif abi_version >= ABI_TCP:
        network = "tcp-blocked"
        notes.append("Landlock blocks TCP only: UDP and Unix sockets in the file system stay open.")
    else:
        notes.append(f"Landlock {abi_version} cannot block the network.")
    notes.append(NOT_HELD if seccomp else NOT_HELD_UNFILTERED)
    return Enforced("landlock", filesystem=truncation, network=network, notes=tuple(notes))


def ruleset(confinement: Confinement, abi_version: int) -> int:
    """Return a file descriptor of the rules for ``start_restricted``."""
    handled = rights_of(abi_version)
    attributes = [handled]
    if abi_version >= ABI_TCP:
        attributes.append(0 if confinement.network else _TCP)
    if abi_version >= ABI_SCOPE:
        attributes.append(_SCOPE_SIGNALS | _SCOPE_ABSTRACT_SOCKETS)
    fd = _create_ruleset(*attributes)
    try:
        for grant in grants(confinement):
            _add(fd, grant, handled)
    except BaseException:
        os.close(fd)
        raise
    return fd


def socket_ruleset() -> int:
    """Return a file descriptor of rules that deny abstract sockets, and nothing else."""
    return _create_ruleset(0, 0, _SCOPE_ABSTRACT_SOCKETS)


def _create_ruleset(*attributes: int) -> int:
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    with _setting_up():
        return _syscall(_CREATE_RULESET, packed, len(packed), 0)


def _add(ruleset_fd: int, grant: Grant, handled: int) -> None:
    with _setting_up(), suppress(FileNotFoundError):
        # It may have vanished since it was listed, or this machine has no such device.
        fd = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights = grant.rights & handled
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _ON_FILES
            rule = struct.pack("=Qi", rights, fd)
            _syscall(_ADD_RULE, ruleset_fd, _RULE_PATH_BENEATH, rule, 0)
        finally:
            os.close(fd)


def start_restricted(
    ruleset_fd: int,
    start: Callable[[], _T],
    *,
    filtered: bool = False,
    sockets: bool = True,
    capable: bool = False,
    outlive: Callable[[_T], None] | None = None,
) -> _T:
    """Call ``start`` in a thread of its own that is restricted, as its children will be.

    It has no capabilities, unless ``capable`` leaves them to another sandbox to take. ``filtered``
    adds the filter of system calls, and without ``sockets`` that refuses every socket. The thread
    stays until ``outlive`` returns: a child that dies with its parent dies with it. The rules are
    closed.
    """
    outcome: list[_T] = []
    failure: list[BaseException] = []
    started = threading.Event()

    def thread() -> None:
        try:
            with _setting_up():
                control_process(_PR_SET_NO_NEW_PRIVS, 1)
                _syscall(_RESTRICT_SELF, ruleset_fd, 0)
                if not capable:
                    drop_capabilities()
                if filtered:
                    refuse_calls(sockets=not sockets)
            outcome.append(start())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            failure.append(error)
        finally:
            started.set()
        if outlive is not None and outcome:
            outlive(outcome[0])

    worker = threading.Thread(target=thread, name="coilclaw-landlock", daemon=outlive is not None)
    # A finalizer of any code, run by the collector in that thread, would be held to the rules too.
    collecting = gc.isenabled()
    gc.disable()
    try:
        worker.start()
        started.wait()
        if outlive is None:
            worker.join()
    except RuntimeError as error:
        what = f"No thread for Landlock could be started: {error}."
        raise EnvironmentFault(what, rule="sandbox.landlock") from error
    finally:
        os.close(ruleset_fd)
        if collecting:
            gc.enable()
    if failure:
        raise failure[0]
    return outcome[0]


@contextmanager
def _setting_up() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"Landlock could not be set up: {error}."
        raise EnvironmentFault(what, rule="sandbox.landlock") from error


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    import ctypes

    converted = [
        ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value)
        for value in arguments
    ]
    return call_kernel("syscall", ctypes.c_long(number), *converted)
