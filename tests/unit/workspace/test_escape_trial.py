"""The trial of a sandbox: what it finds, and what it does not take for a proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coilclaw.kernel.errors import EnvironmentFault, ProcessFault
from coilclaw.workspace.process import command, escape_trial, landlock
from coilclaw.workspace.process.confinement import NO_SANDBOX, Kind, SandboxSupport
from coilclaw.workspace.process.escape_trial import TrialReport, try_to_escape
from tests.support.sandboxes import supported

NOT_HELD = ("change the mode of a file outside", "change the times of a file outside")


@pytest.mark.parametrize(("kind", "escaped"), [("bubblewrap", ()), ("landlock", NOT_HELD)])
def test_what_a_sandbox_stops_and_what_not(kind: Kind, escaped: tuple[str, ...]) -> None:
    support = supported(kind)
    if kind == "landlock" and (not support.seccomp or support.landlock_abi < landlock.ABI_SCOPE):
        pytest.skip("this kernel's Landlock holds less")
    report = try_to_escape(kind, support)
    assert report == TrialReport(kind, 11, escaped)
    assert report.as_promised


def test_without_a_sandbox_every_attempt_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a trial that stops nothing would prove a sandbox that holds nothing."""
    run = command.run
    monkeypatch.setattr(
        command, "run", lambda *args, **rest: run(*args, **{**rest, "sandbox": NO_SANDBOX})
    )
    report = try_to_escape("bubblewrap", supported("bubblewrap"))
    # Not every file system has extended attributes.
    assert set(escape_trial._ATTEMPTS.values()) - set(report.escaped) <= {
        escape_trial._ATTEMPTS["xattr"]
    }
    assert not report.as_promised


def test_a_landlock_that_holds_less_than_it_should_is_not_as_promised() -> None:
    assert TrialReport("landlock", 11, NOT_HELD[:1]).as_promised
    assert not TrialReport("landlock", 11, (*NOT_HELD, "read a file outside")).as_promised
    assert not TrialReport("bubblewrap", 11, NOT_HELD).as_promised


def test_a_sandbox_that_is_missing_is_not_proved() -> None:
    with pytest.raises(EnvironmentFault):
        try_to_escape("bubblewrap", SandboxSupport())


def test_a_child_that_could_not_run_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    support = replace(supported("bubblewrap"))
    monkeypatch.setattr(escape_trial, "_CHILD", "print('[]')")
    with pytest.raises(ProcessFault, match="did not run"):
        try_to_escape("bubblewrap", support)
