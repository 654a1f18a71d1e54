"""A process that holds keys cannot be looked into by what it starts."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

import pytest

from coilclaw.app import providers
from coilclaw.models.endpoint import ProviderSettings

_GET_DUMPABLE = 3
SETTINGS = {
    "service": ProviderSettings(
        name="service", kind="openai-compatible", model="m", api_key_env="SERVICE_KEY"
    )
}


@pytest.mark.parametrize(
    ("environ", "dumpable"), [({"SERVICE_KEY": "sk-canary-0123456789"}, 0), ({}, 1)]
)
def test_who_holds_a_key_is_not_dumpable(environ: Mapping[str, str], dumpable: int) -> None:
    child = os.fork()
    if not child:
        found = 99
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(4, 1, 0, 0, 0)
            providers.make_provider_redactor(SETTINGS, environ)
            found = libc.prctl(_GET_DUMPABLE, 0, 0, 0, 0)
        finally:
            os._exit(found)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == dumpable
