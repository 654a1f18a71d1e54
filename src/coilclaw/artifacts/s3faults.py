"""What a server or the way to it says, as our errors.

The client's own texts hold addresses and whatever the server answered, which may repeat parts of
a signed request. None of that is passed on: only the status and the server's code, both of a
fixed form.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.artifacts.store import DENIED, NETWORK, NO_BUCKET, conflict, missing
from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS: Final = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")


@contextmanager
def mapped(where: str) -> Iterator[None]:
    """Raise our error for each of the client's."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as problem:
        # Without the cause: its text is what must not be shown.
        raise fault(problem, where) from None


def fault(problem: BaseException, where: str) -> EnvironmentFault:
    """Return our error for one of the client's."""
    from obstore import exceptions

    text = str(problem)[:20_000]
    status, code = _STATUS.search(text), _CODE.search(text)
    said = ", ".join(match[1] for match in (status, code) if match)
    detail = f" ({said})" if said else ""
    if code and code[1] == "NoSuchBucket":
        return EnvironmentFault(
            f"there is no bucket for {where}",
            rule=NO_BUCKET,
            hint="make the bucket first, or name another one",
        )
    if isinstance(problem, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return conflict(where)
    if isinstance(problem, FileNotFoundError | exceptions.NotFoundError):
        return missing(where)
    # A refused listing has no class of its own.
    if status and status[1] in {"401", "403"}:
        return EnvironmentFault(
            f"the artifact store does not let us at {where}{detail}",
            rule=DENIED,
            hint="check the AWS_* variables and what the key may do in the bucket",
        )
    return EnvironmentFault(f"the artifact store cannot be used for {where}{detail}", rule=NETWORK)
