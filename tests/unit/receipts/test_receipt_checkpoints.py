"""Histories of receipts that do not extend a checkpoint, found by us and without us."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.agent.receipts.book import ReceiptBook, intents_path
from coilclaw.agent.receipts.verification import find_departures, take_checkpoint, verify
from coilclaw.kernel import checkpoint
from coilclaw.kernel.checkpoint import Checkpoint, parse_checkpoints, render_checkpoint
from coilclaw.kernel.errors import UsageError
from tests.unit.receipts.test_receipts import CONTRIB, fill, gone, intent, receipt

NOW = "2026-01-01T00:00:00.000000Z"


class Place:
    """A log, and what was kept of it elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key = checkpoint.create_key(root / "signing.key")
        self.pem = root / "public.pem"
        self.pem.write_bytes(self.key.public.pem())
        self.file = root / "checkpoints"
        self.logs = root / "log"

    def book(self) -> ReceiptBook:
        book = ReceiptBook(self.logs / "receipts.log", key_path=self.root / "keys" / "k")
        book.create()
        return book

    def keep(self, *, sign: bool = True) -> Checkpoint:
        with self.book() as book:
            taken = take_checkpoint(book, NOW)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(render_checkpoint(taken, self.key if sign else None))
        return taken

    def departures(self) -> tuple[str, ...]:
        notes = parse_checkpoints(self.file.read_text(encoding="utf-8"))
        return find_departures(self.book(), (one.checkpoint for one in notes))

    def without_us(self, *options: object) -> subprocess.CompletedProcess[str]:
        book = self.book()
        argv = [sys.executable, "-I", CONTRIB, book.path, intents_path(book.path)]
        argv += ["--checkpoint", self.file, *options]
        return subprocess.run(
            list(map(str, argv)), capture_output=True, text=True, check=False, encoding="utf-8"
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def add(place: Place, *numbers: int) -> None:
    with place.book() as book:
        for number in numbers:
            book.add(receipt(number, book.intend(intent(number))))


def test_a_history_that_grew_extends_each_checkpoint(place: Place) -> None:
    add(place, 1, 2)
    place.keep()
    add(place, 3)
    place.keep(sign=False)
    assert place.keep().size == 3
    add(place, 4)
    assert place.departures() == ()
    done = place.without_us()
    assert (done.returncode, done.stdout) == (0, "valid: 4 receipts, as 3 checkpoints say\n")


def roll_back(place: Place) -> None:
    shutil.rmtree(place.logs)
    shutil.copytree(place.root / "older", place.logs)


def fork(place: Place) -> None:
    roll_back(place)
    add(place, 7, 8)


def rewrite(place: Place) -> None:
    shutil.rmtree(place.logs)
    add(place, 11, 12, 13)


def wipe(place: Place) -> None:
    shutil.rmtree(place.logs)
    for log in (place.book().path, intents_path(place.book().path)):
        log.touch()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (roll_back, "rolled back"),
        (fork, "forked or rewritten"),
        (rewrite, "another log"),
        (wipe, "rolled back"),
    ],
)
def test_another_history_is_found_though_it_verifies(
    place: Place, change: Callable[[Place], None], said: str
) -> None:
    add(place, 1)
    place.book().close()
    shutil.copytree(place.logs, place.root / "older")
    add(place, 2, 3)
    place.keep()
    change(place)
    assert verify(place.book(), gone).ok
    assert said in place.departures()[0]
    done = place.without_us()
    assert done.returncode == 1
    assert said in done.stderr


def test_a_history_that_lost_an_intent_is_found(place: Place) -> None:
    add(place, 1, 2)
    with place.book() as book:
        book.intend(intent(3))
    place.keep()
    log = intents_path(place.book().path)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))
    assert place.departures() == (
        f"there are 2 intents, and the checkpoint of {NOW} says 3: the log was rolled back",
    )
    assert "there are only 2 intents: rolled back" in place.without_us().stderr


def test_an_empty_log_has_no_checkpoint(place: Place) -> None:
    with pytest.raises(UsageError) as caught:
        take_checkpoint(place.book(), NOW)
    assert caught.value.rule == "checkpoint.empty"


def test_without_us_a_key_must_have_signed(place: Place, tmp_path: Path) -> None:
    add(place, 1)
    place.keep()
    assert place.without_us("--key", place.pem).returncode == 0
    other = tmp_path / "other.pem"
    other.write_bytes(checkpoint.create_key(tmp_path / "other").public.pem())
    assert "was not signed by the key" in place.without_us("--key", other).stderr
    place.file.write_text(place.file.read_text().replace(NOW, NOW.replace("2026", "2027")))
    assert place.without_us("--key", place.pem).returncode == 1
    place.file.unlink()
    place.keep(sign=False)
    assert place.without_us().returncode == 0
    assert place.without_us("--key", place.pem).returncode == 1


def test_without_us_what_is_no_checkpoint_is_wrong_usage(place: Place) -> None:
    add(place, 1)
    place.file.write_text("nonsense\n")
    done = place.without_us()
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize("size", ["x", "\u0661", "-1"])
def test_without_us_as_with_us_unreadable_intents_do_not_hold(place: Place, size: str) -> None:
    add(place, 1)
    place.keep(sign=False)
    kept = place.file.read_text(encoding="utf-8")
    assert place.without_us().returncode == 0
    place.file.write_text(kept.replace("\nintents 1 ", f"\nintents {size} "), encoding="utf-8")
    assert "has an unreadable line about intents" in "".join(place.departures())
    done = place.without_us()
    assert (done.returncode, "nothing readable about intents" in done.stderr) == (1, True)


def test_without_us_a_hash_has_its_whole_length(place: Place) -> None:
    add(place, 1)
    origin = place.keep(sign=False).origin
    place.file.write_text(f"{origin}\n1\nAAAA\n\n", encoding="utf-8")
    assert place.without_us().returncode == 2


def test_without_us_a_mark_shows_that_receipts_are_missing(tmp_path: Path) -> None:
    keys = tmp_path / "keys" / "k"
    with ReceiptBook(tmp_path / "log" / "receipts.log", key_path=keys, marked=True) as book:
        book.create()
        fill(book, 2)
    marks = sorted(keys.parent.glob("*.mark"))
    options = ["--intents-mark", marks[0], "--mark", marks[1]]
    argv = [sys.executable, "-I", CONTRIB, book.path, intents_path(book.path), *options]
    words = list(map(str, argv))
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    shutil.rmtree(book.path.parent)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "receipts are missing" in done.stderr) == (1, True)
