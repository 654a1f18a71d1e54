"""Archives that try to get out, to grow or to hide something; and those that are right."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from coilclaw.agent.plugins import archive, files
from coilclaw.agent.plugins.installation import install_plugin
from coilclaw.agent.plugins.store import PluginStore
from coilclaw.kernel.errors import CoilClawError, DeniedError, UsageError
from tests.support.pluginworld import SAYS_OK, entries, make, manifest, tarred, zipped

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar.xz")


def packed(path: Path, content: dict[str, tuple[bytes, int]]) -> Path:
    return zipped(path, content) if path.name.endswith(".zip") else tarred(path, content)


def refused(tmp_path: Path, source: Path) -> str:
    """The rule that refuses an archive; nothing may have been written anywhere."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CoilClawError) as problem:
        install_plugin(PluginStore(home), source, ())
    assert sorted(os.listdir(tmp_path)) == before
    assert not (home / "plugins.json").exists()
    assert PluginStore(home).names() == ()
    return problem.value.rule


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("../evil", "path.parent"),
        ("a/../../evil", "path.parent"),
        ("/tmp/evil", "path.absolute"),
        ("a\\..\\evil", "path.backslash"),
        ("C:evil", "path.drive"),
        ("a\nb", "path.control"),
        (".git/hooks/x", "path.git"),
        ("con.txt", "path.device"),
        ("trailing.", "path.trailing"),
        ("x" * 256, "path.long"),
        ("/".join("abcdefghijklmnopq"), "plugin.bounds"),
        ("MANIFEST.toml", "plugin.duplicate"),
        ("run/inside", "plugin.duplicate"),
        ("Run", "plugin.duplicate"),
    ],
)
def test_a_name_that_leads_elsewhere_or_collides_is_refused(
    tmp_path: Path, suffix: str, name: str, rule: str
) -> None:
    source = packed(tmp_path / f"p{suffix}", {**entries(), name: (b"x", 0o644)})
    assert refused(tmp_path, source) == rule


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_that_one_normalisation_makes_equal_are_refused(tmp_path: Path, suffix: str) -> None:
    both = {**entries(), "\u00e9": (b"1", 0o644), "e\u0301": (b"2", 0o644)}
    assert refused(tmp_path, packed(tmp_path / f"p{suffix}", both)) == "plugin.duplicate"
    folders = {**entries(), "Sub/a": (b"1", 0o644), "sub/b": (b"2", 0o644)}
    assert refused(tmp_path, packed(tmp_path / f"q{suffix}", folders)) == "plugin.duplicate"


@pytest.mark.parametrize("kind", [0o120777, 0o010644, 0o020644, 0o060644, 0o140644])
def test_a_zip_entry_that_is_no_plain_file_is_refused(tmp_path: Path, kind: int) -> None:
    source = zipped(tmp_path / "p.zip", {**entries(), "odd": (b"/etc/passwd", kind)})
    assert refused(tmp_path, source) == "plugin.kind"


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
        tarfile.GNUTYPE_SPARSE,
        b"Z",
    ],
)
@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz"])
def test_a_tar_entry_that_is_no_plain_file_is_refused(
    tmp_path: Path, kind: bytes, suffix: str
) -> None:
    odd = tarfile.TarInfo("odd")
    odd.type, odd.linkname = kind, "run"
    assert refused(tmp_path, tarred(tmp_path / f"p{suffix}", entries(), odd)) == "plugin.kind"


def test_a_sparse_file_is_refused_in_its_newer_form_too(tmp_path: Path) -> None:
    sparse = tarfile.TarInfo("odd")
    sparse.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": "1000000000"}
    source = tarred(tmp_path / "p.tar.gz", entries(), sparse)
    assert refused(tmp_path, source) == "plugin.kind"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path, suffix: str) -> None:
    both = {**entries(), "sub/a": (b"1", 0o644), "sub": (b"2", 0o644)}
    assert refused(tmp_path, packed(tmp_path / f"p{suffix}", both)) == "plugin.duplicate"


def test_a_link_and_a_file_of_its_name_cannot_work_together(tmp_path: Path) -> None:
    link = tarfile.TarInfo("out")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
    inside = tarfile.TarInfo("out/evil")
    assert refused(tmp_path, tarred(tmp_path / "p.tgz", entries(), link, inside)) == "plugin.kind"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    again = tarfile.TarInfo("run")
    assert refused(tmp_path, tarred(tmp_path / "p.tgz", entries(), again)) == "plugin.duplicate"
    source = zipped(tmp_path / "p.zip", entries())
    with zipfile.ZipFile(source, "a") as more:
        more.writestr("run", "other")
    assert refused(tmp_path, source) == "plugin.duplicate"


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    zeros = bytes(files.MAX_FILE_BYTES + 1)
    bomb = {**entries(), "bomb": (zeros, 0o644)}
    for suffix in SUFFIXES:
        assert refused(tmp_path, packed(tmp_path / f"p{suffix}", bomb)) == "plugin.bounds"
    ratio = {**entries(), "bomb": (bytes(8 * 2**20), 0o644)}
    for suffix in SUFFIXES:
        assert refused(tmp_path, packed(tmp_path / f"q{suffix}", ratio)) == "plugin.bounds"


def test_all_files_together_have_a_bound(tmp_path: Path) -> None:
    half = os.urandom(12 * 2**20)
    parts = {f"part{number}": (half, 0o644) for number in range(3)}
    source = packed(tmp_path / "p.tar.gz", {**entries(), **parts})
    assert refused(tmp_path, source) == "plugin.bounds"


def test_endless_streams_end(tmp_path: Path) -> None:
    source = tmp_path / "p.tar.gz"
    block = gzip.compress(bytes(2**24))
    source.write_bytes(block * 40)
    assert refused(tmp_path, source) == "plugin.bounds"
    source = tmp_path / "p.tar.xz"
    source.write_bytes(lzma.compress(bytes(50 * 2**20)))
    assert refused(tmp_path, source) == "plugin.bounds"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_too_many_entries_are_refused(tmp_path: Path, suffix: str) -> None:
    many = {f"f{number}": (b"", 0o644) for number in range(files.MAX_FILES + 1)}
    assert refused(tmp_path, packed(tmp_path / f"p{suffix}", many)) == "plugin.bounds"
    folders = {f"d{number}/": (b"", 0o40755) for number in range(archive.MAX_ENTRIES + 1)}
    if suffix == ".zip":
        assert refused(tmp_path, zipped(tmp_path / "d.zip", folders)) == "plugin.bounds"


def test_a_size_that_lies_is_found_out(tmp_path: Path) -> None:
    source = zipped(tmp_path / "p.zip", {**entries(), "big": (bytes(2**20), 0o644)})
    data = bytearray(source.read_bytes())
    place = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, place + 24, 10)  # the uncompressed size in the directory
    source.write_bytes(data)
    assert refused(tmp_path, source) == "plugin.archive"


def test_an_encrypted_or_unusually_packed_entry_is_refused(tmp_path: Path) -> None:
    source = zipped(tmp_path / "p.zip", entries())
    data = bytearray(source.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    source.write_bytes(data)
    assert refused(tmp_path, source) == "plugin.archive"
    with zipfile.ZipFile(tmp_path / "q.zip", "w", zipfile.ZIP_LZMA) as other:
        other.writestr("manifest.toml", manifest())
    assert refused(tmp_path, tmp_path / "q.zip") == "plugin.archive"


def test_a_nul_cannot_shorten_a_name(tmp_path: Path) -> None:
    source = zipped(tmp_path / "p.zip", {**entries(), "harmlessX.txt": (b"", 0o644)})
    source.write_bytes(source.read_bytes().replace(b"harmlessX", b"harmless\0"))
    assert refused(tmp_path, source) in {"plugin.name", "plugin.archive"}


@pytest.mark.parametrize("kind", [b"0", b"5", b"L", b"K", b"x", b"g", b"S"])
@pytest.mark.parametrize("size", [-1, -512, -1024, -(2**40)])
def test_a_tar_that_leads_back_to_itself_ends(tmp_path: Path, kind: bytes, size: int) -> None:
    """A negative size makes a careless reader go round for ever."""
    header = bytearray(tarfile.TarInfo("again").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" + size.to_bytes(11, "big", signed=True)
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    first = tarfile.TarInfo("first").tobuf(tarfile.GNU_FORMAT)
    for raw in (bytes(header), first + bytes(header)):
        source = tmp_path / "p.tar.gz"
        source.write_bytes(gzip.compress(raw + bytes(2048)))
        assert refused(tmp_path, source) in {"plugin.archive", "plugin.kind", "plugin.manifest"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damage_and_truncation_are_refused(tmp_path: Path, suffix: str) -> None:
    data = packed(tmp_path / f"p{suffix}", entries()).read_bytes()
    for number, bad in enumerate((b"", b"no archive", data[: len(data) // 2], data[:-10])):
        source = tmp_path / f"bad{number}{suffix}"
        source.write_bytes(bad)
        assert refused(tmp_path, source) in {"plugin.archive", "plugin.manifest"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_single_damaged_byte_is_an_answer_and_not_a_surprise(
    tmp_path: Path, suffix: str
) -> None:
    data = packed(tmp_path / f"p{suffix}", entries()).read_bytes()
    for place in range(0, len(data), 7):
        source = tmp_path / f"q{suffix}"
        source.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            archive.read_archive(source)
        except (DeniedError, UsageError):
            continue


def test_an_archive_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    source = tmp_path / "p.zip"
    with source.open("wb") as file:
        file.truncate(archive.MAX_ARCHIVE_BYTES + 1)
    assert refused(tmp_path, source) == "plugin.bounds"


def test_another_kind_of_file_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "p.rar").write_bytes(b"Rar!")
    assert refused(tmp_path, tmp_path / "p.rar") == "plugin.source"
    assert refused(tmp_path, tmp_path / "absent.zip") == "plugin.source"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("around", ["", "sample-1.2.3/"])
def test_a_right_archive_is_read_with_its_executable_bits_only(
    tmp_path: Path, suffix: str, around: str
) -> None:
    content = {**entries(), "data/deep/x.txt": (b"data", 0o6777 & ~0o111)}
    content["run"] = (SAYS_OK.encode(), 0o6755)
    wrapped = {around + name: value for name, value in content.items()}
    found = archive.read_archive(packed(tmp_path / f"p{suffix}", wrapped))
    assert found == (
        files.PluginFile("data/deep/x.txt", b"data", 0o644),
        files.PluginFile("manifest.toml", manifest().encode(), 0o644),
        files.PluginFile("run", SAYS_OK.encode(), 0o755),
    )


def test_directories_and_the_place_itself_may_be_listed(tmp_path: Path) -> None:
    source = make(tmp_path / "source", files={"sub/a": "1"})
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as made:
        made.add(source, ".")
    assert [file.path for file in archive.read_archive(tmp_path / "p.tar.gz")] == [
        "manifest.toml",
        "run",
        "sub/a",
    ]


def test_a_zip_made_elsewhere_has_no_executable_bits(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as made:
        for name, (content, _) in entries().items():
            info = zipfile.ZipInfo(name)
            info.create_system = 0
            made.writestr(info, content)
    with pytest.raises(UsageError) as problem:
        install_plugin(PluginStore(tmp_path), tmp_path / "p.zip", ())
    assert "tools[0].command: 'run' is not executable" in problem.value.message


def test_concatenated_gzip_members_are_one_stream(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:") as made:
        for name, (content, mode) in entries().items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            made.addfile(info, io.BytesIO(content))
    raw = stream.getvalue()
    (tmp_path / "p.tgz").write_bytes(gzip.compress(raw[:700]) + gzip.compress(raw[700:]))
    assert len(archive.read_archive(tmp_path / "p.tgz")) == 2
