"""Writing a checkpoint where the agent cannot reach it: to a file, a ref or an address."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.storage.atomic import sync_directory, write_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.runtime.checkpoint_place import CheckpointPlace

RULE: Final = "checkpoint.write"
NAME: Final = "checkpoint"
REPOSITORY: Final = "checkpoints.git"
POST_TIMEOUT_S: Final = 10.0

_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def write_checkpoint(
    place: CheckpointPlace, text: str, *, home: Path, environ: Mapping[str, str]
) -> None:
    """Put one checkpoint where the configuration says; what fails is an ``EnvironmentFault``."""
    if place.kind == "file":
        _append(Path(place.target), text.encode("utf-8"))
    elif place.kind == "git-ref":
        _commit(place, text, home)
    else:
        _post_in_time(place, text, environ)


def _append(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, _APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n\n" + data  # what a power cut left does not swallow this one
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise _fault(path, problem.strerror or str(problem)) from problem
    if not size:
        sync_directory(path.parent)


def _commit(place: CheckpointPlace, text: str, home: Path) -> None:
    from coilclaw.workspace.git import Git
    from coilclaw.workspace.ref_history import append_file, open_foreign

    git = Git(home / REPOSITORY) if place.directory is None else open_foreign(place.directory)
    append_file(git, place.target, NAME, text.encode("utf-8"), _commit_message(text))


def _commit_message(text: str) -> str:
    """Return the lines before the signatures, the first of which is the subject."""
    origin, size, rest = text.partition("\n\n")[0].split("\n", 2)
    return f"{origin} {size}\n\n{rest}\n"


def _post_in_time(place: CheckpointPlace, text: str, environ: Mapping[str, str]) -> None:
    """Wait no longer than the bound, whatever trickles in; the thread ends by its own bounds."""
    headers = {"content-type": "text/plain; charset=utf-8", "user-agent": "coilclaw"}
    if place.token_env is not None:
        token = environ.get(place.token_env)
        if not token:
            raise _fault(place, f"the variable {place.token_env} is not set")
        headers["authorization"] = f"Bearer {token}"
    outcome: list[int | str] = []
    thread = threading.Thread(
        target=lambda: outcome.append(_post(place.target, text.encode("utf-8"), headers)),
        name="checkpoint",
        daemon=True,
    )
    thread.start()
    thread.join(POST_TIMEOUT_S)
    if not outcome:
        raise _fault(place, f"there was no answer within {POST_TIMEOUT_S:g} s")
    answer = outcome[0]
    if isinstance(answer, str):
        raise _fault(place, answer)
    if not 200 <= answer < 300:
        raise _fault(place, f"it failed with HTTP {answer}")


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> int | str:
    """Return the status, or what went wrong; nobody reads the body of the answer."""
    import httpx2

    try:
        with (
            httpx2.Client(timeout=POST_TIMEOUT_S, trust_env=False) as client,
            client.stream("POST", url, content=body, headers=dict(headers)) as response,
        ):
            return int(response.status_code)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as problem:
        return str(problem) or type(problem).__name__


def _fault(place: object, what: str) -> EnvironmentFault:
    return EnvironmentFault(f"cannot write the checkpoint to {place}: {what}", rule=RULE)
