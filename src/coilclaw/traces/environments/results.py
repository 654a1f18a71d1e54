"""``Result``: what tests found, in one shape for every path; what changed between two of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self, TypeAlias

from coilclaw.kernel import Json, Record, UsageError, valid_text

SCHEMA: Final = "test_result.v1"
MAX_TEXT: Final = 4000
"""Characters kept of what was expected, and of what came."""
MAX_DIFFERENCE: Final = 500
MAX_LOG: Final = 6000
MAX_ERROR: Final = 6000
MIN_LIMIT: Final = 200
"""Characters that the shortest compact answer has."""
_LISTED: Final = 10

Status: TypeAlias = Literal["passed", "failed", "error", "timeout", "skipped"]
"""``failed``: the submission is wrong; ``error``: the test itself could not be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Record):
    """The outcome of one case; ``id`` is its full path, the same in every run."""

    SCHEMA: ClassVar[str] = f"{SCHEMA}#EnvironmentCase"

    id: str
    status: Status
    duration_ms: int
    failure_kind: str | None = None
    expected: str | None = None
    actual: str | None = None
    difference: str | None = None
    """Where the two first differ."""
    log: str | None = None

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    def limit_texts(self) -> Self:
        """Return the case with every text cut to its bound."""
        return replace(
            self,
            expected=_cut_text(self.expected, MAX_TEXT),
            actual=_cut_text(self.actual, MAX_TEXT),
            difference=_cut_text(self.difference, MAX_DIFFERENCE),
            log=_cut_text(self.log, MAX_LOG),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """What the tests at a path found; its cases are those directly there, the rest is below."""

    SCHEMA: ClassVar[str] = SCHEMA

    passed: int
    failed: int
    total: int
    cases: tuple[Case, ...]
    children: Mapping[str, "Result"]
    error: str | None = None

    @classmethod
    def of(cls, value: object) -> Self:
        """Read one back; figures that do not fit its cases are refused, too."""
        made = super(Result, cls).of(value)
        _refuse_wrong_sums(made)
        return made

    @classmethod
    def build(cls, cases: Iterable[Case], path: str = "", error: str | None = None) -> Self:
        """Arrange cases by their ids; ``path`` is what was asked for, and the top of the result."""
        direct: list[Case] = []
        below: dict[str, list[Case]] = {}
        inside = f"{path}/" if path else ""
        for case in cases:
            rest = case.id.removeprefix(inside) if case.id != path else ""
            head, slash, _ = rest.partition("/")
            if slash:
                below.setdefault(head, []).append(case)
            else:
                direct.append(case)
        children = {name: cls.build(found, inside + name) for name, found in below.items()}
        passed, failed = _count_outcomes(direct, children.values())
        return cls(
            passed=passed,
            failed=failed,
            total=passed + failed,
            cases=tuple(direct),
            children=children,
            error=_cut_text(error, MAX_ERROR),
        )

    @property
    def solved(self) -> bool:
        """Whether there was something to pass, and all of it did."""
        return self.total > 0 and self.failed == 0 and self.error is None

    def every_case(self) -> Iterator[Case]:
        """Yield all cases, those of the suites below included, in order."""
        yield from self.cases
        for child in self.children.values():
            yield from child.every_case()

    def statuses(self) -> dict[str, Status]:
        """Return the status of every case by its id."""
        return {case.id: case.status for case in self.every_case()}


@dataclass(frozen=True, slots=True)
class Delta:
    """How two results differ, by the ids of cases that both of them hold."""

    newly_broken: tuple[str, ...] = ()
    newly_fixed: tuple[str, ...] = ()

    @classmethod
    def between(cls, then: Mapping[str, str], now: Mapping[str, str]) -> Self:
        """Compare the statuses of cases; what was skipped in either neither broke nor was fixed."""
        both = [name for name in now if name in then and "skipped" not in {now[name], then[name]}]
        return cls(
            tuple(name for name in both if then[name] == "passed" != now[name]),
            tuple(name for name in both if then[name] != "passed" == now[name]),
        )

    def json(self) -> dict[str, Json]:
        return {"newly_broken": list(self.newly_broken), "newly_fixed": list(self.newly_fixed)}


def delta(before: Result | None, after: Result) -> Delta:
    """Return what broke and what was fixed between two results."""
    return Delta() if before is None else Delta.between(before.statuses(), after.statuses())


def compact(result: Result, change: Delta, result_id: str, limit: int = 4000) -> str:
    """Summarize a result for an agent in at most ``limit`` characters."""
    limit = max(limit, MIN_LIMIT)
    lines = [f"passed {result.passed} of {result.total}, failed {result.failed}"]
    if result.error:
        lines += ["", result.error, ""]
    suites = [*result.children.items()][:40]
    lines += [f"  {name}: {child.passed}/{child.total}" for name, child in suites]
    lines += _list_names("newly broken", change.newly_broken)
    lines += _list_names("newly fixed", change.newly_fixed)
    last = f"full result: {result_id}"
    bad = [case for case in result.every_case() if case.status not in {"passed", "skipped"}]
    # Of a build that failed every case says the same.
    told = [] if result.error else bad
    text = _cut_text("\n".join(lines), limit - len(last) - 1) or ""
    for index, case in enumerate(told):
        block = "\n".join(["", f"{case.status} {case.id}", *_describe_case(case)])
        left = f"\n… and {len(told) - index - 1} more failures" if index + 1 < len(told) else ""
        if len(text) + len(block) + len(left) + len(last) + 1 > limit:
            more = f"\n… and {len(told) - index} more failures"
            if len(text) + len(more) + len(last) + 1 <= limit:
                text += more
            break
        text += block
    return f"{text}\n{last}"


def _describe_case(case: Case) -> list[str]:
    said = []
    if case.failure_kind:
        said.append(f"  {case.failure_kind}")
    if case.difference:
        said += [f"  {line}" for line in case.difference.splitlines()]
    elif case.log:
        said += [f"  {line[:200]}" for line in case.log.splitlines()[-3:]]
    return said


def _list_names(title: str, names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return [f"{title}: {', '.join(names[:_LISTED])}{more}"]


def _count_outcomes(cases: Iterable[Case], children: Iterable["Result"]) -> tuple[int, int]:
    """Return how many cases passed and how many failed; those that were skipped did neither."""
    statuses, below = [case.status for case in cases], tuple(children)
    passed, skipped = statuses.count("passed"), statuses.count("skipped")
    return (
        passed + sum(child.passed for child in below),
        len(statuses) - passed - skipped + sum(child.failed for child in below),
    )


def _cut_text(text: str | None, limit: int) -> str | None:
    """Keep the beginning and the end of a text that is too long, and only what can be written."""
    if text is None:
        return None
    text = valid_text(text)
    if len(text) <= limit:
        return text
    mark = f"\n[… {len(text) - limit} characters more …]\n"
    room = max(limit - len(mark), 0)
    kept = text[: room - room // 2] + mark + text[len(text) - room // 2 :]
    return kept[:limit]


def _refuse_wrong_sums(result: Result) -> None:
    passed, failed = _count_outcomes(result.cases, result.children.values())
    if (passed, failed, passed + failed) != (result.passed, result.failed, result.total):
        raise UsageError(
            f"a result says that {result.passed} of {result.total} cases passed, "
            f"and its cases say {passed} of {passed + failed}",
            rule="environment.result",
        )
    for child in result.children.values():
        _refuse_wrong_sums(child)
