"""A real ``systemd --user`` of its own, in namespaces that nobody else sees; it needs root."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import pytest

from coilclaw.gateway.systemd import PRIVATE
from tests.support.repository import PACKAGE
from tests.support.sandboxes import bubblewrap_packages

MANAGER = "/lib/systemd/systemd"
PLACE = Path("/mnt")
"""Where a fresh file system is mounted, outside of what units hide."""
SOURCE = PLACE / "source"
"""Where a copy of ours is, for a user who may not read the checkout."""

# Runs as root in new mount, process and network namespaces, then becomes the user.
_SETUP = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs {place}
chmod 755 {place}
mkdir -p /run/systemd/system /run/systemd/unit-root /run/user/{uid}
mkdir -p {place}/user {place}/coil {place}/work {source}
cp -r {packages} {source}
chmod -R a+rX {source}
mount -t cgroup2 none /sys/fs/cgroup
mkdir /sys/fs/cgroup/{group}
echo $$ > /sys/fs/cgroup/{group}/cgroup.procs
chown -R {uid} /run/user/{uid} {place}/user {place}/coil {place}/work /sys/fs/cgroup/{group}
chmod 700 /run/user/{uid}
{python} -c 'import fcntl, socket, struct
s = socket.socket()
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))'
export XDG_RUNTIME_DIR=/run/user/{uid} HOME={place}/user
cd {place}/user
exec setpriv --reuid {uid} --regid {uid} --clear-groups {python} - <<'END'
import base64, os, subprocess, sys, time
log = open("{place}/user/manager.log", "wb")
words = ["{manager}", "--user", "--log-target=console"]
manager = subprocess.Popen(words, stdout=log, stderr=log)
until = time.monotonic() + 60
ready = ["systemctl", "--user", "is-system-running"]
while subprocess.run(ready, stdout=-3, stderr=-3).returncode:
    if time.monotonic() > until:
        sys.exit("the service manager does not come up")
    time.sleep(0.05)
try:
    exec(compile(base64.b64decode("{driver}"), "driver", "exec"))
except BaseException:
    sys.stderr.write(open("{place}/user/manager.log", errors="replace").read())
    raise
END
"""


def managed(driver: str, *, uid: int = 0) -> dict[str, object]:
    """Run a Python program beside a manager of its own; what it prints last is JSON."""
    _require()
    python = _interpreter(uid)
    group = f"coilclaw-test-{secrets.token_hex(6)}"
    script = _SETUP.format(
        place=PLACE,
        source=SOURCE,
        packages=" ".join(
            map(shlex.quote, (str(path) for path in (PACKAGE, *bubblewrap_packages())))
        ),
        uid=uid,
        group=group,
        python=python,
        manager=MANAGER,
        driver=b64encode(driver.encode()).decode(),
    )
    inside = ["--mount", "--propagation", "private", "--pid", "--net", "--mount-proc"]
    try:
        done = subprocess.run(
            ["unshare", *inside, "--fork", "--kill-child", "bash", "-c", script],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        _forget(group)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def _require() -> None:
    if os.geteuid() != 0:
        pytest.skip("a service manager of its own needs root")
    needed = ("unshare", "setpriv", "systemctl")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing or not Path(MANAGER).exists():
        pytest.skip(f"not installed: {', '.join(missing) or MANAGER}")
    probe = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "bash", "-c"]
    mounts = "mount -t tmpfs tmpfs /run && mount -t cgroup2 none /sys/fs/cgroup"
    tried = subprocess.run([*probe, mounts], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine does not allow the namespaces: {tried.stderr.strip()}")


def _interpreter(uid: int) -> str:
    """A Python that this user can start, and a service too; where ours is not, the system's."""
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        tried = subprocess.run(
            [*become, "sh", "-c", f'exec "$0" -c "{probe}"', python],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            check=False,
            cwd="/",
        )
        if not tried.returncode and not python.startswith(tuple(f"{at}/" for at in PRIVATE)):
            return python
    pytest.skip(f"there is no Python that the user {uid} can start")


def _forget(group: str) -> None:
    """Remove the control groups, deepest first; all that was in them is dead."""
    for base in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        top = base / group
        if top.is_dir():
            folders = sorted(top.rglob("*"), key=lambda path: -len(path.parts))
            for folder in [*(one for one in folders if one.is_dir()), top]:
                with suppress(OSError):
                    folder.rmdir()
