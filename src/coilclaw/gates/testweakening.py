"""What a change takes away from the tests: deleted, skipped, emptied, loosened, changed.

Adding tests is fine, and so is moving and renaming them. A Python test that was there, and all it
stands on, may only be added to: anything else is ``tests.changed``, another expected value as well.
In other languages a test may be rewritten and expect something else, as long as no assertion is
lost: whether the new expectation is right is a question for the reviewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates import pythonchanges, pythontests, tokentests
from coilclaw.gates.ambient_files import find_intrusions
from coilclaw.gates.pythonchanges import Change
from coilclaw.gates.result import Violation
from coilclaw.gates.scope import legible
from coilclaw.gates.testcase import Case, Source, keeps, losses
from coilclaw.gates.testconfig import configuration_losses
from coilclaw.gates.testfiles import is_test, is_test_configuration, language, may_hold_tests
from coilclaw.gates.testgrammar import GRAMMARS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

MAX_TEST_BYTES: Final = 2**19
MAX_VIOLATIONS: Final = 200


MAX_COMPARED: Final = 1_000_000
"""How many pairs of tests are looked at before the rest counts as deleted."""


class _Added:
    """The tests that changed files have and did not have; each may go on for one other."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._by_ground: dict[str, list[Case]] = {}
        self._others: list[Case] = []
        self._compared = 0
        for case in cases:
            if case.ground:
                self._by_ground.setdefault(case.ground, []).append(case)
            else:
                self._others.append(case)

    def take(self, case: Case) -> bool:
        """Whether a test goes on under another name or in another file."""
        for_it = self._by_ground.get(case.ground, []) if case.ground else self._others
        for number, other in enumerate(for_it):
            self._compared += 1
            if self._compared > MAX_COMPARED:
                return False
            same = other.name.rpartition(".")[2] == case.name.rpartition(".")[2]
            loss = same and not case.ground
            if (not [*losses(case, other)]) if loss else keeps(case, other):
                del for_it[number]
                return True
        return False


def weakened(
    old: Mapping[str, bytes | None],
    new: Mapping[str, bytes | None],
    tree: Collection[str] = (),
) -> tuple[Violation, ...]:
    """Compare the changed files of two trees; ``None`` or no entry: there is no such file.

    ``tree`` is every path after the change: what stands beside tests decides over them.
    """
    found: list[Violation] = []
    before = {path: data for path, data in old.items() if data is not None}
    after = {path: data for path, data in new.items() if data is not None}
    sources: dict[str, Source] = {}
    for path in sorted(after):
        source = _read(path, after[path]) if may_hold_tests(path) else Source()
        if isinstance(source, Violation):
            found.append(source)
        else:
            sources[path] = source
    known = {path: _known(path, data) for path, data in before.items() if may_hold_tests(path)}
    added = _Added(_added(known, sources))
    for path, was in sorted(known.items()):
        if path not in after:
            found += _of_removed(path, before[path], was, after, added)
        elif path in sources:
            found += _of_changed(path, was, sources[path], added)
    for path in sorted(sources.keys() - known.keys()):
        found += _of_new(path, sources[path])
    for path in sorted(before.keys() | after.keys()):
        if is_test_configuration(path):
            found += configuration_losses(path, before.get(path), after.get(path))
    found += find_intrusions(old, new, tree)
    return _bounded(found)


def changed_tests(
    old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]
) -> tuple[str, ...]:
    """Name the tests that are there before and after and are not the same, for the reviewer."""
    found = []
    for path in sorted(old.keys() & new.keys()):
        was, now = old[path], new[path]
        if was is None or now is None or not may_hold_tests(path) or len(now) > MAX_TEST_BYTES:
            continue
        source = _known(path, now).by_name()
        for name, case in _known(path, was).by_name().items():
            if name in source and source[name].text != case.text:
                found.append(f"{legible(path)}::{name}")
    return tuple(found)


def _read(path: str, data: bytes) -> Source | Violation:
    if len(data) > MAX_TEST_BYTES:
        return _violation("tests.size", path, f"is a test of more than {MAX_TEST_BYTES} bytes")
    kind = language(path)
    if kind == "python":
        if not path.endswith(".py"):
            return Source()
        source = pythontests.read(data)
        if source is None:
            return _violation("tests.unreadable", path, "is a test that is no valid Python")
        return source
    return Source() if kind not in GRAMMARS or kind is None else tokentests.read(data, kind)


def _known(path: str, data: bytes) -> Source:
    """The tests of a file as it was; one that cannot be read had none that could run."""
    source = _read(path, data)
    return source if isinstance(source, Source) else Source()


def _added(known: Mapping[str, Source], sources: Mapping[str, Source]) -> Iterator[Case]:
    for path, source in sources.items():
        if is_test(path) or language(path) == "rust":
            before = known.get(path, Source()).by_name()
            for name, case in source.by_name().items():
                if name not in before:
                    yield case


def _of_removed(
    path: str, data: bytes, was: Source, after: Mapping[str, bytes], added: _Added
) -> Iterator[Violation]:
    lost = [case.name for case in was.cases if not added.take(case)]
    if not lost:
        return
    where = next((at for at, now in after.items() if now == data and not is_test(at)), None)
    if where is not None:
        what = f"became {shown(where)}, which no test run looks at"
        yield _violation("tests.renamed", path, what)
    else:
        what = f"was deleted with {len(lost)} tests: {', '.join(lost[:10])}"
        yield _violation("tests.deleted_file", path, what)


def _of_changed(path: str, was: Source, now: Source, added: _Added) -> Iterator[Violation]:
    after = now.by_name()
    lost: set[str] = set()
    for name, case in was.by_name().items():
        if name not in after:
            if not added.take(case):
                lost.add(name)
                yield _violation("tests.deleted", path, f"has no test {name} any more")
            continue
        for rule, what in losses(case, after[name]):
            lost.add(name)
            yield _violation(rule, path, f"{name} {what}")
    whole = [*_of_whole(path, was, now)]
    yield from whole
    for change in _changes(was, now):
        # What is said already in other words is not said twice.
        if change.subject not in lost and (change.subject or not (whole or lost)):
            what = f"{change.subject} {change.what}" if change.subject else change.what
            yield _violation("tests.changed", path, what)


def _changes(was: Source, now: Source) -> Iterator[Change]:
    if was.tree is None or now.tree is None:
        return
    try:
        yield from pythonchanges.changes(was.tree, now.tree)
    except RecursionError:
        yield Change("", "nests too deep to be compared")


def _of_whole(path: str, was: Source, now: Source) -> Iterator[Violation]:
    """What changed for all tests of a file."""
    marks = losses(Case("", skips=was.marks), Case("", skips=now.marks))
    for rule, what in marks:
        yield _violation(rule, path, f"as a whole {what}")
    if now.exits > was.exits:
        yield _violation("tests.exits", path, "ends the test process")
    changed = {hook.partition(":")[0] for hook in set(now.hooks) ^ set(was.hooks)}
    for hook in sorted(changed):
        yield _violation("tests.collection", path, f"changes {hook}, which decides what tests run")


def _of_new(path: str, now: Source) -> Iterator[Violation]:
    """A new file can take nothing from itself, and everything from the others."""
    if now.exits:
        yield _violation("tests.exits", path, "ends the test process")
    for hook in now.hooks:
        name = hook.partition(":")[0]
        yield _violation("tests.collection", path, f"adds {name}, which decides what tests run")
    for case in now.cases:
        for mark in case.skips:
            if mark.rstrip("( ").endswith(("only",)) or mark.startswith(("fit", "fdescribe")):
                yield _violation("tests.skipped", path, f"{case.name}: {mark} skips all others")


def _violation(rule: str, path: str, what: str) -> Violation:
    return Violation(rule, f"{shown(path)} {what}", legible(path))


def _bounded(found: list[Violation]) -> tuple[Violation, ...]:
    if len(found) <= MAX_VIOLATIONS:
        return tuple(found)
    more = Violation("tests.more", f"there are {len(found) - MAX_VIOLATIONS} more")
    return (*found[:MAX_VIOLATIONS], more)
