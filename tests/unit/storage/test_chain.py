"""The lines of a journal: what is refused, their exact shape, and that the cut is unambiguous."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from hashlib import sha256

import pytest

from coilclaw.kernel.canonical_json import encode_record
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.journal_format import (
    FIRST_HASH,
    MAX_LINE_BYTES,
    JournalForm,
    JournalLink,
    LineFlaw,
    read_lines,
)

FORMS = [
    JournalForm("receipt_hash", "id"),  # behind previous_hash
    JournalForm("event_hash", "id"),  # before it
    JournalForm("A"),  # before everything
    JournalForm("zz"),  # behind everything
    JournalForm("previous_hash_", "id"),
    JournalForm("previous", "id"),
]

LOOK_ALIKES: list[dict[str, object]] = [
    {},
    {"a": 1},
    {"z": [1, {"y": None}]},
    {"previous_hash_of_another": "x", "previous_": "y"},
    {"nested": {"receipt_hash": "0" * 64, "event_hash": "1" * 64, "previous_hash": "2" * 64}},
    {"list": [{"zz": "3" * 64}, {"A": "4" * 64}, "previous_hash"]},
    {"text": '","receipt_hash":"' + "5" * 64 + '"}'},
    {'key","event_hash":"': '"previous_hash":"'},
    {'x"receipt_hash': "6" * 64, 'y,"event_hash': "7" * 64},
    {"back\\": "\\", "tail,": "{", "brace{": '{"A":"'},
    {"unicode": "\u2028\U0001f40d\x7f\x00\n", "empty": ""},
]


def _sealed(form: JournalForm, record: dict[str, object], previous: str = FIRST_HASH) -> bytes:
    return form.seal(form.draft(record), previous)[0]


@pytest.mark.parametrize(
    "name", ["", "previous_hash", "with space", 'quo"te', "ünï", "9", "a" * 65]
)
def test_a_name_that_cannot_be_a_field_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a journal's field"):
        JournalForm(name)
    with pytest.raises(UsageError, match="cannot name a journal's field"):
        JournalForm("receipt_hash", name)


def test_one_field_cannot_be_both_hash_and_id() -> None:
    with pytest.raises(UsageError, match="two fields"):
        JournalForm("id", "id")


@pytest.mark.parametrize("name", ["previous_hash", "receipt_hash"])
def test_a_record_that_brings_a_field_of_the_journal_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        JournalForm("receipt_hash").draft({"a": 1, name: "x"})
    assert caught.value.rule == "journal.reserved"


@pytest.mark.parametrize("record", [{1: "x"}, {"ä": 1}, {"a": 1.5}, {"a": "\ud800"}, {"a": 2**53}])
def test_what_has_no_canonical_form_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"record|integer|value"):
        JournalForm("receipt_hash").draft(record)


def test_a_record_that_is_too_long_is_refused_and_its_neighbour_is_not() -> None:
    form = JournalForm("receipt_hash")
    room = MAX_LINE_BYTES - len(_sealed(form, {"text": ""}))
    assert len(_sealed(form, {"text": "x" * room})) == MAX_LINE_BYTES
    with pytest.raises(UsageError, match=f"takes {MAX_LINE_BYTES + 1} bytes") as caught:
        form.draft({"text": "x" * (room + 1)})
    assert caught.value.rule == "journal.long"


@pytest.mark.parametrize("record", LOOK_ALIKES, ids=range(len(LOOK_ALIKES)))
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.hash_field)
def test_a_line_is_the_canonical_form_with_both_fields(
    form: JournalForm, record: dict[str, object]
) -> None:
    previous = "e" * 64
    own = sha256(encode_record({**record, "previous_hash": previous})).hexdigest()
    whole = {**record, "previous_hash": previous, form.hash_field: own}
    line, told = form.seal(form.draft(record), previous)
    assert (line, told) == (encode_record(whole) + b"\n", own)
    assert form.check(line) == form.check(line, strict=True) == JournalLink(previous, own, whole)


@pytest.mark.parametrize("record", LOOK_ALIKES, ids=range(len(LOOK_ALIKES)))
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.hash_field)
def test_no_changed_byte_of_a_look_alike_passes(
    form: JournalForm, record: dict[str, object]
) -> None:
    line = _sealed(form, record)
    for place in range(len(line)):
        for flip in (0x01, 0x20):
            mutant = line[:place] + bytes([line[place] ^ flip]) + line[place + 1 :]
            assert isinstance(form.check(mutant), LineFlaw), mutant


WRONG = ("edited", "its content does not have its receipt_hash")
NOT_JSON = ("unparsable", "it is not JSON")


def _moved_hash(record: dict[str, str]) -> bytes:
    """Put the hash member first; with it cut out, the bytes are the ones that were hashed."""
    own = record.pop("receipt_hash")
    return b'{"receipt_hash":"%b",' % own.encode() + encode_record(record)[1:] + b"\n"


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (lambda r: json.dumps(r).encode() + b"\n", WRONG),
        (lambda r: b" " + encode_record(r) + b"\n", WRONG),
        (lambda r: encode_record(r) + b" \n", WRONG),
        (lambda r: encode_record(r) + b"\r\n", WRONG),
        (lambda r: encode_record(r).replace(b":", b": ", 1) + b"\n", WRONG),
        (
            lambda r: encode_record(r).replace(b'"receipt_hash":', b'"receipt_hash": ') + b"\n",
            WRONG,
        ),
        (lambda r: encode_record(r).replace(b'"receipt_', b'"\\u0072eceipt_') + b"\n", WRONG),
        (lambda r: encode_record(r).replace(b'"x"', b'"\\u0078"') + b"\n", WRONG),
        (lambda r: encode_record({**r, "receipt_hash": r["receipt_hash"].upper()}) + b"\n", WRONG),
        (lambda r: encode_record({**r, "receipt_hash": "ß"}) + b"\n", WRONG),
        (lambda r: encode_record({**r, "n": {"receipt_hash": r["receipt_hash"]}}) + b"\n", WRONG),
        (_moved_hash, WRONG),
        (
            lambda r: encode_record({**r, "receipt_hash": 1}) + b"\n",
            ("edited", "it has no receipt_hash"),
        ),
        (
            lambda r: encode_record({**r, "previous_hash": None}) + b"\n",
            ("edited", "it has no previous_hash"),
        ),
        (encode_record, ("unparsable", "it does not end with a newline")),
        (lambda r: encode_record(r) + b"}\n", NOT_JSON),
        (lambda r: encode_record(r) + encode_record(r) + b"\n", NOT_JSON),
        (lambda r: encode_record(r)[:-1] + b'\xff"\n', NOT_JSON),
        (
            lambda r: b'{"a":"y",' + encode_record(r)[1:] + b"\n",
            ("unparsable", "it names a key twice"),
        ),
        (
            lambda r: (
                encode_record(r)[:-1] + b',"receipt_hash":"%b"}\n' % r["receipt_hash"].encode()
            ),
            ("unparsable", "it names a key twice"),
        ),
    ],
)
def test_a_tampered_line_is_found(
    tamper: Callable[[dict[str, str]], bytes], expected: tuple[str, str]
) -> None:
    form = JournalForm("receipt_hash")
    record = json.loads(_sealed(form, {"a": "x", "z": "y"}))
    flaw = form.check(tamper(record))
    assert isinstance(flaw, LineFlaw)
    assert (flaw.reason, flaw.what) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"a":"x"}\n', ("edited", "it has no receipt_hash")),
        (b"\n", NOT_JSON),
        (b"\0" * 100 + b"\n", NOT_JSON),
        (b"[" * 100_000 + b"\n", NOT_JSON),
        (b'{"n":' + b"9" * 5000 + b"}\n", NOT_JSON),
        (b'["receipt_hash"]\n', ("unparsable", "it is not a JSON object")),
        (
            b"x" * (MAX_LINE_BYTES + 1),
            ("unparsable", f"it is longer than {MAX_LINE_BYTES} bytes"),
        ),
    ],
    ids=range(7),
)
def test_a_line_that_never_was_a_record_is_found(line: bytes, expected: tuple[str, str]) -> None:
    flaw = JournalForm("receipt_hash").check(line)
    assert isinstance(flaw, LineFlaw)
    assert (flaw.reason, flaw.what) == expected


def _forged(body: bytes) -> bytes:
    """Give any bytes a right hash, as somebody who rewrites a whole line can."""
    own = sha256(body).hexdigest().encode()
    return body[:-1] + b',"receipt_hash":"%b"}\n' % own


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1,"previous_hash":"' + b"0" * 64 + b'"}',
        b'{"a":1.0,"previous_hash":"' + b"0" * 64 + b'"}',
        b'{"a":{"c":1,"b":2},"previous_hash":"' + b"0" * 64 + b'"}',
        b'{"a":"\\u0041","previous_hash":"' + b"0" * 64 + b'"}',
    ],
)
def test_only_strict_finds_a_forged_line_that_is_not_canonical(body: bytes) -> None:
    form = JournalForm("receipt_hash")
    line = _forged(body)
    assert isinstance(form.check(line), JournalLink)
    flaw = form.check(line, strict=True)
    assert isinstance(flaw, LineFlaw)
    assert (flaw.reason, flaw.what) == ("edited", "it is not in canonical form")
    neighbour = _forged(b'{"a":1,"previous_hash":"' + b"0" * 64 + b'"}')
    assert isinstance(form.check(neighbour, strict=True), JournalLink)


def test_an_id_is_shown_where_it_can_be() -> None:
    form = JournalForm("receipt_hash", "id")
    assert form.identify({"id": "r-1"}) == "r-1"
    assert form.identify({"id": 7}) == "7"
    assert form.identify({"id": ["r-1"]}) is None
    assert form.identify({}) is None
    assert form.identify(None) is None
    assert JournalForm("receipt_hash").identify({"id": "r-1"}) is None


def test_lines_stop_at_the_end_given_and_keep_their_newlines() -> None:
    file = io.BytesIO(b"one\ntwo\nthree")
    assert list(read_lines(file, 0, 13)) == [b"one\n", b"two\n", b"three"]
    assert list(read_lines(file, 4, 8)) == [b"two\n"]
    assert list(read_lines(file, 0, 6)) == [b"one\n", b"tw"]
    assert list(read_lines(file, 0, 99)) == [b"one\n", b"two\n", b"three"]
    assert list(read_lines(file, 13, 13)) == []


def test_of_a_line_that_is_too_long_only_the_beginning_is_kept() -> None:
    file = io.BytesIO(b"one\n" + b"x" * (MAX_LINE_BYTES + 200_000) + b"\nthree\n")
    found = list(read_lines(file, 0, len(file.getvalue())))
    assert found == [b"one\n", b"x" * (MAX_LINE_BYTES + 1), b"three\n"]
