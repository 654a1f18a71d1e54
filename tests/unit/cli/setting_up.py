"""The commands that set things up, run within the test, with a home of their own."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.dispatch import exit_code, run_action
from coilclaw.cli.parser import COMMANDS, Parser
from coilclaw.kernel.errors import CoilClawError


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> object:
        """What it printed, as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class World:
    """A user's home directory and our home in it."""

    user: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def home(self) -> Path:
        return self.user / ".coilclaw"

    @property
    def config(self) -> Path:
        return self.home / "config.toml"

    @property
    def workspace(self) -> Path:
        return self.user / "coilclaw-workspace"

    def write(self, text: str) -> None:
        self.home.mkdir(exist_ok=True, mode=0o700)
        self.config.write_text(text, encoding="utf-8")
        self.config.chmod(0o600)

    def run(self, *words: str, **environ: str) -> Done:
        """Run a command; nobody sits at the terminal."""
        parser = Parser()
        module = import_module(COMMANDS[words[0]][0], "coilclaw.cli")
        module.declare(parser)
        args = parser.parse_args(words[1:])
        out, err = io.StringIO(), io.StringIO()
        with self.monkeypatch.context() as patch:
            patch.setenv("HOME", str(self.user))
            patch.delenv("COILCLAW_HOME", raising=False)
            patch.setattr("sys.stdin", io.StringIO())
            for name, value in environ.items():
                patch.setenv(name, value)
            console = Console.of(out, err, {}, as_json=getattr(args, "json", False))
            try:
                args.module = COMMANDS[words[0]][0]
                code = run_action(args, console)
            except CoilClawError as problem:
                console.error(problem.message, rule=problem.rule, hint=problem.hint)
                code = exit_code(problem)
        return Done(code, out.getvalue(), err.getvalue())
