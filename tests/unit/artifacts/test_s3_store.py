"""A bucket whose server, or the way to it, goes wrong."""

from __future__ import annotations

import filecmp
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.artifacts.place import open_store
from coilclaw.traces.artifacts.store import ArtifactVersion
from tests.support.s3server import KEY_ID, SECRET, S3Server, going_wrong

KEY = "t/doc"


def _shown(problem: BaseException) -> str:
    return "".join(traceback.format_exception(problem)) + str(getattr(problem, "hint", ""))


def test_a_wrong_key_is_refused_and_no_secret_is_shown(s3: S3Server) -> None:
    wrong = "wrong-secret-that-no-message-may-show"
    store = open_store(f"s3://{s3.bucket}/x", s3.environ(AWS_SECRET_ACCESS_KEY=wrong))
    for call in (
        lambda: store.put(KEY, b"x", previous=None),
        lambda: store.get(KEY),
        store.list,
    ):
        with pytest.raises(EnvironmentFault) as refused:
            call()
        assert refused.value.rule == "artifact.denied"
        shown = _shown(refused.value) + repr(store) + repr(vars(store))
        for secret in (wrong, SECRET, KEY_ID, "Signature="):
            assert secret not in shown


def test_a_bucket_that_is_not_there_is_said(s3: S3Server) -> None:
    store = open_store("s3://no-bucket-of-ours", s3.environ())
    with pytest.raises(EnvironmentFault) as refused:
        store.get(KEY)
    assert refused.value.rule == "artifact.bucket"


def test_nobody_there_is_trouble_with_the_network() -> None:
    store = open_store("s3://bucket", S3Server("http://127.0.0.1:9").environ())
    with pytest.raises(EnvironmentFault) as refused:
        store.head(KEY)
    assert (refused.value.rule, refused.value.message) == (
        "artifact.network",
        "the artifact store cannot be used for s3://bucket/t/doc",
    )


def test_what_the_server_says_is_not_repeated() -> None:
    with going_wrong("denied", "denied") as server:
        store = open_store("s3://bucket", server.environ())
        for call in (lambda: store.put(KEY, b"x", previous=None), lambda: store.get(KEY)):
            with pytest.raises(EnvironmentFault) as refused:
                call()
            assert refused.value.message == (
                "the artifact store denied access to s3://bucket/t/doc (403, AccessDenied)"
            )
            assert KEY_ID not in _shown(refused.value)


def test_a_busy_server_is_asked_again() -> None:
    with going_wrong("busy", "busy") as server:
        store = open_store("s3://bucket", server.environ())
        version = store.put(KEY, b"x", previous=None)
        assert server.requests == ["PUT"] * 3
        assert store.get(KEY) == b"x"
        assert store.head(KEY) == version


@pytest.mark.parametrize("opaque", [False, True])
def test_an_answer_that_got_lost_is_no_conflict(opaque: bool) -> None:
    with going_wrong("lost", opaque=opaque) as server:
        store = open_store("s3://bucket", server.environ())
        version = store.put(KEY, b"one", previous=None)
        server.faults = ["lost"]
        version = store.put(KEY, b"two", previous=version)
        assert store.get(KEY) == b"two"
        assert store.head(KEY) == version


def test_bytes_damaged_on_the_way_are_sent_again() -> None:
    with going_wrong("damaged") as server:
        store = open_store("s3://bucket", server.environ())
        version = store.put(KEY, b"precious", previous=None)
        assert store.get(KEY) == b"precious"
        assert store.head(KEY) == version


@pytest.mark.parametrize("opaque", [False, True])
def test_bytes_that_are_always_damaged_are_trouble(opaque: bool) -> None:
    # Each time it is read back as it is.
    with going_wrong("damaged", "ok", "damaged", "ok", opaque=opaque) as server:
        store = open_store("s3://bucket", server.environ())
        with pytest.raises(EnvironmentFault) as damaged:
            store.put(KEY, b"precious", previous=None)
        assert damaged.value.rule == "artifact.checksum"


def test_without_a_telling_tag_the_bytes_are_read_back() -> None:
    with going_wrong(opaque=True) as server:
        store = open_store("s3://bucket", server.environ())
        store.put(KEY, b"precious", previous=None)
        assert server.requests == ["PUT", "GET"]
    with going_wrong() as server:
        store = open_store("s3://bucket", server.environ())
        store.put(KEY, b"precious", previous=None)
        assert server.requests == ["PUT"]


def test_what_is_there_already_is_not_sent_again() -> None:
    with going_wrong() as server:
        store = open_store("s3://bucket", server.environ())
        version = store.put(KEY, b"same", previous=None)
        assert store.put(KEY, b"same", previous=version) == version
        assert server.requests == ["PUT", "HEAD"]
        newer = store.put(KEY, b"other", previous=version)
        with pytest.raises(EnvironmentFault) as conflict:
            store.put(KEY, b"same", previous=version)
        assert conflict.value.rule == "artifact.conflict"
        assert store.head(KEY) == newer


def test_damage_is_noticed_on_the_way_back(tmp_path: Path) -> None:
    with going_wrong() as server:
        store = open_store("s3://bucket", server.environ())
        store.put(KEY, b"precious", previous=None)
        server.faults = ["damaged"]
        with pytest.raises(EnvironmentFault) as damaged:
            store.get(KEY)
        assert damaged.value.rule == "artifact.checksum"
        server.faults = ["damaged"]
        with pytest.raises(EnvironmentFault):
            store.download(KEY, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []
        store.download(KEY, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"precious"


def test_the_tag_alone_tells_damage_of_an_object_that_others_put_there() -> None:
    with going_wrong() as server:
        server.keep("/bucket/t/doc", b"precious", {})
        store = open_store("s3://bucket", server.environ())
        assert store.get(KEY) == b"precious"
        server.faults = ["damaged"]
        with pytest.raises(EnvironmentFault) as damaged:
            store.get(KEY)
        assert damaged.value.rule == "artifact.checksum"


def test_a_conflict_is_told_from_our_own_bytes_by_reading_them() -> None:
    with going_wrong(opaque=True) as server:
        store = open_store("s3://bucket", server.environ())
        server.keep("/bucket/t/doc", b"theirs!!", {})
        with pytest.raises(EnvironmentFault) as conflict:
            store.put(KEY, b"precious", previous=ArtifactVersion('"0"', 8))
        assert conflict.value.rule == "artifact.conflict"
        assert server.objects["/bucket/t/doc"][1] == b"theirs!!"


def test_a_server_without_versions_is_no_store_of_ours() -> None:
    with going_wrong() as server:
        server.untagged = True
        server.keep("/bucket/t/doc", b"theirs", {})
        store = open_store("s3://bucket", server.environ())
        for call in (lambda: store.head(KEY), lambda: store.get(KEY)):
            with pytest.raises(EnvironmentFault) as refused:
                call()
            assert refused.value.rule == "artifact.untagged"
        with pytest.raises(EnvironmentFault):
            store.put("t/other", b"x", previous=None)


def test_a_large_file_is_not_held_in_memory(s3: S3Server, tmp_path: Path) -> None:
    store = open_store(f"s3://{s3.bucket}/{tmp_path.name}", s3.environ())
    store.put("warm", b"x", previous=None)
    file, out, size = tmp_path / "large", tmp_path / "out", 64 * 2**20
    with file.open("wb") as stream:
        for number in range(64):
            stream.write(bytes([number]) * 2**20)
    with _most_memory() as sent:
        version = store.put("large", file, previous=None)
    with _most_memory() as received:
        assert store.download("large", out) == version
    assert filecmp.cmp(file, out, shallow=False)
    assert max(sent + received) < size / 2


@contextmanager
def _most_memory() -> Iterator[list[int]]:
    """Watch how many bytes this process takes meanwhile that no file stands behind."""
    start, seen, over = _anonymous(), list[int](), threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            seen.append(_anonymous() - start)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
    assert seen


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def test_without_credentials_nobody_is_asked() -> None:
    environ = S3Server("http://127.0.0.1:9").environ()
    del environ["AWS_SECRET_ACCESS_KEY"]
    with pytest.raises(UsageError) as refused:
        open_store("s3://bucket", environ)
    assert refused.value.rule == "artifact.credentials"


def test_an_unencrypted_way_must_be_allowed() -> None:
    environ = S3Server("http://127.0.0.1:9").environ()
    del environ["AWS_ALLOW_HTTP"]
    with pytest.raises(UsageError) as refused:
        open_store("s3://bucket", environ)
    assert refused.value.rule == "artifact.endpoint"
    allowed = open_store("s3://bucket", environ | {"AWS_ENDPOINT_URL": "https://127.0.0.1:9"})
    assert allowed.uri("a") == "s3://bucket/a"
