"""The parts of a report that come from files of the bundle: tasks, changes, tests, reviews."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.asking import FOLDER as APPROVALS
from coilclaw.orchestrator.examination import parsed, part
from coilclaw.orchestrator.patch_view import MAX_CHARS, MAX_ROWS, view_patch
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.report_source import MAX_ITEMS
from coilclaw.orchestrator.report_timeline import tone_of
from coilclaw.orchestrator.run_report import (
    AcceptanceView,
    ActivityEntry,
    ApprovalView,
    ChangeView,
    ContractView,
    Excerpt,
    LabelledText,
    ReviewFindingView,
    ReviewView,
    TaskView,
    TestCommandView,
    TestRoundView,
    TokenUse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.chronicle import Chronicle, Told
    from coilclaw.orchestrator.report_source import ReportSource
    from coilclaw.orchestrator.run_report import ReportTone

MAX_ACTIVITY_BYTES: Final = 8 * 2**20
MAX_PART_CHARS: Final = 3000
MAX_PASSED_LINES: Final = 40
MAX_FAILED_LINES: Final = 200
_CONTRACT_FACTS: Final = (
    ("task", ("task_id",)),
    ("type", ("task_type",)),
    ("assigned to", ("assigned_agent", "role")),
    ("policy pack", ("policy_pack",)),
    ("file access", ("tool_permissions", "filesystem")),
    ("shell", ("tool_permissions", "shell")),
    ("network", ("tool_permissions", "network")),
    ("time limit in seconds", ("timeout_retry", "timeout_sec")),
    ("repairs allowed", ("timeout_retry", "max_retries")),
    ("tests may be changed", ("test_policy",)),
    ("baseline", ("rollback", "baseline_ref")),
)


@dataclass(frozen=True, slots=True)
class EvidenceReader:
    """Reads what events name."""

    source: ReportSource
    chronicle: Chronicle

    def contract(self) -> ContractView | None:
        """The contract of the run; ``None`` where none can be read."""
        value = self.source.load(layout.CONTRACT)
        if not isinstance(value, dict):
            return None
        facts = ((label, part(value, *keys)) for label, keys in _CONTRACT_FACTS)
        return ContractView(
            spec=self.source.excerpt(part(value, "inputs", "spec")),
            facts=tuple(
                LabelledText(label, self.source.sentence(str(fact)))
                for label, fact in facts
                if fact is not None
            ),
            allowed_paths=self.source.sentences(value.get("allowed_paths")),
            forbidden_actions=self.source.sentences(value.get("forbidden_actions")),
            acceptance=tuple(
                AcceptanceView(
                    self.source.sentence(row.get("name")),
                    self.source.sentence(_command(row)),
                    row.get("must_pass") is not False,
                )
                for row in _rows(value.get("acceptance_tests"))
            ),
            document=self.source.excerpt(_pretty(value)),
        )

    def tasks(self) -> tuple[TaskView, ...]:
        """Every task with a contract, in the order of the contracts."""
        written = self.chronicle.of(EventType.CONTRACT_WRITTEN)[:MAX_ITEMS]
        return tuple(self._task(told) for told in written if told.task_id)

    def _task(self, told: Told) -> TaskView:
        clean, task_id = self.source.sentence, told.task_id or ""
        own = [each for each in self.chronicle if each.task_id == task_id]
        started = _last(own, EventType.TASK_STARTED)
        ended = _last(own, EventType.TASK_RESULT_RECORDED, EventType.RUNNER_FAILED)
        review = _last(own, EventType.REVIEW_RESULT)
        contract = self.source.load(told.text("path"))
        result = self.source.load(f"results/{segment(task_id)}/result.json")
        status = ended.text("status") if ended else "working" if started else "not performed"
        activity, note = self._activity(task_id)
        return TaskView(
            task_id=clean(task_id),
            parent=clean(told.payload.get("parent_task_id")),
            status=clean(status),
            tone=tone_of(status),
            role=clean(part(contract, "assigned_agent", "role")),
            runner=clean(started.text("runner") if started else ""),
            attempt=started.attempt if started else told.attempt,
            spec=self.source.excerpt(part(contract, "inputs", "spec")),
            summary=self.source.excerpt(part(result, "summary")),
            reason=clean(ended.text("reason") if ended else ""),
            verdict=clean(review.text("verdict") if review else ""),
            activity=activity,
            activity_note=note,
        )

    def _parts(self, task_id: str) -> tuple[list[dict[str, Json]], bool]:
        path = f"codex/{segment(task_id)}/events.jsonl"
        lines, whole = self.source.head(path, MAX_ACTIVITY_BYTES)
        return _rows([parsed(line.encode()) for line in lines if line]), whole

    def _activity(self, task_id: str) -> tuple[tuple[ActivityEntry, ...], str]:
        found, whole = self._parts(task_id)
        shown = tuple(self._entry(row) for row in found[:MAX_ITEMS])
        if len(found) == len(shown) and whole:
            return shown, ""
        more = f"{len(found) - len(shown)} more" if whole else "more"
        return shown, f"there are {more} parts in codex/{segment(task_id)}/events.jsonl"

    def _entry(self, row: dict[str, Json]) -> ActivityEntry:
        code = row.get("exit_code")
        texts = (row.get(name) for name in ("text", "input", "output"))
        return ActivityEntry(
            kind=self.source.sentence(row.get("type"), 100),
            title=self.source.sentence(row.get("tool"), 200),
            exit_code=code if type(code) is int else None,
            files=self.source.sentences(row.get("files"), 20),
            text=self.source.excerpt(
                "\n".join(text for text in texts if isinstance(text, str) and text), MAX_PART_CHARS
            ),
        )

    def changes(self) -> tuple[ChangeView, ...]:
        """The change of the run, the work of tasks that differs from it, and what was refused."""
        rows, chars = MAX_ROWS, MAX_CHARS
        seen: set[str] = set()
        found: list[ChangeView] = []
        for title, tone, path in self._patches():
            text, note = self.source.patch(path)
            if not text or text in seen:
                continue
            seen.add(text)
            patch = view_patch(text, max_rows=rows, max_chars=chars)
            rows, chars = rows - patch.size[0], chars - patch.size[1]
            found.append(ChangeView(title, tone, path, patch, note))
        return tuple(found)

    def _patches(self) -> Iterator[tuple[str, ReportTone, str]]:
        yield "The change of the run", "good", layout.PATCH
        for told in self.chronicle.of(EventType.CONTRACT_WRITTEN)[:MAX_ITEMS]:
            task_id = told.task_id or ""
            name, shown = segment(task_id), self.source.sentence(task_id, 200)
            yield f"Work of {shown}", "plain", f"patches/{name}.diff"
            yield f"Refused work of {shown}", "bad", f"artifacts/rejected/{name}.diff"

    def tests(self) -> tuple[TestRoundView, ...]:
        """Every round of tests, oldest first; of very many, the last."""
        return tuple(map(self._round, self.chronicle.of(EventType.TEST_RESULT)[-MAX_ITEMS:]))

    def _round(self, told: Told) -> TestRoundView:
        report = self.source.load(told.text("path"))
        commands = _rows(part(report, "commands"))
        return TestRoundView(
            event=told.number,
            where=self.source.sentence(told.text("where")),
            attempt=told.attempt,
            status=self.source.sentence(told.text("status")),
            tone=tone_of(told.text("status")),
            reason=self.source.sentence(told.text("reason")),
            commands=tuple(map(self._test_command, commands[:MAX_ITEMS])),
        )

    def _test_command(self, row: dict[str, Json]) -> TestCommandView:
        code, seconds = row.get("exit_code"), row.get("duration_sec")
        lines = MAX_PASSED_LINES if code == 0 else MAX_FAILED_LINES
        out, err = (str(part(row, name, "path") or "") for name in ("stdout", "stderr"))
        return TestCommandView(
            name=self.source.sentence(row.get("name")),
            command=self.source.sentence(_command(row)),
            must_pass=row.get("must_pass") is not False,
            exit_code=code if type(code) is int else None,
            duration_s=float(seconds) if isinstance(seconds, int | float) else None,
            stdout=self.source.tail(out, lines) if out else Excerpt(),
            stderr=self.source.tail(err, lines) if err else Excerpt(),
        )

    def reviews(self) -> tuple[ReviewView, ...]:
        """Every review, oldest first."""
        return tuple(map(self._review, self.chronicle.of(EventType.REVIEW_RESULT)[:MAX_ITEMS]))

    def _review(self, told: Told) -> ReviewView:
        clean = self.source.sentence
        report = self.source.load(told.text("path"))
        return ReviewView(
            event=told.number,
            task_id=clean(told.task_id or ""),
            attempt=told.attempt,
            verdict=clean(told.text("verdict")),
            tone=tone_of(told.text("verdict")),
            reviewer=clean(told.text("reviewer") or part(report, "reviewer", "agent_id")),
            summary=clean(part(report, "summary")),
            findings=tuple(
                ReviewFindingView(
                    row.get("severity") == "blocking",
                    clean(row.get("message")),
                    _place(clean(row.get("path")), row.get("line")),
                )
                for row in _rows(part(report, "findings"))[:MAX_ITEMS]
            ),
        )

    def approvals(self) -> tuple[ApprovalView, ...]:
        """Every question to a person, with its answer."""
        asked = self.chronicle.of(EventType.HUMAN_APPROVAL_REQUIRED)[:MAX_ITEMS]
        answers = {
            each.text("approval_id"): each
            for each in self.chronicle.of(
                EventType.HUMAN_APPROVAL_COMPLETED, EventType.HUMAN_APPROVAL_TIMEOUT
            )
        }
        return tuple(self._approval(told, answers.get(told.text("approval_id"))) for told in asked)

    def _approval(self, told: Told, answer: Told | None) -> ApprovalView:
        clean = self.source.sentence
        record = self.source.load(f"{APPROVALS}/{segment(told.text('approval_id'))}.json")
        word, tone = _answer(answer)
        return ApprovalView(
            approval_id=clean(told.text("approval_id")),
            kind=clean(told.text("kind")),
            reason=clean(told.text("reason")),
            answer=word,
            tone=tone,
            decided_by=clean(answer.text("by") if answer else ""),
            decided_at=clean(part(record, "decided_at")),
            detail=self.source.sentences(part(record, "detail"), 50),
        )

    def tokens(self) -> tuple[TokenUse, ...]:
        """What each task and each role took of a model, as far as that was told."""
        found = [
            use
            for told in self.chronicle.of(EventType.CONTRACT_WRITTEN)[:MAX_ITEMS]
            if (use := self._task_tokens(told))
        ]
        roles: dict[tuple[str, str], list[Json]] = {}
        for told in self.chronicle.of(EventType.MODEL_ASKED):
            key = (
                self.source.sentence(told.text("role")),
                self.source.sentence(told.text("model")),
            )
            roles.setdefault(key, []).append(told.payload.get("usage"))
        asked = [_use(role, model, usages) for (role, model), usages in roles.items()]
        return (*asked[:MAX_ITEMS], *found)

    def _task_tokens(self, told: Told) -> TokenUse | None:
        parts, whole = self._parts(told.task_id or "")
        usages = [row["usage"] for row in parts if "usage" in row]
        more = "" if whole else " (only the first parts)"
        name = self.source.sentence(told.task_id or "", 200)
        return _use(f"{name}{more}", "", usages) if usages else None


def _use(who: str, model: str, usages: list[Json]) -> TokenUse:
    read, written = (
        [count for usage in usages if type(count := part(usage, key)) is int]
        for key in ("input_tokens", "output_tokens")
    )
    return TokenUse(
        who, model, len(usages), sum(read) if read else None, sum(written) if written else None
    )


def _answer(answer: Told | None) -> tuple[str, ReportTone]:
    if answer is None:
        return "waits for an answer", "warn"
    if answer.kind == EventType.HUMAN_APPROVAL_TIMEOUT:
        return "ended without an answer", "bad"
    return ("approved", "good") if answer.payload.get("approved") is True else ("rejected", "bad")


def _last(events: Iterable[Told], *kinds: EventType) -> Told | None:
    found = [told for told in events if told.kind in kinds]
    return found[-1] if found else None


def _rows(value: Json) -> list[dict[str, Json]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _command(row: dict[str, Json]) -> str:
    import shlex

    argv = row.get("cmd_argv")
    return shlex.join(map(str, argv)) if isinstance(argv, list) else str(row.get("cmd") or "")


def _place(path: str, line: Json) -> str:
    return f"{path}:{line}" if path and type(line) is int else path


def _pretty(value: Json) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"
