"""``coilclaw env serve``: clients of the public SDK's surface, and those who mean no good."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coilclaw.cli.main import main
from coilclaw.gateway import operator_token
from coilclaw.gateway.environment.server import open_env_gateway
from coilclaw.gateway.settings import GatewaySettings
from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.traces.environments.sessions import SessionLimits
from tests.support.children import PATIENCE_S, given_time, running
from tests.support.command import Command
from tests.support.envclient import Client, Documents, connect, connect_session, workers
from tests.support.environments import VARIANTS, submit, write_environment
from tests.support.repository import ROOT
from tests.support.scale import scaled

OPEN = """
import os
from coilclaw.environments.authoring import Documents, case, check, expect, run, suite, test

shelf = suite("shelf")

@test
def reads(documents: Documents, wanted: str = "hello") -> None:
    "What was sent says what is wanted."
    expect((documents.dir / "note.txt").read_text(), wanted)

@test
def raises() -> None:
    raise ValueError("on purpose")

@test
def dies() -> None:
    os._exit(9)

@shelf.test("book_{n}", n=(1, 2, 3))
async def book(n: int, least: int = 1) -> None:
    check(n >= least, "too early")

@shelf.suite("box").cases
def boxes():
    for name in ("red", "blue"):
        yield case(name, hold)

def hold() -> None:
    expect(run(["cat"], stdin="x").stdout, "x")
"""

CLOSED = """
import time
from pathlib import Path
from coilclaw.environments.authoring import fail, run, session_path, setup, teardown, test

told = Path({told!r})
calls = 0

@setup
def build(name: str = "nobody", seconds: float = 0.0) -> None:
    time.sleep(seconds)
    if (session_path() / "broken").exists():
        fail("cc: error: broken:3: no")
    (session_path() / "built").write_text(name)

@teardown
def end() -> None:
    with told.open("a") as file:
        file.write(f"{{(session_path() / 'built').read_text()}} {{calls}}\\n")

@test
def counts() -> None:
    global calls
    calls += 1
    print(calls)

@test(timeout_s=600)
def sleeps() -> None:
    run(["sleep", "617.25"], timeout_s=600)
"""


@dataclass
class Serving:
    """A server that runs."""

    home: Path
    process: subprocess.Popen[str]
    url: str = ""
    log: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        return (self.home / "environment.token").read_text().strip()

    def http(self, **more: Any) -> httpx2.Client:
        headers = more.pop("headers", None) or {"authorization": f"Bearer {self.token}"}
        return httpx2.Client(
            base_url=self.url, headers=headers, trust_env=False, timeout=60, **more
        )

    def kept(self) -> list[str]:
        """What there is of sessions on disk, but for the directory of the server itself."""
        folder = self.home / "environments" / "sessions"
        return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def serving(home: Path, file: Path | str, *flags: str, as_json: bool = True) -> Iterator[Serving]:
    """Serve an environment until the block ends."""
    form = ("--json",) if as_json else ()
    with subprocess.Popen(
        [sys.executable, "-m", "coilclaw", "env", "serve", str(file), *form, *flags],
        env=Command(home).env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        served = Serving(home, process)
        reader = threading.Thread(target=lambda: served.log.extend(process.stderr or ()))
        reader.start()
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                process.wait(PATIENCE_S)
                reader.join(PATIENCE_S)
                raise AssertionError("".join(served.log))
            served.url = json.loads(line)["url"] if as_json else line.rstrip("\n")
            yield served
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
            reader.join(PATIENCE_S)


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def open_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """An environment without a setup."""
    folder = tmp_path_factory.mktemp("open")
    file = write_environment(folder / "open", OPEN)
    bounds = ("--max-upload", "1", "--max-unpacked", "16", "--max-files", "100")
    with serving(folder / "home", file, "--jobs", "2", *bounds) as served:
        yield served


@dataclass(frozen=True)
class Closed:
    """Makes servers of an environment with a setup and a teardown."""

    folder: Path

    @contextmanager
    def serving(self, *flags: str, as_json: bool = True) -> Iterator[Serving]:
        file = write_environment(self.folder / "closed", CLOSED.format(told=str(self.told)))
        flags = ("--jobs", "2", *flags)
        with serving(self.folder / "home", file, *flags, as_json=as_json) as served:
            yield served

    @property
    def told(self) -> Path:
        return self.folder / "told"

    def said(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []


@pytest.fixture
def closed_one(tmp_path: Path) -> Closed:
    return Closed(tmp_path)


def asked(served: Serving, act: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Do something with a client of the public surface."""

    async def whole() -> None:
        async with await connect(served.url, token=served.token) as client:
            await act(client)

    asyncio.run(whole())


def test_a_client_tests_a_store_in_a_session(tmp_path: Path) -> None:
    good, wrong = submit(tmp_path / "good"), submit(tmp_path / "wrong", VARIANTS[0].source())

    async def act(client: Client) -> None:
        assert client.has_setup
        assert "durability/kill_{n}" in client.tests
        with pytest.raises(RuntimeError, match=r"\(400\): This environment requires a session\."):
            await client.test("basics", work=Documents.of(good))
        async with await client.session(timeout_seconds=60, work=Documents.of(good)) as session:
            one = await session.test("basics/keys_are_sorted")
            assert (one["passed"], one["failed"], one["total"]) == (1, 0, 1)
            assert [case["id"] for case in one["cases"]] == ["basics/keys_are_sorted"]
            assert (await session.test("durability/kill_3"))["passed"] == 1
            killed = await session.test("durability/kill_{n}")
            assert killed["passed"] == killed["total"] == 5
            with pytest.raises(RuntimeError, match=r"\(404\): No tests match: basics/nothing$"):
                await session.test("basics/nothing")
        with pytest.raises(RuntimeError, match=r"\(404\): Unknown session$"):
            await session.test("basics")
        with pytest.raises(RuntimeError, match=r"\(404\): Unknown session$"):
            await session.close()
        other = await connect_session(
            str(client.http.base_url), token=served.token, work=Documents.of(wrong)
        )
        async with other:
            basics = await other.test("basics")
            failed = {case["id"] for case in basics["cases"] if case["status"] == "failed"}
            assert failed == set(VARIANTS[0].failing)
        with pytest.raises(RuntimeError, match=r"\(500\): the setup failed: there is no build.sh"):
            await client.session(work=Documents.from_text("README", "nothing to build"))

    with serving(tmp_path / "home", "kv_store") as served:
        asked(served, act)
        assert served.kept() == []
        assert served.stop() == 0
    assert list((tmp_path / "home" / "environments" / "sessions").iterdir()) == []


def test_the_schema_has_the_fields_of_both_shapes(open_one: Serving) -> None:
    with open_one.http() as http:
        schema = http.get("/schema").json()
    assert schema["tests"] == ["dies", "raises", "reads", "shelf/book_{n}", "shelf/box"]
    assert (schema["has_setup"], schema["has_teardown"]) == (False, False)
    assert schema["schema_version"] == "envoi.schema.v1"
    assert schema["capabilities"] == {
        "requires_session": False,
        "has_teardown": False,
        "handler_mode": "sync_or_async",
    }
    assert schema["test_metadata"]["reads"] == {
        "description": "What was sent says what is wanted.",
        "params_schema": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"wanted": {"type": "string"}},
            "required": [],
        },
    }
    assert schema["test_metadata"]["shelf/book_{n}"]["values"] == {"n": [1, 2, 3]}
    assert schema["cases"][-2:] == ["shelf/box/red", "shelf/box/blue"]
    assert "setup_params_schema" not in schema


def test_a_client_tests_without_a_session(open_one: Serving) -> None:
    note = Documents.from_text("note.txt", "hello")

    async def act(client: Client) -> None:
        assert not client.has_setup
        assert (await client.test("reads", note=note))["passed"] == 1
        wrong = await client.test("reads", note=note, wanted="bye")
        assert wrong["cases"][0]["failure_kind"] == "wrong_output"
        raised = await client.test("raises")
        assert (raised["failed"], raised["cases"][0]["status"]) == (1, "error")
        assert "ValueError: on purpose" in raised["cases"][0]["log"]
        shelf = await client.test("shelf", least=2)
        assert set(shelf) == {"passed", "failed", "total", "cases", "children"}
        assert (shelf["passed"], shelf["failed"], shelf["total"]) == (4, 1, 5)
        assert shelf["children"]["box"]["passed"] == 2
        with pytest.raises(RuntimeError, match=r"\(404\): No tests match: shelf/book_4$"):
            await client.test("shelf/book_4")
        with pytest.raises(RuntimeError, match=r"\(400\): no test here takes .*'stray'"):
            await client.test("reads", note=note, stray=1)
        with pytest.raises(RuntimeError, match=r"\(400\): the parameter least .* int is wanted"):
            await client.test("shelf", least="2")
        with pytest.raises(RuntimeError, match=r"\(502\): Session worker unavailable"):
            await client.test("dies")
        async with await client.session(note=note) as session:
            assert (await session.test("reads"))["passed"] == 1

    asked(open_one, act)
    assert open_one.kept() == []


def test_forms_come_in_every_way_that_clients_send_them(open_one: Serving) -> None:
    with open_one.http() as http:
        assert http.post("/test/shelf/book_1").json()["passed"] == 1
        assert http.post("/test/shelf/book_1", data={}).json()["passed"] == 1
        form = {"params": '{"least": 3}'}
        assert http.post("/test/shelf/book_2", data=form).json()["failed"] == 1
        parts = {"params": (None, '{"least": 3}')}
        assert http.post("/test/shelf/book_2", files=parts).json()["failed"] == 1
        made = http.post("/session", data={"timeout": "7"}).json()
        assert (set(made), made["timeout"]) == ({"session_id", "timeout"}, 7)
        assert http.post(f"/session/{made['session_id']}/test/shelf/box").json()["passed"] == 2
        answer = http.delete(f"/session/{made['session_id']}")
        assert (answer.status_code, answer.json()) == (200, {"status": "closed"})
        made = http.post("/session").json()
        assert made["timeout"] == 300
        # Each of these takes six bytes on the way, and two as JSON.
        long = {"params": json.dumps({"wanted": '"' * 100_000})}
        answer = http.post(f"/session/{made['session_id']}/test/reads", data=long)
        assert (answer.status_code, answer.json()["failed"]) == (200, 1)
        http.delete(f"/session/{made['session_id']}")


def _packed(*entries: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for one in entries:
            if isinstance(one, tuple):
                made = tarfile.TarInfo(one[0])
                made.size = len(one[1])
                archive.addfile(made, io.BytesIO(one[1]))
            else:
                archive.addfile(one)
    return data.getvalue()


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


_GOOD = _packed(("note.txt", b"hello"))
_UPLOADS = {
    "absolute": (_packed(("/etc/x", b"")), 400, "has an absolute name"),
    "upwards": (_packed(("../x", b"")), 400, "leads upwards"),
    "a link to an absolute path": (_packed(_link("a", "/etc")), 400, "absolute path"),
    "a link out": (_packed(_link("a", "../..")), 400, "leads out"),
    "a hard link": (_packed(_link("a", "/etc/passwd", tarfile.LNKTYPE)), 400, "a hard link"),
    "a device": (_packed(_link("a", "", tarfile.CHRTYPE)), 400, "a device"),
    "twice": (_packed(("a", b"1"), ("a", b"2")), 400, "is there twice"),
    "cut off": (_GOOD[:-9], 400, "cut off"),
    "no gzip": (b"plain", 400, "not compressed with gzip"),
    "a bomb": (_packed(("zeros", b"\0" * 20 * 2**20)), 413, "too large"),
    "large": (os.urandom(3 * 2**20), 413, "at most"),
}


@pytest.mark.parametrize("name", _UPLOADS)
def test_an_upload_that_is_refused_leaves_nothing(open_one: Serving, name: str) -> None:
    data, status, said = _UPLOADS[name]
    with open_one.http() as http:
        for path in ("/test/reads", "/session"):
            answer = http.post(path, files={"file": ("x.tar.gz", data, "application/gzip")})
            assert answer.status_code == status
            assert said in answer.json()["error"]
            assert open_one.kept() == []
        again = http.post("/test/reads", files={"file": ("x.tar.gz", _GOOD)})
        assert again.json()["passed"] == 1


_BOUNDARY = {"content-type": "multipart/form-data; boundary=b"}
_PART = b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n'
_REFUSED: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "a field that is not there": (
        "/test",
        {"data": {"stray": "1"}},
        400,
        "the field 'stray' is not known",
    ),
    "a timeout where none is": (
        "/test",
        {"data": {"timeout": "1"}},
        400,
        "the field 'timeout' is not known",
    ),
    "a file for a session that is": (
        "/session/x/test",
        {"files": {"file": ("x", _GOOD)}},
        400,
        "the field 'file' is not known",
    ),
    "a file as text": ("/session", {"data": {"file": "x"}}, 400, "multipart/form-data"),
    "a field twice": (
        "/test",
        {"content": _PART % (b"params", b"{}") * 2 + b"--b--\r\n", "headers": _BOUNDARY},
        400,
        "params is there twice",
    ),
    "a part without a name": (
        "/test",
        {"content": b"--b\r\nx: y\r\n\r\n\r\n--b--\r\n", "headers": _BOUNDARY},
        400,
        "the field '' is not known",
    ),
    "params that are no JSON": ("/test", {"data": {"params": "{"}}, 400, "not JSON"),
    "params that are no object": ("/test", {"data": {"params": "[]"}}, 400, "not a JSON object"),
    "params with a key twice": ("/test", {"data": {"params": '{"a":1,"a":2}'}}, 400, "not JSON"),
    "params with no number": ("/test", {"data": {"params": '{"a":NaN}'}}, 400, "not JSON"),
    "params with an endless number": (
        "/test",
        {"data": {"params": '{"a":1e999}'}},
        400,
        "not JSON",
    ),
    "texts that would fill the memory": (
        "/session",
        {
            "content": b"params=" + b"x" * 1_500_000,
            "headers": {"content-type": "application/x-www-form-urlencoded"},
        },
        413,
        "at most 1048576 bytes",
    ),
    "params that go deep": ("/test", {"data": {"params": "[" * 99999}}, 400, "not JSON"),
    "params that are not UTF-8": (
        "/test",
        {"content": _PART % (b"params", b"\xff") + b"--b--\r\n", "headers": _BOUNDARY},
        400,
        "not UTF-8",
    ),
    "params that are long": ("/test", {"data": {"params": " " * 300_000}}, 413, "at most"),
    "no time at all": ("/session", {"data": {"timeout": "0"}}, 400, "expires after"),
    "less than no time": ("/session", {"data": {"timeout": "-1"}}, 400, "not a number of seconds"),
    "more time than there is": ("/session", {"data": {"timeout": "86401"}}, 400, "expires after"),
    "a form that is cut off": (
        "/test",
        {"content": _PART % (b"params", b"{}"), "headers": _BOUNDARY},
        400,
        "cut off",
    ),
    "a form that is none": ("/test", {"content": b"?", "headers": _BOUNDARY}, 400, "cannot be"),
    "a form without a boundary": (
        "/test",
        {"content": b"?", "headers": {"content-type": "multipart/form-data"}},
        400,
        "no boundary",
    ),
    "JSON": ("/test", {"json": {}}, 415, "a body must be"),
    "a path that is none": ("/test/a//b", {}, 400, "not a path of tests"),
    "a long path": ("/test/" + "a" * 500, {}, 400, "not a path of tests"),
    "another address": ("/tests", {}, 404, "nothing at this address"),
    "the front door": ("/", {}, 404, "nothing at this address"),
    "another method": ("/schema", {}, 405, "only GET"),
    "a session that is not there": ("/session/x/test", {}, 404, "Unknown session"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_wrong_is_told_in_one_text(open_one: Serving, name: str) -> None:
    path, more, status, said = _REFUSED[name]
    with open_one.http() as http:
        answer = http.post(path, **more)
    assert (answer.status_code, type(answer.json()["error"])) == (status, str)
    assert said in answer.json()["error"]
    assert open_one.kept() == []


def test_what_is_not_http_is_told_in_one_text_too(open_one: Serving) -> None:
    port = int(open_one.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body["error"] == "this is not a request of HTTP/1.1"


def _asking_first(served: Serving, token: str) -> socket.socket:
    """Ask whether to send an upload."""
    host = served.url.removeprefix("http://")
    sock = socket.create_connection(("127.0.0.1", int(host.rsplit(":", 1)[1])), 10)
    sock.sendall(
        f"POST /session HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
        "content-type: multipart/form-data; boundary=b\r\ncontent-length: 1000\r\n"
        "expect: 100-continue\r\n\r\n".encode()
    )
    return sock


def test_who_may_not_ask_is_not_told_to_send_anything(open_one: Serving) -> None:
    with _asking_first(open_one, "0") as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 401")
    with _asking_first(open_one, open_one.token) as sock:
        assert sock.recv(100).startswith(b"HTTP/1.1 100")
    assert eventually(lambda: open_one.kept() == [])


def test_who_may_ask(open_one: Serving) -> None:
    with httpx2.Client(base_url=open_one.url, trust_env=False, timeout=PATIENCE_S) as http:
        assert http.get("/health").json() == {"status": "ok"}
        for headers, status, said in (
            ({}, 401, "no token"),
            ({"authorization": "Bearer 0"}, 401, "this token is not valid"),
            ({"authorization": f"Bearer {open_one.token}", "host": "evil"}, 403, "not a name"),
            (
                {"authorization": f"Bearer {open_one.token}", "origin": "http://evil"},
                403,
                "other sites",
            ),
        ):
            for method, path in (("GET", "/schema"), ("POST", "/test"), ("DELETE", "/session/x")):
                answer = http.request(method, path, headers=headers)
                assert answer.status_code == status
                assert said in answer.json()["error"]


def test_a_worker_that_was_killed_is_told_once(closed_one: Closed) -> None:
    with closed_one.serving() as served, served.http() as http:
        made = http.post("/session").json()["session_id"]
        (pid,) = workers(served.home)
        os.kill(pid, signal.SIGKILL)
        answers = [http.post(f"/session/{made}/test/counts") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [502, 404]
        assert "Session worker unavailable" in answers[0].json()["error"]
        assert served.kept() == []

        def used(seconds: float) -> tuple[str, httpx2.Response]:
            made = http.post("/session", data={"timeout": f"{seconds:g}"}).json()["session_id"]
            return made, http.post(f"/session/{made}/test/counts")

        # On a busy machine one may be over before it is used.
        other, answer = given_time(1, used, lambda got: got[1].status_code != 404)
        assert answer.json()["passed"] == 1
        assert eventually(lambda: served.kept() == [])
        assert http.post(f"/session/{other}/test").status_code == 404
        assert closed_one.said()[-1] == "nobody 1"
    assert "clients may set parameters that --param does not fix, such as name, seconds" in "".join(
        served.log
    )


def test_a_session_that_nobody_waited_for_is_closed(closed_one: Closed) -> None:
    with closed_one.serving() as served, served.http() as http:
        params = {"params": '{"seconds": 1.2}'}
        with pytest.raises(httpx2.ReadTimeout):
            http.post("/session", data=params, timeout=0.5)
        assert eventually(lambda: closed_one.said() == ["nobody 0"])
        assert eventually(lambda: served.kept() == [])
        assert http.post("/session").status_code == 200
        assert len(served.kept()) == 1


def test_a_build_that_fails_is_told_and_there_are_no_more_sessions_than_allowed(
    closed_one: Closed,
) -> None:
    with closed_one.serving("--max-sessions", "1") as served, served.http() as http:
        broken = http.post("/session", files={"file": ("x", _packed(("broken", b"")))})
        assert broken.status_code == 500
        assert broken.json()["error"] == "the setup failed: cc: error: broken:3: no"
        assert served.kept() == []
        http.post("/session", data={"params": '{"name": "first"}'})
        second = http.post("/session", files={"file": ("x", os.urandom(2**21))})
        assert second.status_code == 429
        assert second.json()["error"] == "there are 1 sessions already"
        assert len(served.kept()) == 1
    assert closed_one.said() == ["first 0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT][: scaled(full=2, default=1)])
def test_a_signal_ends_it_cleanly(closed_one: Closed, number: int) -> None:
    with closed_one.serving() as served, served.http() as http, ThreadPoolExecutor() as pool:
        one, two = (
            http.post("/session", data={"params": json.dumps({"name": name})}).json()["session_id"]
            for name in ("one", "two")
        )
        assert http.post(f"/session/{one}/test/counts").json()["passed"] == 1
        call = pool.submit(http.post, f"/session/{two}/test/sleeps")
        sending = _asking_first(served, served.token)
        assert sending.recv(100).startswith(b"HTTP/1.1 100")
        assert eventually(lambda: running("617.25") != [])
        began = time.monotonic()
        assert served.stop(number) == 0
        assert time.monotonic() - began < PATIENCE_S
        answer = call.result()
        assert (answer.status_code, answer.json()["rule"]) == (409, "session.closed")
        with sending:
            assert sending.recv(100).startswith(b"HTTP/1.1 503")
    assert "error" not in "".join(served.log)
    assert sorted(closed_one.said()) == ["one 1", "two 0"]
    assert workers(served.home) == []
    assert list((served.home / "environments" / "sessions").iterdir()) == []


def test_after_kill_nothing_runs_and_the_next_one_tidies_up(
    closed_one: Closed, tmp_path: Path
) -> None:
    file = tmp_path / "own.token"
    with closed_one.serving("--token-file", str(file)) as served:
        http = served.http(headers={"authorization": f"Bearer {file.read_text().strip()}"})
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for _ in range(2):
            http.post("/session")
        served.stop(signal.SIGKILL)
        assert eventually(lambda: workers(served.home) == [])
        assert len(served.kept()) == 2
        http.close()
    with closed_one.serving("--token-file", str(file)) as served:
        assert served.kept() == []
    file.chmod(0o644)
    with pytest.raises(
        EnvironmentFault, match="must belong to you and be inaccessible to other users"
    ):
        operator_token.load_token_file(file)


def test_many_sessions_at_once(closed_one: Closed) -> None:
    number = scaled(full=16, default=8)

    async def one(url: str, token: str, name: str) -> list[str]:
        note = Documents.from_text("note", name)
        async with await connect_session(url, token=token, note=note, name=name) as session:
            results = [await session.test("counts") for _ in range(3)]
            return [result["cases"][0]["log"] for result in results]

    async def all_of_them(url: str, token: str) -> list[list[str]]:
        names = [f"s{n}" for n in range(number)]
        return await asyncio.gather(*(one(url, token, name) for name in names))

    with closed_one.serving() as served:
        found = asyncio.run(all_of_them(served.url, served.token))
        assert found == [["1\n", "2\n", "3\n"]] * number
        assert served.kept() == []
    assert sorted(closed_one.said()) == sorted(f"s{n} 3" for n in range(number))


def test_without_a_token_it_is_said_and_the_address_is_one_line(closed_one: Closed) -> None:
    flags = ("--no-token", "--param", "name=ours")
    with closed_one.serving(*flags, as_json=False) as served:
        assert served.url.startswith("http://127.0.0.1:")
        schema = httpx2.get(f"{served.url}/schema", trust_env=False, timeout=PATIENCE_S).json()
        assert schema["capabilities"]["requires_session"]
        properties = schema["setup_params_schema"]["properties"]
        assert list(properties) == ["seconds"], "nobody can give the other one"
        foreign = httpx2.get(
            f"{served.url}/schema", headers={"origin": "http://evil"}, timeout=PATIENCE_S
        )
        assert foreign.status_code == 403
        params = {"params": '{"name": "theirs"}'}
        given = httpx2.post(f"{served.url}/session", data=params, timeout=PATIENCE_S)
        assert given.status_code == 400
        assert given.json()["error"] == "the parameter name is set by the server"
        assert httpx2.post(f"{served.url}/session", timeout=PATIENCE_S).status_code == 200
        assert not (served.home / "environment.token").exists()
        assert served.stop() == 0
        assert served.process.stdout
        assert served.process.stdout.read() == ""
    assert closed_one.said() == ["ours 0"]
    assert "without a token, every user of this machine" in "".join(served.log)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "[gateway.public]"),
        (["--host", "0.0.0.0", "--public"], "[gateway.insecure]"),
        (["--host", "0.0.0.0", "--public", "--insecure", "--no-token"], "[gateway.open]"),
        (["--no-token", "--token-file", "x"], "[usage.token]"),
        (["--port", "70000"], "[gateway.port]"),
        (["--max-sessions", "0"], "[usage.bound]"),
        (["--timeout", "nan"], "[usage.timeout]"),
        (["--jobs", "0"], "[environment.jobs]"),
        (["--param", "nothing=1"], "[environment.parameter.unknown]"),
    ],
)
def test_what_is_unsafe_or_wrong_is_refused_at_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("COILCLAW_HOME", str(tmp_path / "home"))
    assert main(["env", "serve", "kv_store", *flags]) == 2
    told = capsys.readouterr()
    assert (told.out, said in told.err) == ("", True)


def test_what_clients_may_choose_is_said_and_what_is_set_makes_the_cases(tmp_path: Path) -> None:
    source = """
from coilclaw.environments.authoring import case, suite

@suite("made").cases
def made(names: str = "a", least: int = 0):
    for name in names:
        yield case(name, one)

def one() -> None:
    pass
"""
    file = str(write_environment(tmp_path / "chosen", source))
    settings, limits = GatewaySettings(port=0), SessionLimits()
    for fixed, cases, left in (
        ({}, ["made/a"], ("least", "names")),
        ({"names": "xy"}, ["made/x", "made/y"], ("least",)),
    ):
        with open_env_gateway(
            file, tmp_path / "home", settings, limits, os.environ, token=None, fixed=fixed
        ) as gateway:
            assert (gateway.schema["cases"], gateway.choices()) == (cases, left)


def test_an_environment_that_cannot_be_loaded_is_not_served(tmp_path: Path) -> None:
    file = write_environment(tmp_path / "broken", "import nothing_of_this_name\n")
    done = Command(tmp_path / "home")("env", "serve", str(file))
    assert done.returncode == 2
    assert b"[environment.load]" in done.stderr


def test_the_document_tells_of_every_path_and_status() -> None:
    text = (ROOT / "docs" / "envserve.md").read_text(encoding="utf-8")
    for line in (
        "GET /health",
        "GET /schema",
        "POST /test",
        "POST /session",
        "POST /session/{id}/test",
        "DELETE /session/{id}",
    ):
        assert f"`{line}" in text
    for status in (400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 500, 502, 503, 504):
        assert f"| {status} |" in text
