"""``CheckpointWriter``: one checkpoint per N receipts, and one per sealed run.

A failed checkpoint does not affect the receipt. The failure is logged and stored, so that
``receipt verify`` and ``doctor`` can report how old the last checkpoint is.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import (
    CoilClawError,
    EnvironmentFault,
    FileLock,
    LockTimeout,
    explain_os_errors,
    read_private,
    sync_directory,
    write_all,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from coilclaw.agent.receipts.book import ReceiptBook
    from coilclaw.kernel import Checkpoint, SigningKey

PlaceKind: TypeAlias = Literal["file", "git-ref", "url"]

GIT_REF: Final = "git-ref"
DEFAULT_EVERY: Final = 100
_REF: Final = re.compile(r"refs(?:/[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*){2,8}")


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """Where checkpoints are written: a file, a ref of a repository, or an address."""

    kind: PlaceKind
    target: str
    """The file's path, the name of the ref, or the address."""
    directory: Path | None = None
    """The repository of a ref; by default, one in the home."""
    token_env: str | None = None
    """The variable that holds the bearer token for an address."""

    def __str__(self) -> str:
        if self.kind != GIT_REF:
            return self.target
        return f"{GIT_REF} {self.target}" + (f" {self.directory}" if self.directory else "")


def classify_place(text: str) -> PlaceKind:
    """Return the kind of place that a setting names."""
    if text.split(" ", 1)[0] == GIT_REF:
        return "git-ref"
    return "url" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) else "file"


def is_ref(name: str) -> bool:
    """Return whether a name is a valid git ref without any special syntax."""
    return _REF.fullmatch(name) is not None and not name.endswith(".lock")


CHECKPOINT_RULE: Final = "checkpoint.write"
CHECKPOINT_FILE: Final = "checkpoint"
CHECKPOINT_REPOSITORY: Final = "checkpoints.git"
POST_TIMEOUT_S: Final = 10.0

_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def write_checkpoint(
    place: CheckpointPlace, text: str, *, home: Path, environ: Mapping[str, str]
) -> None:
    """Write one checkpoint to its place; raise ``EnvironmentFault`` if that fails."""
    if place.kind == "file":
        _append(Path(place.target), text.encode("utf-8"))
    elif place.kind == "git-ref":
        _commit(place, text, home)
    else:
        _post_in_time(place, text, environ)


def _append(path: Path, data: bytes) -> None:
    with explain_os_errors(f"write the checkpoint to {path}", rule=CHECKPOINT_RULE):
        descriptor = os.open(path, _APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n\n" + data  # separates it from a line that a power cut left
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    if not size:
        sync_directory(path.parent)


def _commit(place: CheckpointPlace, text: str, home: Path) -> None:
    from coilclaw.workspace import Git, append_file, open_foreign

    own = home / CHECKPOINT_REPOSITORY
    git = Git(own) if place.directory is None else open_foreign(place.directory)
    # The message holds the lines before the signatures, with the first two as the subject.
    origin, size, rest = text.partition("\n\n")[0].split("\n", 2)
    message = f"{origin} {size}\n\n{rest}\n"
    append_file(git, place.target, CHECKPOINT_FILE, text.encode("utf-8"), message)


def _post_in_time(place: CheckpointPlace, text: str, environ: Mapping[str, str]) -> None:
    """Send the checkpoint within the time limit, even if the server answers byte by byte."""
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
        raise _fault(place, f"no answer within {POST_TIMEOUT_S:g} s")
    answer = outcome[0]
    if isinstance(answer, str):
        raise _fault(place, answer)
    if not 200 <= answer < 300:
        raise _fault(place, f"it failed with HTTP {answer}")


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> int | str:
    """Return the HTTP status or a text about the failure; the body is not read."""
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
    return EnvironmentFault(f"cannot write the checkpoint to {place}: {what}", rule=CHECKPOINT_RULE)


CHECKPOINT_STATE_FILE: Final = "checkpoint.json"
RETRY_S: Final = 60.0
"""Pause after a failure, so that calls do not wait for a broken place each time."""
_LOCK_S: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The last checkpoint of the receipts, and the last failure since then."""

    origin: str = ""
    size: int = 0
    time: str = ""
    problem: str = ""


def read_checkpoint_state(home: Path) -> CheckpointState:
    """Return the stored state; an unreadable one is reported as its ``problem``."""
    raw = read_private(home / CHECKPOINT_STATE_FILE)
    try:
        value = json.loads(raw or b"{}")
        state = CheckpointState(**value)
        if [type(one) for one in astuple(state)] != [str, int, str, str]:
            raise TypeError
    except (ValueError, RecursionError, TypeError):
        return CheckpointState(problem=f"{CHECKPOINT_STATE_FILE} cannot be read")
    return state


class CheckpointWriter:
    """Writes checkpoints for one home. Creating the object touches no file."""

    def __init__(
        self,
        place: CheckpointPlace,
        every: int,
        *,
        home: Path,
        environ: Mapping[str, str],
        signing_key: Callable[[], SigningKey | None],
        now: Callable[[], datetime],
    ) -> None:
        self._place = place
        self._every = every
        self._home = home
        self._environ = environ
        self._signing_key = signing_key
        self._now = now
        self._known = 0
        self._not_before = 0.0

    def after_receipt(self, book: ReceiptBook) -> None:
        """Write a checkpoint if enough receipts followed the last one; never raise an error."""
        from coilclaw.agent.receipts.verification import take_checkpoint
        from coilclaw.kernel import read_head
        from coilclaw.workspace import format_time

        try:
            head = read_head(book.path, key_path=book.key_path)
            count = 0 if head is None else head[0]
            if count - self._known < self._every or time.monotonic() < self._not_before:
                return
            with FileLock(self._home / f"{CHECKPOINT_STATE_FILE}.lock", timeout_s=_LOCK_S):
                taken = take_checkpoint(book, format_time(self._now()))
                state = read_checkpoint_state(self._home)
                # The user may have started a new log, which counts from its beginning.
                written = state.size if state.origin == taken.origin else 0
                if count - written >= self._every:
                    self._write(taken)
                    written = taken.size
                    self._save(CheckpointState(taken.origin, written, taken.extensions[0][5:]))
            self._known = written
        except LockTimeout:
            _log.info("another process writes the checkpoint")
        except CoilClawError as problem:
            self._note_failure(problem)

    def after_seal(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint of a sealed run; never raise an error."""
        try:
            self._write(checkpoint)
        except CoilClawError as problem:
            self._note_failure(problem)

    def _write(self, checkpoint: Checkpoint) -> None:
        from coilclaw.kernel import checkpoint as notes

        text = notes.render_checkpoint(checkpoint, self._signing_key())
        write_checkpoint(self._place, text, home=self._home, environ=self._environ)
        fields = {"origin": checkpoint.origin, "size": checkpoint.size}
        extra = {"event": "checkpoint_written", "fields": fields}
        _log.info("checkpoint written: %s %d", checkpoint.origin, checkpoint.size, extra=extra)

    def _note_failure(self, problem: CoilClawError) -> None:
        self._not_before = time.monotonic() + RETRY_S
        _warn("checkpoint not written", problem)
        self._save(replace(read_checkpoint_state(self._home), problem=problem.message))

    def _save(self, state: CheckpointState) -> None:
        try:
            data = json.dumps(asdict(state), sort_keys=True).encode("utf-8") + b"\n"
            write_atomic(self._home / CHECKPOINT_STATE_FILE, data, mode=0o600)
        except CoilClawError as problem:
            _warn("the state of checkpoints cannot be kept", problem)


def _warn(what: str, problem: CoilClawError) -> None:
    extra = {"event": "checkpoint_failed", "fields": {"rule": problem.rule}}
    _log.warning("%s: %s", what, problem.message, extra=extra)
