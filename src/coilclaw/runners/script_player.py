"""The hands of a scripted agent: a program of its own, inside the sandbox of its assignment.

One line of JSON comes in for each thing to do, one goes out when it is done. It imports nothing of
ours and is started from its source text, since a sandbox may not show where it is installed. Paths
are used as they come: what may be reached is for the sandbox to say.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def main() -> None:
    """Do what each line says, until the input ends."""
    for line in sys.stdin:
        ((kind, value),) = json.loads(line).items()
        if kind == "write":
            told = _each(value.items(), _write)
        elif kind == "delete":
            told = _each(((path, "") for path in value), _delete)
        elif kind == "sleep_s":
            time.sleep(value)
            told = {"output": f"slept {value:g} s", "exit_code": 0, "files": []}
        else:
            os.kill(os.getpid(), signal.SIGKILL)
            told = {}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def _each(items: Iterable[tuple[str, str]], do: Callable[[str, str], str]) -> dict[str, object]:
    lines, files, failed = [], [], 0
    for path, content in items:
        try:
            lines.append(do(path, content))
            files.append(path)
        except (OSError, ValueError) as problem:
            failed = 1
            lines.append(f"{path}: {getattr(problem, 'strerror', None) or problem}")
    return {"output": "\n".join(lines), "exit_code": failed, "files": files}


def _write(path: str, content: str) -> str:
    data = content.encode("utf-8")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return f"{path}: {len(data)} bytes written"


def _delete(path: str, _: str) -> str:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, directories, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(folder, name))
            for name in directories:
                below = os.path.join(folder, name)
                os.unlink(below) if os.path.islink(below) else os.rmdir(below)
        os.rmdir(path)
    else:
        os.unlink(path)
    return f"{path}: deleted"


if __name__ == "__main__":
    main()
