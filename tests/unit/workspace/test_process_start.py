"""What is refused before a process starts, how its program is found, and what it is born with."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import ProcessFault, UsageError
from coilclaw.workspace.process import command
from coilclaw.workspace.process.environment import DEFAULT_PATH, MAX_NESTED_TAGS
from tests.support.children import PATIENCE_S, open_fds

Starter = Callable[..., Any]


@pytest.fixture(params=["run", "open"])
def begin(request: pytest.FixtureRequest) -> Starter:
    return command.run if request.param == "run" else command.open


def script(path: Path, text: str = "#!/bin/sh\necho found\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("echo hi", "A process is started from a list of arguments, not from one string."),
        (b"echo hi", "A process is started from a list of arguments, not from one string."),
        ([], "The program to start is not named."),
        ([""], "The program to start is not named."),
        (["echo", "a\0b"], "Argument 1 holds a NUL or a character that has no bytes."),
        ([b"echo", b"\0"], "Argument 1 holds a NUL or a character that has no bytes."),
        (["echo", "a", "\ud800"], "Argument 2 holds a NUL or a character that has no bytes."),
    ],
)
def test_what_is_no_argv_is_refused(
    begin: Starter, tmp_path: Path, argv: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        begin(argv, cwd=tmp_path, timeout_s=PATIENCE_S)
    assert (caught.value.message, caught.value.rule) == (message, "process.argv")


@pytest.mark.parametrize("timeout_s", [0, -1, math.inf, math.nan])
def test_a_time_limit_is_positive_and_finite(
    begin: Starter, tmp_path: Path, timeout_s: float
) -> None:
    with pytest.raises(UsageError) as caught:
        begin(["true"], cwd=tmp_path, timeout_s=timeout_s)
    assert caught.value.rule == "process.timeout"


def test_a_time_limit_is_required(begin: Starter, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="timeout_s"):
        begin(["true"], cwd=tmp_path)


def test_the_directory_to_run_in_has_to_be_one(begin: Starter, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cwd in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(UsageError) as caught:
            begin(["true"], cwd=cwd, timeout_s=PATIENCE_S)
        assert caught.value.rule == "process.cwd"


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": "b\0c"}, {"A\0": "b"}])
def test_what_is_no_environment_is_refused(
    begin: Starter, tmp_path: Path, env: dict[str, str]
) -> None:
    with pytest.raises(UsageError) as caught:
        begin(["true"], cwd=tmp_path, timeout_s=PATIENCE_S, env=env)
    assert caught.value.rule == "process.env"


def test_a_negative_output_limit_is_refused(begin: Starter, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        begin(["true"], cwd=tmp_path, timeout_s=PATIENCE_S, limit_bytes=-1)
    assert caught.value.rule == "process.limit"


def test_a_program_that_is_missing_is_named(begin: Starter, tmp_path: Path) -> None:
    before = open_fds()
    with pytest.raises(ProcessFault) as caught:
        begin(
            ["no-such-program"], cwd=tmp_path, timeout_s=PATIENCE_S, env={"PATH": "/usr/bin:/bin"}
        )
    assert (caught.value.message, caught.value.rule, caught.value.hint) == (
        "The program 'no-such-program' was not found.",
        "process.not_found",
        "Looked in /usr/bin:/bin.",
    )
    assert open_fds() == before


def test_a_program_that_may_not_be_executed_is_named(begin: Starter, tmp_path: Path) -> None:
    plain = script(tmp_path / "plain", mode=0o644)
    with pytest.raises(ProcessFault) as caught:
        begin([str(plain)], cwd=tmp_path, timeout_s=PATIENCE_S)
    assert (caught.value.message, caught.value.rule) == (
        f"The program {str(plain)!r} is not executable.",
        "process.not_executable",
    )
    with pytest.raises(ProcessFault):
        begin([str(tmp_path)], cwd=tmp_path, timeout_s=PATIENCE_S)


def test_a_program_that_the_kernel_refuses_is_named(begin: Starter, tmp_path: Path) -> None:
    odd = script(tmp_path / "odd", "no interpreter line\n")
    before = open_fds()
    with pytest.raises(ProcessFault) as caught:
        begin([str(odd)], cwd=tmp_path, timeout_s=PATIENCE_S)
    assert (caught.value.message, caught.value.rule) == (
        f"The program {str(odd)!r} could not be started: Exec format error.",
        "process.start",
    )
    assert open_fds() == before


def test_a_program_is_looked_up_in_the_childs_path_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "ours" / "prog")
    script(tmp_path / "theirs" / "tool")
    monkeypatch.setenv("PATH", f"{tmp_path / 'ours'}:{DEFAULT_PATH}")
    env = {"PATH": f"{tmp_path / 'theirs'}:/bin"}
    with pytest.raises(ProcessFault):
        command.run(["prog"], cwd=tmp_path, timeout_s=PATIENCE_S, env=env)
    assert (
        command.run(["tool"], cwd=tmp_path, timeout_s=PATIENCE_S, env=env).stdout.data == b"found\n"
    )
    assert command.run(["prog"], cwd=tmp_path, timeout_s=PATIENCE_S).stdout.data == b"found\n"


@pytest.mark.parametrize("path", [".", "", "bin", ":/nowhere", "./bin:bin/"])
def test_a_program_is_never_taken_from_the_working_directory(tmp_path: Path, path: str) -> None:
    script(tmp_path / "prog")
    script(tmp_path / "bin" / "prog")
    with pytest.raises(ProcessFault) as caught:
        command.run(["prog"], cwd=tmp_path, timeout_s=PATIENCE_S, env={"PATH": path})
    assert caught.value.rule == "process.not_found"


def test_a_program_with_a_slash_is_taken_from_the_working_directory(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "prog")
    result = command.run(["bin/prog"], cwd=tmp_path, timeout_s=PATIENCE_S, env={})
    assert result.stdout.data == b"found\n"


def test_an_unusable_entry_of_the_path_does_not_hide_a_later_one(tmp_path: Path) -> None:
    script(tmp_path / "first" / "prog", mode=0o644)
    script(tmp_path / "second" / "prog")
    env = {"PATH": f"{tmp_path / 'first'}:{tmp_path / 'second'}:/bin"}
    assert (
        command.run(["prog"], cwd=tmp_path, timeout_s=PATIENCE_S, env=env).stdout.data == b"found\n"
    )


def test_arguments_arrive_as_they_were_given(tmp_path: Path) -> None:
    argv: list[str | bytes] = ["printf", "%s|", "a b", "$HOME", "*", "", "é", b"\xff\xfe", ";id"]
    result = command.run(argv, cwd=tmp_path, timeout_s=PATIENCE_S)
    assert result.stdout.data == "a b|$HOME|*||é|".encode() + b"\xff\xfe|;id|"
    assert result.argv == tuple(argv)


def test_it_runs_in_the_directory_named(tmp_path: Path) -> None:
    result = command.run(["pwd"], cwd=str(tmp_path), timeout_s=PATIENCE_S)
    assert result.stdout.text() == f"{tmp_path.resolve()}\n"


def environment_of(tmp_path: Path, **kwargs: Any) -> dict[str, str]:
    result = command.run(["/usr/bin/env", "-0"], cwd=tmp_path, timeout_s=PATIENCE_S, **kwargs)
    pairs = (entry.partition("=") for entry in result.stdout.text().split("\0") if entry)
    return {name: value for name, _, value in pairs}


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TZ", "TMPDIR", "COILCLAW_PROCESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CANARY_API_KEY", "secret-canary")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/canary")
    monkeypatch.setenv("PYTHONPATH", "/canary")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def test_the_environment_is_minimal(tmp_path: Path, canary: None) -> None:
    found = environment_of(tmp_path)
    tag = found.pop("COILCLAW_PROCESS")
    assert len(tag.rpartition(".")[2]) == 32
    assert found == {"PATH": "/usr/bin:/bin", "HOME": "/home/somebody", "LANG": "C.UTF-8"}


def test_time_zone_and_temporary_directory_are_kept(
    tmp_path: Path, canary: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    found = environment_of(tmp_path)
    assert (found["TZ"], found["TMPDIR"]) == ("Asia/Tokyo", "/var/tmp")


@pytest.mark.parametrize("path", ["/usr/bin:.", "/usr/bin:", ":/usr/bin", "bin", ""])
def test_a_path_with_a_relative_entry_is_replaced(
    tmp_path: Path, canary: None, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PATH", path)
    assert environment_of(tmp_path)["PATH"] == DEFAULT_PATH


def test_the_callers_environment_replaces_all_of_it(tmp_path: Path, canary: None) -> None:
    found = environment_of(tmp_path, env={"ONLY": "this", "COILCLAW_PROCESS": "mine"})
    tag = found.pop("COILCLAW_PROCESS")
    assert found == {"ONLY": "this"}
    assert tag != "mine"


def test_runs_within_runs_carry_the_tags_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COILCLAW_PROCESS", "outer:inner")
    tags = environment_of(tmp_path)["COILCLAW_PROCESS"].split(":")
    assert tags[:2] == ["outer", "inner"]
    assert len(tags) == 3
    monkeypatch.setenv("COILCLAW_PROCESS", ":".join(["x"] * 50))
    assert environment_of(tmp_path)["COILCLAW_PROCESS"].count(":") == MAX_NESTED_TAGS - 1


def test_two_runs_have_different_tags(tmp_path: Path) -> None:
    first, second = environment_of(tmp_path), environment_of(tmp_path)
    assert first["COILCLAW_PROCESS"] != second["COILCLAW_PROCESS"]


def test_no_file_descriptor_leaks_into_the_child(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    fd = os.open(secret, os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        result = command.run(["ls", "/proc/self/fd"], cwd=tmp_path, timeout_s=PATIENCE_S)
        # The last one is the listing itself.
        assert result.stdout.text().split() == ["0", "1", "2", "3"]
        assert (
            command.run(
                ["cat", f"/proc/self/fd/{fd}"], cwd=tmp_path, timeout_s=PATIENCE_S
            ).exit_code
            == 1
        )
    finally:
        os.close(fd)


def test_it_leads_a_session_of_its_own_without_a_terminal(tmp_path: Path) -> None:
    result = command.run(
        ["sh", "-c", "cut -d' ' -f1,5,6,7 /proc/$$/stat; echo $$"],
        cwd=tmp_path,
        timeout_s=PATIENCE_S,
    )
    stat, pid = result.stdout.text().splitlines()
    assert stat.split() == [pid, pid, pid, "0"]
