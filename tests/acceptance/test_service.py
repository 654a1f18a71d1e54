"""The service under a real ``systemd --user``: installed, started, killed, stopped, removed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.usermanager import SOURCE, managed

# What the service runs here: it says what it can do, and answers /health.
STAND_IN = """
import http.server, json, mmap, os, pathlib, sys
sys.path.insert(0, SOURCE)
from coilclaw.workspace.process import command as process
from coilclaw.workspace.process.sandbox import Sandbox, probe_sandboxes as probe

support = probe()
confined = process.run(
    ["sh", "-c", "echo yes; touch /mnt/coil/escaped"],
    cwd="/mnt/work",
    timeout_s=60,
    sandbox=Sandbox("auto", writable=(pathlib.Path("/mnt/work"),)),
    support=support,
)
told = {
    "bubblewrap": support.bubblewrap is not None,
    "proc": support.bubblewrap_proc,
    "landlock": support.landlock_abi,
    "confined": [confined.stdout.data.decode(), confined.enforced.kind],
    "escaped": os.path.exists("/mnt/coil/escaped"),
    "home": os.environ.get("COILCLAW_HOME"),
    "umask": os.umask(0o077),
    "words": sys.argv[1:],
}
for path in ("/etc/x", "/usr/x", "/mnt/user/x", "/mnt/coil/x", "/mnt/work/x", "/tmp/x"):
    try:
        open(path, "w").close()
        told[path] = True
    except OSError:
        told[path] = False
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    told["code"] = True
except OSError:
    told["code"] = False


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({**told, "pid": os.getpid()}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.HTTPServer(("127.0.0.1", 8737), Handler).serve_forever()
"""

DRIVER = """
import json, os, signal, sys, time, urllib.request
from pathlib import Path
from coilclaw.gateway.systemd import Systemd
from coilclaw.gateway.systemd import Unit

program = Path("/mnt/coil/stand in 100%$HOME.py")
program.write_text(f"SOURCE = {SOURCE!r};{STAND_IN}")
systemd = Systemd(Path("/mnt/user"), os.environ)
words = ("two words", "$HOME", "100%", "qu\\"ote", "back\\\\slash")
unit = Unit((sys.executable, str(program), *words), Path("/mnt/coil"), Path("/mnt/work"))


def health():
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen("http://127.0.0.1:8737/health", timeout=60) as answer:
                return json.load(answer)
        except OSError:
            if time.monotonic() > until:
                return None
            time.sleep(0.05)


def status():
    now = systemd.status()
    return [now.active, now.enabled, now.restarts]


told = {"installed": [systemd.install(unit), systemd.install(unit)], "before": status()}
systemd.start()
first = health()
told["first"] = first
told["running"] = status()
told["same"] = systemd.status().pid == first["pid"]
assert first["pid"] > 1, first
os.kill(first["pid"], signal.SIGKILL)
until = time.monotonic() + 60
while systemd.status().restarts < 1 and time.monotonic() < until:
    time.sleep(0.05)
second = health()
told["again"] = second is not None and second["pid"] != first["pid"]
told["after kill"] = status()
systemd.stop()
told["stopped"] = status()
systemd.start()
told["removed"] = [systemd.uninstall(), systemd.uninstall()]
told["gone"] = [systemd.status().load, os.path.lexists(systemd.path)]
try:
    urllib.request.urlopen("http://127.0.0.1:8737/health", timeout=60)
    told["listening"] = True
except OSError:
    told["listening"] = False
print(json.dumps(told))
"""


@pytest.mark.parametrize("uid", [0, 12345], ids=["root", "user"])
def test_it_is_installed_started_restarted_stopped_and_removed(uid: int) -> None:
    told = managed(f"SOURCE = {str(SOURCE)!r}\nSTAND_IN = {STAND_IN!r}\n{DRIVER}", uid=uid)
    first = told.pop("first")
    assert told == {
        "installed": [True, False],
        "before": ["inactive", "enabled", 0],
        "running": ["active", "enabled", 0],
        "same": True,
        "again": True,
        "after kill": ["active", "enabled", 1],
        "stopped": ["inactive", "enabled", 1],
        "removed": [True, False],
        "gone": ["not-found", False],
        "listening": False,
    }
    assert isinstance(first, dict)
    first.pop("pid")
    support = probe_sandboxes()
    # Commands are confined inside of the service as well as outside of it.
    assert first == {
        "bubblewrap": support.bubblewrap is not None,
        "proc": support.bubblewrap_proc,
        "landlock": support.landlock_abi,
        "confined": ["yes\n", "bubblewrap" if support.bubblewrap else "landlock"],
        "escaped": False,
        "home": "/mnt/coil",
        "umask": 0o077,
        "words": ["two words", "$HOME", "100%", 'qu"ote', "back\\slash"],
        "/etc/x": False,
        "/usr/x": False,
        "/mnt/user/x": False,
        "/mnt/coil/x": True,
        "/mnt/work/x": True,
        "/tmp/x": True,
        "code": False,
    }


COMMANDS_DRIVER = """
import json, os, signal, subprocess, time, urllib.request

os.environ["COILCLAW_HOME"] = "/mnt/coil"
with open("/mnt/coil/config.toml", "w") as file:
    file.write('workspace_dir = "/mnt/work"\\n')


def coilclaw(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def health():
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen("http://127.0.0.1:8737/health", timeout=60) as answer:
                return answer.status
        except OSError as problem:
            if time.monotonic() > until:
                return str(problem)
            time.sleep(0.05)


told = {"nothing": coilclaw("service", "status")[0]}
told["install"] = [coilclaw("service", "install")[0], coilclaw("service", "install")[0]]
told["start"] = coilclaw("service", "start")[0]
told["health"] = health()
code, out, _ = coilclaw("service", "status", "--json")
status = json.loads(out)
told["status"] = [code, status["running"], status["enabled"], status["edited"]]
assert status["pid"] > 1, out
os.kill(status["pid"], signal.SIGKILL)
until = time.monotonic() + 60
while time.monotonic() < until:
    again = json.loads(coilclaw("service", "status", "--json")[1])
    if again["restarts"] and again["running"]:
        break
    time.sleep(0.05)
told["restarts"] = again["restarts"]
told["health again"] = health()
told["stop"] = coilclaw("service", "stop")[0]
told["stopped"] = coilclaw("service", "status")[0]
told["logs"] = coilclaw("service", "logs", "-n", "5")[0] in (0, 5)
told["uninstall"] = [coilclaw("service", "uninstall")[0], coilclaw("service", "uninstall")[0]]
told["start without"] = coilclaw("service", "start")[0]
print(json.dumps(told))
"""


def test_the_commands_serve_the_gateway() -> None:
    program = Path(sys.executable).with_name("coilclaw")
    told = managed(f"PROGRAM = {str(program)!r}\n{COMMANDS_DRIVER}")
    assert told == {
        "nothing": 3,
        "install": [0, 0],
        "start": 0,
        "health": 200,
        "status": [0, True, "enabled", False],
        "restarts": 1,
        "health again": 200,
        "stop": 0,
        "stopped": 3,
        "logs": True,
        "uninstall": [0, 0],
        "start without": 5,
    }
