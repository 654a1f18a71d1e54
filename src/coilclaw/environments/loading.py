"""Loading an environment file, which runs its author's code: in a worker process only."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import TYPE_CHECKING, Final

from coilclaw.environments.catalogue import MAIN
from coilclaw.environments.environment import Environment
from coilclaw.environments.registry import recording
from coilclaw.errors import CoilClawError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

MODULE: Final = "coilclaw_environment"
_TOLD_FRAMES: Final = 3


def load(file: Path) -> Environment:
    """Run an environment file and return what it declares.

    Beside a ``main.py`` its own modules can be imported; any other file stands alone.
    """
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UsageError(f"{file} is no Python file", rule="environment.file")
    module = importlib.util.module_from_spec(spec)
    if file.name == MAIN:
        sys.path.insert(0, str(file.parent))
    # Annotations are looked up in the module by its name.
    sys.modules[MODULE] = module
    with recording() as registry:
        try:
            spec.loader.exec_module(module)
        except CoilClawError as problem:
            problem.where = str(file)
            raise
        except (Exception, SystemExit) as problem:
            raise UsageError(
                f"the environment {file} cannot be loaded: {_told(problem)}",
                rule="environment.load",
            ) from problem
    return Environment(file, tuple(registry.entries), registry.setup, registry.teardown)


def _told(problem: BaseException) -> str:
    """The error and where it happened, nearest first."""
    frames = traceback.extract_tb(problem.__traceback__)[-_TOLD_FRAMES:]
    where = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(problem).__name__}: {problem} ({where})"
