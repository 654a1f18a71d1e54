"""The real executable, run as a user would: a home of its own and a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """Runs ``coilclaw`` with a temporary home."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "coilclaw", *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd or self.home.parent,
            env=self.env(),
            timeout=120,
            check=False,
        )

    def env(self) -> dict[str, str]:
        """Return the environment the command sees."""
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **keep,
            "HOME": str(self.home.parent),
            "COILCLAW_HOME": str(self.home),
            **self.environment,
        }
