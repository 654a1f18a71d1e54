"""The bearer token: made at the first start, readable by its owner only."""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, Secret, create_private, read_private

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_NAME: Final = "gateway.token"  # noqa: S105 - the name of the file
TOKEN_BYTES: Final = 32
_FORM: Final = re.compile(rb"[0-9a-f]{64}\n?")


def load_token(home: Path) -> Secret:
    """Return the token of this home, made if there is none."""
    return load_token_file(home / TOKEN_NAME)


def load_token_file(path: Path) -> Secret:
    """Return the token in a file, made if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = read_private(path)
        if data is None:
            data = create_private(path, f"{secrets.token_hex(TOKEN_BYTES)}\n".encode())
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot make or read {path}: {problem.strerror}", rule="gateway.token"
        ) from problem
    check_private(
        path,
        "gateway.token",
        "delete it, and the next start makes a new one",
    )
    if not _FORM.fullmatch(data):
        raise EnvironmentFault(
            f"{path} does not hold a token of {TOKEN_BYTES * 8} bits in hexadecimal",
            rule="gateway.token",
            hint="delete it, and the next start makes a new one",
        )
    return Secret(data.decode("ascii").strip())


def check_private(path: Path, rule: str, hint: str) -> None:
    """Refuse a file that others can read or change."""
    found = os.lstat(path)
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise EnvironmentFault(
            f"{path} must belong to you and be inaccessible to other users",
            rule=rule,
            hint=hint,
        )
