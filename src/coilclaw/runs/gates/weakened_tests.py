"""What a change takes away from the tests: deleted, skipped, emptied, loosened, changed.

Adding tests is fine, and so is moving and renaming them. A Python test that was there, and all it
stands on, may only be added to: anything else is ``tests.changed``, another expected value as well.
In other languages a test may be rewritten and expect something else, as long as no assertion is
lost: whether the new expectation is right is a question for the reviewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.kernel import quote_text
from coilclaw.runs.gates.python_changes import find_changes
from coilclaw.runs.gates.python_tests import read_python
from coilclaw.runs.gates.result import Violation
from coilclaw.runs.gates.scope import blame
from coilclaw.runs.gates.test_files import (
    configuration_losses,
    find_intrusions,
    is_test,
    is_test_configuration,
    language,
    may_hold_tests,
)
from coilclaw.runs.gates.test_grammar import GRAMMARS, CaseBlock, SourceText, read_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

MAX_TEST_BYTES: Final = 2**19
MAX_VIOLATIONS: Final = 200
MAX_COMPARED: Final = 1_000_000
"""How many pairs of tests are looked at before the rest counts as deleted."""


class _Added:
    """The tests that changed files have and did not have; each may go on for one other."""

    def __init__(self, cases: Iterable[CaseBlock]) -> None:
        self._by_ground: dict[str, list[CaseBlock]] = {}
        self._compared = 0
        for case in cases:
            self._by_ground.setdefault(case.ground, []).append(case)

    def take(self, case: CaseBlock) -> bool:
        """Tell whether a test goes on under another name or in another file."""
        candidates = self._by_ground.get(case.ground, [])
        for number, other in enumerate(candidates):
            self._compared += 1
            if self._compared > MAX_COMPARED:
                return False
            if case.is_kept_by(other):
                del candidates[number]
                return True
        return False


def find_weakened_tests(
    old: Mapping[str, bytes | None], new: Mapping[str, bytes | None], tree: Collection[str] = ()
) -> tuple[Violation, ...]:
    """Compare the changed files of two trees; ``None`` or no entry: the file does not exist.

    ``tree`` is every path after the change: what stands beside tests decides over them.
    """
    found: list[Violation] = []
    before = {path: data for path, data in old.items() if data is not None}
    after = {path: data for path, data in new.items() if data is not None}
    sources: dict[str, SourceText] = {}
    for path in sorted(after):
        source = _read(path, after[path]) if may_hold_tests(path) else SourceText()
        if isinstance(source, Violation):
            found.append(source)
        else:
            sources[path] = source
    known: dict[str, SourceText] = {}
    for path in filter(may_hold_tests, before):
        source = _read(path, before[path])
        # What cannot be read had no test that could run.
        known[path] = source if isinstance(source, SourceText) else SourceText()
    added = _Added(_list_added(known, sources))
    for path, was in sorted(known.items()):
        if path not in after:
            found += _judge_removed(path, before[path], was, after, added)
        elif path in sources:
            found += _judge_changed(path, was, sources[path], added)
    for path in sorted(sources.keys() - known.keys()):
        found += _judge_new(path, sources[path])
    for path in filter(is_test_configuration, sorted(before.keys() | after.keys())):
        found += configuration_losses(path, before.get(path), after.get(path))
    found += find_intrusions(old, new, tree)
    if len(found) > MAX_VIOLATIONS:
        more = f"there are {len(found) - MAX_VIOLATIONS} more"
        found[MAX_VIOLATIONS:] = [Violation("tests.more", more)]
    return tuple(found)


def _read(path: str, data: bytes) -> SourceText | Violation:
    if len(data) > MAX_TEST_BYTES:
        return blame("tests.size", path, f"is a test of more than {MAX_TEST_BYTES} bytes")
    kind = language(path) or ""
    if kind != "python":
        return read_tokens(data, kind) if kind in GRAMMARS else SourceText()
    source = read_python(data) if path.endswith(".py") else SourceText()
    return source or blame("tests.unreadable", path, "is a test that is not valid Python")


def _list_added(
    known: Mapping[str, SourceText], sources: Mapping[str, SourceText]
) -> Iterator[CaseBlock]:
    for path, source in sources.items():
        if may_hold_tests(path):
            before = known.get(path, SourceText()).by_name()
            yield from (case for name, case in source.by_name().items() if name not in before)


def _judge_removed(
    path: str, data: bytes, was: SourceText, after: Mapping[str, bytes], added: _Added
) -> Iterator[Violation]:
    lost = [case.name for case in was.cases if not added.take(case)]
    if not lost:
        return
    where = next((at for at, now in after.items() if now == data and not is_test(at)), None)
    if where is not None:
        what = f"became {quote_text(where)}, which no test run looks at"
        yield blame("tests.renamed", path, what)
    else:
        what = f"was deleted with {len(lost)} tests: {', '.join(lost[:10])}"
        yield blame("tests.deleted_file", path, what)


def _judge_changed(
    path: str, was: SourceText, now: SourceText, added: _Added
) -> Iterator[Violation]:
    after = now.by_name()
    lost: set[str] = set()
    for name, case in was.by_name().items():
        if name not in after:
            if not added.take(case):
                lost.add(name)
                yield blame("tests.deleted", path, f"has no test {name} any more")
            continue
        for rule, what in case.find_losses(after[name]):
            lost.add(name)
            yield blame(rule, path, f"{name} {what}")
    whole = [*_judge_whole(path, was, now)]
    yield from whole
    if was.tree is None or now.tree is None:
        return
    try:
        for change in find_changes(was.tree, now.tree):
            # What is said already in other words is not said twice.
            if change.subject not in lost and (change.subject or not (whole or lost)):
                yield blame("tests.changed", path, f"{change.subject} {change.what}".lstrip())
    except RecursionError:
        yield blame("tests.changed", path, "nests too deep to be compared")


def _judge_whole(path: str, was: SourceText, now: SourceText) -> Iterator[Violation]:
    """Say what changed for all tests of a file."""
    for rule, what in CaseBlock("", skips=was.marks).find_losses(CaseBlock("", skips=now.marks)):
        yield blame(rule, path, f"as a whole {what}")
    if now.exits > was.exits:
        yield blame("tests.exits", path, "ends the test process")
    for hook in sorted({hook.partition(":")[0] for hook in set(now.hooks) ^ set(was.hooks)}):
        yield blame("tests.collection", path, f"changes {hook}, which decides what tests run")


def _judge_new(path: str, now: SourceText) -> Iterator[Violation]:
    """Say what a new file, which takes nothing from itself, takes from the others."""
    if now.exits:
        yield blame("tests.exits", path, "ends the test process")
    for hook in now.hooks:
        name = hook.partition(":")[0]
        yield blame("tests.collection", path, f"adds {name}, which decides what tests run")
    for case in now.cases:
        for mark in case.skips:
            if mark.rstrip("( ").endswith(("only",)) or mark.startswith(("fit", "fdescribe")):
                yield blame("tests.skipped", path, f"{case.name}: {mark} skips all others")
