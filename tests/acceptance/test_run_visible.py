"""What ``run`` shows while an agent works, and what it says when something failed."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from tests.support.children import PATIENCE_S
from tests.support.runcommands import Coilclaw, Done
from tests.support.runs import ADDS, CALC, FILES, opened

STATES = re.compile(r"S[0-6]_[A-Z]+|STATE_TRANSITION")
SECRET = "sk-canary-0123456789abcdef0123456789abcdef"
WRONG = {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}
CHECK = (
    "import os, sys\n\nsys.path.insert(0, '.')\nfrom pkg.calc import add\n\n"
    "for number in range(50):\n    print('line', number)\n"
    "print('\\x1b[31mcoloured\\x1b[0m \\x1b]0;title\\x07end')\n"
    "print('wide' * 1000)\n"
    "print('working 1%\\rworking 100%')\n"
    f"print('key', '{SECRET}')\n"
    "print('back \\x08\\x0b.', file=sys.stderr)\n"
    "assert add(1, 2) == 3, 'add does not add'\n"
)
PROGRAM = (
    "import json, pathlib, sys\n"
    "contract = json.load(sys.stdin)\n"
    "print('looking \\x1b[2Jaround', file=sys.stderr, flush=True)\n"
    "try:\n    open('/etc/coilclaw-was-here', 'w')\n"
    "except OSError as problem:\n    print(problem, file=sys.stderr)\n"
    "pathlib.Path('pkg/calc.py').write_text('def add(a, b):\\n    return a + b\\n')\n"
    "print(json.dumps({'task_id': contract['task_id'], 'status': 'SUCCESS',"
    " 'summary': 'It adds.', 'evidence_refs': {}, 'failure': None}))\n"
)


@pytest.fixture
def coilclaw() -> Iterator[Coilclaw]:
    with opened() as made:
        yield Coilclaw(made)


@pytest.fixture(scope="module")
def failed() -> Iterator[tuple[Coilclaw, Done]]:
    """A run whose test failed and wrote what it should not; tests only look at it."""
    with opened({**FILES, "tests/check_calc.py": CHECK.encode()}) as made:
        coilclaw = Coilclaw(made)
        (made.home / "config.toml").write_text(
            'default_provider = "one"\n[providers.models.one]\nkind = "openai-compatible"\n'
            'model = "m"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "KEY"\n'
        )
        made.environ["KEY"] = SECRET
        contract = coilclaw.keep(made.contract(max_retries=0))
        done = coilclaw("run", contract, "--runner", made.script([{"write": WRONG}]))
        assert done.code == 1, done.out + done.err
        yield coilclaw, done


def test_a_failed_command_shows_the_end_of_what_it_wrote(failed: tuple[Coilclaw, Done]) -> None:
    coilclaw, done = failed
    shown = coilclaw("runs", "show", "last")
    for out in (done.out, shown.out):
        assert "AssertionError: add does not add" in out
        assert "  | line 34\n" in out
        assert "  | coloured end\n" in out
        assert "  | line 33\n" not in out  # the twenty-first from the end
        assert "  | working 100%\n" in out
        assert r"back \x08\x0b" in out
        assert max(map(len, out.splitlines())) < 400
        assert not set("\x1b\x07\x08\r") & set(out)
        assert SECRET not in out
        assert "001-acceptance-1.stdout.log" in out
        assert "tests_gate" in out
        assert "tests.failed: 'acceptance-1' ended with exit code 1" in out
    assert STATES.search(done.out) is None


def test_the_next_command_works_when_it_is_pasted(failed: tuple[Coilclaw, Done]) -> None:
    coilclaw, done = failed
    for out, words in (
        (done.out, ["runs", "show"]),
        (coilclaw("runs", "show", "last").out, ["runs", "log"]),
    ):
        *_, last = out.splitlines()
        label, program, *arguments = last.split()
        assert (label, program, arguments[:2]) == ("next", "coilclaw", words)
        assert coilclaw(*arguments).code == 0
    log = coilclaw("runs", "log", "last")
    assert "line 0\n" in log.out
    assert SECRET not in log.out
    elsewhere = coilclaw(
        "runs", "show", "last", "--repo", str(coilclaw.world.repo), cwd=coilclaw.world.root
    )
    assert elsewhere.out.splitlines()[-1].endswith(f"--repo {coilclaw.world.repo}")


def test_machines_get_the_failure_as_fields(failed: tuple[Coilclaw, Done]) -> None:
    coilclaw, _ = failed
    shown = coilclaw("runs", "show", "last", "--json").json
    (command,) = shown["failed_commands"]
    assert (command["name"], command["where"], command["exit_code"]) == (
        "acceptance-1",
        "candidate",
        1,
    )
    assert command["argv"] == CALC.split()
    out, err = command["logs"]
    assert len(out["lines"]) == 20
    assert err["lines"][-1] == "AssertionError: add does not add"
    assert (coilclaw.world.bundle(shown["run_id"]) / out["path"]).is_file()
    (violation,) = shown["violations"]
    assert (violation["gate"], violation["rule"]) == ("tests_gate", "tests.failed")
    assert shown["next"] == f"coilclaw runs log {shown['run_id']}"


def test_quiet_prints_the_result_with_the_reason_alone(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(max_retries=0))
    good = coilclaw("run", contract, "--runner", world.script([{"write": ADDS}]), "-q")
    labels = [line.split()[0].partition("=")[0] for line in good.out.splitlines()]
    assert labels == ["run_id", "status", "merge", "bundle", "anchor", "next"]
    bad = coilclaw("run", contract, "--runner", world.script([{"write": WRONG}]), "-q")
    assert bad.code == 1
    assert "AssertionError: add does not add" in bad.out
    assert "problem  tests_gate of the run: tests.failed" in bad.out
    assert coilclaw("run", contract, "-q", "-v").code == 2


def test_what_fails_in_every_attempt_is_shown_once(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(max_retries=2))
    turn = [{"write": WRONG}]
    done = coilclaw("run", contract, "--runner", world.script(turn, turn, turn))
    assert done.code == 1, done.out
    shown = coilclaw("runs", "show", "last").out
    assert shown.count("tests.failed: 'acceptance-1' ended with exit code 1 (3 times)\n") == 1
    assert shown.count("tests    candidate: FAIL (3 times)\n") == 1
    assert shown.count("failed   candidate: acceptance-1 ended with exit code 1 (3 times)\n") == 1
    assert shown.count("AssertionError: add does not add") == 1
    assert "/ci/candidate-2/" in shown  # the last attempt
    assert shown.count("repair   ") == 2
    assert "status   failed\n" in shown
    assert STATES.search(shown) is None
    value = coilclaw("runs", "show", "last", "--json").json
    assert (len(value["violations"]), len(value["failed_commands"])) == (3, 3)


def test_a_gate_names_rule_path_and_sentence(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(max_retries=0))
    outside = world.script([{"write": {"other/outside.txt": "mine\n", "new.txt": "x\n"}}])
    done = coilclaw("run", contract, "--runner", outside, "--json")
    violations = {
        each["path"]: (each["gate"], each["task_id"], each["rule"])
        for each in done.json["violations"]
    }
    assert violations == dict.fromkeys(
        ("other/outside.txt", "new.txt"), ("diff_gate", "task-0001", "diff.out_of_scope")
    )
    shown = coilclaw("runs", "show", "last").out
    assert "times)" not in shown  # Two paths are two refusals.
    then = shown.splitlines()[-1].split()
    assert then[1:4] + then[5:] == ["coilclaw", "runs", "diff", "--rejected"]
    assert "+mine" in coilclaw(*then[2:]).out


def test_an_invalid_contract_is_named_in_the_next_command(coilclaw: Coilclaw) -> None:
    value = json.loads(coilclaw.world.contract())
    value["allowed_paths"] = ["../up"]
    path = coilclaw.keep(json.dumps(value).encode(), "my contract.json")
    done = coilclaw("run", path, "--json")
    assert done.json["next"] == f"coilclaw contract validate '{path}'"
    assert coilclaw("contract", "validate", path).code == 2


def test_a_program_is_heard_while_it_works_and_refusals_are_events(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    done = coilclaw("run", contract, "--runner", world.program(PROGRAM))
    assert done.code == 0, done.out
    assert re.search(r"^  0:\d\d  \| looking around$", done.out, re.MULTILINE)
    assert "refused: the program: the sandbox seems to have refused it: [Errno" in done.out
    assert "changed pkg/calc.py +1 −1; within its contract" in done.out
    assert STATES.search(done.out) is None
    run_id = done.out.splitlines()[0].removeprefix("run_id=")
    kinds = world.kinds(run_id)
    (violation,) = world.of(run_id, "policy_violation")
    assert violation["rule"] == "sandbox.denied"
    assert kinds.index("policy_violation") < kinds.index("SNAPSHOT_TAKEN")
    assert coilclaw("runs", "verify", run_id).code == 0


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_our_own_agent_is_shown_part_by_part(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    answer: dict[str, Any] = {
        "task_id": "task-0001",
        "status": "SUCCESS",
        "summary": "It adds now.",
        "evidence_refs": {},
        "failure": None,
    }
    script = [
        {
            "text": "I look first.\nThen I write.",
            "tool_calls": [call("shell", command="cat pkg/calc.py; exit 3")],
        },
        {"tool_calls": [call("file_write", path="pkg/calc.py", content=ADDS["pkg/calc.py"])]},
        {"tool_calls": [call("file_read", path="/etc/passwd")]},
        {"text": json.dumps(answer)},
    ]
    with ModelServer(script) as server:
        (world.home / "config.toml").write_text(
            'default_provider = "one"\n[providers.models.one]\nkind = "openai-compatible"\n'
            f'model = "m"\nbase_url = "{server.url}/v1"\napi_key_env = "KEY"\n'
        )
        world.environ["KEY"] = SECRET
        contract = coilclaw.keep(world.contract(max_retries=0))
        done = coilclaw("run", contract, "--runner", "builtin", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    parts = [line["payload"] for line in lines if line["event_type"] == "agent_part"]
    assert done.code == 0, done.out
    assert [part["kind"] for part in parts] == [
        "message",
        "command",
        "file",
        "tool",
        "message",
        "end",
    ]
    assert parts[0]["text"] == "I look first."
    assert (parts[1]["text"], parts[1]["exit_code"]) == ("cat pkg/calc.py; exit 3", 3)
    assert parts[2]["files"] == [{"path": "pkg/calc.py", "added": 1, "removed": 1}]
    assert parts[4]["text"] == "It adds now."
    tokens = [part["tokens"] for part in parts]
    assert 0 < tokens[0] < tokens[2] < tokens[-1]
    kinds = [line["event_type"] for line in lines]
    denied = kinds.index("policy_violation")
    assert kinds[denied - 1] == "agent_part"
    violation = lines[denied]["payload"]
    assert violation["rule"] == "tool.denied"
    assert "/etc/passwd" in violation["what"]
    assert violation["why"]


def test_verbose_names_the_states(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    done = coilclaw("run", contract, "--runner", world.script([{"write": ADDS}]), "--verbose")
    assert "  == S0_PM -> S1_TECH_LEAD (contract_accepted)" in done.out.splitlines()
    assert "1. The work, each task in a worktree and a sandbox of its own" in done.out.splitlines()


@pytest.mark.parametrize("plain", [False, True], ids=["colour", "no colour"])
def test_a_terminal_gets_colours_and_a_line_that_moves(coilclaw: Coilclaw, plain: bool) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    slow = world.script([{"reasoning": "Hm \x1b[2J."}, {"sleep_s": 2}, {"write": ADDS}])
    mine, theirs = pty.openpty()
    extra = {"TERM": "xterm", **({"NO_COLOR": "1"} if plain else {})}
    process = subprocess.Popen(
        coilclaw.argv("run", contract, "--runner", slow),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=world.repo,
        env={**coilclaw.env(), **extra},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            data = os.read(mine, 65536)
        except OSError:  # the other end is closed
            break
        said += data
    os.close(mine)
    assert process.wait(PATIENCE_S) == 0
    text = said.decode()
    assert re.search(r"\r\x1b\[K  task-0001 is worked on · 0:0[1-9]", text)
    assert r"thinks: Hm" in text
    assert "\x1b[2J" not in text
    assert ("\x1b[32mstatus   passed" in text) is not plain
    assert bool(re.search(r"\x1b\[\d*m", text)) is not plain


def test_a_reader_that_goes_away_does_not_end_the_run(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    runner = world.script([{"write": ADDS}])
    read, write = os.pipe()
    os.close(read)
    try:
        process = subprocess.Popen(
            coilclaw.argv("run", contract, "--runner", runner, "--merge"),
            stdout=write,
            stderr=subprocess.PIPE,
            cwd=world.repo,
            env=coilclaw.env(),
        )
    finally:
        os.close(write)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, b"")
    (run,) = coilclaw("runs", "list", "--json").json
    assert (run["status"], run["merge"]) == ("passed", "merged")
