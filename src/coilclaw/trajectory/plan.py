"""``Plan``: what a trajectory was asked for; kept beside it, so that it can be gone on with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import write_atomic
from coilclaw.trajectory.places import checked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_PARTS: Final = 1000
"""How many parts a trajectory has at most, where nobody says."""
MOST_PARTS: Final = 1_000_000
_FORM: Final = 1

Network: TypeAlias = Literal["deny", "allow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One trajectory as it was asked for."""

    trajectory_id: str
    agent: str
    """Who performs, as a person names it."""
    model: str = ""
    prompt: str = ""
    environment: str = ""
    """Empty: there are no tests, and nothing is ever solved."""
    environment_version: str = ""
    template: str = ""
    """The directory with the files to start from; empty for none."""
    ignore: tuple[str, ...] = ()
    """Patterns of what is no work of the agent's."""
    required: tuple[str, ...] = ("",)
    """The paths of tests that have to be green; the empty one is all."""
    max_parts: int = MAX_PARTS
    max_turns: int | None = None
    timeout_s: float | None = None
    network: Network = "deny"
    trace_uri: str = ""
    bundle_uri: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    keep_raw: bool = False

    def __post_init__(self) -> None:
        checked(self.trajectory_id)
        if not 1 <= self.max_parts <= MOST_PARTS:
            raise _refused(f"{self.max_parts} parts are not possible", f"from 1 to {MOST_PARTS}")
        if self.max_turns is not None and self.max_turns < 1:
            raise _refused(f"{self.max_turns} turns are not possible", "at least 1")
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise _refused(f"{self.timeout_s} s are no time", "more than 0")

    def save(self, path: Path) -> None:
        """Keep it where ``load`` finds it."""
        write_atomic(path, self.encoded(), mode=0o600)

    def encoded(self) -> bytes:
        """It as ``load`` reads it."""
        document = {"form": _FORM, **asdict(self)}
        return json.dumps(document, ensure_ascii=True, indent=1).encode("ascii")


def load(path: Path) -> Plan:
    """Read what was kept."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(64 * 2**20))
        if document.pop("form") != _FORM or set(document) != {one.name for one in fields(Plan)}:
            raise ValueError(path)
        lists = {name: tuple(document[name]) for name in ("ignore", "required")}
        return Plan(**{**document, **lists})
    except FileNotFoundError as problem:
        raise UsageError(
            f"there is no trajectory at {path.parent}", rule="trajectory.unknown"
        ) from problem
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise EnvironmentFault(
            f"{path} does not say what the trajectory was asked for", rule="trajectory.session"
        ) from problem


def _refused(message: str, hint: str) -> UsageError:
    return UsageError(message, rule="trajectory.budget", hint=hint)
