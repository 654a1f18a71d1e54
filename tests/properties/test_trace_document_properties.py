"""A kill at any byte of a write: the document is mended, and no part that was kept is lost."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.traces.trajectory.trace_document import TraceDocument, parse_trace
from tests.support.scale import scaled

TEXTS = st.text(max_size=30) | st.sampled_from(["\n]}\n", ',"parts":[\n', "]}", "{", '"', "\\"])
PARTS = st.lists(st.fixed_dictionaries({"content": TEXTS}), min_size=1, max_size=5)


class Killed(BaseException):
    """The process is gone in the middle of a write."""


@settings(max_examples=scaled(full=500, default=100), deadline=None)
@given(PARTS, TEXTS, st.data())
def test_a_write_that_is_cut_off_loses_nothing(
    parts: list[dict[str, Any]], head: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent_trace.json"
        document = TraceDocument(path)
        document.rebuild({"head": head}, parts[:-1])
        whole, real = path.read_bytes(), os.pwrite

        def torn(descriptor: int, written: bytes, at: int) -> int:
            kept = data.draw(st.integers(0, len(written)))
            real(descriptor, written[:kept], at)
            raise Killed

        with mock.patch("coilclaw.traces.trajectory.trace_document.os.pwrite", torn):
            try:
                document.append(parts[-1])
            except Killed:
                document.close()
        left = path.read_bytes()
        assert left[: len(whole) - 4] == whole[: len(whole) - 4]
        # Whoever reads it before it is mended sees every part that was there before.
        found = parse_trace(left, "it")
        assert found["head"] == head
        assert found["parts"] in (parts[:-1], parts)
        again = TraceDocument(path)
        again.rebuild({"head": head}, parts)
        again.close()
        assert json.loads(path.read_bytes()) == {"head": head, "parts": parts}
