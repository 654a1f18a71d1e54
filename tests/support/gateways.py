"""A gateway in a process of its own, as a user starts it, and a client that knows its token."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, cast

import httpx2
import jsonschema_rs

from coilclaw.gateway.clients import Role
from coilclaw.gateway.completions import Completions
from coilclaw.gateway.endpoint_table import describe_endpoints, table
from coilclaw.gateway.endpoints import Endpoints
from coilclaw.gateway.runs.run_endpoints import RunEndpoints, SopEndpoints
from coilclaw.gateway.tokens import TokenStore
from tests.support.agents import AgentHome
from tests.support.children import PATIENCE_S

# Starts the gateway with settings that no flag sets; they come as JSON.
_LAUNCH = """
import json, os, sys
from pathlib import Path
from coilclaw.app.home import open_config
from coilclaw.app.gateway_server import open_gateway
from coilclaw.cli.session import open_logs
from coilclaw.gateway.settings import GatewaySettings

home = Path(os.environ["COILCLAW_HOME"])
config = open_config(home, os.environ)
settings = GatewaySettings(**json.loads(sys.argv[1]))

def ready(url):
    print(json.dumps({"url": url}), flush=True)

with open_logs(os.environ, config), open_gateway(home, os.environ, settings, config=config) as it:
    it.serve(ready)
"""


@cache
def _published() -> list[tuple[str, re.Pattern[str], dict[str, Any]]]:
    """Return each operation as method, pattern of its path, and responses by status."""
    nothing = cast("Any", None)
    runs = RunEndpoints(None)
    ours = Endpoints(nothing, nothing, nothing, nothing, nothing, 1, runs)
    endpoints = table(ours, Completions(nothing), runs, SopEndpoints(None))
    document = cast("Any", describe_endpoints(endpoints))
    return [
        (method.upper(), re.compile(re.sub(r"{\w+}", "[^/]+", path)), operation["responses"])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def check_published(answer: httpx2.Response) -> None:
    """Fail where an endpoint answers JSON that its published description does not allow."""
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return
    asked = answer.request
    for method, path, responses in _published():
        if method != asked.method or not path.fullmatch(asked.url.path):
            continue
        answer.read()
        told = f"{method} {asked.url.path} {answer.status_code}: {answer.text[:2000]}"
        assert str(answer.status_code) in responses, told
        form = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
        faults = [fault.message for fault in jsonschema_rs.iter_errors(form, answer.json())]
        assert not faults, f"{faults} in {told}"
        return


@dataclass
class Served:
    """A gateway that runs."""

    home: AgentHome
    url: str
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        return (self.home.home / "gateway.token").read_text().strip()

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def token_of(self, role: Role) -> str:
        """Make another token, as ``coilclaw token new`` does, called by its role and a number."""
        store = TokenStore(self.home.home, lambda: datetime.now(UTC))
        _, secret = store.new(f"{role}-{len(store.list())}", role)
        return secret.reveal()

    def client(self, role: Role | None = None, **more: Any) -> httpx2.Client:
        """Return a client that also checks each answer against the published description.

        It has the operator's token, or another one of a ``role``.
        """
        token = self.token if role is None else self.token_of(role)
        headers = {"authorization": f"Bearer {token}", **more.pop("headers", {})}
        return httpx2.Client(
            base_url=self.url,
            headers=headers,
            trust_env=False,
            timeout=PATIENCE_S,
            event_hooks={"response": [check_published]},
            **more,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self, number: int = signal.SIGTERM, timeout: float = PATIENCE_S) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def logged(self) -> str:
        return "".join(self.log)


def environment(home: AgentHome, **more: str) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **keep,
        "HOME": str(home.home.parent),
        "COILCLAW_HOME": str(home.home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }


@contextmanager
def serving(
    home: AgentHome, settings: Mapping[str, object] | None = None, **environ: str
) -> Iterator[Served]:
    """Serve a home until the block ends."""
    chosen = {"port": 0, "grace_s": 2.0, "cancel_s": PATIENCE_S, **(settings or {})}
    with subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, json.dumps(chosen)],
        env=environment(home, **environ),
        cwd=home.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        served = Served(home, "", process)
        reader = threading.Thread(target=lambda: served.log.extend(process.stderr or ()))
        reader.start()
        try:
            line = process.stdout.readline()
            if not line:
                process.wait(PATIENCE_S)
                reader.join(PATIENCE_S)
                raise AssertionError(served.logged())
            served.url = json.loads(line)["url"]
            yield served
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(PATIENCE_S)
            reader.join(PATIENCE_S)


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Read server-sent events as name and JSON, until the stream ends."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            text = line.removeprefix("data: ")
            yield name, text if text == "[DONE]" else json.loads(text)
            name = ""


def home_at(folder: Path, *answers: object, config: str = "") -> AgentHome:
    """A home whose model plays some answers; without any it echoes."""
    home = AgentHome.make(folder, config, answers)
    if not answers:
        text = (home.home / "config.toml").read_text()
        kept = [line for line in text.splitlines() if not line.startswith("fixture")]
        (home.home / "config.toml").write_text("\n".join(kept) + "\n")
    return home
