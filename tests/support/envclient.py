"""A client of environments over HTTP, written from the public SDK's description.

It knows nothing of our server: names, defaults and errors are those that existing clients have.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2

DEFAULT_TIMEOUT_S = 300


@dataclass(frozen=True)
class Documents:
    """What is sent along: every file below a directory, or files by their base names."""

    paths: Sequence[Path] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, *paths: Path) -> Self:
        return cls(paths)

    @classmethod
    def from_text(cls, filename: str, content: str) -> Self:
        return cls((), {filename: content})

    def packed(self) -> bytes:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for path in self.paths:
                if path.is_dir():
                    for found in sorted(path.rglob("*")):
                        if found.is_symlink() or found.is_file():
                            archive.add(found, str(found.relative_to(path)), recursive=False)
                else:
                    archive.add(path, path.name, recursive=False)
            for name, text in self.texts.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return data.getvalue()


def _form(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Split arguments into the one upload and the JSON of the rest."""
    documents = [value for value in arguments.values() if isinstance(value, Documents)]
    assert len(documents) <= 1
    params = {name: value for name, value in arguments.items() if not isinstance(value, Documents)}
    form: dict[str, Any] = {"data": {"params": json.dumps(params)}}
    if documents:
        form["files"] = {"file": ("documents.tar.gz", documents[0].packed(), "application/gzip")}
    return form


def _answer(response: httpx2.Response) -> Any:
    try:
        value = response.json()
    except ValueError:
        value = {"error": response.text}
    failed = isinstance(value, dict) and "error" in value
    if response.status_code >= 400 or failed:
        message = value["error"] if failed else value
        raise RuntimeError(f"Request failed ({response.status_code}): {message}")
    return value


def _path(start: str, name: str) -> str:
    return f"{start}/{name}" if name else start


class _Connection:
    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.http.aclose()


class Session(_Connection):
    """What was uploaded and set up, to be tested any number of times."""

    def __init__(self, http: httpx2.AsyncClient, session_id: str, *, owns: bool = True) -> None:
        super().__init__(http)
        self.session_id = session_id
        self._owns = owns

    async def test(self, name: str = "", **arguments: Any) -> Any:
        path = _path(f"/session/{self.session_id}/test", name)
        return _answer(await self.http.post(path, **_form(arguments)))

    async def close(self) -> None:
        try:
            _answer(await self.http.delete(f"/session/{self.session_id}"))
        finally:
            if self._owns:
                await super().close()


class Client(_Connection):
    """An environment that is served."""

    def __init__(self, http: httpx2.AsyncClient, schema: Mapping[str, Any]) -> None:
        super().__init__(http)
        self.schema = schema
        self.tests: list[str] = schema["tests"]
        self.has_setup: bool = schema["has_setup"]

    async def test(self, name: str = "", **arguments: Any) -> Any:
        return _answer(await self.http.post(_path("/test", name), **_form(arguments)))

    async def session(self, timeout_seconds: int = DEFAULT_TIMEOUT_S, **arguments: Any) -> Session:
        made = await _open(self.http, timeout_seconds, arguments)
        return Session(self.http, made, owns=False)


async def _open(http: httpx2.AsyncClient, timeout: int, arguments: Mapping[str, Any]) -> str:
    form = _form(arguments)
    form["data"]["timeout"] = str(timeout)
    return str(_answer(await http.post("/session", **form))["session_id"])


def _http(url: str, timeout: float, token: str | None) -> httpx2.AsyncClient:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=url, timeout=timeout, headers=headers, trust_env=False)


async def connect(
    url: str, timeout_seconds: float = DEFAULT_TIMEOUT_S, *, token: str | None = None
) -> Client:
    """Fetch the schema and return a client; the token is what ours asks for in addition."""
    http = _http(url, timeout_seconds, token)
    return Client(http, _answer(await http.get("/schema")))


async def connect_session(
    url: str,
    connect_timeout_seconds: float = DEFAULT_TIMEOUT_S,
    session_timeout_seconds: int = DEFAULT_TIMEOUT_S,
    *,
    token: str | None = None,
    **arguments: Any,
) -> Session:
    """Open a session."""
    http = _http(url, connect_timeout_seconds, token)
    try:
        return Session(http, await _open(http, session_timeout_seconds, arguments))
    except BaseException:
        await http.aclose()
        raise


def workers(home: Path) -> list[int]:
    """The processes of the sessions that are kept below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                ours = b"environments.worker\0session" in (entry / "cmdline").read_bytes()
                if ours and os.readlink(entry / "cwd").startswith(f"{home}/"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
