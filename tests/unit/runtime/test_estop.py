from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.agent.estop import Estop
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.children import PATIENCE_S


def is_set(estop: Estop) -> bool:
    """Ask anew each time, which the type checker cannot know of a property."""
    return estop.set


def test_it_is_a_file_in_the_home(tmp_path: Path) -> None:
    estop = Estop.of(tmp_path / "new")
    assert not is_set(estop)
    estop.trigger("because")
    assert estop.path == tmp_path / "new" / "ESTOP"
    assert estop.path.read_text() == "because\n"
    assert is_set(estop)
    assert estop.clear()
    assert not is_set(estop)
    assert not estop.clear()


@pytest.mark.parametrize("what", ["directory", "dangling link", "fifo"])
def test_whatever_stands_there_means_stop(tmp_path: Path, what: str) -> None:
    import os

    place = tmp_path / "ESTOP"
    if what == "directory":
        place.mkdir()
    elif what == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("nowhere")
    assert Estop.of(tmp_path).set


def test_watching_cancels_when_it_is_set(tmp_path: Path) -> None:
    estop = Estop.of(tmp_path)
    cancel = Cancellation()
    with estop.watch_call(cancel, 600):
        assert not cancel.cancelled
        estop.trigger("now")
        _wait(cancel)
    assert cancel.reason == "the emergency stop is set"


def test_watching_cancels_when_the_time_is_up(tmp_path: Path) -> None:
    cancel = Cancellation()
    with Estop.of(tmp_path).watch_call(cancel, 0.05):
        _wait(cancel)
    assert cancel.reason == "the tool took longer than 0.05 s"


def test_watching_ends_with_its_block(tmp_path: Path) -> None:
    import threading

    before = threading.active_count()
    cancel = Cancellation()
    with Estop.of(tmp_path).watch_call(cancel, 600):
        pass
    Estop.of(tmp_path).trigger("too late")
    assert not cancel.cancelled
    assert threading.active_count() == before


def _wait(cancel: Cancellation) -> None:
    import time

    deadline = time.monotonic() + PATIENCE_S
    while not cancel.cancelled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cancel.cancelled


def test_a_full_disk_does_not_keep_it_from_being_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coilclaw.agent import estop as module

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_atomic", full)
    estop = Estop.of(tmp_path)
    estop.trigger("now")
    assert is_set(estop)
