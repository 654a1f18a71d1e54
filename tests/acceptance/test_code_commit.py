"""code-commit, sentence by sentence, with the real executable and a real server on loopback."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.commit.query import MAX_OUTPUT_CHARS, system_prompt
from tests.support.children import PATIENCE_S
from tests.support.trees import make, picture

KEY = "AIzaSyD-canary_0123456789abcdefXYZw"
IGNORE = b"/gemini-key.txt\n/openai-key.txt\n/anthropic-key.txt\n/logs/\n*.secret\n"
GREEN = b"#!/bin/sh\necho building\ngrep -q good src.txt\n"


@dataclass
class Project:
    """A project directory, and the executable run in it."""

    root: Path
    home: Path
    url: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = (str(Path(sys.executable).with_name("code-commit")),)

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home.parent),
            "COILCLAW_HOME": str(self.home),
            "COILCLAW_GEMINI_BASE_URL": self.url,
            "COILCLAW_OPENAI_BASE_URL": self.url,
            "COILCLAW_ANTHROPIC_BASE_URL": self.url,
            **self.extra,
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.program, *arguments],
            cwd=self.root,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        with self.start(*arguments) as child:
            out, err = child.communicate(timeout=120)
        return child.returncode, (out + err).decode()

    def coilclaw(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "coilclaw", *arguments],
            cwd=self.root,
            env=self.env(),
            capture_output=True,
            timeout=60,
            check=False,
        )

    def logs(self) -> dict[str, str]:
        (folder,) = (self.root / "logs").iterdir()
        return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = make(
        tmp_path / "project",
        {
            ".gitignore": IGNORE,
            "query.txt": b"Make it good.\n",
            "codeRollup.txt": b"--- src.txt ---\nbad\n",
            "build.sh": (GREEN, 0o755),
            "src.txt": b"bad\n",
            "gemini-key.txt": KEY.encode() + b"\n",
        },
    )
    return Project(root, tmp_path / "home")


@contextmanager
def playing(project: Project, *answers: object, **options: object) -> Iterator[ModelServer]:
    with ModelServer({"answers": list(answers), **options}) as server:
        project.url = server.url
        yield server


def write(name: str, content: str) -> str:
    return f"^^^{name}\n{content}^^^end\n"


GOOD = {"text": "Done.\n\n" + write("src.txt", "good\n")}
REPAIRED = {"when": "fix code that is broken", **GOOD}


# The Initial Query


@pytest.mark.parametrize("missing", ["query.txt", "codeRollup.txt", "build.sh"])
def test_if_query_or_rollup_is_missing_an_error_is_returned(project: Project, missing: str) -> None:
    (project.root / missing).unlink()
    with playing(project, GOOD) as server:
        code, said = project.run()
        assert server.requests == []
    assert code == 2
    assert missing in said
    assert not (project.root / "logs").exists()


def test_the_initial_query_is_system_prompt_then_query_then_codebase(project: Project) -> None:
    with playing(project, GOOD) as server:
        assert project.run()[0] == 0
        (request,) = server.requests
    expected = system_prompt("initial") + "Make it good.\n--- src.txt ---\nbad\n"
    assert project.logs()["initial-query.txt"] == expected
    assert isinstance(request.body, dict)
    assert request.body["contents"][0]["parts"][0]["text"] == expected
    assert "stream" not in request.path.lower()


def test_the_query_is_logged_before_the_request_leaves(project: Project) -> None:
    with playing(project, {"hang": 600}) as server, project.start() as child:
        wait_for(lambda: server.requests)
        logged = [path.read_text() for path in project.root.glob("logs/*/initial-query.txt")]
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_S)
    (text,) = logged
    assert text.endswith("Make it good.\n--- src.txt ---\nbad\n")


def test_the_log_folder_is_named_after_the_time_and_never_reused(project: Project) -> None:
    with playing(project, GOOD):
        for _ in range(3):
            assert project.run()[0] == 0
    names = sorted(path.name for path in (project.root / "logs").iterdir())
    assert len(names) == 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d-\d\d-\d\d(-\d+)?", name) for name in names)


# Parsing the Response


def test_the_response_is_logged_as_text_and_as_the_full_json(project: Project) -> None:
    with playing(project, GOOD):
        assert project.run()[0] == 0
    logs = project.logs()
    assert logs["initial-query-response.txt"] == GOOD["text"]
    payload = json.loads(logs["initial-query-response.json"])
    assert payload["candidates"][0]["content"]["parts"][0]["text"] == GOOD["text"]


def test_on_an_error_the_first_line_is_error(project: Project) -> None:
    with playing(project, {"status": 400}):
        code, said = project.run()
    assert code == 4
    assert "[provider.rejected]" in said
    assert project.logs()["initial-query-response.txt"].splitlines()[0] == "ERROR"


def test_files_are_replaced_created_emptied_and_deleted(project: Project) -> None:
    make(project.root, {"old.txt": b"old\n"})
    answer = (
        write("src.txt", "good\n")
        + write("new/a.txt", "a\n")
        + write("empty", "")
        + "^^^old.txt\n^^^delete\n"
    )
    with playing(project, {"text": answer}):
        assert project.run()[0] == 0
    assert (project.root / "new/a.txt").read_text() == "a\n"
    assert (project.root / "empty").read_bytes() == b""
    assert not (project.root / "old.txt").exists()


EVIL = {
    "traversal": write("../evil", "x\n"),
    "inner traversal": write("a/../../evil", "x\n"),
    "absolute": write("/tmp/evil", "x\n"),
    "git hook": write(".git/hooks/post-commit", "x\n"),
    "key file": write("gemini-key.txt", "x\n"),
    "other key file": write("anthropic-key.txt", "x\n"),
    "build script": write("build.sh", "#!/bin/sh\nexit 0\n"),
    "rollup script": write("codeRollup.sh", "x\n"),
    "rollup": write("codeRollup.txt", "x\n"),
    "query": write("query.txt", "x\n"),
    "lock file": write("Cargo.lock", "x\n"),
    "instructions": write("LLMInstructions.md", "x\n"),
    "specification": write("UserSpecification.md", "x\n"),
    "logs": write("logs/x", "x\n"),
    "target": write("target/x", "x\n"),
    "ignored": write("deep/my.secret", "x\n"),
    "link out": write("out/evil", "x\n"),
    "unclosed": "^^^a\nx\n",
    "too many files": "".join(write(f"many/{n}", "") for n in range(2100)),
    "too many bytes": write("big", "x" * 2**20 + "\n") * 1
    + write("huge", "y" * (9 * 2**20) + "\n"),
}


@pytest.mark.parametrize("case", EVIL)
def test_an_evil_answer_is_refused_whole_and_counts_as_the_attempt(
    project: Project, case: str
) -> None:
    os.symlink("/tmp", project.root / "out")
    before = picture(project.root)
    with playing(project, {"text": write("src.txt", "good\n") + EVIL[case]}) as server:
        code, said = project.run()
        assert len(server.requests) == 4
    assert code == 1
    assert "not applied" in said
    after = picture(project.root)
    assert {n: v for n, v in after.items() if not n.startswith("logs")} == before
    logs = project.logs()
    reason = logs["initial-build.txt"]
    assert "was not applied" in reason
    assert reason.strip() in logs["repair-query-1.txt"]


def test_the_neighbours_of_evil_answers_are_applied(project: Project) -> None:
    names = ["sub/build.sh", "logs.txt", "targets/x", "docs/query.txt", "my.secrets", "Cargo.toml"]
    answer = write("src.txt", "good\n") + "".join(write(name, "x\n") for name in names)
    with playing(project, {"text": answer}):
        assert project.run()[0] == 0
    assert all((project.root / name).read_text() == "x\n" for name in names)


def test_an_answer_without_blocks_is_said_and_spends_the_attempt(project: Project) -> None:
    with playing(project, REPAIRED, {"text": "Nothing to do."}) as server:
        with project.start("--json") as child:
            out, err = child.communicate(timeout=120)
        repair = json.dumps(server.requests[-1].body)
    assert child.returncode == 0
    assert "not applied: the answer holds no change" in err.decode()
    assert "\\x0a" not in err.decode()
    assert "\n    hint: " in err.decode()
    first, second = json.loads(out)["attempts"]
    assert first["problem"].startswith("the answer holds no change [answer.no_changes]")
    assert (first["exit_code"], second["passed"]) == (None, True)
    assert "the answer holds no change" in project.logs()["initial-build.txt"]
    assert "the answer holds no change" in repair


@pytest.mark.parametrize("name", ["query.txt", "codeRollup.txt"])
@pytest.mark.parametrize("content", [b"one\nt\0wo\n", b"one\nt\xffwo\n", b"one\nt\xed\xa0\x80\n"])
def test_a_request_that_is_no_text_is_refused(project: Project, name: str, content: bytes) -> None:
    make(project.root, {name: content})
    code, said = project.run()
    assert code == 2
    assert "line 2" in said
    assert "[project.encoding]" in said
    assert not (project.root / "logs").exists()


@pytest.mark.parametrize("text", ["^^^x\na\0b\n^^^end\n", "^^^x\na\ud800b\n^^^end\n"])
def test_an_answer_that_is_no_text_is_refused_and_not_repaired(project: Project, text: str) -> None:
    with playing(project, REPAIRED, {"text": text}):
        code, said = project.run()
    assert code == 0
    assert "[answer.encoding]" in said
    assert not (project.root / "x").exists()


# Running the Build


def test_the_build_log_holds_stdout_stderr_and_the_exit_code(project: Project) -> None:
    make(project.root, {"build.sh": (b"#!/bin/sh\necho out\necho err >&2\nexit 7\n", 0o755)})
    with playing(project, GOOD):
        code, _ = project.run()
    assert code == 1
    log = project.logs()["initial-build.txt"]
    assert "out\n" in log
    assert "err\n" in log
    assert "exit code: 7" in log


def test_exit_code_zero_is_a_pass_whatever_is_on_stderr(project: Project) -> None:
    make(project.root, {"build.sh": (b"#!/bin/sh\necho warning >&2\n", 0o755)})
    with playing(project, GOOD) as server:
        assert project.run()[0] == 0
        assert len(server.requests) == 1


def test_there_are_three_repairs_and_then_it_fails(project: Project) -> None:
    with playing(project, {"text": write("src.txt", "worse\n")}) as server:
        code, said = project.run()
        assert len(server.requests) == 4
    assert code == 1
    assert "still fails" in said
    names = set(project.logs())
    for n in (1, 2, 3):
        assert {
            f"repair-query-{n}.txt",
            f"repair-query-{n}-response.txt",
            f"repair-query-{n}-response.json",
            f"repair-query-{n}-build.txt",
        } <= names
    assert "repair-query-4.txt" not in names


def test_the_repair_query_has_its_five_parts_in_order(project: Project) -> None:
    repaired = {"when": "fix code that is broken", **GOOD}
    broken = {"text": write("src.txt", "worse\n") + "^^^x\n^^^delete\n"}
    make(project.root, {"x": b"x"})
    with playing(project, repaired, broken):
        assert project.run()[0] == 0
    logs = project.logs()
    text = logs["repair-query-1.txt"]
    parts = (
        system_prompt("repair")
        + logs["initial-build.txt"]
        + "Make it good.\n"
        + "--- src.txt ---\nbad\n"
        + "--- FILE REPLACEMENT src.txt ---\nworse\n"
        + "--- FILE REMOVED x ---\n"
    )
    assert text == parts


def test_a_repair_query_holds_head_and_tail_of_a_long_build_and_says_so(project: Project) -> None:
    noise = b"i=0; while [ $i -lt 20000 ]; do echo noise number $i of many; i=$((i+1)); done\n"
    build = b"#!/bin/sh\necho the head\n" + noise + b"echo the tail\ngrep -q best src.txt\n"
    make(project.root, {"build.sh": (build, 0o755)})
    best = {"when": "fix code that is broken", "text": write("src.txt", "best\n")}
    with playing(project, best, GOOD):
        assert project.run()[0] == 0
    logs = project.logs()
    sent, log = logs["repair-query-1.txt"], logs["initial-build.txt"]
    assert len(log) > 400_000
    assert len(sent) < MAX_OUTPUT_CHARS + 20_000
    assert "the head\n" in sent
    assert "the tail\n" in sent
    left_out = re.search(r"\[([0-9,]+) of ([0-9,]+) characters of this output are left out", sent)
    assert left_out
    assert left_out[2] == f"{len(log):,}"


def test_only_the_latest_replacement_of_a_file_is_listed(project: Project) -> None:
    answers = (
        {"when": "REPLACEMENT src.txt ---\nworst", **GOOD},
        {"when": "REPLACEMENT src.txt ---\nworse", "text": write("src.txt", "worst\n")},
        {"text": write("src.txt", "worse\n")},
    )
    with playing(project, *answers):
        assert project.run()[0] == 0
    text = project.logs()["repair-query-2.txt"]
    assert text.count("FILE REPLACEMENT src.txt") == 1
    assert "worse" not in text


# Safety


def test_every_key_file_needs_its_line_in_gitignore(project: Project) -> None:
    make(project.root, {".gitignore": b"/gemini-key.txt\n"})
    with playing(project, GOOD) as server:
        code, said = project.run()
        assert server.requests == []
    assert code == 2
    assert "/openai-key.txt, /anthropic-key.txt" in said
    assert not (project.root / "logs").exists()


def test_a_missing_key_is_an_error_before_any_request(project: Project) -> None:
    (project.root / "gemini-key.txt").unlink()
    with playing(project, GOOD) as server:
        code, said = project.run()
        assert server.requests == []
    assert code == 2
    assert "gemini-key.txt" in said


def test_the_key_travels_in_a_header_and_never_in_a_url(project: Project) -> None:
    with playing(project, GOOD, require_key=KEY) as server:
        assert project.run()[0] == 0
        (request,) = server.requests
    assert KEY not in request.path


LEAKS = {
    "plain": KEY,
    "json escapes": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "split by an escape": KEY[:10] + "\\u" + f"{ord(KEY[10]):04x}" + KEY[11:],
    "url": urllib.parse.quote(KEY, safe=""),
    "percent": "".join(f"%{ord(c):02X}" for c in KEY),
    "base64": base64.b64encode(f"xx{KEY}".encode()).decode(),
    "base64 url": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "in part": KEY[:20],
}


@pytest.mark.parametrize("case", LEAKS)
def test_the_key_never_reaches_a_log_or_the_model_again(project: Project, case: str) -> None:
    leak = LEAKS[case]
    build = f"#!/bin/sh\nprintf '%s\\n' '{leak}' \"$OPENAI_API_KEY\"\nexit 1\n"
    make(project.root, {"build.sh": (build.encode(), 0o755), "query.txt": f"Key {leak}\n".encode()})
    project.extra["OPENAI_API_KEY"] = "sk-environment-canary-1234567890"
    text = f"The key is {leak}.\n" + write("src.txt", f"{leak}\n")
    with playing(project, {"text": text}) as server:
        code, said = project.run("--json")
        bodies = [
            json.dumps(r.body) if not isinstance(r.body, str) else r.body for r in server.requests
        ]
    assert code == 1
    for where in (said, *bodies, *project.logs().values()):
        assert leak not in where
        assert KEY[:-2] not in where
        assert KEY[4:20] not in where
        assert "environment-canary" not in where


def test_the_build_gets_the_users_environment_less_the_keys(project: Project) -> None:
    build = b"#!/bin/sh\nenv\nexit 1\n"
    make(project.root, {"build.sh": (build, 0o755)})
    project.extra |= {"MY_SETTING": "kept", "GEMINI_API_KEY": "secret-one-two", "OTHER": f"x{KEY}x"}
    project.extra["ENCODED"] = base64.b64encode(KEY.encode()).decode()
    with playing(project, GOOD):
        project.run()
    log = project.logs()["initial-build.txt"]
    assert "ENCODED" not in log
    assert "MY_SETTING=kept" in log
    assert "GEMINI_API_KEY" not in log
    assert "OTHER" not in log


# LLMs


def test_gemini_is_the_default(project: Project) -> None:
    with playing(project, GOOD) as server:
        assert project.run()[0] == 0
        assert server.requests[0].path == "/v1beta/models/gemini-2.5-pro:generateContent"


def test_gpt_5_is_asked_with_a_bearer_header(project: Project) -> None:
    make(project.root, {"openai-key.txt": b"sk-openai-0123456789\n"})
    with playing(project, GOOD, require_key="sk-openai-0123456789") as server:
        assert project.run("--model", "gpt-5")[0] == 0
        assert server.requests[0].path == "/v1/chat/completions"


def test_an_anthropic_model_is_asked_likewise(project: Project) -> None:
    make(project.root, {"anthropic-key.txt": b"sk-ant-0123456789\n"})
    with playing(project, GOOD, require_key="sk-ant-0123456789") as server:
        assert project.run("--model", "claude-sonnet-4-5")[0] == 0
        assert server.requests[0].path == "/v1/messages"


def test_an_endpoint_of_ones_own_gets_no_key(project: Project) -> None:
    with playing(project, GOOD) as server:
        assert project.run("--model", "local", "--base-url", server.url)[0] == 0
        headers = {name.lower() for name in dict(server.requests[0].headers)}
    assert not {"authorization", "x-api-key", "x-goog-api-key"} & headers


def test_a_key_file_of_ones_own_must_be_ignored_too(project: Project) -> None:
    make(project.root, {"my-key.txt": b"own-key-0123456789\n"})
    with playing(project, GOOD, require_key="own-key-0123456789") as server:
        flags = ("--model", "local", "--base-url", server.url, "--key-file", "my-key.txt")
        code, said = project.run(*flags)
        assert (code, server.requests) == (2, [])
        assert "/my-key.txt" in said
        make(project.root, {".gitignore": IGNORE + b"/my-key.txt\n"})
        assert project.run(*flags)[0] == 0


def test_an_unknown_model_is_a_usage_error(project: Project) -> None:
    with playing(project, GOOD):
        assert project.run("--model", "nonsense")[0] == 2


def test_fallback_asks_the_next_model_and_the_log_says_so(project: Project) -> None:
    make(project.root, {"openai-key.txt": b"sk-openai-0123456789\n"})
    with playing(project, GOOD, require_key="sk-openai-0123456789") as server:
        code, said = project.run("--fallback", "gpt-5")
        paths = [request.path for request in server.requests]
    assert code == 0
    assert "fallback" in said
    assert paths[-1] == "/v1/chat/completions"
    assert "fallback" in project.logs()["notes.txt"]


def test_a_server_that_stays_in_trouble_is_left_for_the_fallback(project: Project) -> None:
    make(project.root, {"openai-key.txt": b"sk-openai-0123456789\n"})
    faults = [{"status": 503, "retry_after": 0}] * 4
    with playing(project, {**GOOD, "faults": faults}, stateful=True) as server:
        code, said = project.run("--fallback", "gpt-5")
        paths = [request.path for request in server.requests]
    assert (code, "fallback from" in said) == (0, True)
    assert [path.startswith("/v1/chat") for path in paths] == [False] * 4 + [True]


def test_a_request_that_is_refused_does_not_reach_the_fallback(project: Project) -> None:
    make(project.root, {"openai-key.txt": b"sk-openai-0123456789\n"})
    with playing(project, {**GOOD, "faults": [{"status": 400}]}, stateful=True) as server:
        code, _ = project.run("--fallback", "gpt-5")
        assert len(server.requests) == 1
    assert code == 4


def test_429_and_5xx_are_retried(project: Project) -> None:
    faults = [{"status": 429, "retry_after": 0}, {"status": 503, "retry_after": 0}]
    with playing(project, {**GOOD, "faults": faults}, stateful=True) as server:
        code, said = project.run()
        assert len(server.requests) == 3
    assert code == 0
    assert "429" in said or "rate" in said


def test_a_truncated_answer_is_an_error_and_nothing_is_applied(project: Project) -> None:
    with playing(project, {**GOOD, "stop": "length"}):
        code, said = project.run()
    assert code == 4
    assert "[provider.truncated]" in said
    assert (project.root / "src.txt").read_text() == "bad\n"
    logs = project.logs()
    assert logs["initial-query-response.txt"].startswith("ERROR\n")
    assert "initial-build.txt" not in logs


@pytest.mark.parametrize("fault", [{"cut": True}, {"malformed": "json"}, {"malformed": "empty"}])
def test_a_broken_answer_ends_the_run(project: Project, fault: dict[str, object]) -> None:
    with playing(project, {**GOOD, **fault} if "cut" in fault else fault):
        code, _ = project.run()
    assert code == 4
    assert project.logs()["initial-query-response.txt"].startswith("ERROR\n")


# Undo


def test_undo_takes_back_the_last_attempt_and_undo_run_everything(project: Project) -> None:
    answers = (
        {"when": "REPLACEMENT src.txt ---\nworse", **GOOD},
        {"text": write("src.txt", "worse\n") + write("new.txt", "n\n")},
    )
    with playing(project, *answers):
        assert project.run()[0] == 0
    assert project.coilclaw("undo").returncode == 0
    assert (project.root / "src.txt").read_text() == "worse\n"
    assert project.coilclaw("undo", "--run").returncode == 0
    assert (project.root / "src.txt").read_text() == "bad\n"
    assert not (project.root / "new.txt").exists()


# Interruption


def wait_for(condition: object, seconds: float = PATIENCE_S) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopping_it_ends_the_build_and_leaves_a_whole_tree(
    project: Project, number: signal.Signals
) -> None:
    build = b"#!/bin/sh\necho started\nsleep 300 &\necho $! > pid.secret\nwait\n"
    make(project.root, {"build.sh": (build, 0o755)})
    with playing(project, GOOD), project.start() as child:
        wait_for((project.root / "pid.secret").exists)
        wait_for(lambda: (project.root / "pid.secret").read_text().strip())
        child.send_signal(number)
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 3
    pid = int((project.root / "pid.secret").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert (project.root / "src.txt").read_text() == "good\n"
    log = project.logs()["initial-build.txt"]
    assert "started" in log
    assert "stopped" in log


def test_a_run_whose_hang_up_is_ignored_goes_on(project: Project) -> None:
    build = b"#!/bin/sh\necho > began.secret\nwhile [ ! -e go.secret ]; do sleep 0.05; done\n"
    make(project.root, {"build.sh": (build, 0o755)})
    project.program = ("nohup", *project.program)
    with playing(project, GOOD), project.start() as child:
        wait_for((project.root / "began.secret").exists)
        child.send_signal(signal.SIGHUP)
        make(project.root, {"go.secret": b""})
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0


def test_two_runs_in_one_project_take_turns(project: Project) -> None:
    build = b"#!/bin/sh\necho > began.secret\nwhile [ ! -e go.secret ]; do sleep 0.05; done\n"
    make(project.root, {"build.sh": (build, 0o755)})
    with playing(project, GOOD) as server, project.start() as first:
        wait_for((project.root / "began.secret").exists)
        code, said = project.run("--no-wait")
        assert (code, "[commit.busy]" in said) == (3, True)
        assert f"process {first.pid}, since" in said
        with project.start() as second:
            assert second.stderr is not None
            line = second.stderr.readline().decode()
            assert f"waiting for another code-commit in this project: process {first.pid}" in line
            assert len(server.requests) == 1
            make(project.root, {"go.secret": b""})
            first.communicate(timeout=PATIENCE_S)
            second.communicate(timeout=PATIENCE_S)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(list((project.root / "logs").iterdir())) == 2


def test_a_run_that_was_killed_does_not_hold_the_project(project: Project) -> None:
    make(project.root, {"build.sh": (b"#!/bin/sh\necho > began.secret\nexec sleep 300\n", 0o755)})
    with playing(project, GOOD), project.start() as first:
        wait_for((project.root / "began.secret").exists)
        first.kill()
        first.communicate(timeout=PATIENCE_S)
        make(project.root, {"build.sh": (GREEN, 0o755)})
        assert project.run("--no-wait")[0] == 0


def test_stopping_it_while_the_model_thinks_leaves_a_complete_log(project: Project) -> None:
    with playing(project, {"hang": 600}) as server, project.start() as child:
        wait_for(lambda: server.requests)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 3
    assert project.logs()["initial-query-response.txt"].startswith("ERROR\n")


def test_a_build_that_takes_too_long_is_ended(project: Project) -> None:
    make(project.root, {"build.sh": (b"#!/bin/sh\nsleep 300\n", 0o755)})
    with playing(project, GOOD):
        code, _ = project.run("--build-timeout", "0.3")
    assert code == 1
    assert "ended after 0.3 s" in project.logs()["initial-build.txt"]


# Around it


def test_json_is_for_machines(project: Project) -> None:
    with playing(project, GOOD), project.start("--json") as child:
        out, _ = child.communicate(timeout=60)
    done = json.loads(out)
    assert done["outcome"] == "passed"
    assert [(a["name"], a["files"], a["exit_code"]) for a in done["attempts"]] == [
        ("initial-query", ["src.txt"], 0)
    ]


def test_init_sets_a_project_up_and_overwrites_nothing(tmp_path: Path) -> None:
    project = Project(make(tmp_path / "p", {".gitignore": b"mine"}), tmp_path / "home")
    assert project.run("init")[0] == 0
    first = picture(project.root)
    assert first[".gitignore"][1].splitlines()[0] == b"mine"
    assert {b"/gemini-key.txt", b"/openai-key.txt", b"/anthropic-key.txt"} <= set(
        first[".gitignore"][1].splitlines()
    )
    assert first["build.sh"][2] == 0o755
    make(project.root, {"query.txt": b"my own"})
    second = picture(project.root)
    assert project.run("init")[0] == 0
    assert picture(project.root) == second


def test_rollup_writes_the_codebase_in_a_fixed_order(project: Project) -> None:
    make(
        project.root,
        {
            "a/b.py": b"b = 1\n",
            "z.txt": b"z",
            "image.png": b"\0\1",
            "my.secret": b"s",
            "openai-key.txt": b"k",
            "logs/x": b"l",
        },
    )
    assert project.coilclaw("rollup").returncode == 0
    text = (project.root / "codeRollup.txt").read_text()
    assert re.findall(r"--- FILE (.*) ---", text) == [".gitignore", "a/b.py", "src.txt", "z.txt"]
    assert KEY not in text
    again = project.coilclaw("rollup")
    assert again.returncode == 0
    assert (project.root / "codeRollup.txt").read_text() == text


def test_commit_rollup_does_it_first(project: Project) -> None:
    (project.root / "codeRollup.txt").unlink()
    with playing(project, GOOD):
        assert project.run("--rollup")[0] == 0
    assert "--- FILE src.txt ---\nbad\n" in project.logs()["initial-query.txt"]


RUST_LIKE_BUILD = rb"""#!/bin/sh
set -e
mkdir -p target
for module in $(sed -n 's/^mod \(.*\);$/\1/p' src/main.rs); do
    test -f "src/$module.rs" || {
        echo "error[E0583]: file not found for module '$module'" >&2
        exit 101
    }
done
cat src/*.rs > target/all.rs
grep -q println target/all.rs
"""

PROJECTS: dict[str, tuple[dict[str, bytes | tuple[bytes, int]], str, str]] = {
    "python": (
        {
            "calc.py": b"def add(a, b):\n    return a + b\n",
            "build.sh": (
                (
                    b"#!/bin/sh\nset -e\npython3 -m py_compile calc.py\n"
                    b"python3 -c 'import calc; assert calc.double(4) == 8'\n"
                ),
                0o755,
            ),
        },
        write("calc.py", "def add(a, b):\n    return a + b\n\n\ndef double(n)\n    return 2 * n\n"),
        write(
            "calc.py", "def add(a, b):\n    return a + b\n\n\ndef double(n):\n    return 2 * n\n"
        ),
    ),
    "shell": (
        {
            "greet.sh": (b"#!/bin/sh\necho hello\n", 0o755),
            "build.sh": (
                b"#!/bin/sh\nset -e\nsh -n greet.sh\ntest \"$(./greet.sh Bo)\" = 'hello Bo'\n",
                0o755,
            ),
        },
        write("greet.sh", '#!/bin/sh\nif true; then echo "hello $1"\n'),
        write("greet.sh", '#!/bin/sh\necho "hello $1"\n'),
    ),
    "rust-like": (
        {
            "Cargo.lock": b"# lock\n",
            "src/main.rs": b"fn main() {}\n",
            "build.sh": (RUST_LIKE_BUILD, 0o755),
        },
        write("src/main.rs", "mod say;\n\nfn main() {\n    say::hello();\n}\n"),
        write("src/say.rs", 'pub fn hello() {\n    println!("hello");\n}\n'),
    ),
}


@pytest.mark.parametrize("shape", PROJECTS)
def test_a_real_project_goes_red_is_repaired_and_goes_green(project: Project, shape: str) -> None:
    files, broken, fixed = PROJECTS[shape]
    make(project.root, files)
    repair = {"when": "fix code that is broken", "text": fixed}
    with playing(project, repair, {"text": broken}) as server:
        code, said = project.run()
        assert len(server.requests) == 2, said
    assert code == 0, said
    assert "exit code: 0" in project.logs()["repair-query-1-build.txt"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "code-commit.pyz"
    script = Path(__file__).parents[2] / "scripts" / "pyz.sh"
    subprocess.run([script, target], check=True, capture_output=True, timeout=300)
    return target


@pytest.mark.full
def test_one_file_runs_on_a_bare_python_beside_a_project(project: Project, archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        assert [name for name in opened.namelist() if name.endswith((".so", ".pyd"))] == []
    beside = project.root.parent / "code-commit.pyz"
    beside.write_bytes(archive.read_bytes())
    # The interpreter itself, with nothing installed: isolated, and no site packages.
    project.program = (os.path.realpath(sys.executable), "-I", "-S", str(beside))
    with playing(project, GOOD, require_key=KEY):
        code, said = project.run()
    assert code == 0, said
    assert (project.root / "src.txt").read_text() == "good\n"


# What a hostile reading found


def test_json_shows_no_key_in_any_field(project: Project) -> None:
    for name in (f"src/{KEY}.txt", f"logs/{KEY}.txt"):
        with playing(project, {"text": write(name, "x\n")}):
            _, said = project.run("--json")
        assert KEY not in said
    assert not (project.root / "src").exists()
    kept = [path for path in project.home.rglob("*") if path.is_file()]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


def test_a_run_that_changed_nothing_gives_no_hint_to_undo(project: Project) -> None:
    with playing(project, {"text": write("build.sh", "x\n")}):
        code, said = project.run()
    assert code == 1
    assert "undo" not in said


def test_the_hint_takes_back_this_run_and_no_other(project: Project) -> None:
    with playing(project, {"text": write("src.txt", "good\n") + write("kept.txt", "k\n")}):
        assert project.run()[0] == 0
    with playing(project, {"text": write("src.txt", "worse\n")}):
        code, said = project.run()
    assert code == 1
    (change,) = re.findall(r"coilclaw undo --run (\S+)", said)
    assert project.coilclaw("undo", "--run", change).returncode == 0
    assert (project.root / "src.txt").read_text() == "good\n"
    assert (project.root / "kept.txt").exists()


def test_an_answer_cannot_switch_the_gitignore_protection_off(project: Project) -> None:
    make(project.root, {"my.secret": b"mine\n"})
    weakened = IGNORE.replace(b"*.secret\n", b"").decode()
    answers = (
        {"when": "REPLACEMENT .gitignore", "text": write("my.secret", "OWN\n")},
        {"text": write(".gitignore", weakened)},
    )
    with playing(project, *answers):
        assert project.run()[0] == 1
    assert (project.root / "my.secret").read_bytes() == b"mine\n"


@pytest.mark.parametrize(
    "answer", ["^^^.gitignore\n^^^delete\n", write(".gitignore", "*.secret\n")]
)
def test_an_answer_cannot_take_a_key_out_of_gitignore(project: Project, answer: str) -> None:
    with playing(project, {"text": answer}):
        code, said = project.run()
    assert code == 1
    assert "would lose its line for /gemini-key.txt" in said
    assert (project.root / ".gitignore").read_bytes() == IGNORE


def test_an_answer_may_add_to_gitignore(project: Project) -> None:
    answer = write(".gitignore", IGNORE.decode() + "more\n") + write("src.txt", "good\n")
    with playing(project, {"text": answer}):
        assert project.run()[0] == 0


def test_a_roll_up_holds_no_key_file_at_any_depth(project: Project) -> None:
    make(
        project.root,
        {
            "sub/gemini-key.txt": b"another-key-0123456789\n",
            "my-key.txt": b"own-key-0123456789\n",
            ".gitignore": IGNORE + b"/my-key.txt\n!/my-key.txt\n",
        },
    )
    with playing(project, GOOD) as server:
        flags = ("--rollup", "--model", "m", "--base-url", server.url, "--key-file", "my-key.txt")
        assert project.run(*flags)[0] == 2
        assert project.run("--rollup")[0] == 0
    text = (project.root / "codeRollup.txt").read_text()
    assert "another-key" not in text


@pytest.mark.parametrize(
    "lines",
    [
        b"  /gemini-key.txt\n/openai-key.txt\n/anthropic-key.txt\n",
        b"/gemini-key.txt\n/openai-key.txt\n/anthropic-key.txt\n!/openai-key.txt\n",
        b"#/gemini-key.txt\n/openai-key.txt\n/anthropic-key.txt\n",
    ],
)
def test_a_line_that_ignores_nothing_does_not_count(project: Project, lines: bytes) -> None:
    make(project.root, {".gitignore": lines})
    with playing(project, GOOD) as server:
        code, said = project.run()
        assert (code, server.requests) == (2, [])
    assert "-key.txt" in said


def test_crlf_lines_in_gitignore_count_as_git_counts_them(project: Project) -> None:
    make(project.root, {".gitignore": IGNORE + b"# end\n"})
    with playing(project, GOOD):
        assert project.run()[0] == 0


def test_an_unknown_ending_is_no_answer(project: Project) -> None:
    make(project.root, {"anthropic-key.txt": b"sk-ant-0123456789\n"})
    for stop, model in (("model_context_window_exceeded", "claude-x"), ("max_tokens", "local")):
        with playing(project, {**GOOD, "stop_as": stop}) as server:
            flags = ("--base-url", server.url) if model == "local" else ()
            code, said = project.run("--model", model, *flags)
        assert code == 4, said
        assert "[provider.truncated]" in said
    assert (project.root / "src.txt").read_text() == "bad\n"


def test_a_dummy_key_of_a_local_endpoint_changes_nothing_that_is_sent(project: Project) -> None:
    make(project.root, {"k.txt": b"test\n", ".gitignore": IGNORE + b"/k.txt\n"})
    make(project.root, {"query.txt": b"test the tests of pytest\n"})
    with playing(project, GOOD, require_key="test") as server:
        flags = ("--model", "m", "--base-url", server.url, "--key-file", "k.txt")
        assert project.run(*flags)[0] == 0
    assert "test the tests of pytest\n" in project.logs()["initial-query.txt"]


def test_a_short_key_of_a_provider_is_refused(project: Project) -> None:
    make(project.root, {"gemini-key.txt": b"short\n"})
    with playing(project, GOOD) as server:
        code, said = project.run()
        assert (code, server.requests) == (2, [])
    assert "fewer than 8 characters" in said


def test_a_key_in_the_query_is_taken_out_and_that_is_said(project: Project) -> None:
    make(project.root, {"query.txt": f"use {KEY}\n".encode()})
    with playing(project, GOOD) as server:
        _, said = project.run()
        assert KEY not in json.dumps([request.body for request in server.requests])
    assert "a key was removed from the query" in said


def test_a_build_that_cannot_be_executed_is_found_before_anything_is_asked(
    project: Project,
) -> None:
    (project.root / "build.sh").chmod(0o644)
    with playing(project, GOOD) as server:
        code, said = project.run()
        assert (code, server.requests) == (2, [])
    assert "chmod +x" in said


def test_a_build_that_does_not_start_leaves_a_log(project: Project) -> None:
    make(project.root, {"build.sh": (b"#!/no/such/interpreter\n", 0o755)})
    with playing(project, GOOD):
        code, _ = project.run()
    assert code == 5
    assert "could not be started" in project.logs()["initial-build.txt"]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "foo://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_a_provider_error(project: Project, proxy: str) -> None:
    project.url = "https://model.invalid"
    project.extra |= {"ALL_PROXY": proxy, "HTTPS_PROXY": proxy}
    code, said = project.run("--json")
    assert code == 4, said
    assert project.logs()["initial-query-response.txt"].startswith("ERROR\n")


def test_no_beginning_of_a_key_stays_at_the_end_of_an_excerpt(project: Project) -> None:
    body = {"error": {"message": "x" * 493 + KEY}}
    with playing(project, {"status": 400, "body": body}):
        _, said = project.run()
    assert KEY[:4] not in said
    assert KEY[:4] not in "".join(project.logs().values())


def test_the_key_of_a_provider_goes_to_no_other_address(project: Project) -> None:
    with playing(project, GOOD) as server:
        flags = ("--model", "m", "--base-url", server.url, "--key-file", "gemini-key.txt")
        assert project.run(*flags)[0] == 2
        assert server.requests == []


def test_wrong_addresses_and_keys_leave_no_log_folder(project: Project) -> None:
    with playing(project, GOOD):
        assert project.run("--model", "m", "--base-url", "ftp://x")[0] == 2
        (project.root / "gemini-key.txt").unlink()
        (project.root / "gemini-key.txt").mkdir()
        assert project.run()[0] == 2
        (project.root / "gemini-key.txt").rmdir()
        make(project.root, {"query.txt": b" \n"})
        assert project.run()[0] == 2
        make(project.root, {"query.txt": b"\xff"})
        assert project.run()[0] == 2
    assert not (project.root / "logs").exists()


def test_a_key_file_may_begin_with_a_byte_order_mark(project: Project) -> None:
    make(project.root, {"gemini-key.txt": b"\xef\xbb\xbf" + KEY.encode() + b"\r\n"})
    with playing(project, GOOD, require_key=KEY):
        assert project.run()[0] == 0


def test_what_a_roll_up_leaves_out_is_said(project: Project) -> None:
    make(project.root, {"big.txt": b"x" * (2**20 + 1)})
    with playing(project, GOOD):
        _, said = project.run("--rollup")
    assert "left out of the roll-up: big.txt" in said


def test_json_names_the_model_that_answered(project: Project) -> None:
    make(project.root, {"openai-key.txt": b"sk-openai-0123456789\n"})
    with (
        playing(project, GOOD, require_key="sk-openai-0123456789"),
        project.start("--fallback", "gpt-5", "--json") as child,
    ):
        out, _ = child.communicate(timeout=60)
    assert json.loads(out)["model"] == "gpt-5"


def test_init_does_not_write_through_a_dangling_link(tmp_path: Path) -> None:
    project = Project(make(tmp_path / "p", {"x": b""}), tmp_path / "home")
    os.symlink("../outside.sh", project.root / "build.sh")
    assert project.run("init")[0] == 0
    assert not (tmp_path / "outside.sh").exists()
