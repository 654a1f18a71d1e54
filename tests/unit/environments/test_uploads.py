"""Archives from anybody: what is refused leaves nothing, what is taken is exactly what was sent."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments.archives import UploadBounds, unpack_upload
from tests.support.scale import scaled

SMALL = UploadBounds(unpacked_bytes=10_000, entries=20, depth=5)
Made = Callable[[tarfile.TarFile], None]


def entry(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for field, value in more.items():
        setattr(made, field, value)
    return made


def tar(*entries: tarfile.TarInfo | tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        for one in entries:
            if isinstance(one, tarfile.TarInfo):
                archive.addfile(one)
            else:
                archive.addfile(entry(one[0], size=len(one[1])), io.BytesIO(one[1]))
    return data.getvalue()


def taken(folder: Path, packed: bytes, bounds: UploadBounds = SMALL) -> Path:
    (folder / "upload").write_bytes(packed)
    unpack_upload(folder / "upload", folder / "tree", bounds)
    return folder / "tree"


def contents(tree: Path) -> dict[str, object]:
    """Everything below a directory: bytes, link targets, and ``None`` for directories."""
    found: dict[str, object] = {}
    for path in tree.rglob("*"):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.SYMTYPE, linkname=target)


def raw(name: bytes, *, size: bytes = b"00000000000\0", kind: bytes = b"0") -> bytes:
    """One header block with a checksum that is right, whatever else is in it."""
    head = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size + b"00000000000\0"
    block = bytearray((head + b" " * 8 + kind).ljust(512, b"\0"))
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


END = b"\0" * 1024
HOSTILE = {
    "absolute": tar(("/etc/x", b"")),
    "upwards": tar(("../x", b"")),
    "upwards inside": tar(("a/../../x", b"")),
    "upwards, though it would stay inside": tar(("a/../x", b"")),
    "without a name": raw(b"") + END,
    "only dots": raw(b"./.") + END,
    "a zero byte in a long name": tar(("x" * 120 + "\0y", b"")),
    "an absolute link": tar(link("a", "/etc/passwd")),
    "a link out": tar(link("a", "../../etc")),
    "a link out of a directory": tar(link("a/b", "../../etc")),
    "a link out by way of another": tar(
        link("d/e/s", "../../top"), entry("top", tarfile.DIRTYPE), link("t", "d/e/s/../..")
    ),
    "a link out that another one leads to": tar(
        link("a", "b/../.."), link("b", "d"), entry("d", tarfile.DIRTYPE)
    ),
    "a link to a long name": tar(link("a", "x" * 256)),
    "a link to nothing": raw(b"a", kind=b"2") + END,
    "a file through a link": tar(link("a", "b"), ("a/x", b"")),
    "a file through a link that comes later": tar(("a/x", b""), link("a", "b")),
    "a file in the place of a link": tar(link("a", "b"), ("a", b"x")),
    "a directory in the place of a link": tar(link("a", "b"), entry("a", tarfile.DIRTYPE)),
    "a hard link": tar(("a", b"x"), entry("b", tarfile.LNKTYPE, linkname="a")),
    "a hard link to a file of ours": tar(entry("b", tarfile.LNKTYPE, linkname="/etc/passwd")),
    "a device": tar(entry("a", tarfile.CHRTYPE, devmajor=1, devminor=5)),
    "a block device": tar(entry("a", tarfile.BLKTYPE)),
    "a pipe": tar(entry("a", tarfile.FIFOTYPE)),
    "a sparse file": raw(b"a", kind=b"S") + END,
    "a sparse file of the newer kind": tar(
        entry("a", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999"})
    ),
    "a kind that is unknown": raw(b"a", kind=b"Z") + END,
    "a name twice": tar(("a", b"1"), ("a", b"2")),
    "a name twice, written differently": tar(("a/b", b"1"), ("./a//b", b"2")),
    "a file that is also a directory": tar(("a", b""), ("a/b", b"")),
    "a directory that is also a file": tar(("a/b", b""), ("a", b"")),
    "a file with the name of a directory": tar(("a/", b"")),
    "a long name": tar(("x" * 256, b"")),
    "a long path": tar(("/".join(["x" * 250] * 9), b"")),
    "too deep": tar(("a/b/c/d/e/f", b"")),
    "too many files": tar(*((f"f{n}", b"") for n in range(21))),
    "too many directories": tar(*((f"a{n}/b/c/d", b"") for n in range(6))),
    "too large": tar(("a", b"x" * 10_001)),
    "too large together": tar(("a", b"x" * 6000), ("b", b"x" * 6000)),
    "a size that is a lie": raw(b"a", size=b"77777777777\0") + b"x" * 512 + END,
    "a negative size": raw(b"a", size=b"\xff" * 12) + END,
    "a size that is no number": raw(b"a", size=b"zzzzzzzzzzz\0") + END,
    "a checksum that is wrong": tar(("a", b"x"))[:10] + b"?" + tar(("a", b"x"))[11:],
    "garbage after an entry": tar(("a", b"x"))[:1024] + b"?" * 512 + END,
    "no end": tar(("a", b"x"))[:1024],
    "cut off in a file": tar(("a", b"x" * 4000))[:2048],
    "cut off in a header": tar(("a", b"x"))[:300],
    "half an end": tar(("a", b"x"))[:1536],
    "something after the end": tar(("a", b"x")) + tar(("b", b"x")),
    "one block of zeros in between": tar(("a", b""))[:512] + b"\0" * 512 + tar(("b", b"")),
    "long names of nobody": tar(("x" * 120, b""))[:1024] + END,
    "one name for all": raw(b"g", size=b"00000000012\0", kind=b"g")
    + b"9 path=x\n".ljust(512, b"\0")
    + tar(("a", b"")),
    "records that cannot be read": raw(b"x", size=b"00000000012\0", kind=b"x")
    + b"99 path=x\n".ljust(512, b"\0")
    + tar(("a", b"")),
    "records without end": raw(b"x", size=b"77777777777\0", kind=b"x") + END,
    "nothing": b"",
    "zeros only in one block": b"\0" * 512,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        taken(tmp_path, gzip.compress(HOSTILE[name], 1))
    assert caught.value.rule in {"upload.entry", "upload.large", "upload.malformed"}
    assert os.listdir(tmp_path) == ["upload"]


def test_an_absolute_link_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        taken(tmp_path, gzip.compress(tar(link("bin/sh", "/bin/sh"))))
    assert caught.value.message == "'bin/sh' in the upload is a link to an absolute path"


WHOLE = gzip.compress(tar(("a", b"x")), mtime=0)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no gzip", id="text"),
        pytest.param(tar(("a", b"x")), id="not packed"),
        pytest.param(WHOLE[:-1], id="cut by one"),
        pytest.param(WHOLE[:-9], id="without its end"),
        pytest.param(WHOLE[:20], id="only its head"),
        pytest.param(WHOLE + b"behind it", id="with more behind it"),
        pytest.param(WHOLE[:-8] + b"\0" * 8, id="wrong sum"),
    ],
)
def test_what_is_no_whole_gzip_is_refused(tmp_path: Path, packed: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        taken(tmp_path, packed)
    assert caught.value.rule == "upload.malformed"
    assert os.listdir(tmp_path) == ["upload"]


@pytest.mark.parametrize("kind", [b"x", b"L", b"0"])
def test_a_bomb_takes_neither_memory_nor_disk(tmp_path: Path, kind: bytes) -> None:
    whole = 300 * 2**20
    with gzip.open(tmp_path / "upload", "wb", 1) as file:
        file.write(raw(b"a", size=b"%011o\0" % whole, kind=kind))
        for _ in range(whole // 2**20):
            file.write(b"\0" * 2**20)
    tracemalloc.start()
    with pytest.raises(UsageError):
        unpack_upload(tmp_path / "upload", tmp_path / "tree", UploadBounds(unpacked_bytes=2**20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20
    assert os.listdir(tmp_path) == ["upload"]


def test_a_web_of_links_does_not_take_for_ever(tmp_path: Path) -> None:
    def web(number: int) -> bytes:
        links = [
            entry(
                f"l{at}",
                tarfile.SYMTYPE,
                linkname="a/../" * 300 + (f"l{at - 1}" if at % 39 else "a"),
            )
            for at in range(number)
        ]
        return gzip.compress(tar(entry("a", tarfile.DIRTYPE), *links), 1)

    with pytest.raises(UsageError) as caught:
        taken(tmp_path, web(1000), UploadBounds())
    assert caught.value.rule == "upload.large"
    assert os.listdir(tmp_path) == ["upload"]
    assert len(contents(taken(tmp_path, web(39), UploadBounds()))) == 40


def test_zeros_behind_the_end_are_bounded_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        taken(tmp_path, gzip.compress(tar(("a", b"x")) + b"\0" * 200_000))
    assert caught.value.rule == "upload.large"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_what_is_good_is_there_as_it_was(tmp_path: Path, form: int) -> None:
    long = "d" * 80 + "/" + "e" * 80
    packed = tar(
        entry("./", tarfile.DIRTYPE),
        ("./a", b"one"),
        ("b/c", b"x" * 5000),
        ("A", b"another"),
        (f"{long}/f", b"deep"),
        ("ü", b""),
        entry("empty", tarfile.DIRTYPE),
        entry("b", tarfile.DIRTYPE),
        link("l", "b/c"),
        link("b/up", "../a"),
        link("dangling", "nowhere"),
        link("round", "round"),
        form=form,
    )
    tree = taken(tmp_path, gzip.compress(packed))
    above = long.split("/", maxsplit=1)[0]
    assert contents(tree) == {
        "a": b"one",
        "A": b"another",
        "b": None,
        "b/c": b"x" * 5000,
        "b/up": "-> ../a",
        above: None,
        long: None,
        f"{long}/f": b"deep",
        "ü": b"",
        "empty": None,
        "l": "-> b/c",
        "dangling": "-> nowhere",
        "round": "-> round",
    }


def test_of_modes_only_who_may_execute_is_kept(tmp_path: Path) -> None:
    packed = tar(
        entry("plain", mode=0o000), entry("run", mode=0o4755), entry("d", tarfile.DIRTYPE, mode=0)
    )
    tree = taken(tmp_path, gzip.compress(packed))
    modes = {name: stat.S_IMODE(os.lstat(tree / name).st_mode) for name in ("plain", "run", "d")}
    assert modes == {"plain": 0o644, "run": 0o755, "d": 0o755}


def test_what_other_programs_pack_is_taken(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "f").write_bytes(b"\0" * 3000)
    (source / "l").symlink_to("sub/f")
    for number, form in enumerate(("gnu", "pax", "ustar", "v7")):
        folder = tmp_path / str(number)
        folder.mkdir()
        os.system(f"tar --format={form} -C {source} -czf {folder}/upload .")
        unpack_upload(folder / "upload", folder / "tree", SMALL)
        assert contents(folder / "tree") == contents(source)


_names = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", "A", "c" * 256, "\x01", "é", "/"]),
    min_size=1,
    max_size=4,
).map("/".join)
_entries = st.lists(
    st.tuples(
        st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
        _names,
        _names,
        st.binary(max_size=20),
    ),
    max_size=6,
)


def goes_round(path: Path) -> bool:
    try:
        path.stat()
    except OSError as problem:
        return problem.errno == errno.ELOOP
    return False


@example([(tarfile.SYMTYPE, "a", "a//", b"")], tarfile.PAX_FORMAT)
@settings(max_examples=scaled(full=600, default=100))
@given(_entries, st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_whatever_is_sent_stays_inside(
    entries: list[tuple[bytes, str, str, bytes]], form: int
) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", format=form, compresslevel=1) as archive:
        for kind, name, target, content in entries:
            made = entry(name, kind, linkname=target)
            if kind == tarfile.REGTYPE:
                made.size = len(content)
            archive.addfile(made, io.BytesIO(content))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve() / "place"
        place.mkdir()
        (place / "sentinel").write_bytes(b"untouched")
        before = {"sentinel", "upload"}
        try:
            tree = taken(place, data.getvalue(), UploadBounds(unpacked_bytes=200, entries=20))
        except UsageError:
            assert set(os.listdir(place)) == before
        else:
            assert set(os.listdir(place)) == {*before, "tree"}
            for path in tree.rglob("*"):
                # Following it all the way must not lead out; one that goes round leads nowhere.
                if goes_round(path):
                    continue
                end = Path(os.path.realpath(path))
                assert end == tree or tree in end.parents
                assert not path.is_file() or path.is_symlink() or os.stat(path).st_nlink == 1
            files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
            sent = [one for one in entries if one[0] == tarfile.REGTYPE]
            assert sorted(path.read_bytes() for path in files) == sorted(one[3] for one in sent)
        assert (place / "sentinel").read_bytes() == b"untouched"
        assert set(os.listdir(folder)) == {"place"}


@settings(max_examples=scaled(full=600, default=200))
@given(st.binary(max_size=3000), st.integers(0, 4000), st.binary(max_size=40))
def test_damage_is_noticed_or_harmless(noise: bytes, at: int, change: bytes) -> None:
    whole = bytearray(tar(("a/b", b"x" * 700), link("l", "a/b"), ("c", noise)))
    whole[at : at + len(change)] = change
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            taken(place, gzip.compress(bytes(whole), 1))
        except UsageError:
            assert os.listdir(place) == ["upload"]
        assert sorted(os.listdir(place)) in (["upload"], ["tree", "upload"])
