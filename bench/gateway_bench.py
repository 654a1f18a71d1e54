"""The gateway under load: a turn per request, beside an endpoint that only syncs one line."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.measurement import Measurement

CLIENTS: Final = 16
SECONDS: Final = 4.0
WARM_S: Final = 0.7
ROUNDS: Final = 3
ANSWERS: Final = 10_000
"""More than can be asked for in the time."""
RATE_TARGET: Final = 0.4
TAIL_TARGET: Final = 10.0

# As little as can be: the same server and settings, one line synced per request.
_BARE = """
import os, socket, sys
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
import uvicorn

line = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

def chat(request):
    os.write(line, b"one line\\n")
    os.fsync(line)
    return JSONResponse({"text": "done"})

app = Starlette(routes=[Route("/chat", chat, methods=["POST"])])
# With the protocol named, asyncio sends without delay; it would cost 40 ms an answer.
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
sock.bind(("127.0.0.1", 0))
sock.listen(256)
print(sock.getsockname()[1], flush=True)
config = uvicorn.Config(
    app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None, access_log=False
)
uvicorn.Server(config).run(sockets=[sock])
"""

_OURS = """
import os, sys
from pathlib import Path
from coilclaw.app.home import open_config
from coilclaw.app.gateway_server import open_gateway
from coilclaw.cli.session import open_logs
from coilclaw.gateway.settings import GatewaySettings

home = Path(sys.argv[1])
config = open_config(home, os.environ)
settings = GatewaySettings(port=0, requests_per_minute=10**9)
with open_logs(os.environ, config), open_gateway(home, os.environ, settings, config=config) as it:
    it.serve(lambda url: print(url.rsplit(":", 1)[1], flush=True))
"""


def run() -> list[Measurement]:
    """Measure both servers in turn, several times."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COILCLAW_BENCH_DIR")) as folder:
        rounds = [(_gateway(Path(folder), n), _bare(Path(folder), n)) for n in range(ROUNDS)]
    ratios = [len(ours) / len(bare) for ours, bare in rounds]
    ratio = statistics.median(ratios)
    ours, bare = rounds[ratios.index(ratio)]
    taken = sorted(ours)
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    return [
        Measurement(
            f"POST /chat, {CLIENTS} clients: rate / bare endpoint with one fsync",
            ratio,
            f">= {RATE_TARGET}",
            ratio >= RATE_TARGET,
            f"{len(ours) / SECONDS:.0f}/s / {len(bare) / SECONDS:.0f}/s, median of {ROUNDS}",
        ),
        Measurement(
            "POST /chat: p99 / p50",
            p99 / p50,
            f"<= {TAIL_TARGET}",
            p99 <= TAIL_TARGET * p50,
            f"{p99 * 1000:.1f} ms / {p50 * 1000:.1f} ms",
        ),
    ]


def _gateway(folder: Path, number: int) -> list[float]:
    home = folder / f"home{number}"
    (home / "workspace").mkdir(parents=True)
    (home / "fixture.json").write_text(json.dumps([{"text": "done"}] * ANSWERS))
    (home / "config.toml").write_text(
        f'workspace_dir = "{home}/workspace"\ndefault_provider = "m"\n'
        f'[providers.models.m]\nkind = "mock"\nmodel = "mock"\nfixture = "{home}/fixture.json"\n'
    )
    with _server(_OURS, str(home), folder / "log") as port:
        token = (home / "gateway.token").read_text().strip()
        return _load(port, f"Authorization: Bearer {token}\r\n")


def _bare(folder: Path, number: int) -> list[float]:
    with _server(_BARE, str(folder / f"lines{number}"), folder / "log") as port:
        return _load(port, "")


@contextmanager
def _server(program: str, argument: str, log: Path) -> Iterator[int]:
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            [sys.executable, "-c", program, argument], stdout=subprocess.PIPE, stderr=errors
        ) as server,
    ):
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.terminate()


def _load(port: int, headers: str) -> list[float]:
    """Ask from many connections at once; return how long each answer took."""
    body = json.dumps({"message": "hello"})
    request = (
        f"POST /chat HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    begin = time.perf_counter() + WARM_S
    taken: list[list[float]] = [[] for _ in range(CLIENTS)]
    threads = [
        threading.Thread(target=_client, args=(port, request, begin, mine)) for mine in taken
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(taken), "a client was refused"
    return [one for mine in taken for one in mine]


def _client(port: int, request: bytes, begin: float, taken: list[float]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            before = time.perf_counter()
            if before > begin + SECONDS:
                return
            connection.sendall(request)
            _answer(connection)
            if before >= begin:
                taken.append(time.perf_counter() - before)


def _answer(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), data
    (length,) = (
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65536)
