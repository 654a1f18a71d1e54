"""Taking secrets out of a 4 MB text of source code, against reading and writing the same text."""

from __future__ import annotations

import os
import random
import statistics
import string
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.measurement import Measurement
from coilclaw.kernel.secret import Secret
from coilclaw.policy.redaction import SecretRedactor

SIZE: Final = 4_000_000
ROUNDS: Final = 15
TARGET: Final = 10.0
_KEY_CHARS: Final = string.ascii_letters + string.digits + "-_"


def _source() -> str:
    """Return the source code of this project, as often as it takes."""
    root = Path(__file__).parent.parent
    files = sorted([*(root / "src").rglob("*.py"), *(root / "tests" / "unit").rglob("*.py")])
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    return (text * (SIZE // len(text) + 1))[:SIZE]


def _keys() -> list[str]:
    rng = random.Random(2)
    shapes = (("AIzaSy", 33), ("sk-proj-", 48), ("sk-ant-api03-", 95))
    return [start + "".join(rng.choices(_KEY_CHARS, k=count)) for start, count in shapes]


def _floor(source: Path, target: Path) -> None:
    text = source.read_text(encoding="utf-8")
    with target.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run() -> list[Measurement]:
    """Measure a text without a key and one that holds each key, interleaved with the floor."""
    text, keys = _source(), _keys()
    holding = f"\n# {keys[0]}\n".join([text[: SIZE // 2], text[SIZE // 2 :], *keys])
    redactor = SecretRedactor([Secret(key) for key in keys])
    assert redactor.redact(text) is text
    assert not any(key in redactor.redact(holding) for key in keys)
    floor, clean, leaky = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(dir=os.environ.get("COILCLAW_BENCH_DIR")) as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_text(text, encoding="utf-8")
        for _ in range(ROUNDS):
            floor.append(_seconds(lambda: _floor(source, target)))
            clean.append(_seconds(lambda: redactor.redact(text)))
            leaky.append(_seconds(lambda: redactor.redact(holding)))
    base = statistics.median(floor)
    return [
        Measurement(
            f"redact 4 MB {what} / read and write it",
            statistics.median(times) / base,
            f"<= {TARGET}",
            statistics.median(times) <= TARGET * base,
            f"{statistics.median(times) * 1000:.1f} ms / {base * 1000:.1f} ms, 3 keys",
        )
        for what, times in (("without a key", clean), ("with every key", leaky))
    ]
