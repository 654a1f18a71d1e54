"""A sealed run of version 1, exported, which stays verifiable for ever, with us and without us."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coilclaw.kernel.checkpoint import SigningKey, parse_public_key
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.export import export_run
from coilclaw.runs.evidence.rehydration import rehydrate_run
from coilclaw.runs.evidence.verification import verify_run
from tests.support.bundles import BASELINE as COMMIT
from tests.support.bundles import KEY, RUN_ID, World

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "run"
ROOT_HASH = "2ab6f734d2427686e2d1edf248272059b4ba525548013417326c70cf26075951"


def signing_key() -> SigningKey:
    """The key that the baseline was signed with; it is worth nothing."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(b"b" * 32))


def made(root: Path) -> Path:
    """Play the run of the baseline, seal it and export it."""
    key = signing_key()
    world = World(root, signing_key=key, candidate_commit=COMMIT)
    world.play()
    world.seal()
    return export_run(world.directory, root, root / "run.tar", key, key_path=world.key_path)


def _unpacked(tmp_path: Path) -> Path:
    with tarfile.open(BASELINE / "run.tar") as archive:
        # Early versions of Python 3.11 have no filters, and later ones want one.
        if hasattr(tarfile, "data_filter"):
            archive.extractall(tmp_path, filter="data")
        else:
            archive.extractall(tmp_path)
    shutil.move(tmp_path / "bundle", tmp_path / RUN_ID)
    (tmp_path / "key").write_bytes(KEY)
    return tmp_path / RUN_ID


def test_the_baseline_verifies(tmp_path: Path) -> None:
    directory = _unpacked(tmp_path)
    public = parse_public_key((BASELINE / "public.pem").read_bytes())
    report = verify_run(
        directory, key_path=tmp_path / "key", public_key=public, expected_root=ROOT_HASH
    )
    assert (report.errors, report.warnings, report.root_hash) == ((), (), ROOT_HASH)


def test_the_baseline_can_be_told_again(tmp_path: Path) -> None:
    told = rehydrate_run(_unpacked(tmp_path))
    assert (told.status, told.state, told.events, told.divergences) == (
        "SUCCESS",
        "S6_DONE",
        34,
        (),
    )


def test_the_events_of_the_baseline_can_be_read_as_they_stand(tmp_path: Path) -> None:
    directory = _unpacked(tmp_path)
    assert (BASELINE / "events.jsonl").read_bytes() == (directory / layout.EVENTS).read_bytes()


def test_the_same_run_is_written_the_same_today(tmp_path: Path) -> None:
    assert made(tmp_path).read_bytes() == (BASELINE / "run.tar").read_bytes()
