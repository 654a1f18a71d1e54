"""What every test starts from, whoever started the tests: signals, environment, umask, scale."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import tempfile
import threading
import time

import pytest
from hypothesis import HealthCheck, settings

from tests.support.scale import is_full, scaled

# What a property test finds must not depend on how busy the machine is.
settings.register_profile(
    "coilclaw",
    deadline=None,
    max_examples=scaled(full=100, default=100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("coilclaw")

_KEPT = ("PATH", "CI", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
_KEPT_FAMILIES = (
    *("COILCLAW_TEST_", "HYPOTHESIS_", "PYTEST_"),
    # How packages are reached from here.
    *("PIP_", "npm_config_", "NPM_CONFIG_", "UV_", "SSL_", "NODE_EXTRA_", "REQUESTS_"),
)
_NAMED = ("COILCLAW_CODEX", "COILCLAW_OPENCODE", "COILCLAW_FIXTURES", "COILCLAW_SCHEMATHESIS")
"""What scripts bring for the tests: programs and files that others wrote."""


def _settle_signals() -> None:
    """Undo what the parent ignored or blocked: a job in the background ignores Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return  # a worker whose controller has done it
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        if signal.getsignal(number) is signal.SIG_IGN and number != signal.SIGXFSZ:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)


def _settle_environment() -> None:
    """Leave nothing of the caller's environment but where programs and packages are found."""
    home = os.path.realpath(tempfile.mkdtemp(prefix="coilclaw-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in (*_KEPT, *_NAMED) or name.startswith(_KEPT_FAMILIES)
    }
    os.environ.clear()
    os.environ.update(kept, HOME=home, LANG="C.UTF-8", TERM="dumb", TZ="UTC")
    time.tzset()
    os.umask(0o022)


_settle_signals()
_settle_environment()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only continuous integration brings, and shuffle the rest if asked to."""
    if not is_full():
        left_out = [item for item in items if item.get_closest_marker("full") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]
    seed = os.environ.get("COILCLAW_TEST_SEED")
    if seed is not None:
        _shuffle(items, random.Random(seed))


def _shuffle(items: list[pytest.Item], chance: random.Random) -> None:
    """Put modules, and the tests of each, in another order; what a module shares is made once."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    groups = list(modules.values())
    chance.shuffle(groups)
    for group in groups:
        chance.shuffle(group)
    items[:] = [item for group in groups for item in group]
