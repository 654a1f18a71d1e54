"""``coilclaw mock-server`` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.children import PATIENCE_S
from tests.unit.modelserver.asking import Question, raw_request


def argv(script: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "coilclaw", "mock-server", "--script", str(script)]
    return [*words, *more]


def write(folder: Path, script: object) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    return path


def run(script: Path, *more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        argv(script, *more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def running(script: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    pipe = subprocess.PIPE
    words = argv(script, "--port", "0", *more)
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("listening on http://")
            yield process, first.removeprefix("listening on ").strip()
        finally:
            process.kill()


def post(url: str, question: Question) -> socket.socket:
    parts = urlsplit(url)
    client = socket.create_connection((parts.hostname, parts.port or 0), timeout=PATIENCE_S)
    client.sendall(raw_request(question, headers="connection: close\r\n"))
    return client


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(tmp_path: Path, number: int) -> None:
    script = write(tmp_path, [{"when": "hang", "hang": True}, {"text": "hello back"}])
    log = tmp_path / "log.jsonl"
    with running(script, "--log", str(log)) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        with post(url, Question("chat")) as client, client.makefile("rb") as answer:
            assert b"hello back" in answer.read()
        hanging = Question("gemini", extra={"contents": [{"parts": [{"text": "hang"}]}]})
        with post(url, hanging) as client:
            while log.read_text().count("\n") < 2:
                os.sched_yield()
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE_S)
            assert client.recv(1) == b""
    assert (process.returncode, out, err) == (0, "", "stopped\n")
    assert [json.loads(line)["answer"] for line in log.read_text().splitlines()] == ["$[1]", "$[0]"]


def test_the_key_of_the_command_line(tmp_path: Path) -> None:
    script = write(tmp_path, [{"text": "x"}])
    with running(script, "--key", "sk-right", "--host", "::1") as (_, url):
        assert url.startswith("http://[::1]:")
        for key, status in (("sk-wrong", b"401"), ("sk-right", b"200")):
            question = Question("messages", headers={"x-api-key": key})
            with post(url, question) as client:
                assert client.recv(2**16).split()[1] == status


def test_a_script_with_errors_lists_them_all(tmp_path: Path) -> None:
    script = write(tmp_path, {"answers": [{"txt": 1}, {"text": 1}], "strict": 1})
    code, out, err = run(script, "--port", "0")
    assert (code, out) == (2, "")
    lines = [line.removeprefix(f"coilclaw: {script}: ") for line in err.splitlines()]
    assert [line.partition(" ")[0] for line in lines] == [
        "$.answers[0].txt:",
        "$.answers[1].text:",
        "$.strict:",
    ]
    assert all(line.endswith(" [script.invalid]") for line in lines)


def test_of_very_many_errors_the_rest_is_told(tmp_path: Path) -> None:
    code, _, err = run(write(tmp_path, [{"text": 1}] * 150), "--port", "0")
    assert code == 2
    assert len(err.splitlines()) == 100
    assert err.endswith("$: has more problems than these [script.invalid]\n")


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--port", "0", "--host", "0.0.0.0"], 2, "the host '0.0.0.0' is not loopback"),
        (["--port", "0", "--host", "example.org"], 2, "the host 'example.org' is not loopback"),
        (["--port", "70000"], 2, "70000 is not a port"),
        (["--port", "http"], 2, "invalid int value: 'http'"),
        ([], 2, "the following arguments are required: --port"),
        (["--port", "0", "--log", "/missing/log"], 5, "cannot write the log /missing/log"),
    ],
)
def test_a_wrong_command_line(tmp_path: Path, more: list[str], code: int, message: str) -> None:
    found, out, err = run(write(tmp_path, []), *more)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    code, out, err = run(tmp_path / "none.json", "--port", "0")
    assert (code, out) == (2, "")
    assert err == f"coilclaw: the script {tmp_path}/none.json does not exist [script.missing]\n"


def test_a_port_in_use(tmp_path: Path) -> None:
    script = write(tmp_path, [])
    with running(script) as (_, url):
        code, _, err = run(script, "--port", str(urlsplit(url).port))
    assert code == 5
    assert "Address already in use [server.bind]" in err
