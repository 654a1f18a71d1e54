"""The workflow: ask, apply, build, and repair up to three times."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from coilclaw.changes import AnswerLimits, Format, NoChanges, Refusal, WriteFile, explain_failures
from coilclaw.changes import answer as answers
from coilclaw.commit import build as builds
from coilclaw.commit import query
from coilclaw.commit.query import Replacements
from coilclaw.kernel import (
    AnswerError,
    ChatRequest,
    CoilClawError,
    DeniedError,
    Message,
    ProcessFault,
    ProviderError,
    UsageError,
    combine,
)
from coilclaw.policy import CODE_COMMIT_POLICY, ProtectedRule
from coilclaw.workspace import NO_SANDBOX, Delivered, DeliveryTerms, Denied, Purpose, deliver_answer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.changes import ChangeSet, Plan
    from coilclaw.commit.build import Build
    from coilclaw.commit.interrupts import Interrupts
    from coilclaw.commit.project import Project
    from coilclaw.commit.run_log import RunLog
    from coilclaw.kernel import ChatResponse, Provider
    from coilclaw.workspace import Root, Sandbox, SandboxSupport, TreeState

REPAIRS: Final = 3
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
ANSWER_LIMITS: Final = AnswerLimits(
    answer_bytes=32 * 2**20, operations=2_000, file_bytes=8 * 2**20, total_bytes=32 * 2**20
)


class Observer(Protocol):
    """Receives the progress of a run."""

    def line(self, text: str, style: str | None = None) -> None: ...
    def attempt(self, number: int, name: str) -> None: ...
    def asking(self, model: str) -> None: ...
    def answered(self, response: ChatResponse, seconds: float) -> None: ...
    def applied(self, plan: Plan, change_id: str) -> None: ...
    def not_applied(self, reason: str) -> None: ...
    def building(self) -> None: ...
    def output(self, data: bytes) -> None: ...
    def built(self, build: Build) -> None: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: its name in the logs, its change, and the result of its build."""

    name: str
    change: str | None
    files: tuple[str, ...]
    exit_code: int | None
    passed: bool
    problem: str | None = None
    model: str = ""
    """The model that answered, which may be a fallback."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """How the run ended."""

    status: Literal["passed", "failed", "provider_failed"]
    attempts: tuple[Attempt, ...]
    problem: CoilClawError | None = None


@dataclass(frozen=True, slots=True)
class CommitRun:
    """One run and everything that it uses."""

    project: Project
    root: Root
    state: TreeState
    log: RunLog
    provider: Provider
    model: str
    environ: Mapping[str, str]
    interrupts: Interrupts
    observer: Observer
    build_timeout_s: float
    run_id: str
    """The id of all changes of the run, so that they can be undone together."""
    key_lines: tuple[str, ...] = ()
    """Lines that ``.gitignore`` must keep."""
    ignore_root: Path | None = None
    """A copy of the ``.gitignore`` files from before the run."""
    key_files: tuple[str, ...] = ()
    repairs: int = REPAIRS
    sandbox: Sandbox = NO_SANDBOX
    """The sandbox of the build: none if the user started the run, otherwise that of an agent."""
    support: SandboxSupport | None = None
    limits: AnswerLimits = field(default_factory=lambda: ANSWER_LIMITS)

    def go(self) -> CommitOutcome:
        """Ask, apply and build until the build passes or the attempts are used up."""
        done: list[Attempt] = []
        replacements = Replacements({})
        build: Build | None = None
        for number in range(self.repairs + 1):
            name = "initial-query" if number == 0 else f"repair-query-{number}"
            self.observer.attempt(number, name)
            if build is None:
                text = query.initial_query(self.project.query, self.project.codebase)
            else:
                parts = (self.project.query, self.project.codebase, replacements)
                text = query.repair_query(build.text, *parts)
            try:
                response = self._ask(name, text)
            except ProviderError as problem:
                return CommitOutcome("provider_failed", tuple(done), problem)
            attempt, replacements, build = self._try(name, response, replacements)
            done.append(attempt)
            if attempt.passed:
                return CommitOutcome("passed", tuple(done))
        return CommitOutcome("failed", tuple(done))

    def _ask(self, name: str, text: str) -> ChatResponse:
        """Log the query, send it as logged, and log and return the response."""
        self.interrupts.check()
        sent = self.log.text(f"{name}.txt", text)
        if sent != text:
            self.observer.line("  a key was removed from the query before it was sent", "yellow")
        self.observer.asking(self.model)
        began = time.monotonic()
        request = ChatRequest("", (Message("user", sent),), self.model)
        try:
            response = self.provider.chat(request)
        except CoilClawError as problem:
            with self.interrupts.defer():
                self.log.failure(f"{name}-response.txt", problem)
                if isinstance(problem, ProviderError) and problem.body is not None:
                    self.log.json(f"{name}-response.json", problem.body)
            raise
        with self.interrupts.defer():
            self.log.text(f"{name}-response.txt", response.final_text)
            self.log.json(f"{name}-response.json", response.raw_provider_payload or b"{}")
        self.interrupts.check()
        self.observer.answered(response, time.monotonic() - began)
        return response

    def _try(
        self, name: str, response: ChatResponse, replacements: Replacements
    ) -> tuple[Attempt, Replacements, Build]:
        """Apply one answer and build; an answer with any problem is not applied at all."""
        log_name = "initial-build.txt" if name == "initial-query" else f"{name}-build.txt"
        try:
            changes = self._parse(response)
            change, files = self._apply(changes)
            replacements = replacements.after(changes)
        except (UsageError, DeniedError) as problem:
            self.interrupts.check()
            reason = explain_failures(problem)
            build = builds.not_run(reason)
            self.log.text(log_name, build.text)
            self.observer.not_applied(reason)
            attempt = Attempt(name, None, (), None, False, reason, response.model)
            return attempt, replacements, build
        build = self._build(log_name)
        attempt = Attempt(name, change, files, build.exit_code, build.passed, None, response.model)
        return attempt, replacements, build

    def _parse(self, response: ChatResponse) -> ChangeSet:
        raw = response.final_text.encode("utf-8", "surrogatepass")
        text = answers.decode_answer(raw)
        if "\ufffd" in text and _was_repaired(response.raw_provider_payload or b""):
            raise AnswerError(
                "the answer holds a NUL or text that is not valid Unicode", rule="answer.encoding"
            )
        if self.log.clean(text) != text:
            raise AnswerError("the answer holds a key", rule="answer.secret")
        parsed = answers.parse_answer(text, format=Format.FENCE, limits=self.limits)
        if isinstance(parsed, Refusal):
            raise AnswerError(
                f"the model declined: {parsed.sentence}", rule="answer.refusal", line=parsed.line
            )
        if isinstance(parsed, NoChanges):
            raise AnswerError(
                "the answer holds no change",
                rule="answer.no_changes",
                hint="each file needs '^^^' and its path, its whole content, and '^^^end'",
            )
        return parsed

    def _apply(self, changes: ChangeSet) -> tuple[str | None, tuple[str, ...]]:
        _keep_key_lines(changes, self.key_lines)
        policy = CODE_COMMIT_POLICY
        if self.key_files:
            rule = ProtectedRule.of("protected.key", "holds a provider's key", *self.key_files)
            policy = policy.with_rules(rule)
        terms = DeliveryTerms(
            policy=policy,
            limits=self.limits,
            purpose=Purpose("code-commit", self.run_id),
            ignore_root=self.ignore_root,
            redact=self.log.clean,
        )
        self.interrupts.check()
        with self.interrupts.defer():
            outcome = deliver_answer(self.root, self.state, changes, terms)
        if isinstance(outcome, Denied):
            raise combine((*(each.as_error() for each in outcome.denials), *outcome.failures))
        assert isinstance(outcome, Delivered)
        change_id = outcome.change.id if outcome.change else None
        self.observer.applied(outcome.plan, change_id or "")
        return change_id, tuple(str(item.path) for item in outcome.plan.changes)

    def _build(self, log_name: str) -> Build:
        self.observer.building()
        with self.interrupts.defer() as cancel:
            try:
                build = builds.run(
                    self.project.directory,
                    timeout_s=self.build_timeout_s,
                    environ=self.environ,
                    redact=self.log.clean,
                    cancel=cancel,
                    observe=self.observer.output,
                    sandbox=self.sandbox,
                    support=self.support,
                )
            except ProcessFault as problem:
                self.log.text(log_name, f"The build could not be started: {problem}\n")
                raise
            self.log.text(log_name, build.text)
        self.observer.built(build)
        self.interrupts.check()
        return build


def _keep_key_lines(changes: ChangeSet, lines: tuple[str, ...]) -> None:
    """Raise ``DeniedError`` for an answer after which git would track a key file."""
    for operation in changes.operations:
        if operation.path.folded != (".gitignore",):
            continue
        text = operation.content.decode() if isinstance(operation, WriteFile) else ""
        kept = {line.rstrip() for line in text.split("\n")}
        lost = [line for line in lines if line not in kept or f"!{line}" in kept]
        if lost:
            raise DeniedError(
                f"'.gitignore' would lose its line for {', '.join(lost)}", rule="protected.key"
            )


def _was_repaired(payload: bytes) -> bool:
    """Return whether reading a provider's JSON replaced characters that no text may hold."""
    try:
        whole = json.dumps(json.loads(payload), ensure_ascii=False)
    except (ValueError, RecursionError):
        return True
    return "\\u0000" in whole or _HALF_PAIR.search(whole) is not None
