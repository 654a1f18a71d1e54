"""Uploads behind the back: never waited for, in order, tried again, and told of when they fail."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, PathRefused
from coilclaw.traces.artifacts.local_store import LocalStore
from coilclaw.traces.artifacts.place import open_store
from coilclaw.traces.artifacts.store import ArtifactEntry, ArtifactStore, ArtifactVersion
from coilclaw.traces.artifacts.uploader import Uploader, UploaderLimits, UploadReport, UploadTrouble
from tests.support.children import PATIENCE_S
from tests.support.s3server import going_wrong

QUICK = UploaderLimits(first_wait_s=0.001, longest_wait_s=0.01, document_interval_s=0.0)
DOC = "t/agent_trace.json"


class Gated(LocalStore):
    """A directory whose ``put`` waits for the gate, then fails as often as it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.faults: list[EnvironmentFault] = []
        self.tried: list[str] = []
        self.order: list[str] = []

    def put(
        self, key: str, source: bytes | Path, *, previous: ArtifactVersion | None
    ) -> ArtifactVersion:
        self.tried.append(key)
        self.entered.set()
        assert self.gate.wait(10 * PATIENCE_S)
        if self.faults:
            raise self.faults.pop(0)
        version = super().put(key, source, previous=previous)
        self.order.append(key)
        return version


@pytest.fixture
def gated(tmp_path: Path) -> Gated:
    return Gated(tmp_path / "store")


def _down() -> EnvironmentFault:
    return EnvironmentFault("the store is down", rule="artifact.network")


def test_two_writers_of_one_document_do_not_lose_an_update(store: ArtifactStore) -> None:
    first = Uploader(store, limits=QUICK)
    first.document(DOC, b"first")
    assert first.flush(PATIENCE_S) == UploadReport(1, 0, 0, ())
    heard: list[UploadTrouble] = []
    second = Uploader(store, limits=QUICK, report=heard.append)
    second.document(DOC, b"second")
    report = second.close(PATIENCE_S)
    where = store.uri(DOC)
    conflict = UploadTrouble(
        DOC, "artifact.conflict", f"{where} was changed by another writer", lasting=True
    )
    assert report == UploadReport(0, 0, 0, (conflict,))
    assert not report.complete
    assert heard == [conflict]
    assert store.get(DOC) == b"first"
    first.document(DOC, b"first, newer")
    assert first.close(PATIENCE_S).complete
    assert store.get(DOC) == b"first, newer"


def test_a_document_in_lasting_trouble_is_not_tried_again(gated: Gated) -> None:
    gated.gate.set()
    gated.put(DOC, b"theirs", previous=None)
    uploader = Uploader(gated, limits=QUICK)
    uploader.document(DOC, b"ours")
    assert not uploader.flush(PATIENCE_S).complete
    gated.tried.clear()
    uploader.document(DOC, b"ours, newer")
    uploader.document("t/other", b"other")
    report = uploader.close(PATIENCE_S)
    assert [trouble.rule for trouble in report.troubles] == ["artifact.conflict"]
    assert gated.tried == ["t/other"]
    assert gated.get(DOC) == b"theirs"


def test_who_continues_adopts_what_is_there(store: ArtifactStore, tmp_path: Path) -> None:
    before = Uploader(store, limits=QUICK)
    before.document(DOC, b"first")
    before.piece("t/bundles/1", b"one")
    before.close(PATIENCE_S)
    after = Uploader(store, adopt=True, limits=QUICK)
    after.document(DOC, b"second")
    after.piece("t/bundles/1", b"one, again")
    after.piece("t/bundles/2", b"two")
    assert after.close(PATIENCE_S) == UploadReport(3, 0, 0, ())
    assert store.get(DOC) == b"second"
    assert store.get("t/bundles/1") == b"one, again"


def test_who_knows_the_version_continues_from_it_and_from_nothing_else(
    store: ArtifactStore,
) -> None:
    before = Uploader(store, limits=QUICK)
    before.document(DOC, b"first")
    before.close(PATIENCE_S)
    known = before.versions()
    assert known == {DOC: store.head(DOC)}
    store.put(DOC, b"somebody else's", previous=known[DOC])
    after = Uploader(store, known=known, limits=QUICK)
    after.document(DOC, b"second")
    assert [t.rule for t in after.close(PATIENCE_S).troubles] == ["artifact.conflict"]
    assert store.get(DOC) == b"somebody else's"


def test_handing_over_does_not_wait_for_the_store(gated: Gated, tmp_path: Path) -> None:
    file = tmp_path / "piece"
    file.write_bytes(b"x")
    uploader = Uploader(gated, limits=QUICK)
    uploader.document(DOC, b"0")
    assert gated.entered.wait(PATIENCE_S)
    started = time.monotonic()
    for number in range(1000):
        uploader.document(DOC, b"%d" % number)
        uploader.piece(f"t/bundles/{number:04}", file)
    assert time.monotonic() - started < PATIENCE_S  # two thousand times; the store has not moved
    status = uploader.status()
    assert (status.uploaded, status.waiting) == (0, 1001)
    assert uploader.flush(0.01) == status
    gated.gate.set()
    # Of a thousand states of the document the first, which was on its way, and the last went up.
    assert uploader.close(PATIENCE_S) == UploadReport(1002, 0, 0, ())
    assert gated.get(DOC) == b"999"
    assert gated.order.count(DOC) == 2


def test_pieces_go_up_before_documents(gated: Gated) -> None:
    uploader = Uploader(gated, limits=QUICK)
    uploader.piece("t/bundles/1", b"1")
    assert gated.entered.wait(PATIENCE_S)
    uploader.document(DOC, b"doc")
    uploader.piece("t/bundles/2", b"2")
    gated.gate.set()
    assert uploader.close(PATIENCE_S).complete
    assert gated.order == ["t/bundles/1", "t/bundles/2", DOC]


def test_pieces_go_up_in_order_whatever_fails(gated: Gated) -> None:
    uploader = Uploader(gated, limits=QUICK)
    uploader.piece("t/bundles/1", b"1")
    assert gated.entered.wait(PATIENCE_S)
    uploader.document(DOC, b"doc")
    for number in range(2, 30):
        uploader.piece(f"t/bundles/{number}", b"%d" % number)
    gated.faults = [_down(), _down(), _down()]
    gated.gate.set()
    assert uploader.close(PATIENCE_S).complete
    assert [key for key in gated.order if key != DOC] == [f"t/bundles/{n}" for n in range(1, 30)]


def test_a_piece_that_cannot_be_kept_holds_back_those_after_it(gated: Gated) -> None:
    gated.gate.set()
    gated.put("t/bundles/2", b"another two", previous=None)
    gated.gate.clear()
    uploader = Uploader(gated, limits=QUICK)
    for number in (1, 2, 3):
        uploader.piece(f"t/bundles/{number}", b"%d" % number)
    uploader.document(DOC, b"doc")
    gated.gate.set()
    report = uploader.close(PATIENCE_S)
    assert (report.uploaded, report.waiting) == (2, 2)
    assert [(t.key, t.lasting) for t in report.troubles] == [("t/bundles/2", True)]
    assert gated.tried == ["t/bundles/2", "t/bundles/1", "t/bundles/2", DOC]
    assert not gated.exists("t/bundles/3")
    assert gated.get(DOC) == b"doc"


def test_trouble_that_passes_is_told_once_and_forgotten(
    gated: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[UploadTrouble] = []
    uploader = Uploader(gated, limits=QUICK, report=heard.append)
    gated.faults = [_down() for _ in range(5)]
    gated.gate.set()
    with caplog.at_level(logging.WARNING):
        uploader.document(DOC, b"doc")
        assert uploader.close(PATIENCE_S) == UploadReport(1, 5, 0, ())
    assert heard == [UploadTrouble(DOC, "artifact.network", "the store is down", lasting=False)]
    assert [record.message for record in caplog.records] == [
        "artifact not uploaded: the store is down"
    ]


def test_a_newer_state_takes_the_place_of_one_that_failed(gated: Gated) -> None:
    uploader = Uploader(gated, limits=QUICK)
    uploader.document(DOC, b"old")
    assert gated.entered.wait(PATIENCE_S)
    uploader.document(DOC, b"new")
    gated.faults = [_down()]
    gated.gate.set()
    assert uploader.close(PATIENCE_S) == UploadReport(1, 1, 0, ())
    assert gated.get(DOC) == b"new"


def test_a_store_that_stays_down_does_not_hold_the_end_up(gated: Gated) -> None:
    uploader = Uploader(gated, limits=UploaderLimits(first_wait_s=60, longest_wait_s=60))
    gated.faults = [_down() for _ in range(100)]
    gated.gate.set()
    uploader.document(DOC, b"doc")
    uploader.piece("t/bundles/1", b"1")
    assert gated.entered.wait(PATIENCE_S)
    report = uploader.close(0.3)
    assert (report.uploaded, report.waiting, report.complete) == (0, 2, False)
    assert {trouble.rule for trouble in report.troubles} == {"artifact.network"}


def test_a_flush_tries_at_once_what_would_have_waited(gated: Gated) -> None:
    waits = UploaderLimits(first_wait_s=3600, longest_wait_s=3600, document_interval_s=3600)
    heard = threading.Event()
    uploader = Uploader(gated, limits=waits, report=lambda _: heard.set())
    gated.faults = [_down()]
    gated.gate.set()
    uploader.document(DOC, b"1")
    assert heard.wait(PATIENCE_S)
    assert uploader.flush(PATIENCE_S).complete
    uploader.document(DOC, b"2")
    # A document that was just sent waits its while, but not at a flush.
    assert uploader.status().waiting == 1
    assert uploader.close(PATIENCE_S).complete
    assert gated.get(DOC) == b"2"


def test_a_flush_does_not_wait_between_two_states_of_a_document(gated: Gated) -> None:
    uploader = Uploader(gated, limits=UploaderLimits(document_interval_s=3600))
    uploader.document(DOC, b"1")
    assert gated.entered.wait(PATIENCE_S)
    uploader.document(DOC, b"2")
    reports: list[UploadReport] = []
    thread = threading.Thread(target=lambda: reports.append(uploader.flush(PATIENCE_S)))
    thread.start()
    until = time.monotonic() + PATIENCE_S
    while not uploader._flushing and time.monotonic() < until:
        time.sleep(0.001)
    gated.gate.set()
    thread.join()
    assert reports == [UploadReport(2, 0, 0, ())]
    assert gated.get(DOC) == b"2"


def test_what_a_document_is_made_of_is_asked_when_its_turn_comes(gated: Gated) -> None:
    state = [b"early"]
    uploader = Uploader(gated, limits=QUICK)
    uploader.piece("t/first", b"1")
    assert gated.entered.wait(PATIENCE_S)
    uploader.document(DOC, lambda: state[0])
    state[0] = b"late"
    gated.gate.set()
    assert uploader.close(PATIENCE_S).complete
    assert gated.get(DOC) == b"late"


def test_a_document_that_cannot_be_read_is_tried_again(gated: Gated, tmp_path: Path) -> None:
    gated.gate.set()
    left = [OSError(5, "not now"), OSError(5, "nor now")]

    def make() -> bytes:
        if left:
            raise left.pop()
        return b"made"

    uploader = Uploader(gated, limits=QUICK)
    uploader.document(DOC, make)
    late = tmp_path / "late"
    uploader.piece("t/bundles/1", late)
    uploader.flush(0.05)
    late.write_bytes(b"here")
    report = uploader.close(PATIENCE_S)
    assert report.complete
    assert (gated.get(DOC), gated.get("t/bundles/1")) == (b"made", b"here")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_ours_is_heard_of(gated: Gated) -> None:
    gated.gate.set()

    def broken() -> bytes:
        raise ZeroDivisionError

    uploader = Uploader(gated, limits=QUICK)
    uploader.document(DOC, broken)
    report = uploader.close(PATIENCE_S)
    assert report.troubles == (
        UploadTrouble(
            DOC, "artifact.uploader", "the uploads ended: ZeroDivisionError", lasting=True
        ),
    )


def test_what_must_not_be_handed_over_is_said_at_once(gated: Gated) -> None:
    uploader = Uploader(gated, limits=UploaderLimits(backlog=2))
    refused: list[Callable[[], None]] = [
        lambda: uploader.document("../x", b""),
        lambda: uploader.piece(".hidden", b""),
    ]
    for call in refused:
        with pytest.raises(PathRefused):
            call()
    uploader.piece("t/1", b"")
    uploader.piece("t/2", b"")
    with pytest.raises(EnvironmentFault) as full:
        uploader.piece("t/3", b"")
    assert full.value.rule == "artifact.backlog"
    gated.gate.set()
    assert uploader.close(PATIENCE_S).complete
    with pytest.raises(EnvironmentFault) as closed:
        uploader.piece("t/4", b"")
    assert closed.value.rule == "artifact.closed"


def test_an_uploader_that_got_nothing_ends_at_once(gated: Gated) -> None:
    assert Uploader(gated).close(PATIENCE_S) == UploadReport(0, 0, 0, ())


def test_a_server_that_is_busy_cuts_and_loses_answers_gets_everything_in_the_end() -> None:
    with going_wrong("busy", "cut", "lost", "damaged", "ok", "cut", "cut", "cut", "cut") as server:
        store = open_store("s3://bucket/p", server.environ())
        uploader = Uploader(store, limits=QUICK)
        for number in range(5):
            uploader.piece(f"t/bundles/{number}", b"piece %d" % number)
        uploader.document(DOC, b"doc")
        assert uploader.close(PATIENCE_S).complete
        assert {path: data for path, (_, data, _) in server.objects.items()} == {
            f"/bucket/p/t/bundles/{number}": b"piece %d" % number for number in range(5)
        } | {f"/bucket/p/{DOC}": b"doc"}


def test_a_real_server_gets_everything(store: ArtifactStore, tmp_path: Path) -> None:
    uploader = Uploader(store, limits=QUICK)
    for number in range(20):
        piece = tmp_path / f"{number}.bundle"
        piece.write_bytes(b"piece %d" % number)
        uploader.piece(f"t/bundles/{number:02}", piece)
        uploader.document(DOC, b"[%d]" % number)
    assert uploader.close(PATIENCE_S).complete
    assert store.get(DOC) == b"[19]"
    assert store.list("t/bundles") == tuple(
        ArtifactEntry(f"t/bundles/{number:02}", len(b"piece %d" % number)) for number in range(20)
    )
