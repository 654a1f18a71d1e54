"""The evidence of a sealed run as one tar, made while it is sent; the same bytes each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.gateway.runkeeper import Archive
from coilclaw.orchestrator import bundletree, layout
from coilclaw.orchestrator.bundle import sealed_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

PIECE_BYTES: Final = 2**18
_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)


def archived(directory: Path) -> Archive:
    """Return a sealed run as a tar, in a folder of its name, without what was audited since."""
    manifest = sealed_manifest(directory)
    if manifest is None:
        raise UsageError(
            f"run {directory.name} is not sealed yet",
            rule="run.unsealed",
            hint=f"follow it at /runs/{directory.name}/events",
        )
    sizes = {path: _size(directory, path) for path in _files(manifest)}
    folders = _folders(directory.name, manifest)
    heads = sum(len(_head(name, None)) for name in folders)
    bodies = sum(
        len(_head(f"{directory.name}/{path}", size)) + size + _padding(size)
        for path, size in sizes.items()
    )
    return Archive(
        f"{directory.name}.tar",
        heads + bodies + len(_END),
        _pieces(directory, folders, sizes),
    )


def _pieces(directory: Path, folders: list[str], sizes: Mapping[str, int]) -> Iterator[bytes]:
    for name in folders:
        yield _head(name, None)
    for path, size in sizes.items():
        yield _head(f"{directory.name}/{path}", size)
        left = size
        with bundletree.opened(directory, path) as file:
            while left:
                piece = file.read(min(left, PIECE_BYTES))
                if not piece:
                    raise EnvironmentFault(
                        f"{directory / path} became shorter while it was sent", rule="bundle.io"
                    )
                left -= len(piece)
                yield piece
        yield bytes(_padding(size))
    yield _END


def _files(manifest: Mapping[str, Json]) -> tuple[str, ...]:
    hashes = manifest.get("evidence_hashes")
    return (layout.MANIFEST, *sorted(hashes if isinstance(hashes, dict) else ()))


def _folders(name: str, manifest: Mapping[str, Json]) -> list[str]:
    told = manifest.get("directories")
    return sorted([name, *(f"{name}/{path}" for path in (told if isinstance(told, list) else ()))])


def _size(directory: Path, path: str) -> int:
    import os

    with bundletree.opened(directory, path) as file:
        return os.fstat(file.fileno()).st_size


def _padding(size: int) -> int:
    return -size % _BLOCK


def _head(name: str, size: int | None) -> bytes:
    """The head of a member whose time, owner and mode are always the same; no size: a folder."""
    import tarfile

    info = tarfile.TarInfo(name)
    info.mtime = 0
    info.mode = 0o755 if size is None else 0o644
    info.type = tarfile.DIRTYPE if size is None else tarfile.REGTYPE
    info.size = size or 0
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
