from __future__ import annotations

import base64
import json
import random
import traceback

import pytest

from coilclaw.kernel.messages import Json
from coilclaw.kernel.secret import Secret
from coilclaw.policy.redaction import SecretRedactor

KEY = "AIzaSyB-w4k_3mQ7pLx9VtRn2Ho8cEuJd6Zf0g1"
MARK = "[redacted …g1]"
REDACTOR = SecretRedactor([Secret(KEY)])
ESCAPED = "".join(f"\\u{ord(char):04x}" for char in KEY)
BASIC = base64.b64encode(f"user:{KEY}".encode()).decode()

CASES = [
    ("plain", f"key={KEY}.", f"key={MARK}."),
    ("twice", f"{KEY} {KEY}", f"{MARK} {MARK}"),
    ("twice without a gap", KEY + KEY, MARK + MARK),
    ("within a word", f"x{KEY}y", f"x{MARK}y"),
    ("without its end", f"{KEY[:-2]}...", f"{MARK}..."),
    ("its first eight characters", f"{KEY[:8]}***", f"{MARK}***"),
    ("its middle", f"***{KEY[11:20]}***", f"***{MARK}***"),
    ("in a JSON body", '{"error": "bad key ' + KEY + '"}', '{"error": "bad key ' + MARK + '"}'),
    ("JSON escapes", f'"{ESCAPED}"', f'"{MARK}"'),
    ("one character escaped", f"AIza\\u0053{KEY[5:]}", MARK),
    ("JSON within JSON", json.dumps(json.dumps(f"<{ESCAPED}>")), f'"\\"<{MARK}>\\""'),
    ("an escaped mark", KEY.replace("-", "\\-").replace("_", "\\_"), MARK),
    ("a named entity", KEY.replace("_", "&lowbar;"), MARK),
    ("entities within entities", KEY.replace("I", "&amp;#73;"), MARK),
    ("percent in part", KEY.replace("-", "%2D").replace("_", "%5f"), MARK),
    ("in a query", f"?key={KEY}&alt=json", f"?key={MARK}&alt=json"),
    ("over two lines", f"{KEY[:5]}\n    {KEY[5:]}", MARK),
    ("over many lines", "\n".join(KEY[at : at + 3] for at in range(0, 39, 3)), MARK),
    ("a continued line", f'"{KEY[:6]}\\\n{KEY[6:]}"', f'"{MARK}"'),
    ("concatenated", f'"{KEY[:7]}" + "{KEY[7:13]}"\n + \'{KEY[13:]}\'', f"\"{MARK}'"),
    ("coloured", f"{KEY[:20]}\x1b[31m{KEY[20:24]}\x1b[0m{KEY[24:]}", MARK),
    ("with an invisible character", f"{KEY[:20]}\u200b{KEY[20:]}", MARK),
    ("turned", f"<{KEY[::-1]}>", "<[redacted]>"),
    ("basic authentication", f"Basic {BASIC}", f"Basic {BASIC[:7]}[redacted]{BASIC[58:]}"),
    ("hexadecimal", KEY.encode().hex(), "[redacted]"),
    ("a dump", "x " + KEY.encode().hex(" ").upper() + " y", "x [redacted] y"),
]
SPARED = [
    ("seven characters", f"{KEY[:7]}|{KEY[10:17]}|{KEY[-7:]}"),
    ("the last two", "ends in g1"),
    ("another case", KEY.swapcase()),
    ("another key", "AIzaSyC-x5l_4nR8qMy0WuSo3Ip9dFvKe7Ag1h2"),
    ("escapes of other things", '"\\u00e9\\n\\t\\"%20%2F&amp;&#8230;\\x1b[0m"'),
    ("pieces that are far apart", f"{KEY[:7]} {KEY[7:14]} and not {KEY[14:21]}"),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_secret_is_replaced_and_nothing_else(text: str, expected: str) -> None:
    assert REDACTOR.redact(text) == expected
    assert REDACTOR.redact_bytes(text.encode()) == expected.encode()
    assert REDACTOR.redact(expected) == expected


@pytest.mark.parametrize("text", [case[1] for case in SPARED], ids=[case[0] for case in SPARED])
def test_what_is_no_secret_stays_the_same_object(text: str) -> None:
    assert REDACTOR.redact(text) is text
    data = text.encode()
    assert REDACTOR.redact_bytes(data) is data


# The n of an escaped line end after every four digits would itself read as a digit.
@pytest.mark.parametrize(
    ("width", "end"),
    [
        *((width, end) for width in (4, 19, 64, 76) for end in ("\n", "\r\n", "\n\t  ")),
        *((width, "\\n") for width in (19, 64, 76)),
    ],
)
@pytest.mark.parametrize("shift", range(4))
def test_base64_is_found_in_every_alignment_and_however_it_is_wrapped(
    shift: int, width: int, end: str
) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(b"~?>"[:shift] + KEY.encode() + b"\xff\xfe").decode()
        text = end.join(encoded[at : at + width] for at in range(0, len(encoded), width))
        clean = REDACTOR.redact(f"before: {text} :after")
        assert clean.startswith("before: ")
        assert clean.endswith(" :after")
        clean = clean.removeprefix("before: ").removesuffix(" :after").replace(end, "")
        before, after = clean.split("[redacted]")
        assert encoded.startswith(before)
        assert encoded.endswith(after)
        assert len(before) <= -(-shift * 8 // 6)
        assert len(after) <= 6


def _hexadecimal(text: str) -> dict[str, str]:
    return {
        "together": text.encode().hex(),
        "colons": text.encode().hex(":"),
        "words": " ".join(f"0x{byte:02X}," for byte in text.encode()),
        "UTF-16": text.encode("utf-16-be").hex(),
    }


@pytest.mark.parametrize("notation", sorted(_hexadecimal("")))
@pytest.mark.parametrize("before", ["", "1", "12 34 5", "0x9, "])
def test_eight_characters_in_hexadecimal_are_found_wherever_they_stand(
    notation: str, before: str
) -> None:
    for at in range(len(KEY) - 7):
        digits = _hexadecimal(KEY[at : at + 8])[notation]
        clean = REDACTOR.redact(f"{before};{digits};ff")
        assert "[redacted]" in clean, digits
        assert digits not in clean


@pytest.mark.parametrize("key", ["000000000000023-", '22222222#3"2#3"2'])
def test_different_bytes_that_share_their_digits_are_found(key: str) -> None:
    redactor = SecretRedactor([Secret(key)])
    for text in (key[1:].encode().hex(), key[-8:].encode().hex()):
        assert redactor.redact(f"|{text}|") == "|[redacted]|"
    assert redactor.redact(f"|{key[0] * 8}|") == f"|{key[0] * 8}|"


def test_digits_that_only_one_alphabet_of_base64_has_are_found() -> None:
    secret = "~?>~a?>?~b~?>c~?>~d?>~"
    redactor = SecretRedactor([Secret(secret)])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in (b"", b"x", b"xy"):
            encoded = encode(before + secret.encode()).decode()
            assert "[redacted]" in redactor.redact(f"<{encoded}>")


def test_a_long_secret_is_taken_out_to_its_ends() -> None:
    rng = random.Random(3)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    secret = "".join(rng.choices(letters, k=400))
    redactor = SecretRedactor([Secret(secret)])
    mark = f"[redacted …{secret[-2:]}]"
    escaped = "".join(f"\\u{ord(char):04x}" for char in secret)
    lines = "\n".join(secret[at : at + 4] for at in range(0, 400, 4))
    filler = ";" * 300
    for text, expected in [
        (secret, mark),
        (escaped, mark),
        (secret[:200] + escaped[1200:], mark),
        (lines, mark),
        (secret.encode().hex(" "), "[redacted]"),
    ]:
        assert redactor.redact(filler + text + filler) == filler + expected + filler


def test_a_secret_is_followed_back_from_where_it_was_first_seen() -> None:
    pieces = [KEY[at : at + 4] for at in range(0, 28, 4)] + [KEY[28:]]
    text = ("\\n" + " " * 60).join(pieces)
    assert REDACTOR.redact(f"[{text}]") == f"[{MARK}]"


def test_runs_that_overlap_are_taken_out_together() -> None:
    redactor = SecretRedactor([Secret("ABCDEFGHIJ-EFGHIJKLM-01234567")])
    assert redactor.redact("ABCDEFGHIJKLM!") == "[redacted …67]!"


def test_a_mark_does_not_make_a_secret_of_what_stands_beside_it() -> None:
    redactor = SecretRedactor([Secret("xy]abcdefghxy")])
    clean = redactor.redact("xy]abcdefghxyabcdefg!")
    assert "xy]abcde" not in clean
    assert redactor.redact(clean) is clean


def test_a_bearer_header_in_an_error_is_redacted() -> None:
    text = f"h11 said: illegal header b'Authorization: Bearer {KEY}'"
    assert REDACTOR.redact(text) == f"h11 said: illegal header b'Authorization: Bearer {MARK}'"


def test_secrets_are_found_in_a_large_text_wherever_they_stand() -> None:
    rng = random.Random(7)
    line = "    value = compute(self.index + 17, name='alpha', total=0x1F)  # a comment\n"
    lines = [line] * 6000
    expected = list(lines)
    written = [KEY, ESCAPED, KEY.encode().hex(), BASIC, KEY[::-1], KEY[5:20]]
    for at, text in zip(rng.sample(range(6000), 60), written * 10, strict=True):
        lines[at] = f"# <{text}>\n"
        expected[at] = f"# <{REDACTOR.redact(text)}>\n"
    assert REDACTOR.redact("".join(lines)) == "".join(expected)


@pytest.mark.parametrize(
    ("secret", "text", "expected"),
    [
        ("hunter2", "hunter2 hunter hunter22", "[redacted] hunter [redacted]2"),
        ("hunter2", '"hunter\\u0032"', '"[redacted]"'),
        ("hunter2", "aHVudGVyMg==", "[redacted]g=="),
        ("hunter2", "68756e74657232", "[redacted]"),
        ("hunter2", "hun ter2", "hun ter2"),
        ("ab", "cab abc", "c[redacted] [redacted]c"),
        ("xxxxxxxxxxxx", "xxxxxxxx", "xxxxxxxx"),
        ("xxxxxxxxxxxx", "<xxxxxxxxxxxx>", "<[redacted …xx]>"),
        ("sk-0000000000000abc", "0x0000000000000000", "0x0000000000000000"),
        ("sk-0000000000000abc", "sk-0000000000000abc", "[redacted …bc]"),
        ('pass "word" 1+1', 'is pass "word" 1+1!', "is [redacted]!"),
        ('pass "word" 1+1', r'"pass \"word\" 1+1"', '"[redacted]"'),
        ("100%25 sure\\n yes", "is 100%25 sure\\n yes.", "is [redacted …es]."),
        ("redacted", "redacted!", "[…]!"),
        ("пароль-секрет", "это пароль-секрет!", "это [redacted]!"),
        (
            "пароль-секрет",
            json.dumps("это пароль-секрет!"),
            json.dumps("это ")[:-1] + '[redacted]!"',
        ),
    ],
)
def test_secrets_of_all_kinds(secret: str, text: str, expected: str) -> None:
    assert SecretRedactor([Secret(secret)]).redact(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('key.startswith("sk-ant-api03-")', 'key.startswith("sk-ant-api03-")'),
        ("ANTHROPIC_API_KEY=sk-ant-api03-...", "ANTHROPIC_API_KEY=sk-ant-api03-..."),
        ("sk-ant-api03-Zq8", "sk-ant-api03-Zq8"),
        ("sk-ant-api03-Zq8W", "[redacted …yT]"),
        ("i03-Zq8Wc", "[redacted …yT]"),
        ("sk-ant-api03-\n  Zq8Wc5Xv2Bn7Mk4J", "[redacted …yT]"),
    ],
)
def test_a_prefix_that_everybody_knows_is_no_secret(text: str, expected: str) -> None:
    redactor = SecretRedactor([Secret("sk-ant-api03-Zq8Wc5Xv2Bn7Mk4Jh1GfyT")])
    assert redactor.redact(text) == expected


@pytest.mark.parametrize("secret", ["", " ", "\n"])
def test_an_empty_secret_is_ignored(secret: str) -> None:
    text = "a b\nc"
    assert SecretRedactor([Secret(secret)]).redact(text) is text


def test_without_secrets_nothing_changes() -> None:
    assert SecretRedactor([]).redact(KEY) is KEY


def test_several_secrets_are_told_apart_by_their_ends() -> None:
    other = "sk-proj-Zq8Wc5Xv2Bn7Mk4Jh1Gf"
    redactor = SecretRedactor([Secret(KEY), Secret(other), Secret(KEY)])
    assert redactor.redact(f"{other} and {KEY}") == f"[redacted …Gf] and {MARK}"


def test_bytes_that_are_no_text_are_kept() -> None:
    data = bytes(range(256))
    assert REDACTOR.redact_bytes(data + KEY.encode() + data) == data + MARK.encode() + data


def test_half_a_surrogate_pair_is_kept() -> None:
    assert REDACTOR.redact(f"\ud83d {KEY} \udca9") == f"\ud83d {MARK} \udca9"


def test_json_is_cleaned_throughout() -> None:
    value: Json = {KEY: [1, 2.5, True, None, {"a": KEY}], f"{KEY} ": "b", "c": "d"}
    expected: Json = {MARK: [1, 2.5, True, None, {"a": MARK}], f"{MARK} ": "b", "c": "d"}
    assert REDACTOR.redact_json(value) == expected


def test_keys_that_become_the_same_are_kept_apart() -> None:
    value: Json = {KEY: 1, KEY[:-1]: 2, KEY[:-2]: 3}
    assert REDACTOR.redact_json(value) == {MARK: 1, f"{MARK} (2)": 2, f"{MARK} (3)": 3}


def test_a_number_that_is_a_secret_is_no_number_any_more() -> None:
    redactor = SecretRedactor([Secret("1234509876")])
    assert redactor.redact_json([1234509876, 12345]) == ["[redacted …76]", 12345]


def test_json_that_is_nested_beyond_the_bound_is_cut_off() -> None:
    value: Json = KEY
    for _ in range(100_000):
        value = [value]
    clean = REDACTOR.redact_json(value)
    for _ in range(200):
        assert isinstance(clean, list)
        clean = clean[0]
    assert clean == "[nested too deeply]"


def test_a_secret_cut_by_chunks_is_found() -> None:
    for cut in range(1, len(KEY)):
        stream = REDACTOR.stream()
        out = stream.feed(f"a: {KEY[:cut]}".encode())
        out += stream.feed(f"{KEY[cut:]} b\n".encode())
        assert out + stream.finish() == f"a: {MARK} b\n".encode()


def test_a_stream_byte_by_byte_gives_what_the_whole_gives() -> None:
    text = "; ".join(case[1] for case in CASES).encode()
    stream = REDACTOR.stream()
    out = b"".join([*(stream.feed(bytes([byte])) for byte in text), stream.finish()])
    assert out == REDACTOR.redact_bytes(text)


def test_a_stream_holds_back_only_what_may_be_a_secret() -> None:
    stream = REDACTOR.stream()
    assert stream.feed(b"compiling... \xe2\x9c\x93!\n") == b"compiling... \xe2\x9c\x93!\n"
    assert stream.feed(b"see AIzaSy") == b"see "
    assert stream.feed(b"stem.\n") == b"AIzaSystem.\n"
    assert stream.finish() == b""


def test_an_endless_beginning_of_a_secret_is_not_held_back_for_ever() -> None:
    stream = REDACTOR.stream()
    held = 0
    for _ in range(100):
        held += 1000 - len(stream.feed(b"A" + b" " * 999))
    assert 0 <= held <= 2000


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert KEY not in repr(REDACTOR)
    forms = [form for _, runs in REDACTOR._runs for form in runs.forms]
    assert KEY not in repr(forms)
    try:
        raise RuntimeError("a failure beside a redactor") from None
    except RuntimeError as problem:
        shown = traceback.TracebackException.from_exception(problem, capture_locals=True)
        assert KEY not in "".join(shown.format())
