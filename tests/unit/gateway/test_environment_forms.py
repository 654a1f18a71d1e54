"""Forms with a file: what the disk does not take is told as that."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from pathlib import Path
from typing import Any, cast

import pytest

from coilclaw.gateway.environment.forms import FormRules, read_form
from coilclaw.gateway.settings import GatewaySettings
from coilclaw.kernel.errors import EnvironmentFault

_HEAD = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\n'


class Full(io.RawIOBase):
    """A file on a disk that is full."""

    def writable(self) -> bool:
        return True

    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk:
    def open(self, _: str) -> io.BufferedWriter:
        return io.BufferedWriter(Full())


@pytest.mark.parametrize("sizes", [(10,), (100_000,), (5_000, 100_000), (5_000,) * 3])
def test_a_full_disk_is_told_as_that(sizes: tuple[int, ...]) -> None:
    pieces = [_HEAD, *(b"x" * size for size in sizes), b"\r\n--b--\r\n"][::-1]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": pieces.pop(), "more_body": bool(pieces)}

    rules = FormRules(("file",), cast("Path", FullDisk()), GatewaySettings(max_body_bytes=10**6))
    with pytest.raises(EnvironmentFault) as caught:
        asyncio.run(read_form(b"multipart/form-data; boundary=b", receive, rules))
    assert caught.value.rule == "upload.disk"
    assert caught.value.message == "the upload cannot be written: No space left on device"
