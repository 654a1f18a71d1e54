"""``EvidenceSections``: the sections of a report that show what events name."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.engine.approvals import FOLDER as APPROVALS
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.event_index import EventIndex, RecordedEvent, get_part, parse_json
from coilclaw.runs.report import page_elements as page
from coilclaw.runs.report.patch_view import MAX_CHARS, MAX_ROWS, show_file, view_patch
from coilclaw.runs.report.report_source import MAX_ITEMS, Excerpt, ReportSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.kernel import Json
    from coilclaw.runs.report.page_elements import Node, ReportTone

MAX_ACTIVITY_BYTES: Final = 8 * 2**20
MAX_PART_CHARS: Final = 3000
MAX_PASSED_LINES: Final = 40
MAX_FAILED_LINES: Final = 200
FAILED_TAIL_LINES: Final = 20
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
_STATUS_TONES: Final[Mapping[str, ReportTone]] = {
    "SUCCESS": "good",
    "PASS": "good",
    "FAILURE": "bad",
    "FAILED": "bad",
    "FAIL": "bad",
    "ERROR": "bad",
    "BLOCKED": "bad",
}


def choose_tone(status: str) -> ReportTone:
    """Return how a status looks."""
    return _STATUS_TONES.get(status, "plain")


@dataclass(frozen=True, slots=True)
class TestedCommand:
    """One command of a round of tests, with what it printed."""

    __test__ = False

    name: str
    command: str
    must_pass: bool
    exit_code: int | None
    duration_s: float | None
    stdout: Excerpt
    stderr: Excerpt

    def show(self) -> Node:
        """Show the command with its output."""
        passed = self.exit_code == 0
        said = page.join_dots(
            page.make_pill(
                f"exit {'?' if self.exit_code is None else self.exit_code}",
                "good" if passed else "bad" if self.must_pass else "warn",
            ),
            page.make_code(self.command),
            self.name,
            "" if self.duration_s is None else f"{self.duration_s:.1f} s",
            "" if self.must_pass else "may fail",
        )
        streams = (("standard output", self.stdout), ("standard error", self.stderr))
        printed = [
            page.join_nodes(page.tag("h4", label), page.show_excerpt(text))
            for label, text in streams
            if text.text
        ]
        shown = page.join_or_say(printed, "It printed nothing.")
        if passed and printed:
            shown = page.make_details("Output", shown)
        return page.join_nodes(page.tag("p", said, kind="meta"), shown)

    def show_end(self) -> Node:
        """Show the end of what the command printed."""
        printed = (self.stderr.text or self.stdout.text).split("\n")[-FAILED_TAIL_LINES:]
        said = page.join_dots(
            page.make_pill(f"exit {self.exit_code}", "bad"),
            page.make_code(self.command),
            "the end of its output:",
        )
        return page.join_nodes(
            page.tag("p", said, kind="meta"), page.tag("pre", "\n".join(printed), kind="output")
        )


@dataclass(frozen=True, slots=True)
class EvidenceSections:
    """Makes the sections of one bundle."""

    source: ReportSource
    events: EventIndex

    def show_contract(self) -> Node:
        """Show what was agreed."""
        source, value = self.source, self.source.load(layout.CONTRACT)
        if not isinstance(value, dict):
            return page.say_nothing("No contract can be read.")
        facts = ((label, get_part(value, *keys)) for label, keys in _CONTRACT_FACTS)
        tests = [
            (
                source.sentence(row.get("name")),
                page.make_code(source.sentence(_read_command(row))),
                "may fail" if row.get("must_pass") is False else "must pass",
            )
            for row in _list_rows(value.get("acceptance_tests"))
        ]
        try:
            document = json.dumps(value, indent=2, ensure_ascii=False)
        except RecursionError:
            document = "(nested too deeply to be shown)"
        allowed, forbidden = (
            page.make_list("codes", map(page.make_code, source.sentences(value.get(key))))
            for key in ("allowed_paths", "forbidden_actions")
        )
        return page.join_nodes(
            page.show_excerpt(source.excerpt(get_part(value, "inputs", "spec")), "prose"),
            page.show_facts(
                (name, source.sentence(str(it))) for name, it in facts if it is not None
            ),
            page.tag("h3", "May change"),
            allowed,
            page.add_heading("Decided by", page.make_table(("test", "command", ""), tests)),
            page.add_heading("Forbidden", forbidden),
            page.make_details("The whole contract", page.show_excerpt(source.excerpt(document))),
        )

    def _list_contracts(self) -> tuple[RecordedEvent, ...]:
        return self.events.of(EventType.CONTRACT_WRITTEN)[:MAX_ITEMS]

    def show_tasks(self) -> Node:
        """Show every task with a contract, in the order of the contracts."""
        tasks = [self._show_task(event) for event in self._list_contracts() if event.task_id]
        return page.join_or_say(tasks, "No task exists yet.")

    def _show_task(self, written: RecordedEvent) -> Node:
        source, clean, task_id = self.source, self.source.sentence, written.task_id or ""

        def find_last(*kinds: EventType) -> RecordedEvent | None:
            own = (one for one in reversed(self.events.of(*kinds)) if one.task_id == task_id)
            return next(own, None)

        started, review = find_last(EventType.TASK_STARTED), find_last(EventType.REVIEW_RESULT)
        ended = find_last(EventType.TASK_RESULT_RECORDED, EventType.RUNNER_FAILED)
        contract = source.load(written.text("path"))
        result = source.load(f"results/{layout.make_segment(task_id)}/result.json")
        status = ended.text("status") if ended else "working" if started else "not performed"
        parent, runner, verdict = (
            f"{label} {text}" if text else ""
            for label, text in (
                ("of", clean(written.payload.get("parent_task_id"))),
                ("runner", clean(started.text("runner") if started else "")),
                ("review", clean(review.text("verdict") if review else "")),
            )
        )
        said = page.join_dots(
            page.make_pill(clean(status), choose_tone(status)),
            parent,
            page.name_attempt(started.attempt if started else written.attempt),
            clean(get_part(contract, "assigned_agent", "role")),
            runner,
            verdict,
        )
        spec = page.show_excerpt(source.excerpt(get_part(contract, "inputs", "spec")), "prose")
        return page.tag(
            "article",
            page.tag("h3", clean(task_id)),
            page.tag("p", said, kind="meta"),
            page.make_optional("p", clean(ended.text("reason") if ended else ""), "bad"),
            page.show_excerpt(source.excerpt(get_part(result, "summary")), "prose"),
            page.make_details("Its instruction", spec),
            self._show_activity(task_id),
        )

    def _show_activity(self, task_id: str) -> Node:
        found, whole = self._read_parts(task_id)
        entries = [self._show_part(row) for row in found[:MAX_ITEMS]]
        if not entries:
            return ""
        note: Node = ""
        if len(found) > len(entries) or not whole:
            more = f"{len(found) - len(entries)} more" if whole else "more"
            path = f"codex/{layout.make_segment(task_id)}/events.jsonl"
            note = page.make_note(f"there are {more} parts in {path}")
        inside = page.join_nodes(page.make_list("activity", entries, "ol"), note)
        return page.make_details(f"What the agent did ({len(entries)} parts)", inside)

    def _read_parts(self, task_id: str) -> tuple[list[dict[str, Json]], bool]:
        path = f"codex/{layout.make_segment(task_id)}/events.jsonl"
        lines, whole = self.source.head(path, MAX_ACTIVITY_BYTES)
        return _list_rows([parse_json(line.encode()) for line in lines if line]), whole

    def _show_part(self, row: dict[str, Json]) -> Node:
        source, exit_code = self.source, _read_int(row.get("exit_code"))
        texts = (row.get(name) for name in ("text", "input", "output"))
        text = "\n".join(text for text in texts if isinstance(text, str) and text)
        files = [page.make_code(name) for name in source.sentences(row.get("files"), 20)]
        commas = [node for file in files for node in (", ", file)][1:]
        title = source.sentence(row.get("tool"), 200)
        code = "" if exit_code is None else f"exit {exit_code}"
        said = page.join_dots(
            page.tag("b", source.sentence(row.get("type"), 100)),
            page.make_code(title) if title else "",
            page.make_pill(code, "bad" if exit_code else "good") if code else "",
            page.join_nodes(*commas) if commas else "",
        )
        shown = page.show_excerpt(source.excerpt(text, MAX_PART_CHARS))
        return page.join_nodes(page.tag("p", said, kind="meta"), shown)

    def show_changes(self) -> Node:
        """Show the change of the run, the work of tasks that differs from it, and refused work."""
        wanted: list[tuple[str, ReportTone, str]]
        wanted = [("The change of the run", "good", layout.PATCH)]
        for event in self._list_contracts():
            name = layout.make_segment(event.task_id or "")
            shown = self.source.sentence(event.task_id, 200)
            wanted.append((f"Work of {shown}", "plain", f"patches/{name}.diff"))
            wanted.append((f"Refused work of {shown}", "bad", f"artifacts/rejected/{name}.diff"))
        rows, chars = MAX_ROWS, MAX_CHARS
        seen: set[str] = set()
        found: list[Node] = []
        for title, tone, path in wanted:
            text, note = self.source.patch(path)
            if not text or text in seen:
                continue
            seen.add(text)
            patch = view_patch(text, max_rows=rows, max_chars=chars)
            rows, chars = rows - patch.size[0], chars - patch.size[1]
            found.append(
                page.tag(
                    "article",
                    page.tag("h3", title),
                    page.tag("p", page.make_code(path), kind="meta"),
                    page.make_note(note),
                    page.make_note(patch.note),
                    *map(show_file, patch.files),
                    kind=f"change {tone}",
                )
            )
        return page.join_or_say(found, "Nothing was changed.")

    def show_tests(self) -> Node:
        """Show every round of tests, the latest first; of very many, the last."""
        rounds = [*map(self._show_round, self.events.of(EventType.TEST_RESULT)[-MAX_ITEMS:])]
        return page.join_or_say(rounds[::-1], "No test has run yet.")

    def _show_round(self, event: RecordedEvent) -> Node:
        where, status, reason = (
            self.source.sentence(event.text(key)) for key in ("where", "status", "reason")
        )
        pill = page.make_pill(status, choose_tone(event.text("status")))
        return page.tag(
            "article",
            page.tag("h3", f"On the {where or 'candidate'}"),
            page.tag("p", page.join_dots(pill, page.name_attempt(event.attempt)), kind="meta"),
            page.make_optional("p", reason),
            *(command.show() for command in self.read_commands(event)),
        )

    def read_commands(self, event: RecordedEvent) -> list[TestedCommand]:
        """Return the commands of a round of tests."""
        rows = _list_rows(get_part(self.source.load(event.text("path")), "commands"))
        return [self._read_tested(row) for row in rows[:MAX_ITEMS]]

    def _read_tested(self, row: dict[str, Json]) -> TestedCommand:
        code, seconds = _read_int(row.get("exit_code")), row.get("duration_sec")
        lines = MAX_PASSED_LINES if code == 0 else MAX_FAILED_LINES
        paths = (get_part(row, name, "path") for name in ("stdout", "stderr"))
        out, err = (self.source.tail(str(path), lines) if path else Excerpt() for path in paths)
        return TestedCommand(
            name=self.source.sentence(row.get("name")),
            command=self.source.sentence(_read_command(row)),
            must_pass=row.get("must_pass") is not False,
            exit_code=code,
            duration_s=float(seconds) if isinstance(seconds, int | float) else None,
            stdout=out,
            stderr=err,
        )

    def show_reviews(self) -> Node:
        """Show every review, the latest first."""
        found = [*map(self._show_review, self.events.of(EventType.REVIEW_RESULT)[:MAX_ITEMS])]
        return page.join_or_say(found[::-1], "Nothing was reviewed yet.")

    def _show_review(self, event: RecordedEvent) -> Node:
        clean, verdict = self.source.sentence, event.text("verdict")
        report = self.source.load(event.text("path"))
        reviewer = clean(event.text("reviewer") or get_part(report, "reviewer", "agent_id"))
        findings: list[Sequence[Node]] = []
        for row in _list_rows(get_part(report, "findings"))[:MAX_ITEMS]:
            blocks = row.get("severity") == "blocking"
            kind = (
                page.make_pill("blocking", "bad") if blocks else page.make_pill("remark", "plain")
            )
            place, line = clean(row.get("path")), _read_int(row.get("line"))
            if place and line is not None:
                place = f"{place}:{line}"
            shown = page.make_code(place) if place else ""
            findings.append((kind, clean(row.get("message")), shown))
        pill = page.make_pill(clean(verdict), choose_tone(verdict))
        number = page.name_attempt(event.attempt)
        return page.tag(
            "article",
            page.tag("h3", clean(event.task_id) or "The run"),
            page.tag("p", page.join_dots(pill, f"by {reviewer}", number), kind="meta"),
            page.tag("p", clean(get_part(report, "summary"))),
            page.make_table(("", "finding", "place"), findings, "No finding."),
        )

    def show_approvals(self) -> Node:
        """Show every question to a person, with its answer."""
        kinds = (EventType.HUMAN_APPROVAL_COMPLETED, EventType.HUMAN_APPROVAL_TIMEOUT)
        answers = {each.text("approval_id"): each for each in self.events.of(*kinds)}
        rows = [
            self._list_approval(event, answers.get(event.text("approval_id")))
            for event in self.events.of(EventType.HUMAN_APPROVAL_REQUIRED)[:MAX_ITEMS]
        ]
        head = ("answer", "question", "kind", "by", "approval")
        return page.make_table(head, rows, "No approval was needed.")

    def _list_approval(
        self, asked: RecordedEvent, answer: RecordedEvent | None
    ) -> tuple[Node, ...]:
        clean, approval_id = self.source.sentence, asked.text("approval_id")
        record = self.source.load(f"{APPROVALS}/{layout.make_segment(approval_id)}.json")
        if answer is None:
            pill = page.make_pill("waits for an answer", "warn")
        elif answer.kind == EventType.HUMAN_APPROVAL_TIMEOUT:
            pill = page.make_pill("ended without an answer", "bad")
        elif answer.payload.get("approved") is True:
            pill = page.make_pill("approved", "good")
        else:
            pill = page.make_pill("rejected", "bad")
        detail = self.source.sentences(get_part(record, "detail"), 50)
        decided_by = clean(answer.text("by") if answer else "")
        return (
            pill,
            page.join_nodes(
                clean(asked.text("reason")), page.make_list("codes", map(page.make_code, detail))
            ),
            clean(asked.text("kind")),
            page.join_dots(decided_by, clean(get_part(record, "decided_at"))),
            page.make_code(clean(approval_id)),
        )

    def show_tokens(self) -> Node:
        """Show what each role and each task took of a model, as far as it is known, and the sum."""
        clean = self.source.sentence
        roles: dict[tuple[str, str], list[Json]] = {}
        for asked in self.events.of(EventType.MODEL_ASKED):
            key = (clean(asked.text("role")), clean(asked.text("model")))
            roles.setdefault(key, []).append(asked.payload.get("usage"))
        uses = [(*key, usages) for key, usages in roles.items()][:MAX_ITEMS]
        for event in self._list_contracts():
            parts, whole = self._read_parts(event.task_id or "")
            more = "" if whole else " (only the first parts)"
            if usages := [row["usage"] for row in parts if "usage" in row]:
                uses.append((f"{clean(event.task_id, 200)}{more}", "", usages))
        if not uses:
            return page.say_nothing("No model told how many tokens it took.")
        counts = [(len(usages), *_sum_usage(usages)) for _, _, usages in uses]
        rows: list[Sequence[Node]] = [
            (who, model, *map(_show_count, three))
            for (who, model, _), three in zip(uses, counts, strict=True)
        ]
        totals = (_show_count(_sum_known(column)) for column in zip(*counts, strict=True))
        rows.append((page.tag("b", "all"), "", *(page.tag("b", total) for total in totals)))
        return page.make_table(("who", "model", "answers", "tokens in", "tokens out"), rows)


def _sum_usage(usages: list[Json]) -> tuple[int | None, ...]:
    keys = ("input_tokens", "output_tokens")
    return tuple(_sum_known([_read_int(get_part(usage, key)) for usage in usages]) for key in keys)


def _sum_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _show_count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _read_int(value: Json) -> int | None:
    return value if type(value) is int else None


def _list_rows(value: Json) -> list[dict[str, Json]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _read_command(row: dict[str, Json]) -> str:
    argv = row.get("cmd_argv")
    return shlex.join(map(str, argv)) if isinstance(argv, list) else str(row.get("cmd") or "")
