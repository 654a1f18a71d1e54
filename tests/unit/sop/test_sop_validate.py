"""Validation: every problem in one pass, with its line, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.agent.sop.document import MAX_BYTES, MAX_STAGES, OnFailure
from coilclaw.kernel.errors import UsageError
from tests.support.sops import SopHome

TOP_KEYS = "name, description, on_failure, inputs, steps"
LIST = '[[steps]]\nid = "list"\nkind = "tool"\ntool = "file_list"\nargs = { path = "." }\n'


@pytest.fixture
def home(tmp_path: Path) -> SopHome:
    return SopHome.make(tmp_path)


def problems(home: SopHome, text: str) -> list[tuple[int | None, str, str]]:
    home.write("probe", text)
    with home.sops() as sops:
        (found,) = sops.examine("probe")
    return [(problem.line, problem.key, problem.message) for problem in found.problems]


def stage(**fields: str) -> str:
    lines = "\n".join(f"{key} = {value}" for key, value in fields.items())
    return f"[[steps]]\n{lines}\n"


def test_all_problems_are_told_at_once_with_their_lines(home: SopHome) -> None:
    text = (
        'on_failur = "abort"\n'  # line 2: the helper puts the name in front
        + LIST
        + stage(id='"list"', kind='"tol"')
        + stage(id='"bad id"', kind='"agent"')
        + stage(id='"write"', kind='"tool"', tool='"file_wirte"', args="{}")
        + stage(
            id='"w2"',
            kind='"tool"',
            tool='"file_write"',
            args='{ path = 7, content_from = "w3" }',
            when='"later.success"',
            on_failure='"retry(0)"',
        )
        + stage(id='"w3"', kind='"approval"', prompt='"{{w3.output}} {{x}}"', on_failure='"abort"')
    )
    assert problems(home, text) == [
        (
            2,
            "on_failur",
            f"is not a known key; did you mean 'on_failure'? (allowed: {TOP_KEYS})",
        ),
        (9, "steps[1].id", "'list' is already the id of stage 1"),
        (
            10,
            "steps[1].kind",
            "is 'tol'; did you mean 'tool'? (allowed: tool, agent, approval)",
        ),
        (11, "steps[2].prompt", "is missing"),
        (12, "steps[2].id", "'bad id' is not an id: a letter, then letters, digits, '_' and '-'"),
        (17, "steps[3].tool", "unknown tool 'file_wirte'; did you mean 'file_write'?"),
        (23, "steps[4].args.content_from", "'w3' does not come before this stage"),
        (23, "steps[4].args.path", '/path: the value is not of type "string"'),
        (24, "steps[4].when", "unknown earlier stage 'later'"),
        (25, "steps[4].on_failure", "'retry(0)' is none of abort, continue, retry(1) … retry(10)"),
        (29, "steps[5].prompt", "'w3' does not come before this stage"),
        (29, "steps[5].prompt", "{{x}} is not a known reference; write {{STAGE.output}}"),
        (30, "steps[5].on_failure", "does not belong to the kind 'approval'"),
    ]


@pytest.mark.parametrize(
    ("text", "key", "part"),
    [
        ("", "steps", "the SOP has no stages"),
        ("steps = 3\n", "steps", "the SOP has no stages"),
        ("steps = [1]\n", "steps[0]", "must be a table"),
        ("[[steps]]\n" * (MAX_STAGES + 1), "steps", "the maximum is"),
        (stage(kind='"agent"', prompt='"x"'), "steps[0].id", "is missing"),
        (stage(id="3", kind='"agent"', prompt='"x"'), "steps[0].id", "must be a string"),
        (stage(id='"a"', kind='"agent"', prompt='""'), "steps[0].prompt", "is empty"),
        (stage(id='"a"', kind='"agent"', prompt='"x"', tool='"time"'), "steps[0].tool", "belong"),
        (stage(id='"a"', kind='"tool"'), "steps[0].tool", "is missing"),
        (
            stage(id='"a"', kind='"tool"', tool='"time"', args="3"),
            "steps[0].args",
            "must be a table",
        ),
        (
            stage(id='"a"', kind='"tool"', tool='"time"', args="{ at = 2020-01-01 }"),
            "steps[0].args",
            "JSON cannot express",
        ),
        (
            stage(id='"a"', kind='"tool"', tool='"file_read"', args="{ pth = 'x' }"),
            "steps[0].args",
            "unknown argument",
        ),
        (
            LIST
            + stage(
                id='"a"',
                kind='"tool"',
                tool='"file_write"',
                args='{ path = "x", content = "y", content_from = "list" }',
            ),
            "steps[1].args.content_from",
            "conflicts with",
        ),
        (
            LIST
            + stage(
                id='"a"',
                kind='"tool"',
                tool='"file_read"',
                args='{ path = "x", offset_from = "list" }',
            ),
            "steps[1].args",
            "/offset: ",
        ),
        (stage(id='"a"', kind='"agent"', prompt='"x"', when='"a.success"'), "steps[0].when", "a"),
    ],
)
def test_what_is_wrong_is_told(home: SopHome, text: str, key: str, part: str) -> None:
    found = problems(home, text)
    assert [True for _, where, said in found if where == key and part in said], found


def test_a_tool_that_the_channel_does_not_allow_is_a_problem(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path, '[channels.cli]\ntools_allow = ["time"]\n')
    assert problems(home, LIST) == [
        (5, "steps[0].tool", "file_list is not in channels.cli.tools_allow")
    ]


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"\xff", "UTF-8"),
        (b"name = \n", "is not valid TOML"),
        (b"a" + b".a" * 2000 + b" = 1\n", "dots"),
        (b"#" * (MAX_BYTES + 1), "larger than"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, ""),
    ],
)
def test_a_file_that_is_no_sop_is_one_problem(home: SopHome, data: bytes, part: str) -> None:
    home.write("probe", "").write_bytes(data)
    with home.sops() as sops:
        (found,) = sops.examine()
    (problem, *_) = found.problems
    assert part in problem.message


def test_the_name_is_that_of_the_folder(home: SopHome) -> None:
    home.write("probe", LIST).write_text('name = "other"\n' + LIST)
    with home.sops() as sops:
        (found,) = sops.examine()
    assert [problem.message for problem in found.problems] == [
        "is 'other', but its folder is named 'probe'"
    ]


def test_the_neighbours_are_valid(home: SopHome) -> None:
    home.write(
        "probe",
        'description = "d"\non_failure = "retry(3)"\n'
        + LIST
        + stage(id='"say"', kind='"agent"', prompt='"of {{list.output}}"', on_failure='"abort"')
        + stage(
            id='"write"',
            kind='"tool"',
            tool='"file_write"',
            args='{ path = "a", content_from = "list" }',
            when="\"say.success and list.output contains 'x'\"",
            on_failure='"retry( 10 )"',
        )
        + stage(id='"ask"', kind='"approval"', prompt='"go on with {{ say.output }}?"'),
    )
    with home.sops() as sops:
        (found,) = sops.examine("probe")
    assert found.problems == ()
    assert found.stages == (
        ("list", "tool"),
        ("say", "agent"),
        ("write", "tool"),
        ("ask", "approval"),
    )
    assert str(OnFailure("retry", 3)) == "retry(3)"


def test_a_name_in_both_folders_is_an_error(home: SopHome) -> None:
    home.write("probe", LIST)
    home.write("probe", LIST, in_workspace=True)
    home.write("mine", LIST, in_workspace=True)
    with home.sops() as sops:
        mine, probe = sops.examine()
        assert (mine.name, mine.problems) == ("mine", ())
        assert "exists twice" in probe.problems[0].message
        with pytest.raises(UsageError) as caught:
            sops.run("probe")
    assert caught.value.rule == "sop.ambiguous"
    assert home.agent.records() == []


@pytest.mark.parametrize("name", ["gone", "../probe", "prob", ""])
def test_a_sop_that_is_not_there_is_an_error(home: SopHome, name: str) -> None:
    home.write("probe", LIST)
    with home.sops() as sops, pytest.raises(UsageError) as caught:
        sops.run(name)
    assert caught.value.rule == "sop.unknown"


def test_nothing_runs_of_a_sop_that_is_wrong_at_its_end(home: SopHome) -> None:
    home.write("probe", LIST + stage(id='"x"', kind='"tool"', tool='"nothing"'))
    with pytest.raises(UsageError) as caught:
        home.run("probe")
    assert caught.value.rule == "sop.invalid"
    assert home.agent.records() == []
    assert not (home.agent.home / "sops").exists()


def test_a_pipe_in_the_place_of_the_file_does_not_make_us_wait(home: SopHome) -> None:
    import os

    path = home.write("probe", LIST)
    path.unlink()
    os.mkfifo(path)
    with home.sops() as sops:
        (found,) = sops.examine()
    assert "not a regular file" in found.problems[0].message
