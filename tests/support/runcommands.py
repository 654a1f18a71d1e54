"""A world of runs with the real executable in it."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

from coilclaw.cli.dispatch import dispatch
from coilclaw.cli.parser import build_parser
from coilclaw.kernel import schemas

# Imported here so that a forked child has them already.
from tests.support.runs import World

build_parser()
schemas.find_schema_problems("task_contract.v1", {})


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one value that was printed; of a run, whose events come before it, the last."""
        lines = self.out.splitlines()
        return json.loads(lines[-1] if lines and lines[0].startswith('{"') else self.out)


@dataclass(frozen=True)
class Coilclaw:
    """Runs ``coilclaw`` in the repository of a world."""

    world: World

    def __call__(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> Done:
        """Run a command in a process of its own that need not start Python anew."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                streams = (given.fileno(), out.fileno(), err.fileno())
                _child(arguments, streams, cwd or self.world.repo, self.env())
            _, status = os.waitpid(pid, 0)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return Done(os.waitstatus_to_exitcode(status), *texts)

    def program(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> Done:
        """Run the executable itself."""
        done = subprocess.run(
            self.argv(*arguments),
            input=stdin,
            capture_output=True,
            cwd=cwd or self.world.repo,
            env=self.env(),
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.argv(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.world.repo,
            env=self.env(),
        )

    @staticmethod
    def argv(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "coilclaw", *arguments]

    def env(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("LANG",) if name in os.environ},
            **self.world.environ,
            "COILCLAW_HOME": str(self.world.home),
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def keep(self, data: bytes, name: str = "contract.json") -> str:
        """Put a contract beside the repository; return its path."""
        path = self.world.root / name
        path.write_bytes(data)
        return str(path)


def _child(
    arguments: tuple[str, ...], streams: tuple[int, int, int], cwd: Path, env: dict[str, str]
) -> NoReturn:
    code = 99
    try:
        for target, source in enumerate(streams):
            os.dup2(source, target)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        logging.getLogger().handlers.clear()
        sys.stdin, sys.stdout, sys.stderr = map(_stream, (0, 1, 2))
        code = dispatch(arguments)
    except SystemExit as wrong:
        code = wrong.code if isinstance(wrong.code, int) else 98
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _stream(number: int) -> TextIO:
    raw = os.fdopen(number, "wb" if number else "rb", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
