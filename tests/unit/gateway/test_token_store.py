"""Tokens of clients: what is kept of them, who is known by them, and until when."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coilclaw.gateway.clients import Client
from coilclaw.gateway.tokens import (
    MAX_TOKENS,
    PREFIX,
    TOKENS_NAME,
    KnownClients,
    TokenStore,
    parse_expiry,
)
from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, UsageError
from coilclaw.kernel.secret import Secret

OPERATOR = "ab" * 32
NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> TokenStore:
    return TokenStore(tmp_path, clock)


def _who(clients: KnownClients, token: str) -> Client | str:
    found = clients.identify(f"Bearer {token}".encode())
    return found if isinstance(found, Client) else found.rule


def test_only_the_hash_of_a_token_is_kept_in_a_private_file(
    store: TokenStore, tmp_path: Path
) -> None:
    made, secret = store.new("phone", "chat")
    token = secret.reveal()
    assert token.startswith(PREFIX)
    assert len(bytes.fromhex(token.removeprefix(PREFIX))) == 32
    path = tmp_path / TOKENS_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert token.removeprefix(PREFIX) not in path.read_text()
    assert token not in repr((made, secret))
    assert store.list() == (made,)


@pytest.mark.parametrize(
    "name", ["", "a b", "-a", "a/b", "é", "a\n", "x" * 65, "operator", "Gateway", "a\0", "a=b"]
)
def test_a_name_that_is_not_plain_is_refused(store: TokenStore, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        store.new(name, "chat")
    assert refused.value.rule == "token.name"
    assert store.list() == ()
    store.new("a.B_c-9", "chat")
    store.new("x" * 64, "chat")


def test_a_name_stands_for_one_client_for_good(store: TokenStore) -> None:
    store.new("ann", "chat")
    store.revoke("ann")
    for name in ("ann", "ANN"):
        with pytest.raises(UsageError) as refused:
            store.new(name, "admin")
        assert refused.value.rule == "token.exists"
    store.new("ann2", "admin")
    with pytest.raises(UsageError) as unknown:
        store.revoke("bob")
    assert unknown.value.rule == "token.unknown"


def test_there_is_room_for_the_most_tokens_with_the_longest_names(
    store: TokenStore, tmp_path: Path
) -> None:
    store.new("x" * 64, "approve", parse_expiry("4w", NOW))
    one = json.loads((tmp_path / TOKENS_NAME).read_text())["tokens"][0]
    one["revoked"] = one["created"]
    many = [{**one, "name": f"{n:064d}"} for n in range(MAX_TOKENS - 1)]
    (tmp_path / TOKENS_NAME).write_text(json.dumps({"version": 1, "tokens": many}))
    store.new("y" * 64, "approve", parse_expiry("4w", NOW))
    store.revoke("y" * 64)
    with pytest.raises(UsageError) as refused:
        store.new("z", "chat")
    assert refused.value.rule == "token.many"


def test_tokens_made_at_the_same_time_are_all_kept(tmp_path: Path, clock: Clock) -> None:
    def make(number: int) -> None:
        TokenStore(tmp_path, clock).new(f"t{number}", "read")

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = TokenStore(tmp_path, clock).list()
    assert sorted(one.name for one in kept) == [f"t{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", NOW + timedelta(minutes=30)),
        ("12h", NOW + timedelta(hours=12)),
        ("30d", NOW + timedelta(days=30)),
        ("4w", NOW + timedelta(weeks=4)),
        ("2031-05-02", datetime(2031, 5, 2, tzinfo=UTC)),
        ("2031-05-01T14:00:00+01:00", NOW + timedelta(hours=1)),
    ],
)
def test_an_expiry_is_a_span_or_a_time_to_come(text: str, expected: datetime) -> None:
    assert datetime.fromisoformat(parse_expiry(text, NOW)) == expected


@pytest.mark.parametrize(
    "text",
    ["0d", "-1d", "d", "5", "5y", "2031-05-01", "2030-01-01", "999999w", "9999-12-31", "١d", ""],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_expiry(text, NOW)
    assert refused.value.rule == "token.expires"


def test_a_client_is_known_until_its_token_expires_or_is_revoked(
    store: TokenStore, clock: Clock
) -> None:
    clients = KnownClients(Secret(OPERATOR), store, clock)
    assert _who(clients, OPERATOR) == Client("operator", "admin")
    assert _who(clients, "cd" * 32) == "auth.wrong"
    # Made while the server runs, as everything below.
    made, secret = store.new("ann", "chat", parse_expiry("1h", NOW))
    _, other = store.new("bob", "approve")
    assert _who(clients, secret.reveal()) == Client("ann", "chat", made.expires)
    assert _who(clients, other.reveal()) == Client("bob", "approve")
    assert _who(clients, made.sha256) == "auth.wrong"
    assert _who(clients, secret.reveal().upper()) == "auth.wrong"
    clock.now = NOW + timedelta(minutes=59)
    assert _who(clients, secret.reveal()) == Client("ann", "chat", made.expires)
    ann, bob = Client("ann", "chat", made.expires), Client("bob", "approve")
    assert (clients.admits(ann), clients.admits(bob)) == (True, True)
    clock.now = NOW + timedelta(hours=1)
    assert _who(clients, secret.reveal()) == "auth.expired"
    store.revoke("bob")
    assert _who(clients, other.reveal()) == "auth.revoked"
    assert (clients.admits(ann), clients.admits(bob)) == (False, False)
    assert clients.admits(Client("operator", "admin"))
    assert _who(clients, OPERATOR) == Client("operator", "admin")


def test_a_token_is_recognised_in_a_query(store: TokenStore, clock: Clock) -> None:
    clients = KnownClients(Secret(OPERATOR), store, clock)
    _, secret = store.new("ann", "chat")
    assert clients.told_in(f"q={secret.reveal()}".encode())
    assert clients.told_in(f"q={OPERATOR}".encode())
    assert not clients.told_in(b"q=coilclaw_tokens")


def _spoil(path: Path, how: str) -> None:
    if how == "readable":
        path.chmod(0o644)
    elif how == "link":
        path.rename(path.with_name("moved"))
        path.symlink_to("moved")
    elif how == "role":
        path.write_text(path.read_text().replace('"chat"', '"root"'))
    elif how == "field":
        path.write_text(path.read_text().replace('"sha256"', '"sha"'))
    elif how == "version":
        path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    else:
        path.write_bytes(b"\xff{")


@pytest.mark.parametrize("how", ["readable", "link", "role", "field", "version", "bytes"])
def test_a_file_that_cannot_be_trusted_admits_nobody_but_the_operator(
    store: TokenStore, clock: Clock, tmp_path: Path, how: str
) -> None:
    _, secret = store.new("ann", "chat")
    clients = KnownClients(Secret(OPERATOR), store, clock)
    assert _who(clients, secret.reveal()) == Client("ann", "chat")
    _spoil(tmp_path / TOKENS_NAME, how)
    assert _who(clients, secret.reveal()) == "auth.wrong"
    assert _who(clients, OPERATOR) == Client("operator", "admin")
    with pytest.raises(CoilClawError) as refused:
        KnownClients(Secret(OPERATOR), store, clock)
    assert isinstance(refused.value, EnvironmentFault)
    os.unlink(tmp_path / TOKENS_NAME)
    assert _who(clients, secret.reveal()) == "auth.wrong"
    _, again = store.new("bob", "chat")
    assert _who(clients, again.reveal()) == Client("bob", "chat")
