"""Tampering: whatever is done to a sealed bundle, strict verification does not let it pass.

The forger knows everything but the journal's key: the chain, the manifest and the root hash can be
rebuilt by anybody, and are.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import checkpoint
from coilclaw.kernel.canonical_json import digest_bytes, encode_record
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.bundle import json_bytes
from coilclaw.runs.evidence.seal import key_id, keyed_seal, root_hash
from coilclaw.runs.evidence.verification import verify_run
from coilclaw.workspace.tree.removal import remove_tree
from tests.support.bundles import World, picture
from tests.support.scale import scaled

MUTATIONS = scaled(full=600, default=150)
OTHER_KEY = b"k" * 32


@dataclass
class Scene:
    """A copy of a sealed bundle to be tampered with, and another run to take things from."""

    root: Path
    other: Path
    chance: random.Random

    def files(self) -> list[str]:
        return list(bundle.list_bundle(self.root).files)

    def pick(self, *, filled: bool = False) -> Path:
        paths = [self.root / path for path in self.files()]
        return self.chance.choice([p for p in paths if not filled or p.stat().st_size > 1])

    def name(self) -> str:
        return (
            f"x{self.chance.randrange(10**9)}.{self.chance.choice(['json', 'lock', 'tmp', 'txt'])}"
        )

    def folder(self) -> Path:
        folders = [
            "",
            *(d for d in bundle.list_bundle(self.root).directories if d != layout.AUDITS),
        ]
        return self.root / self.chance.choice(folders)

    def events(self) -> list[bytes]:
        return (self.root / layout.EVENTS).read_bytes().splitlines(keepends=True)

    def put_events(self, lines: list[bytes]) -> None:
        (self.root / layout.EVENTS).write_bytes(b"".join(lines))

    def manifest(self) -> Any:
        return json.loads((self.root / layout.MANIFEST).read_bytes())


def _bytes(change: Callable[[Scene, bytearray], None]) -> Callable[[Scene], object]:
    def tamper(scene: Scene) -> object:
        path = scene.pick(filled=True)
        data = bytearray(path.read_bytes())
        before = bytes(data)
        while bytes(data) == before:
            change(scene, data)
        path.write_bytes(data)
        return path.relative_to(scene.root)

    return tamper


def _at(scene: Scene, data: bytearray) -> int:
    return scene.chance.randrange(len(data))


def flip(scene: Scene, data: bytearray) -> None:
    data[_at(scene, data)] ^= 1 << scene.chance.randrange(8)


def insert(scene: Scene, data: bytearray) -> None:
    data.insert(_at(scene, data), scene.chance.choice(b' \n0a"{}\0'))


def delete(scene: Scene, data: bytearray) -> None:
    del data[_at(scene, data)]


def duplicate(scene: Scene, data: bytearray) -> None:
    start = _at(scene, data)
    piece = data[start : start + scene.chance.randrange(1, 64)]
    data[start:start] = piece


def swap(scene: Scene, data: bytearray) -> None:
    one, other = _at(scene, data), _at(scene, data)
    data[one], data[other] = data[other], data[one]


def truncate(scene: Scene, data: bytearray) -> None:
    del data[_at(scene, data) :]


def append(scene: Scene, data: bytearray) -> None:
    data += scene.chance.choice([b"\n", b" ", b"{}\n", b"\0"])


def remove_file(scene: Scene) -> object:
    path = scene.pick()
    path.unlink()
    return path


def rename_file(scene: Scene) -> object:
    path = scene.pick()
    path.rename(path.with_name(scene.name()))
    return path


def add_file(scene: Scene) -> object:
    path = scene.folder() / scene.name()
    path.write_bytes(scene.chance.choice([b"", b"{}\n"]))
    return path


def copy_file(scene: Scene) -> object:
    path = scene.pick()
    shutil.copyfile(path, path.with_name(scene.name()))
    return path


def add_folder(scene: Scene) -> object:
    path = scene.folder() / scene.name()
    path.mkdir()
    return path


def remove_folder(scene: Scene) -> object:
    names = [d for d in bundle.list_bundle(scene.root).directories if d]
    path = scene.root / scene.chance.choice(names)
    remove_tree(path)
    return path


def rename_folder(scene: Scene) -> object:
    names = [d for d in bundle.list_bundle(scene.root).directories if d]
    path = scene.root / scene.chance.choice(names)
    path.rename(path.with_name(scene.name()))
    return path


def add_link(scene: Scene) -> object:
    path = scene.folder() / scene.name()
    path.symlink_to(scene.chance.choice(["/etc/passwd", "contract.json", "nowhere"]))
    return path


def add_pipe(scene: Scene) -> object:
    path = scene.folder() / scene.name()
    os.mkfifo(path)
    return path


def link_file(scene: Scene) -> object:
    """The same bytes, but elsewhere: whoever can write there can change them later."""
    path = scene.pick()
    outside = scene.root.parent / f"outside-{path.name}"
    path.rename(outside)
    path.symlink_to(outside)
    return path


def link_folder(scene: Scene) -> object:
    names = [d for d in bundle.list_bundle(scene.root).directories if d]
    path = scene.root / scene.chance.choice(names)
    outside = scene.root.parent / f"outside-{path.name}"
    path.rename(outside)
    path.symlink_to(outside)
    return path


def swap_files(scene: Scene) -> object:
    one, other = scene.pick(), scene.pick()
    while one.read_bytes() == other.read_bytes():
        one, other = scene.pick(), scene.pick()
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return one, other


def take_file(scene: Scene) -> object:
    """A file of another run of the same course; both are sealed with the same key."""
    path = scene.pick()
    theirs = scene.other / path.relative_to(scene.root)
    while not theirs.exists() or theirs.read_bytes() == path.read_bytes():
        path = scene.pick()
        theirs = scene.other / path.relative_to(scene.root)
    path.write_bytes(theirs.read_bytes())
    return path


def take_sealed_set(scene: Scene) -> object:
    for name in scene.chance.choice(
        [
            (layout.MANIFEST,),
            (layout.EVENTS, layout.ANCHOR),
            (layout.EVENTS, layout.ANCHOR, layout.MANIFEST),
        ]
    ):
        (scene.root / name).write_bytes((scene.other / name).read_bytes())
    return "taken"


def take_everything(scene: Scene) -> object:
    remove_tree(scene.root)
    shutil.copytree(scene.other, scene.root)
    return "another run"


def drop_event(scene: Scene) -> object:
    lines = scene.events()
    del lines[scene.chance.randrange(len(lines))]
    scene.put_events(lines)
    return len(lines)


def repeat_event(scene: Scene) -> object:
    lines = scene.events()
    lines.insert(scene.chance.randrange(len(lines)), scene.chance.choice(lines))
    scene.put_events(lines)
    return len(lines)


def swap_events(scene: Scene) -> object:
    lines = scene.events()
    one, other = scene.chance.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    scene.put_events(lines)
    return one, other


def cut_events(scene: Scene) -> object:
    lines = scene.events()[: scene.chance.randrange(len(scene.events()))]
    scene.put_events(lines)
    return len(lines)


def _rechained(events: list[dict[str, Any]]) -> list[bytes]:
    previous, out = "0" * 64, []
    for event in events:
        body = {k: v for k, v in event.items() if k != "event_hash"} | {"previous_hash": previous}
        previous = digest_bytes(encode_record(body))
        out.append(encode_record({**body, "event_hash": previous}) + b"\n")
    return out


def rebuild_chain(scene: Scene) -> object:
    """Change the story, and make every hash new; with an anchor of a key of our own, or none."""
    events = [json.loads(line) for line in scene.events()]
    what = scene.chance.choice(["drop", "edit", "swap", "time"])
    place = scene.chance.randrange(1, len(events) - 1)
    if what == "drop":
        del events[place]
    elif what == "edit":
        events[place]["payload"]["passed"] = True
        events[place]["payload"]["forged"] = "yes"
    elif what == "swap":
        events[place], events[place + 1 - 2] = events[place - 1], events[place]
        events[place]["ts"], events[place - 1]["ts"] = events[place - 1]["ts"], events[place]["ts"]
    else:
        events[-1]["ts"] = "2027-01-01T00:00:00.000000Z"
    lines = _rechained(events)
    scene.put_events(lines)
    if scene.chance.random() < 0.7:
        manifest = scene.manifest()
        manifest["integrity"]["events_count"] = len(lines)
        manifest["integrity"]["events_head"] = json.loads(lines[-1])["event_hash"]
        _reseal(scene, manifest)
    return what


def _reseal(scene: Scene, manifest: Any) -> None:
    """Everything that can be made right without the key, is."""
    for path in [p for p in scene.files() if p != layout.MANIFEST]:
        measured = bundle.measure_file(scene.root, path)
        manifest["evidence_hashes"][path] = measured.sha256
        for artifact in manifest["artifacts"]:
            if artifact["path"] == path:
                artifact["sha256"], artifact["size_bytes"] = measured.sha256, measured.size
    integrity = manifest["integrity"]
    root = integrity["root_hash"] = root_hash(manifest)
    how = scene.chance.randrange(3)
    if how == 1:
        integrity["seal"] = keyed_seal(OTHER_KEY, root, None)
    elif how == 2:
        integrity["key_id"] = key_id(OTHER_KEY)
        root = integrity["root_hash"] = root_hash(manifest)
        integrity["seal"] = keyed_seal(OTHER_KEY, root, integrity.get("signature"))
    (scene.root / layout.MANIFEST).write_bytes(json_bytes(manifest))


def forge_file(scene: Scene) -> object:
    """Change a file, and the manifest with it."""
    path = scene.pick(filled=True)
    while path.name == layout.MANIFEST:
        path = scene.pick(filled=True)
    path.write_bytes(path.read_bytes().replace(b"one", b"two") + b"\n")
    _reseal(scene, scene.manifest())
    return path


def forge_manifest(scene: Scene) -> object:
    manifest = scene.manifest()
    change = scene.chance.choice(
        ["status", "request", "merge", "drop", "signature", "spaces", "time"]
    )
    if change == "status":
        manifest["status"] = "FAILURE"
    elif change == "request":
        manifest["user_request"] = "Something else."
    elif change == "merge":
        manifest["merge"] = {"status": "merged", "branch": "main", "commit": "2" * 40}
    elif change == "drop":
        gone = scene.chance.choice(sorted(manifest["evidence_hashes"]))
        del manifest["evidence_hashes"][gone]
        manifest["artifacts"] = [a for a in manifest["artifacts"] if a["path"] != gone]
        (scene.root / gone).unlink()
    elif change == "signature":
        manifest["integrity"].pop("signature")
    elif change == "time":
        manifest["finished_at"] = "2026-05-12T14:00:00.000000Z"
    if change == "spaces":
        text = json.dumps(manifest, indent=scene.chance.choice([None, 1]), ensure_ascii=False)
        (scene.root / layout.MANIFEST).write_text(text)
    elif scene.chance.random() < 0.7 and change != "signature":
        _reseal(scene, manifest)
    else:
        (scene.root / layout.MANIFEST).write_bytes(json_bytes(manifest))
    return change


def forge_anchor(scene: Scene) -> object:
    path = scene.root / layout.ANCHOR
    data = bytearray(path.read_bytes())
    place = scene.chance.randrange(len(data))
    data[place] = (data[place] + 1) % 128
    path.write_bytes(data)
    _reseal(scene, scene.manifest())
    return place


TAMPERS: dict[str, Callable[[Scene], object]] = {
    **{
        change.__name__: _bytes(change)
        for change in (flip, insert, delete, duplicate, swap, truncate, append)
    },
    **{
        tamper.__name__: tamper
        for tamper in (
            remove_file, rename_file, add_file, copy_file, add_folder, remove_folder, rename_folder,
            add_link, add_pipe, link_file, link_folder, swap_files, take_file, take_sealed_set,
            take_everything, drop_event, repeat_event, swap_events, cut_events, rebuild_chain,
            forge_file, forge_manifest, forge_anchor,
        )
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    """Two sealed and signed runs under the same key."""
    root = tmp_path_factory.mktemp("worlds")
    key = checkpoint.create_key(root / "signing.key")
    one = World(root / "one", signing_key=key)
    other = World(root / "other", run_id="run_20260512_150000_fedcba9876543210", text="three")
    other.signing_key = key
    for world in (one, other):
        world.play()
        world.seal()
    return one, other


def _copy(source: Path, target: Path) -> None:
    """Copy without the modes, so that everybody may tamper."""
    for path in [source, *source.rglob("*")]:
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True)
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).write_bytes(path.read_bytes())


def test_no_tampering_passes(worlds: tuple[World, World], tmp_path: Path) -> None:
    one, other = worlds
    chance = random.Random(2026)
    names = sorted(TAMPERS)
    assert 5 * len(names) <= MUTATIONS
    for number in range(MUTATIONS):
        place = tmp_path / str(number) / one.run_id
        _copy(one.directory, place)
        name = names[number % len(names)]
        what = TAMPERS[name](Scene(place, other.directory, chance))
        report = verify_run(place, key_path=one.key_path, run_id=one.run_id)
        assert report.status == "fail", (number, name, what)
        remove_tree(place.parent)


def test_a_copy_that_nobody_touched_passes(worlds: tuple[World, World], tmp_path: Path) -> None:
    one, _ = worlds
    place = tmp_path / one.run_id
    _copy(one.directory, place)
    before = picture(tmp_path)
    for _ in range(2):
        assert verify_run(place, key_path=one.key_path).errors == ()
    assert picture(tmp_path) == before


@pytest.mark.parametrize("name", sorted(TAMPERS))
def test_what_was_tampered_with_is_neither_mended_nor_touched(
    worlds: tuple[World, World], tmp_path: Path, name: str
) -> None:
    one, other = worlds
    place = tmp_path / one.run_id
    _copy(one.directory, place)
    TAMPERS[name](Scene(place, other.directory, random.Random(1)))
    before = picture(tmp_path)
    first = verify_run(place, key_path=one.key_path)
    assert verify_run(place, key_path=one.key_path) == first
    assert first.status == "fail"
    assert picture(tmp_path) == before
