"""Installing fixtures: hostile sources are refused, and it is there whole or not at all."""

from __future__ import annotations

import io
import json
import lzma
import os
import random
import signal
import subprocess
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.environments import archives, fixture_install, fixtures
from coilclaw.traces.environments.fixture_install import InstalledFixture, install_fixtures
from coilclaw.traces.environments.fixtures import FixtureSet, GitOrigin
from tests.support.fixturesets import FILES, OTHERS, in_package, lay, package, packed, pinned
from tests.support.scale import scaled


@pytest.fixture
def wanted(tmp_path: Path) -> FixtureSet:
    return pinned(tmp_path / "sample")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def left(root: Path) -> list[str]:
    """What is in a directory of fixtures, but for the lock."""
    return sorted(entry.name for entry in root.iterdir() if not entry.name.endswith(".lock"))


def refuse(wanted: FixtureSet, root: Path, origin: Path, said: str) -> UsageError:
    with pytest.raises(UsageError, match=said) as caught:
        install_fixtures(wanted, root, origin=origin)
    assert left(root) == []
    return caught.value


# archives that are not believed


def entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../outside.c", "leads out"),
        ("x/../../outside.c", "leads out"),
        ("/etc/outside.c", "leads out"),
        ("tests/" + "d" * 300 + "/x.c", "not a name"),
        ("x/" * 2100 + "x.c", "not a name"),
    ],
)
def test_names_that_lead_out(
    wanted: FixtureSet, root: Path, tmp_path: Path, name: str, said: str
) -> None:
    file = tmp_path / "hostile.tar"
    file.write_bytes(packed(FILES | {name: b"x"}))
    refuse(wanted, root, file, said)
    assert not (tmp_path / "outside.c").exists()


@pytest.mark.parametrize(
    "info",
    [
        entry("tests/link.c", tarfile.SYMTYPE, "/etc/passwd"),
        entry("tests/link.c", tarfile.LNKTYPE, "tests/a.c"),
        entry("tests/device.c", tarfile.CHRTYPE),
        entry("tests/pipe.c", tarfile.FIFOTYPE),
    ],
    ids=["symbolic", "hard", "device", "pipe"],
)
def test_links_and_devices(
    wanted: FixtureSet, root: Path, tmp_path: Path, info: tarfile.TarInfo
) -> None:
    file = tmp_path / "hostile.tar"
    file.write_bytes(packed(FILES, extra=[info]))
    refuse(wanted, root, file, "not a file")


def test_a_link_that_is_not_wanted_harms_nobody(
    wanted: FixtureSet, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "archive.tar"
    links = [
        entry("README.link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("tests/deep", tarfile.SYMTYPE, "/tmp"),
    ]
    file.write_bytes(packed(FILES | OTHERS, extra=links))
    assert install_fixtures(wanted, root, origin=file).found.state == "pinned"


def test_a_name_twice(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "twice.tar"
    again = tarfile.TarInfo("./tests/a.c")
    file.write_bytes(packed(FILES, extra=[again]))
    refuse(wanted, root, file, "twice")


def test_a_file_where_a_directory_is(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "odd.tar"
    file.write_bytes(packed({"tests/x.c": b"", "tests/x.c/y.c": b""} | FILES))
    refuse(wanted, root, file, "twice")


def test_bombs(
    wanted: FixtureSet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_STREAM_BYTES", 2**20)
    file = tmp_path / "bomb.tar.xz"
    file.write_bytes(lzma.compress(packed({"filler": bytes(2**21)} | FILES)))
    assert file.stat().st_size < 4096
    refuse(wanted, root, file, "unpacked")
    monkeypatch.setattr(archives, "MAX_STREAM_BYTES", 2**24)
    assert install_fixtures(wanted, root, origin=file).done


@pytest.mark.parametrize(
    ("module", "name", "limit", "said"),
    [
        (fixture_install, "MAX_FILE_BYTES", 10, "too large"),
        (fixture_install, "MAX_BYTES", 40, "too large"),
        (fixture_install, "MAX_FILES", 2, "more than 2 files"),
        (archives, "MAX_MEMBERS", 3, "more than 3 entries"),
        (archives, "MAX_HEADER_BYTES", 100, "header"),
    ],
)
def test_bounds(
    wanted: FixtureSet,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    limit: int,
    said: str,
) -> None:
    file = tmp_path / "large.tar"
    file.write_bytes(packed(FILES | {"long/" + "n" * 200: b""}))
    monkeypatch.setattr(module, name, limit)
    refuse(wanted, root, file, said)
    monkeypatch.undo()
    assert install_fixtures(wanted, root, origin=file).done


def test_a_header_that_claims_to_be_huge(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    """It would be read into memory whole."""
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 3 * 2**30
    file = tmp_path / "header.tar"
    file.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + bytes(2**16))
    refuse(wanted, root, file, "header of 3221225472 bytes")


def test_many_directories_that_look_like_it(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "many.tar"
    file.write_bytes(packed({f"{n}/tests/x.c": b"" for n in range(fixture_install.MAX_ROOTS + 1)}))
    refuse(wanted, root, file, "too many")


@pytest.mark.parametrize("kind", ["tar", "xz", "gz", "bz2", "deb"])
def test_cut_off_anywhere(wanted: FixtureSet, root: Path, tmp_path: Path, kind: str) -> None:
    """A tar archive may be cut at a border without a sign of it: then the hash is another."""
    whole = (
        package(FILES) if kind == "deb" else packed(FILES, "w" if kind == "tar" else f"w:{kind}")
    )
    file = tmp_path / "cut"
    size = len(whole.rstrip(b"\0"))
    for share in (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5):
        file.write_bytes(whole[: int(size * share)])
        with pytest.raises(UsageError):
            install_fixtures(wanted, root, origin=file)
        assert left(root) == []
    file.write_bytes(whole)
    assert install_fixtures(wanted, root, origin=file).found.state == "pinned"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 5000,
        b"!<arch>\n" + b"x" * 60,
        b"\xfd7zXZ\0" + b"x" * 99,
        b"\x1f\x8b" + b"x" * 99,
    ],
)
def test_what_is_no_archive(wanted: FixtureSet, root: Path, tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "none"
    file.write_bytes(data)
    with pytest.raises(UsageError):
        install_fixtures(wanted, root, origin=file)
    assert left(root) == []


def test_zstd_is_said_to_be_unknown(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.tar.zst"
    file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    assert refuse(wanted, root, file, "zstd").hint == "unpack it by hand and give the directory"


# sources


@pytest.mark.parametrize("above", ["", "./", "small-1.0/", "a/b/c/"])
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_an_archive_of_any_kind(
    wanted: FixtureSet, root: Path, tmp_path: Path, mode: str, above: str
) -> None:
    file = tmp_path / "archive"
    file.write_bytes(packed({above + name: data for name, data in (FILES | OTHERS).items()}, mode))
    done = install_fixtures(wanted, root, origin=file)
    found = fixtures.find(wanted, root)
    assert done == InstalledFixture(found, done=True, source=str(file))
    assert (found.state, found.place) == ("pinned", root / "small")
    kept = {
        str(path.relative_to(root / "small")): path.read_bytes()
        for path in (root / "small").rglob("*")
        if path.is_file()
    }
    record = json.loads(kept.pop(fixture_install.RECORD))
    assert kept == FILES
    assert record == {
        "name": "small",
        "licence": "ours",
        "source": str(file),
        "sha256": wanted.sha256,
        "files": 4,
    }
    assert left(root) == ["small"]


def test_several_streams_of_xz_in_one_file(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    whole = packed(FILES)
    file = tmp_path / "archive.tar.xz"
    file.write_bytes(lzma.compress(whole[:700]) + lzma.compress(whole[700:]) + bytes(8))
    assert install_fixtures(wanted, root, origin=file).done


def test_an_archive_in_a_package(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    inner = packed({f"small-1.0/src/{name}": data for name, data in FILES.items()}, "w:xz")
    file = tmp_path / "small.deb"
    file.write_bytes(package({"./usr/share/doc/x": b"x", "./usr/src/small-1.0.tar.xz": inner}))
    assert install_fixtures(in_package(wanted), root, origin=file).found.state == "pinned"


def test_a_source_that_holds_it_twice_or_not_at_all(
    wanted: FixtureSet, root: Path, tmp_path: Path
) -> None:
    lay(tmp_path / "source/one", FILES)
    lay(tmp_path / "source/two", FILES)
    refuse(wanted, root, tmp_path / "source", "more than once: .*one/.*two/")
    refuse(wanted, root, lay(tmp_path / "bare", OTHERS), r"no file tests/a\.c")
    refuse(wanted, root, tmp_path / "nowhere", "nowhere.* does not exist")
    assert install_fixtures(wanted, root, origin=tmp_path / "source/one").done


def test_a_directory_with_a_link_in_it(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    source = lay(tmp_path / "source", FILES)
    (source / "tests/link.c").symlink_to("/etc/passwd")
    refuse(wanted, root, source, "is a link")
    (source / "tests/link.c").unlink()
    (source / "elsewhere").symlink_to(tmp_path)  # not followed
    assert install_fixtures(wanted, root, origin=source).done


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)},
    )
    return done.stdout.strip()


@pytest.mark.parametrize("bare", [False, True])
def test_the_pinned_commit_of_a_clone(
    wanted: FixtureSet, root: Path, tmp_path: Path, bare: bool
) -> None:
    source = lay(tmp_path / "clone", FILES | OTHERS)
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    commit = git(source, "rev-parse", "HEAD")
    lay(source, {"tests/a.c": b"int changed;\n"})
    git(source, "commit", "-qam", "two")
    if bare:
        git(tmp_path, "clone", "-q", "--bare", str(source), str(tmp_path / "bare"))
        source = tmp_path / "bare"
    at = replace(wanted, git=GitOrigin("https://example.org/x.git", commit))
    done = install_fixtures(at, root, origin=source)
    assert (done.found.state, done.source) == ("pinned", f"{source}@{commit}")
    # Not the commit: then the files as they are, which are another version.
    unknown = replace(wanted, git=GitOrigin("https://example.org/x.git", "ab" * 20))
    with pytest.raises(UsageError):
        install_fixtures(unknown, tmp_path / "second", origin=source)
    assert left(tmp_path / "second") == []


def test_a_server_that_cannot_be_reached(wanted: FixtureSet, root: Path) -> None:
    far = replace(wanted, git=GitOrigin("https://127.0.0.1:9/none.git", "ab" * 20))
    with pytest.raises(EnvironmentFault, match="fetch"):
        install_fixtures(far, root)
    assert left(root) == []
    by_hand = fixture_install.by_hand(far, "c_compiler")
    assert "git clone https://127.0.0.1:9/none.git" in by_hand
    assert "ab" * 20 in by_hand
    assert "coilclaw env fixtures c_compiler install --from small=PATH" in by_hand


def test_apt_get(
    wanted: FixtureSet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a later version of the package is to be had; the files are the same."""
    inner = packed(FILES, "w:xz")
    (tmp_path / "small.deb").write_bytes(package({"./usr/src/small-1.0.tar.xz": inner}))
    tools = tmp_path / "tools"
    tools.mkdir()
    script = (
        "#!/bin/sh\n"
        'if [ "$3" = small-source ]\n'
        f"then /bin/cp {tmp_path}/small.deb small-source_1.1_all.deb\n"
        "else echo \"E: Version for '$3' was not found\" >&2; exit 100\nfi\n"
    )
    (tools / "apt-get").write_text(script)
    (tools / "apt-get").chmod(0o755)
    monkeypatch.setattr(
        "coilclaw.traces.environments.fixture_install.environment.minimal",
        lambda: {"PATH": str(tools)},
    )
    told: list[str] = []
    done = install_fixtures(in_package(wanted), root, tell=told.append)
    assert (done.found.state, done.source) == (
        "pinned",
        "Debian package small-source_1.1_all.deb",
    )
    assert told == [
        "apt-get download small-source=1.0",
        "apt-get download small-source",
        "unpacking small-source_1.1_all.deb",
    ]
    (tools / "apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    with pytest.raises(EnvironmentFault, match="cannot download small-source: E: no network"):
        install_fixtures(in_package(wanted), tmp_path / "second")
    (tools / "apt-get").unlink()
    with pytest.raises(EnvironmentFault, match=r"download small-source: .*apt-get"):
        install_fixtures(in_package(wanted), tmp_path / "second")
    assert left(tmp_path / "second") == []


# what is there already


def test_what_is_there_as_pinned_is_left_alone(
    wanted: FixtureSet, root: Path, tmp_path: Path
) -> None:
    place = lay(root / "other-name", FILES)
    done = install_fixtures(wanted, root, origin=tmp_path / "never looked at")
    assert done == InstalledFixture(fixtures.find(wanted, root), done=False)
    assert done.found.place == place


def test_another_version_is_neither_replaced_nor_installed(
    wanted: FixtureSet, root: Path, tmp_path: Path
) -> None:
    good = lay(tmp_path / "good", FILES)
    other = lay(tmp_path / "other", FILES | {"LICENSE": b"other"})
    problem = refuse(wanted, (tmp_path / "new"), other, "another version of small: its hash is")
    assert wanted.sha256 in problem.message
    lay(root / "small", FILES | {"LICENSE": b"mine"})
    with pytest.raises(UsageError, match="another version"):
        install_fixtures(wanted, root, origin=good)
    assert (root / "small/LICENSE").read_bytes() == b"mine"
    assert install_fixtures(wanted, root, origin=good, force=True).found.state == "pinned"
    assert left(root) == ["small"]
    assert install_fixtures(wanted, root, origin=other, force=True).found.state == "other"
    assert left(root) == ["small"]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_something_else_in_its_place(
    wanted: FixtureSet, root: Path, tmp_path: Path, kind: str
) -> None:
    good = lay(tmp_path / "good", FILES)
    root.mkdir()
    if kind == "file":
        (root / "small").write_text("mine")
    elif kind == "directory":
        lay(root / "small", {"precious": b"mine"})
    else:
        (root / "small").symlink_to(lay(tmp_path / "precious", {"x": b"mine"}))
    with pytest.raises(UsageError, match="something that is not small"):
        install_fixtures(wanted, root, origin=good)
    assert install_fixtures(wanted, root, origin=good, force=True).found.state == "pinned"
    assert left(root) == ["small"]
    if kind == "link":
        assert (tmp_path / "precious/x").read_bytes() == b"mine"


def test_a_directory_that_cannot_be_made(wanted: FixtureSet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot make"):
        install_fixtures(wanted, tmp_path / "file/root", origin=lay(tmp_path / "good", FILES))


def test_a_full_disk_is_our_own_trouble(
    wanted: FixtureSet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = tmp_path / "good.tar.gz"
    good.write_bytes(packed(FILES, "w:gz"))

    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(fixture_install, "_create", lambda *_: Full())
    with pytest.raises(EnvironmentFault, match="No space left"):
        install_fixtures(wanted, root, origin=good)
    assert left(root) == []


def test_without_a_system_call_for_it(
    wanted: FixtureSet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is an instant with neither in place; after a kill just then the old one comes back."""
    monkeypatch.setattr(fixture_install, "_exchange", lambda *_: False)
    lay(root / "small", {"precious": b"mine"})
    good = lay(tmp_path / "good", FILES)
    pid = os.fork()
    if pid == 0:
        rename = os.rename

        def renamed(one: Path, other: Path) -> None:
            if other == root / "small":
                os.kill(os.getpid(), signal.SIGKILL)
            rename(one, other)

        monkeypatch.setattr(os, "rename", renamed)
        try:
            install_fixtures(wanted, root, origin=good, force=True)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not (root / "small").exists()
    with pytest.raises(UsageError, match="something that is not small"):
        install_fixtures(wanted, root, origin=good)
    assert (root / "small/precious").read_bytes() == b"mine"
    assert install_fixtures(wanted, root, origin=good, force=True).found.state == "pinned"
    assert left(root) == ["small"]


def test_killed_at_any_instant_it_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    """Over another version: what is found afterwards is the old one or the new one, unharmed."""
    many = {f"tests/{n}.c": b"x" * 2000 for n in range(150)} | FILES
    wanted = pinned(tmp_path / "sample", many)
    file = tmp_path / "archive.tar.xz"
    file.write_bytes(packed(many, "w:xz"))
    old = {"LICENSE": b"old", "tests/a.c": b"int old;"}
    began = time.monotonic()
    install_fixtures(wanted, tmp_path / "warm", origin=file)
    took = time.monotonic() - began
    chosen = random.Random(8)
    seen = set()
    for n in range(scaled(full=60, default=15)):
        root = tmp_path / f"root-{n}"
        lay(root / "small", old)
        before = fixtures.find(wanted, root).sha256
        pid = os.fork()
        if pid == 0:
            try:
                install_fixtures(wanted, root, origin=file, force=True)
            finally:
                os._exit(0)
        time.sleep(chosen.uniform(0, took * 1.2))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        found = fixtures.find(wanted, root)
        assert found.sha256 in (before, wanted.sha256)
        seen.add(found.state)
        assert install_fixtures(wanted, root, origin=file, force=True).found.state == "pinned"
        assert left(root) == ["small"]
    assert "other" in seen


def test_two_at_once(wanted: FixtureSet, root: Path, tmp_path: Path) -> None:
    good = lay(tmp_path / "good", FILES)
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = (
                    0 if install_fixtures(wanted, root, origin=good).found.state == "pinned" else 1
                )
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    assert left(root) == ["small"]


def test_members_of_an_archive_as_they_are() -> None:
    made = packed({"a/b": b"x"}, extra=[entry("d", tarfile.DIRTYPE), entry("p", tarfile.FIFOTYPE)])
    seen = [
        (one.name, one.kind, one.contents.read(9) if one.contents else None)
        for one in archives.read_members(io.BytesIO(made), "x")
    ]
    assert seen == [("a/b", "file", b"x"), ("d", "directory", None), ("p", "special", None)]
