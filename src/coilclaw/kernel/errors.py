"""Every exception of CoilClaw, as one tree.

    CoilClawError
    ├── UsageError             wrong command line, configuration or contract
    │   └── AnswerError        a model's answer that cannot be read
    ├── DeniedError            a rule says no, or the user stopped it
    │   ├── PathRefused        a path that no change may name
    │   ├── PlanRefused        an answer that does not fit the tree as it is
    │   ├── UndoRefused        a change that cannot be taken back as things are
    │   └── Stopped            the user stopped it
    ├── VerificationFailed     evidence that does not hold
    ├── ProviderError          a model could not be asked, or answered nothing that can be used
    │   ├── ProviderNetwork    no connection, or it broke
    │   ├── ProviderTimeout    no answer in time
    │   ├── ProviderAuth       the key is wrong, missing or not allowed
    │   ├── ProviderRateLimit  too many requests
    │   ├── ProviderServer     the provider fails by itself
    │   ├── ProviderRejected   the provider does not take the request
    │   ├── ProviderMalformed  an answer that is not of the provider's form, or too large
    │   └── ProviderTruncated  an answer that was cut off at a limit
    └── EnvironmentFault       our own trouble: disk, git, kernel, another process
        ├── JournalDamaged     a journal that may not be continued
        ├── LockTimeout        another process holds the lock for too long
        ├── GitFailed          git said no
        └── ProcessFault       a process that could not be started

Every error carries the rule it stands for, a sentence that says what happened and where, and,
where there is something to do about it, a hint. Exit codes are given to them in ``cli`` only.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class NearLine:
    """A line of a file that comes near to what was looked for; ``number`` counts from 1."""

    number: int
    text: str


class ErrorFacts(TypedDict, total=False):
    """What every error may be given beside its message."""

    rule: str | None
    hint: str | None
    path: str | None
    line: int | None


class CoilClawError(Exception):
    """Something happened after which the caller cannot continue."""

    rule = "error"

    def __init__(self, message: str, **facts: Unpack[ErrorFacts]) -> None:
        super().__init__(message)
        self.message = message
        self.rule = facts.get("rule") or type(self).rule
        self.hint = facts.get("hint")
        self.path = facts.get("path")
        self.line = facts.get("line")
        self.where: str | None = None
        """The file that was read when it happened; set by the caller that knows its name."""
        self.failures: tuple[CoilClawError, ...] = ()
        """Every part that failed, this one first, where several parts were looked at."""


_Error = TypeVar("_Error", bound=CoilClawError)


def combine(problems: Sequence[_Error]) -> _Error:
    """Return the first of some errors, which then carries all of them."""
    first = problems[0]
    parts = {id(part): part for each in problems for part in (each.failures or (each,))}
    if len(parts) > 1:
        first.failures = tuple(parts.values())
    return first


class UsageError(CoilClawError):
    """The command line, a configuration or a contract is wrong."""

    rule = "usage"


class AnswerError(UsageError):
    """A model's answer cannot be read; ``line`` counts from 1 within the answer."""

    rule = "answer.malformed"


class DeniedError(CoilClawError):
    """A rule denies what was asked."""

    rule = "denied"


class PathRefused(DeniedError):
    """A path that no change may name; ``path`` is as it was given."""

    rule = "path"

    path: str


class PlanRefused(DeniedError):
    """The answer can be read, but it does not fit the tree as it is."""

    rule = "plan"

    def __init__(
        self,
        message: str,
        *,
        index: int | None = None,
        nearest: tuple[NearLine, ...] = (),
        **facts: Unpack[ErrorFacts],
    ) -> None:
        super().__init__(message, **facts)
        self.index = index
        """Which hunk or replacement of the file, from 1."""
        self.nearest = nearest
        """What the file has instead, where something was looked for in it."""


class UndoRefused(DeniedError):
    """A change cannot be taken back; ``paths`` are the files in the way."""

    rule = "undo"

    def __init__(
        self, message: str, *, paths: tuple[str, ...] = (), **facts: Unpack[ErrorFacts]
    ) -> None:
        super().__init__(message, **facts)
        self.paths = paths


class Stopped(DeniedError):
    """The user stopped it, and it left nothing half done."""

    rule = "stopped"


class VerificationFailed(CoilClawError):
    """Evidence does not hold."""

    rule = "verification"


class ProviderError(CoilClawError):
    """A model could not be asked, or answered nothing that can be used."""

    rule = "provider"

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retry_after_s: float | None = None,
        body: bytes | None = None,
        **facts: Unpack[ErrorFacts],
    ) -> None:
        super().__init__(message, **facts)
        self.provider = provider
        self.status = status
        self.retry_after_s = retry_after_s
        self.body = body


class ProviderNetwork(ProviderError):
    """No connection could be made, or it broke."""

    rule = "provider.network"


class ProviderTimeout(ProviderError):
    """No answer came in time."""

    rule = "provider.timeout"


class ProviderAuth(ProviderError):
    """The provider does not accept the key."""

    rule = "provider.auth"


class ProviderRateLimit(ProviderError):
    """The provider asks to wait."""

    rule = "provider.rate_limit"


class ProviderServer(ProviderError):
    """The provider fails by itself."""

    rule = "provider.server"


class ProviderRejected(ProviderError):
    """The provider does not take the request."""

    rule = "provider.rejected"


class ProviderMalformed(ProviderError):
    """The answer is not of the provider's form, or larger than the bound."""

    rule = "provider.malformed"


class ProviderTruncated(ProviderError):
    """The answer was cut off at a limit."""

    rule = "provider.truncated"


class EnvironmentFault(CoilClawError):
    """The machine, a file system or another process is in the way."""

    rule = "environment"


@contextmanager
def explain_os_errors(doing: str, *, rule: str, hint: str | None = None) -> Iterator[None]:
    """Raise an ``OSError`` of the block as a fault that begins with what could not be done."""
    try:
        yield
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot {doing}: {problem.strerror or problem}", rule=rule, hint=hint
        ) from problem


class JournalDamaged(EnvironmentFault):
    """A journal that may not be continued, because going on would hide what happened to it."""

    rule = "journal.damaged"


class LockTimeout(EnvironmentFault):
    """A lock was not free in time."""

    rule = "lock.timeout"


class GitFailed(EnvironmentFault):
    """git refused or failed."""

    rule = "git.failed"


class ProcessFault(EnvironmentFault):
    """A process could not be started."""

    rule = "process.start"
