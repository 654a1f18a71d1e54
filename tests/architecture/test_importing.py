"""Importing does nothing, and the command line imports little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import PACKAGE, modules

# Runs in a process of its own: source folder and module names come as arguments, what importing
# them did goes out as JSON. Audit events show what no look at the source can promise.
_OBSERVER = """
import json, os, sys, sysconfig, threading

source, *names = sys.argv[1:]
sys.path.insert(0, source)
readable = tuple(
    os.path.realpath(path) + os.sep
    for path in (source, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
)
deeds = ("subprocess.", "socket.", "shutil.", "sqlite3.", "tempfile.", "urllib.", "os.system",
         "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.mkdir", "os.rename", "os.remove",
         "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.putenv",
         "os.unsetenv", "os.utime", "os.chdir", "os.kill", "fcntl.", "signal.", "_thread.start")
seen = []

def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        writes = isinstance(mode, str) and set(mode) & set("wax+")
        writes = writes or (mode is None and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        inside = isinstance(path, str) and os.path.realpath(path).startswith(readable)
        if writes or not inside:
            seen.append(f"open {path!r} {mode!r}")
    elif event.startswith(deeds):
        seen.append(f"{event} {arguments!r}")

before = dict(os.environ)
sys.addaudithook(watch)
for name in names:
    __import__(name)
result = {
    "seen": list(seen),
    "threads": threading.active_count(),
    "environment_changed": dict(os.environ) != before,
    "modules": sorted(sys.modules),
}
print(json.dumps(result))
"""

_HEAVY = frozenset(
    {"asyncio", "concurrent.futures", "ctypes", "difflib", "email", "http.client", "logging"}
    | {"multiprocessing", "sqlite3", "ssl", "subprocess", "tempfile", "unittest", "urllib.request"}
)


def _observe(source: Path, *names: str) -> dict[str, Any]:
    argv = [sys.executable, "-I", "-B", "-S", "-c", _OBSERVER, str(source), *names]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize(
    "source",
    [
        "open('written', 'w')",
        "open('/etc/hostname')",
        "import os; os.open('written', os.O_CREAT | os.O_WRONLY)",
        "import os; os.mkdir('made')",
        "import subprocess; subprocess.run(['true'])",
        "import socket; socket.socket().bind(('127.0.0.1', 0))",
        "import os; os.environ['SET'] = '1'",
    ],
)
def test_a_module_that_does_something_when_imported_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "busy.py").write_text(source, encoding="utf-8")
    assert _observe(tmp_path, "busy")["seen"]


def test_a_thread_started_by_an_import_is_seen(tmp_path: Path) -> None:
    source = (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    (tmp_path / "busy.py").write_text(source, encoding="utf-8")
    assert _observe(tmp_path, "busy")["threads"] == 2


def test_importing_every_module_does_nothing() -> None:
    result = _observe(PACKAGE.parent, *(module.name for module in modules()))
    assert "coilclaw.kernel.errors" in result["modules"]
    del result["modules"]
    assert result == {"seen": [], "threads": 1, "environment_changed": False}


def test_the_command_line_imports_nothing_heavy() -> None:
    result = _observe(PACKAGE.parent, "coilclaw.cli")
    assert sorted(_HEAVY.intersection(result["modules"])) == []
