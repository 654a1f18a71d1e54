"""From what people write to a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.artifacts.local_store import LocalStore
from coilclaw.traces.artifacts.place import default_place, fetch_artifact, open_store
from coilclaw.traces.artifacts.s3_store import S3Place, S3Store, client_options, configuration
from tests.support.s3server import going_wrong

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gs://bucket",
        "https://bucket.example/x",
        "file:///tmp/x",
        "C:\\x",
        "a\0b",
        "s3:",
        "s3://",
        "s3:/bucket",
        "s3://Bucket",
        "s3://b",
        "s3://id:secret@bucket/x",
        "s3://bucket/../x",
        "s3://bucket//x",
        "s3://bucket/a?versionId=1",
        "s3://bucket:9000/x",
    ],
)
def test_an_address_of_another_form_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(text, KEYS)
    assert refused.value.rule == "artifact.address"
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://bucket", S3Place("bucket")),
        ("s3://bucket/", S3Place("bucket")),
        ("s3://my.bucket-1/a/b", S3Place("my.bucket-1", "a/b")),
        ("s3://bucket/a/", S3Place("bucket", "a")),
    ],
)
def test_a_bucket_is_opened(text: str, place: S3Place) -> None:
    store = open_store(text, KEYS)
    assert isinstance(store, S3Store)
    assert store.place == place


def test_a_directory_is_opened_and_not_made(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"), {})
    assert isinstance(store, LocalStore)
    assert store.root == tmp_path / "a"
    assert not store.root.exists()
    assert store.uri("x/y") == str(tmp_path / "a/x/y")


def test_a_place_on_the_command_line_may_be_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("./a:b", {}).uri("k") == str(tmp_path / "a:b/k")


def test_where_artifacts_go_when_nobody_says() -> None:
    home = Path("/home/of/ours")
    assert default_place({}, home) == "/home/of/ours/artifacts"
    assert default_place({"AWS_S3_BUCKET": " "}, home) == "/home/of/ours/artifacts"
    assert default_place({"AWS_S3_BUCKET": "bucket"}, home) == "s3://bucket"
    assert default_place({"AWS_S3_BUCKET": "s3://bucket/p"}, home) == "s3://bucket/p"


def test_one_artifact_is_fetched_from_anywhere(tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = tmp_path / "any name, as people have them"
    source.write_bytes(b"local")
    fetch_artifact(str(source), {}, out)
    assert out.read_bytes() == b"local"
    with going_wrong() as server:
        server.keep("/bucket/p/a.json", b"remote", {})
        server.keep("/bucket/a.json", b"at the top", {})
        fetch_artifact("s3://bucket/p/a.json", server.environ(), out)
        assert out.read_bytes() == b"remote"
        fetch_artifact("s3://bucket/a.json", server.environ(), out)
        assert out.read_bytes() == b"at the top"
        with pytest.raises(EnvironmentFault) as missing:
            fetch_artifact("s3://bucket/p/b.json", server.environ(), out)
        assert missing.value.rule == "artifact.missing"
    with pytest.raises(EnvironmentFault) as nothing:
        fetch_artifact(str(tmp_path / "nothing"), {}, out)
    assert nothing.value.rule == "artifact.missing"
    assert out.read_bytes() == b"at the top"


ALWAYS = {"region": "us-east-1", "checksum_algorithm": "SHA256", "conditional_put": "etag"}
SIGNED = {"access_key_id": "id", "secret_access_key": "secret"}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (KEYS, ALWAYS | SIGNED),
        (KEYS | {"AWS_SESSION_TOKEN": "t"}, ALWAYS | SIGNED | {"session_token": "t"}),
        (KEYS | {"AWS_DEFAULT_REGION": "eu-1"}, ALWAYS | SIGNED | {"region": "eu-1"}),
        (
            KEYS | {"AWS_DEFAULT_REGION": "eu-1", "AWS_REGION": "eu-2"},
            ALWAYS | SIGNED | {"region": "eu-2"},
        ),
        (
            KEYS | {"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_S3": "https://b"},
            ALWAYS | SIGNED | {"endpoint": "https://b"},
        ),
        ({"AWS_SKIP_SIGNATURE": "true"}, ALWAYS | {"skip_signature": True}),
        ({"AWS_EC2_METADATA_DISABLED": "false"}, ALWAYS),
        (
            {
                "AWS_WEB_IDENTITY_TOKEN_FILE": "/t",
                "AWS_ROLE_ARN": "arn",
                "AWS_ROLE_SESSION_NAME": "n",
            },
            ALWAYS | {"web_identity_token_file": "/t", "role_arn": "arn", "role_session_name": "n"},
        ),
        (
            {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/c"},
            ALWAYS | {"container_credentials_relative_uri": "/c"},
        ),
        (
            {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://c",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/t",
            },
            ALWAYS
            | {
                "container_credentials_full_uri": "http://c",
                "container_authorization_token_file": "/t",
            },
        ),
    ],
)
def test_the_usual_variables_are_read(environ: dict[str, str], found: dict[str, object]) -> None:
    assert configuration(environ) == found


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"AWS_ACCESS_KEY_ID": "id"},
        {"AWS_SECRET_ACCESS_KEY": "secret"},
        {"AWS_SKIP_SIGNATURE": "maybe"},
        {"AWS_EC2_METADATA_DISABLED": "true"},
    ],
)
def test_without_credentials_there_is_no_store(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as refused:
        configuration(environ)
    assert refused.value.rule == "artifact.credentials"


@pytest.mark.parametrize("endpoint", ["http://server", "server", "ftp://server"])
def test_an_endpoint_without_encryption_must_be_allowed(endpoint: str) -> None:
    with pytest.raises(UsageError) as refused:
        client_options({"AWS_ENDPOINT_URL": endpoint})
    assert refused.value.rule == "artifact.endpoint"
    assert client_options({"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "1"})["allow_http"]
    assert not client_options({"AWS_ENDPOINT_URL": "https://server"})["allow_http"]
    assert not client_options({})["allow_http"]


def test_only_a_request_that_sends_much_may_hear_nothing_for_long() -> None:
    limits = {"connect_timeout": "10s", "timeout": "30min", "allow_http": False}
    assert client_options({}, patient=True) == limits
    assert client_options({}) == limits | {"read_timeout": "60s"}
