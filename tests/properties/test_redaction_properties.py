"""No secret survives redaction, however it is written, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from coilclaw.kernel.messages import Json
from coilclaw.kernel.secret import Secret
from coilclaw.policy.redaction import SecretRedactor
from coilclaw.policy.secret_forms import MIN_BEYOND, MIN_DISTINCT, MIN_PIECE, public_prefix
from tests.support.scale import scaled

_EXAMPLES = scaled(full=2000, default=150)
_KEY_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

keys = st.text(_KEY_CHARS, min_size=MIN_PIECE, max_size=60).filter(
    lambda key: len(set(key)) >= MIN_DISTINCT
)
odd_secrets = st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip()))
# What stands around a secret: it neither continues a run nor joins one.
fillers = st.text("éü…☃ <>|;:(){}[]\n\t", max_size=60).map(lambda text: f"{text}|")


def _per_char(write: Callable[[str], str]) -> Callable[[str], str]:
    return lambda key: "".join(write(char) for char in key)


def _wrapped(text: str, width: int, end: str) -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


def _base64(key: str, before: str = "", *, url: bool = False) -> str:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    return encode((before + key).encode()).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "turned": lambda key: key[::-1],
    "json": _per_char(lambda char: f"\\u{ord(char):04x}"),
    "json in json": _per_char(lambda char: f"\\\\u{ord(char):04X}"),
    "braces": _per_char(lambda char: f"\\u{{{ord(char):x}}}"),
    "long": _per_char(lambda char: f"\\U{ord(char):08x}"),
    "x": _per_char(lambda char: f"\\x{ord(char):02x}"),
    "octal": _per_char(lambda char: f"\\{ord(char):o}"),
    "percent": _per_char(lambda char: f"%{ord(char):02X}"),
    "percent twice": _per_char(lambda char: f"%25{ord(char):02x}"),
    "decimal entity": _per_char(lambda char: f"&#{ord(char)};"),
    "hexadecimal entity": _per_char(lambda char: f"&#x{ord(char):x};"),
    "base64": _base64,
    "base64, one before": lambda key: _base64(key, "x"),
    "base64, two before": lambda key: _base64(key, "x:"),
    "base64url, no padding": lambda key: _base64(key, "~?", url=True).rstrip("="),
    "base64 in lines": lambda key: _wrapped(_base64(key, "~?~?"), 20, "\n"),
    "base64 in indented lines": lambda key: _wrapped(_base64(key, ">>"), 4, "\r\n    "),
    "hex": lambda key: key.encode().hex(),
    "HEX": lambda key: key.encode().hex().upper(),
    "hex with colons": lambda key: key.encode().hex(":"),
    "hex with dashes": lambda key: key.encode().hex("-").upper(),
    "hex with blanks": lambda key: _wrapped(key.encode().hex(" "), 24, "\n  "),
    "hex list": lambda key: ", ".join(f"0x{ord(char):02x}" for char in key),
    "UTF-16 in hex": lambda key: key.encode("utf-16-le").hex(),
    "UTF-16": lambda key: key.encode("utf-16-le").decode(),
    "letters": lambda key: ", ".join(f'"{char}"' for char in key),
    "lines": lambda key: _wrapped(key, 5, "\n    "),
    "concatenated": lambda key: _wrapped(key, 9, '" +\n  "'),
}


def _decodings(text: str) -> Iterator[str]:
    """Yield the text as somebody might read it who looks for the key."""
    yield text
    yield text[::-1]
    yield re.sub(r"[\s\"',+\0]", "", text)
    for _ in range(3):
        text = html.unescape(urllib.parse.unquote(text, "latin-1"))
        text = re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda m: chr(int(m[1], 16)), text)
        text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
        text = re.sub(r"\\U0000([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
        text = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), text)
        text = re.sub(r"\\([0-3][0-7]{2}|[0-7]{2})", lambda m: chr(int(m[1], 8)), text)
        text = text.replace("\\\\", "\\")
        yield text


def _encoded_decodings(text: str) -> Iterator[str]:
    digits = re.sub(r"[^A-Za-z0-9+/]", "", text.replace("-", "+").replace("_", "/"))
    for at in range(4):
        shifted = digits[at:]
        yield base64.b64decode(shifted[: len(shifted) // 4 * 4]).decode("latin-1")
    digits = re.sub(r"[^0-9a-fA-F]", "", re.sub("0x", "", text))
    for at in range(2):
        shifted = digits[at:]
        yield bytes.fromhex(shifted[: len(shifted) // 2 * 2]).decode("latin-1")


def _leaked(key: str, text: str) -> str | None:
    """Return a piece of the key that can be read from the text."""
    for reading in [*_decodings(text), *_encoded_decodings(text)]:
        public = public_prefix(key.encode())
        for at in range(len(key) - MIN_PIECE + 1):
            piece = key[at : at + MIN_PIECE]
            known = public and at + MIN_PIECE < public + MIN_BEYOND
            if piece in reading and len(set(piece)) >= MIN_DISTINCT and not known:
                return piece
    return None


@settings(max_examples=_EXAMPLES * 2, deadline=None)
@given(keys, st.sampled_from(sorted(ENCODINGS)), fillers, fillers)
def test_a_secret_does_not_survive_in_any_encoding(
    key: str, encoding: str, before: str, after: str
) -> None:
    clean = SecretRedactor([Secret(key)]).redact(before + ENCODINGS[encoding](key) + after[::-1])
    assert _leaked(key, clean) is None
    assert clean.startswith(before)
    assert clean.endswith(after[::-1])


@settings(max_examples=_EXAMPLES, deadline=None)
@given(keys, st.data(), fillers, fillers)
def test_a_secret_of_which_some_characters_are_escaped_does_not_survive(
    key: str, data: st.DataObject, before: str, after: str
) -> None:
    notations = ["json", "json in json", "x", "percent", "decimal entity", "octal", "long"]
    choices = data.draw(
        st.lists(st.sampled_from(["plain", *notations]), min_size=len(key), max_size=len(key))
    )
    # An octal escape ends where the digits do: one before a digit is written in full.
    written = "".join(
        f"\\{ord(char):03o}" if choice == "octal" else ENCODINGS[choice](char)
        for char, choice in zip(key, choices, strict=True)
    )
    clean = SecretRedactor([Secret(key)]).redact(before + written + after[::-1])
    assert clean.startswith(before)
    assert clean.endswith(after[::-1])
    assert f"…{key[-2:]}]" in clean
    assert len(clean) - len(before) - len(after) <= len("[redacted …xy]")


@settings(max_examples=_EXAMPLES, deadline=None)
@given(keys, st.data(), fillers, fillers)
def test_a_piece_of_a_secret_does_not_survive(
    key: str, data: st.DataObject, before: str, after: str
) -> None:
    low = data.draw(st.integers(0, len(key) - MIN_PIECE))
    high = data.draw(st.integers(low + MIN_PIECE, len(key)))
    encoding = data.draw(st.sampled_from(["plain", "json", "percent", "base64", "hex"]))
    text = before + ENCODINGS[encoding](key[low:high]) + after[::-1]
    assert _leaked(key, SecretRedactor([Secret(key)]).redact(text)) is None


@settings(max_examples=_EXAMPLES, deadline=None)
@given(st.lists(odd_secrets, min_size=1, max_size=3), st.text(max_size=200), st.data())
@example(["redacted"], "redacted redacted", None)
@example(["[redacted …xy]"], "[redacted …xy]", None)
@example(["xy]abcdefghxy"], "xy]abcdefghxyabcdefgh", None)
@example(["****", "[…]", "[redacted]"], "**** […] [redacted]", None)
def test_whatever_the_secrets_are_the_result_is_stable_and_free_of_them(
    secrets: list[str], text: str, data: st.DataObject | None
) -> None:
    if data is not None:
        for secret in secrets:
            at = data.draw(st.integers(0, len(text)))
            text = text[:at] + secret + text[at:]
    redactor = SecretRedactor([Secret(secret) for secret in secrets])
    clean = redactor.redact(text)
    assert [secret for secret in secrets if secret in clean] == []
    assert redactor.redact(clean) is clean


@settings(max_examples=_EXAMPLES, deadline=None)
@given(st.lists(keys, min_size=1, max_size=3), st.text(max_size=300))
def test_a_text_without_a_secret_is_the_same_object(secrets: list[str], text: str) -> None:
    redactor = SecretRedactor([Secret(secret) for secret in secrets])
    if not any(_leaked(secret, text) for secret in secrets):
        assert redactor.redact(text) is text


@settings(max_examples=_EXAMPLES, deadline=None)
@given(keys, st.binary(max_size=80), st.binary(max_size=80))
def test_bytes_of_any_kind_around_a_secret_are_kept(key: str, before: bytes, after: bytes) -> None:
    before, after = before + b"|", b"|" + after
    mark = f"[redacted …{key[-2:]}]".encode()
    clean = SecretRedactor([Secret(key)]).redact_bytes(before + key.encode() + after)
    assert clean == before + mark + after


@settings(max_examples=_EXAMPLES, deadline=None)
@given(
    keys,
    st.lists(st.tuples(fillers, st.sampled_from(sorted(ENCODINGS))), min_size=1, max_size=4),
    st.data(),
)
def test_a_stream_cut_anywhere_gives_what_the_whole_gives(
    key: str, pieces: list[tuple[str, str]], data: st.DataObject
) -> None:
    written = "".join(f"{filler}{ENCODINGS[name](key)}|" for filler, name in pieces).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=12)))
    redactor = SecretRedactor([Secret(key)])
    stream = redactor.stream()
    bounds = [0, *cuts, len(written)]
    chunks = [written[low:high] for low, high in itertools.pairwise(bounds)]
    out = b"".join([*(stream.feed(chunk) for chunk in chunks), stream.finish()])
    assert out == redactor.redact_bytes(written)


_words = st.text("éü…☃ <>|", max_size=8)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 999) | _words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=_EXAMPLES, deadline=None)
@given(keys, _json)
def test_json_holds_no_secret_in_strings_and_keys(key: str, value: Json) -> None:
    redactor = SecretRedactor([Secret(key)])
    assert redactor.redact_json(value) == value
    clean = redactor.redact_json({key: [value, {"a": f"<{key}>"}], f"{key}!": key})
    assert _leaked(key, json.dumps(clean)) is None
