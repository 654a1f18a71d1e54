"""``RunReport``: everything that a report of a run says, read from its bundle. Values only.

Texts in it are bounded and free of known secrets, and as hostile as whoever wrote them: a renderer
escapes each one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from coilclaw.orchestrator.patch_view import PatchView

ReportTone: TypeAlias = Literal["good", "bad", "warn", "plain"]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text as far as it is shown; ``note`` says what was cut."""

    text: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A fact in one line."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class TestCommandView:
    """One command with what it printed."""

    __test__ = False

    name: str
    command: str
    must_pass: bool
    exit_code: int | None
    duration_s: float | None
    stdout: Excerpt
    stderr: Excerpt


@dataclass(frozen=True, slots=True)
class OutcomeView:
    """What came out, and why."""

    run_id: str
    standing: str
    """``passed``, ``failed``, ``denied``, ``paused``, ``running``, ``interrupted``, …"""
    headline: str
    tone: ReportTone
    request: Excerpt
    reasons: tuple[str, ...]
    facts: tuple[LabelledText, ...]
    next_commands: tuple[str, ...] = ()
    """What the user can type to bring the run further."""
    failed_command: TestCommandView | None = None
    """The command that the run failed by, with the end of what it printed."""


@dataclass(frozen=True, slots=True)
class VerificationFinding:
    """One thing that is wrong with the evidence."""

    code: str
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class VerificationView:
    """Whether the evidence is what the run left."""

    state: Literal["holds", "broken", "unfinished"]
    summary: str
    findings: tuple[VerificationFinding, ...]
    warnings: tuple[VerificationFinding, ...]
    checks: tuple[tuple[str, bool], ...]
    """Each check that was made, and whether it found nothing."""
    root_hash: str
    commands: tuple[LabelledText, ...]
    """How to repeat it: what a command does, and the command."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened; ``state`` is set where the run came to a new one."""

    event: int
    ts: str
    elapsed_s: float | None
    text: str
    tone: ReportTone = "plain"
    state: str = ""
    task_id: str = ""
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class AcceptanceView:
    """A command that decides."""

    name: str
    command: str
    must_pass: bool


@dataclass(frozen=True, slots=True)
class ContractView:
    """What was agreed."""

    spec: Excerpt
    facts: tuple[LabelledText, ...]
    allowed_paths: tuple[str, ...]
    forbidden_actions: tuple[str, ...]
    acceptance: tuple[AcceptanceView, ...]
    document: Excerpt
    """The whole contract as JSON."""


@dataclass(frozen=True, slots=True)
class ActivityEntry:
    """One part of what an agent did."""

    kind: str
    title: str
    exit_code: int | None
    files: tuple[str, ...]
    text: Excerpt


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task, and the attempt at it."""

    task_id: str
    parent: str
    status: str
    tone: ReportTone
    role: str
    runner: str
    attempt: int | None
    spec: Excerpt
    summary: Excerpt
    reason: str
    verdict: str
    activity: tuple[ActivityEntry, ...]
    activity_note: str = ""


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A patch, and what became of it."""

    title: str
    tone: ReportTone
    path: str
    patch: PatchView
    note: str = ""


@dataclass(frozen=True, slots=True)
class GateView:
    """What a gate said of a task, or of the whole run."""

    event: int
    gate: str
    passed: bool
    task_id: str
    attempt: int | None
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TestRoundView:
    """All commands on one tree."""

    __test__ = False

    event: int
    where: str
    attempt: int | None
    status: str
    tone: ReportTone
    reason: str
    commands: tuple[TestCommandView, ...]


@dataclass(frozen=True, slots=True)
class ReviewFindingView:
    """One remark of a reviewer."""

    blocking: bool
    message: str
    place: str


@dataclass(frozen=True, slots=True)
class ReviewView:
    """One review."""

    event: int
    task_id: str
    attempt: int | None
    verdict: str
    tone: ReportTone
    reviewer: str
    summary: str
    findings: tuple[ReviewFindingView, ...]


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """A question to a person, and the answer."""

    approval_id: str
    kind: str
    reason: str
    answer: str
    tone: ReportTone
    decided_by: str
    decided_at: str
    detail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenUse:
    """What a task or a role took of a model; ``None`` where that was not told."""

    who: str
    model: str
    calls: int
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class AuditView:
    """What was done with the run after it was sealed; the seal does not cover it."""

    name: str
    status: str
    detail: str
    foreign: bool


@dataclass(frozen=True, slots=True)
class RunReport:
    """A whole report."""

    outcome: OutcomeView
    verification: VerificationView
    timeline: tuple[TimelineEntry, ...]
    contract: ContractView | None
    tasks: tuple[TaskView, ...]
    changes: tuple[ChangeView, ...]
    gates: tuple[GateView, ...]
    tests: tuple[TestRoundView, ...]
    reviews: tuple[ReviewView, ...]
    approvals: tuple[ApprovalView, ...]
    tokens: tuple[TokenUse, ...]
    audits: tuple[AuditView, ...]
    notes: tuple[str, ...] = ()
    """What was left out of lists."""
