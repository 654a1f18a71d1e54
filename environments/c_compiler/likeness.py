"""Recognizing most of a compiler in a file: changed here and there, inside another file, packed."""

from __future__ import annotations

import bz2
import lzma
import mmap
import zlib
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_UNPACKED: Final = 128 * 2**20
SAMPLES: Final = 256
_SAMPLE: Final = 32
_VARIED: Final = 12
"""Different bytes that a sample has to have: padding and tables are alike in all programs."""
_TRIED: Final = 5
_GZIP, _BZIP2, _XZ = b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\0"

Data: TypeAlias = mmap.mmap | bytes


def is_like(data: Data, size: int, original: Path) -> bool:
    """Whether half of what was sampled of a program is in a file, each in its place."""
    if size < original.stat().st_size // 2:
        return False
    samples = _samples(original)
    for offset, sample in samples[:: max(len(samples) // _TRIED, 1)]:
        found = data.find(sample)
        if found < 0:
            continue
        shift = found - offset
        same = sum(
            at + shift >= 0 and data[at + shift : at + shift + _SAMPLE] == other
            for at, other in samples
        )
        if same * 2 >= len(samples):
            return True
    return False


def unpacked(data: Data) -> bytes | None:
    """What a file holds that is one packed file; ``None`` if it is none, or a broken one."""
    begin = data[:8]
    try:
        if begin.startswith(_GZIP):
            return zlib.decompressobj(31).decompress(data, MAX_UNPACKED)
        if begin.startswith(_BZIP2):
            return bz2.BZ2Decompressor().decompress(data, MAX_UNPACKED)
        if begin.startswith(_XZ):
            return lzma.LZMADecompressor().decompress(data, MAX_UNPACKED)
    except (zlib.error, OSError, EOFError, lzma.LZMAError):
        return None
    return None


@cache
def _samples(path: Path) -> tuple[tuple[int, bytes], ...]:
    return tuple(_sampled(path.read_bytes()))


def _sampled(data: bytes) -> Iterator[tuple[int, bytes]]:
    width = max(len(data) // SAMPLES, _SAMPLE)
    for begin in range(0, len(data) - _SAMPLE, width):
        for at in range(begin, min(begin + width, len(data)) - _SAMPLE, _SAMPLE):
            sample = data[at : at + _SAMPLE]
            if len(set(sample)) >= _VARIED:
                yield at, sample
                break
