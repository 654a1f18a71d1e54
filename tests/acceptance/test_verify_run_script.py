"""contrib/verify_run.py: a run checked without us, sound and tampered with."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel import checkpoint
from coilclaw.kernel.checkpoint import render_checkpoint
from coilclaw.runs.contracts.manifest import RunManifest
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.audits import make_checkpoint
from coilclaw.runs.evidence.bundle import json_bytes
from coilclaw.runs.evidence.export import export_run, make_envelope
from tests.support.bundles import World
from tests.support.repository import ROOT
from tests.support.scale import scaled

SCRIPT = ROOT / "contrib" / "verify_run.py"
FLIPS = scaled(full=400, default=60)


class Place:
    """A sealed run, its export, and the keys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key = checkpoint.create_key(root / "signing.key")
        self.pem = root / "public.pem"
        self.pem.write_bytes(self.key.public.pem())
        self.world = World(root, signing_key=self.key, candidate_commit="1" * 40)
        self.world.play()
        self.world.bundle.write_text(f"artifacts/{'long-name-' * 15}.txt", "A name of 154.\n")
        self.world.seal()
        self.file = export_run(
            self.world.directory, root, root / "run.tar", self.key, key_path=self.world.key_path
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    # Isolated, so that nothing of ours can be imported by accident.
    argv = [sys.executable, "-I", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _main() -> Callable[[list[str]], int]:
    """The script in this process: quicker, for what is tried many times."""
    scope: dict[str, object] = {"__name__": "verify_run"}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), scope)
    main = scope["main"]
    assert callable(main)
    return lambda arguments: int(main(arguments))


def test_it_imports_nothing_of_ours() -> None:
    text = SCRIPT.read_text()
    assert "import coilclaw" not in text
    assert "from coilclaw" not in text


def test_a_sound_export_is_valid(place: Place) -> None:
    done = _run("--key", place.pem, place.file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"valid: run {place.world.run_id}, ")
    done = _run("--key", place.pem, "--journal-key", place.world.key_path, place.file)
    assert "the signed statement and the journal key and the signing key" in done.stdout


def test_a_sound_bundle_is_valid_if_somebody_vouches_for_it(place: Place) -> None:
    directory = place.world.directory
    root = json.loads((directory / layout.MANIFEST).read_bytes())["integrity"]["root_hash"]
    for options in (
        ("--key", place.pem),
        ("--journal-key", place.world.key_path),
        ("--root", root),
        ("--unsafe-unkeyed",),
    ):
        done = _run(*options, directory)
        assert (done.returncode, done.stderr) == (0, ""), options
    done = _run(directory)
    assert (done.returncode, done.stdout) == (1, "")
    assert "nobody vouches" in done.stderr


def test_an_export_without_a_key_is_worth_nothing(place: Place) -> None:
    for options in ((), ("--unsafe-unkeyed",), ("--journal-key", place.world.key_path)):
        assert _run(*options, place.file).returncode == 1


def test_another_key_or_root_is_found(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(checkpoint.create_key(tmp_path / "other").public.pem())
    wrong = tmp_path / "journal.key"
    wrong.write_bytes(b"x" * 32)
    assert _run("--key", other, place.file).returncode == 1
    assert _run("--key", other, place.world.directory).returncode == 1
    assert _run("--journal-key", wrong, place.world.directory).returncode == 1
    assert _run("--root", "0" * 64, place.world.directory).returncode == 1


def test_a_checkpoint_vouches_for_a_run_and_finds_another(place: Place, tmp_path: Path) -> None:
    directory, file = place.world.directory, tmp_path / "checkpoints"
    made = make_checkpoint(RunManifest.of(json.loads((directory / layout.MANIFEST).read_bytes())))
    assert made is not None
    elsewhere = replace(made, origin="coilclaw/runs/run_other")
    for statements, options, code in (
        (render_checkpoint(made, None), (), 0),
        (
            render_checkpoint(elsewhere, None) + render_checkpoint(made, place.key),
            ("--key", place.pem),
            0,
        ),
        (render_checkpoint(made, None), ("--key", place.pem), 1),
        (
            render_checkpoint(made, None) + render_checkpoint(replace(made, root="0" * 64), None),
            (),
            1,
        ),
        (render_checkpoint(replace(made, size=1), place.key), ("--key", place.pem), 1),
        (render_checkpoint(elsewhere, place.key), ("--key", place.pem), 1),
        ("nonsense\n", (), 1),
    ):
        file.write_text(statements, encoding="utf-8")
        done = _run("--checkpoint", file, *options, directory)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert _run("--checkpoint", tmp_path / "missing", directory).returncode == 2


def test_wrong_usage_is_told_apart(place: Place, tmp_path: Path) -> None:
    assert _run().returncode == 2
    assert _run("--key", place.pem, tmp_path / "missing").returncode == 2
    assert _run("--key", tmp_path / "missing.pem", place.file).returncode == 2
    (tmp_path / "no.pem").write_text("no key")
    assert _run("--key", tmp_path / "no.pem", place.file).returncode == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "no.pem"]


def test_no_byte_of_an_export_can_be_changed(place: Place, tmp_path: Path) -> None:
    main, chance = _main(), random.Random(7)
    whole = place.file.read_bytes()
    target = tmp_path / "run.tar"
    for number in range(FLIPS):
        data = bytearray(whole)
        position = chance.randrange(len(data))
        how = number % 4
        if how == 0:
            data[position] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[position : position + chance.choice([1, 512])]
        elif how == 2:
            data[position:position] = chance.choice([b"\0", b"x", bytes(512)])
        else:
            del data[position:]
        target.write_bytes(data)
        assert main(["--key", str(place.pem), str(target)]) == 1, (number, how, position)
    target.write_bytes(whole)
    assert main(["--key", str(place.pem), str(target)]) == 0


def _members(place: Place) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(place.file) as archive:
        found = []
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            found.append((member, b"" if file is None else file.read()))
    return found


def _entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o644
    return info


EXTRA: dict[str, tuple[tarfile.TarInfo, bytes]] = {
    "traversal": (_entry("../evil"), b"x"),
    "traversal inside": (_entry("bundle/../../evil"), b"x"),
    "absolute": (_entry("/etc/evil"), b"x"),
    "backslash": (_entry("bundle\\evil"), b"x"),
    "symbolic link": (_entry("bundle/link", tarfile.SYMTYPE, "/etc/passwd"), b""),
    "hard link": (_entry("bundle/link", tarfile.LNKTYPE, "bundle/contract.json"), b""),
    "pipe": (_entry("bundle/pipe", tarfile.FIFOTYPE), b""),
    "device": (_entry("bundle/device", tarfile.CHRTYPE), b""),
    "a second contract": (_entry("bundle/contract.json"), b"{}\n"),
    "a file that nobody names": (_entry("bundle/extra.txt"), b"x"),
    "a file beside the bundle": (_entry("extra.txt"), b"x"),
    "a directory": (_entry("bundle/extra", tarfile.DIRTYPE), b""),
    "a directory beside the bundle": (_entry("extra", tarfile.DIRTYPE), b""),
}


@pytest.mark.parametrize("name", EXTRA)
def test_nothing_can_be_added_to_an_export(place: Place, tmp_path: Path, name: str) -> None:
    info, data = EXTRA[name]
    info.size = len(data)
    target = tmp_path / "run.tar"
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in [*_members(place), (info, data)]:
            archive.addfile(member, io.BytesIO(content))
    done = _run("--key", place.pem, target)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_a_statement_signed_again_by_somebody_else_is_found(place: Place, tmp_path: Path) -> None:
    other = checkpoint.create_key(tmp_path / "other")
    target = tmp_path / "run.tar"
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in _members(place):
            if member.name == "attestation.dsse.json":
                content = make_envelope(b"{}", other)
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert _run("--key", place.pem, target).returncode == 1


def _loose(place: Place, tmp_path: Path) -> Path:
    world = place.world.copied(tmp_path)
    for path in [world.directory, *world.directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return world.directory


def _cut_event(directory: Path) -> None:
    lines = (directory / layout.EVENTS).read_bytes().splitlines(keepends=True)
    (directory / layout.EVENTS).write_bytes(b"".join(lines[:-2] + lines[-1:]))


def _spaced(directory: Path) -> None:
    value = json.loads((directory / layout.MANIFEST).read_bytes())
    (directory / layout.MANIFEST).write_text(json.dumps(value, indent=1))


def _renamed(directory: Path) -> None:
    value = json.loads((directory / layout.MANIFEST).read_bytes())
    value["user_request"] = "Something else."
    (directory / layout.MANIFEST).write_bytes(json_bytes(value))


TAMPERS: dict[str, Callable[[Path], object]] = {
    "a file is gone": lambda d: (d / "meta.json").unlink(),
    "a file is new": lambda d: (d / "new.txt").write_text("x"),
    "a directory is gone": lambda d: (d / "audits").rmdir(),
    "a directory is new": lambda d: (d / "new").mkdir(),
    "a link is new": lambda d: (d / "new").symlink_to("/etc/passwd"),
    "a file is another": lambda d: (d / "patch.diff").write_text("x"),
    "an event is gone": _cut_event,
    "the manifest is spaced": _spaced,
    "the manifest is another": _renamed,
    "the manifest is gone": lambda d: (d / "manifest.json").unlink(),
    "the manifest is no JSON": lambda d: (d / "manifest.json").write_text("{"),
    "the manifest is a list": lambda d: (d / "manifest.json").write_text("[]\n"),
    "the contract is another": lambda d: (d / "contract.json").write_text("{}\n"),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_a_bundle_that_was_tampered_with_is_not_valid(
    place: Place, tmp_path: Path, name: str
) -> None:
    directory = _loose(place, tmp_path)
    assert _main()(["--journal-key", str(place.world.key_path), str(directory)]) == 0
    TAMPERS[name](directory)
    for options in (["--journal-key", str(place.world.key_path)], ["--unsafe-unkeyed"]):
        assert _main()([*options, str(directory)]) == 1
