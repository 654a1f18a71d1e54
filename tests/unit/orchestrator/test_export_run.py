"""Exporting a run: one file, the same bytes each time, signed, and only of a run that verifies."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import checkpoint
from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, UsageError, VerificationFailed
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.export import (
    PAYLOAD_TYPE,
    export_run,
    make_envelope,
    make_statement,
    pre_authentication,
)
from tests.support.bundles import World


def open_envelope(envelope: bytes, key: checkpoint.PublicKey) -> dict[str, Any]:
    """Return the statement in an envelope that the key signed."""
    value = json.loads(envelope)
    payload, kind = b64decode(value["payload"]), value["payloadType"]
    (signature,) = [b64decode(item["sig"]) for item in value["signatures"]]
    assert key.is_signature_of(signature, pre_authentication(payload, kind))
    assert kind == PAYLOAD_TYPE
    statement: dict[str, Any] = json.loads(payload)
    return statement


def git(repository: Path, *arguments: str) -> str:
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_COMMITTER_DATE": "1700000000 +0000",
    }  # fmt: skip
    argv = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(argv, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Exported:
    """A repository with two commits, and a sealed run that made the second of them."""

    def __init__(self, root: Path) -> None:
        self.repository = root / "repository"
        self.repository.mkdir()
        git(self.repository, "init", "-q")
        self.baseline = self._commit("one")
        self.candidate = self._commit("two")
        self.key = checkpoint.create_key(root / "signing.key")
        self.world = World(
            root,
            signing_key=self.key,
            baseline_commit=self.baseline,
            candidate_commit=self.candidate,
        )
        self.world.play()
        self.world.seal()

    def _commit(self, text: str) -> str:
        (self.repository / "a.py").write_text(f"{text}\n")
        git(self.repository, "add", ".")
        git(self.repository, "commit", "-q", "-m", text)
        return git(self.repository, "rev-parse", "HEAD")

    def export(self, out: Path, *, whole_history: bool = False) -> Path:
        return export_run(
            self.world.directory,
            self.repository / ".git" / "objects",
            out,
            self.key,
            key_path=self.world.key_path,
            whole_history=whole_history,
        )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("exported"))


def test_a_run_that_does_not_verify_is_not_vouched_for(exported: Exported, tmp_path: Path) -> None:
    world = exported.world.copied(tmp_path)
    place = world.directory / layout.PATCH
    place.chmod(0o644)
    place.write_bytes(place.read_bytes() + b"\n")
    out = tmp_path / "out.tar"
    with pytest.raises(VerificationFailed) as caught:
        export_run(
            world.directory, exported.repository / ".git" / "objects", out, exported.key,
            key_path=world.key_path,
        )  # fmt: skip
    assert caught.value.rule == "export.unverified"
    assert not out.exists()


def test_an_unsealed_run_is_not_exported(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.play()
    with pytest.raises(VerificationFailed):
        export_run(
            world.directory,
            tmp_path,
            tmp_path / "out.tar",
            checkpoint.create_key(tmp_path / "signing"),
            key_path=world.key_path,
        )


def test_a_file_that_is_there_is_not_replaced(exported: Exported, tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    out.write_text("mine")
    with pytest.raises(UsageError) as caught:
        exported.export(out)
    assert caught.value.rule == "export.exists"
    assert [path.name for path in tmp_path.iterdir()] == ["out.tar"]
    assert out.read_text() == "mine"


def test_where_nothing_can_be_written_nothing_is(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        exported.export(tmp_path / "missing" / "out.tar")
    assert caught.value.rule == "export.io"


def test_commits_that_are_gone_are_said_to_be(exported: Exported, tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    with pytest.raises(CoilClawError):
        export_run(
            exported.world.directory, tmp_path / "objects", tmp_path / "out.tar", exported.key,
            key_path=exported.world.key_path,
        )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["objects"]


def test_the_same_run_gives_the_same_bytes_and_leaves_nothing_else(
    exported: Exported, tmp_path: Path
) -> None:
    one, other = exported.export(tmp_path / "one.tar"), exported.export(tmp_path / "other.tar")
    assert one.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.tar", "other.tar"]


def test_the_statement_names_every_file(exported: Exported, tmp_path: Path) -> None:
    with tarfile.open(exported.export(tmp_path / "out.tar")) as archive:
        names = [member.name for member in archive if member.isfile()]
        envelope = archive.extractfile("attestation.dsse.json")
        assert envelope is not None
        told = open_envelope(envelope.read(), exported.key.public)
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["predicateType"] == "urn:coilclaw:run:v1"
    subjects = told["subject"]
    assert isinstance(subjects, list)
    assert [item["name"] for item in subjects if isinstance(item, dict)] == sorted(names[1:])
    assert names[0] == "attestation.dsse.json"
    assert "repo.bundle" in names
    predicate = told["predicate"]
    assert isinstance(predicate, dict)
    assert predicate["repository"] == {
        "baseline_commit": exported.baseline,
        "final_commit": exported.candidate,
        "bundle": "repo.bundle",
        "whole_history": False,
    }


def _unbundled(exported: Exported, tmp_path: Path, *, whole_history: bool) -> Path:
    out = exported.export(tmp_path / "out.tar", whole_history=whole_history)
    with tarfile.open(out) as archive:
        file = archive.extractfile("repo.bundle")
        assert file is not None
        (tmp_path / "repo.bundle").write_bytes(file.read())
    return tmp_path / "repo.bundle"


def test_the_git_bundle_builds_on_the_baseline(exported: Exported, tmp_path: Path) -> None:
    bundle = _unbundled(exported, tmp_path, whole_history=False)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(exported.repository), str(clone))
    git(clone, "checkout", "-q", exported.baseline)
    git(clone, "fetch", "-q", str(bundle), "refs/heads/run:refs/heads/run")
    assert git(clone, "rev-parse", "run") == exported.candidate
    empty = tmp_path / "empty"
    git(tmp_path, "init", "-q", str(empty))
    with pytest.raises(subprocess.CalledProcessError):
        git(empty, "fetch", "-q", str(bundle), "refs/heads/run:refs/heads/run")


def test_the_whole_history_needs_nothing_else(exported: Exported, tmp_path: Path) -> None:
    bundle = _unbundled(exported, tmp_path, whole_history=True)
    git(tmp_path, "clone", "-q", "-b", "run", str(bundle), str(tmp_path / "clone"))
    assert git(tmp_path / "clone", "rev-parse", "HEAD") == exported.candidate
    assert git(tmp_path / "clone", "show", f"{exported.baseline}:a.py") == "one"


def test_a_run_that_made_nothing_has_no_git_bundle(tmp_path: Path) -> None:
    key = checkpoint.create_key(tmp_path / "signing.key")
    world = World(tmp_path, signing_key=key, candidate_commit="1" * 40)
    world.play()
    world.seal()
    out = export_run(world.directory, tmp_path, tmp_path / "out.tar", key, key_path=world.key_path)
    with tarfile.open(out) as archive:
        assert "repo.bundle" not in archive.getnames()


def test_audits_stay_at_home(exported: Exported, tmp_path: Path) -> None:
    world = exported.world.copied(tmp_path)
    (world.directory / "audits" / "x").mkdir(parents=True)
    (world.directory / "audits" / "x" / "note.txt").write_text("private")
    out = export_run(
        world.directory, exported.repository / ".git" / "objects", tmp_path / "out.tar",
        exported.key, key_path=world.key_path,
    )  # fmt: skip
    assert b"private" not in out.read_bytes()


def test_an_envelope_is_opened_by_its_key_only(tmp_path: Path) -> None:
    key, other = checkpoint.create_key(tmp_path / "one"), checkpoint.create_key(tmp_path / "other")
    payload = make_statement({"a": "0" * 64}, {"run_id": "x"})
    envelope = make_envelope(payload, key)
    assert open_envelope(envelope, key.public) == json.loads(payload)
    for made, given in (
        (envelope, other.public),
        (envelope.replace(b"in-toto", b"out-toto"), key.public),
    ):
        with pytest.raises(AssertionError):
            open_envelope(made, given)


def test_the_signed_text_is_the_one_of_the_protocol() -> None:
    assert pre_authentication(b"hello world", "http://example.com/HelloWorld") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
