"""Escapes taken off a text, with the place in the text that every byte came from.

All notations are taken off at once, because one text may mix them: ``\\u0041``, ``\\x41``,
``\\101``, ``\\/``, ``%41``, ``&#65;``, ``&#x41;``; a joint such as ``" + "`` between two halves of
a string goes away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_JOINT_SPACES: Final = 80

_NAMED: Final = {
    b"amp": b"&",
    b"apos": b"'",
    b"ast": b"*",
    b"bsol": b"\\",
    b"colon": b":",
    b"comma": b",",
    b"commat": b"@",
    b"dollar": b"$",
    b"equals": b"=",
    b"excl": b"!",
    b"grave": b"`",
    b"gt": b">",
    b"Hat": b"^",
    b"lcub": b"{",
    b"lowbar": b"_",
    b"lpar": b"(",
    b"lsqb": b"[",
    b"lt": b"<",
    b"num": b"#",
    b"percnt": b"%",
    b"period": b".",
    b"plus": b"+",
    b"quest": b"?",
    b"quot": b'"',
    b"rcub": b"}",
    b"rpar": b")",
    b"rsqb": b"]",
    b"semi": b";",
    b"sol": b"/",
    b"vert": b"|",
}
_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"e": b"\x1b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}
_HEX: Final = rb"[0-9a-fA-F]"
_TOKENS: Final = (
    rb"\\u(?P<pair>[dD][89abAB]%h{2}\\u[dD][c-fC-F]%h{2})",
    rb"[\\%]u(?P<code4>%h{4})",
    rb"\\u\{(?P<braced>%h{1,6})\}",
    rb"\\U(?P<code8>%h{8})",
    rb"\\x\{?(?P<byte>%h{2})\}?",
    rb"\\(?P<octal>[0-3]?[0-7]{1,2})",
    rb"\\(?P<letter>[abefnrtv])",
    rb"\\(?P<itself>[^A-Za-z0-9\r\n])",
    rb"%(?P<percent>%h{2})",
    rb"&#(?P<decimal>[0-9]{1,8});?",
    rb"&#[xX](?P<hexadecimal>%h{1,7});?",
    rb"&(?P<name>[A-Za-z]{2,8});",
)
# What stands between two halves of one string, and the bytes that a secret must not use itself
# for the joint to be taken off.
_JOINTS: Final = (
    (rb"\\\r?\n", b"\r\n"),
    (rb"=\r?\n", b"=\r\n"),
    (rb"\x1b\[[0-9;]{0,16}[A-Za-z]", b"\x1b"),
    (rb"\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0|\xef\xbb\xbf|\xc2\xad", b"\xe2\xef\xc2"),
    (
        rb"[\"'`]\s{0,%d}(?:[+.,&]\s{0,%d})?[\"'`]" % (MAX_JOINT_SPACES, MAX_JOINT_SPACES),
        b"\"'`+.,& ",
    ),
)
_UNFINISHED: Final = re.compile(
    rb"(?:\\+(?:[uUx]\{?[0-9a-fA-F]{0,8}\}?|[0-7]{1,2}|\r)?(?:\\|\\u[0-9a-fA-F]{0,3})?"
    rb"|%u?[0-9a-fA-F]{0,3}|&(?:#[xX]?[0-9a-fA-F]{0,8}|[A-Za-z]{0,8})|=\r?|\x1b(?:\[[0-9;]{0,16})?"
    rb"|[\"'`]\s{0,80}(?:[+.,&]\s{0,80})?|\xe2[\x80\x81]?|\xef\xbb?|\xc2)\Z"
)


@dataclass(frozen=True, slots=True)
class View:
    """Bytes, and for each of them where in the text it begins and ends."""

    data: bytes
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, text: bytes, low: int, high: int) -> View:
        """Return a part of the text as it stands."""
        return cls(text[low:high], range(low, high), range(low + 1, high + 1))

    def finished(self) -> View:
        """Return the view without an escape or joint at its end that may still go on."""
        unfinished = _UNFINISHED.search(self.data, max(0, len(self.data) - 2 * MAX_JOINT_SPACES))
        if unfinished is None:
            return self
        end = unfinished.start()
        return View(self.data[:end], self.starts[:end], self.ends[:end])


class Unescaper:
    """Takes escapes off; joints made of bytes that a secret uses itself are left alone."""

    __slots__ = ("_pattern",)

    def __init__(self, alphabet: frozenset[int]) -> None:
        tokens = [token.replace(b"%h", _HEX) for token in _TOKENS]
        joints = [joint for joint, uses in _JOINTS if alphabet.isdisjoint(uses)]
        self._pattern = re.compile(b"|".join(joints + tokens))

    def decode(self, view: View) -> View | None:
        """Take one layer of escapes off; None when there is none."""
        data, out, starts, ends = view.data, bytearray(), list[int](), list[int]()
        at = 0
        for token in self._pattern.finditer(data):
            begin, end = token.span()
            decoded = _decoded(token)
            if decoded is None:
                continue
            out += data[at:begin]
            starts.extend(view.starts[at:begin])
            ends.extend(view.ends[at:begin])
            out += decoded
            starts.extend([view.starts[begin]] * len(decoded))
            ends.extend([view.ends[end - 1]] * len(decoded))
            at = end
        if at == 0:
            return None
        out += data[at:]
        starts.extend(view.starts[at:])
        ends.extend(view.ends[at:])
        return View(bytes(out), starts, ends)


def sightings(alphabet: frozenset[int]) -> tuple[re.Pattern[bytes], ...]:
    """Return patterns, each quick to search, that find the escapes of a byte of the alphabet."""
    ascii_only = all(byte < 0x80 for byte in alphabet)
    high = rb"[2-7]" if ascii_only and all(byte >= 0x20 for byte in alphabet) else rb"[0-9a-fA-F]"
    code = rb"u(?:00%s|\{0*%s)|U000000%s" % (high, high, high) if ascii_only else rb"[uU]"
    marks = bytes(byte for byte in alphabet if not chr(byte).isalnum() or byte >= 0x80)
    letters = [letter for letter, byte in _LETTERS.items() if byte[0] in alphabet]
    single = [re.escape(bytes([mark])) for mark in marks] + letters
    names = [name for name, byte in _NAMED.items() if byte[0] in alphabet]
    backslash = [code, rb"x\{?" + high, rb"[0-3]?[0-7]{2}", *single]
    return (
        re.compile(rb"\\(?:" + b"|".join(backslash) + b")"),
        re.compile(rb"%%(?:%s|u)" % high),
        re.compile(rb"&(?:amp;)*(?:#" + b"".join(b"|" + name for name in names) + b")"),
    )


def _decoded(token: re.Match[bytes]) -> bytes | None:
    """Return what a token stands for; None when it stands for nothing but itself."""
    kind = token.lastgroup
    if kind is None:
        return b""
    body = token[kind]
    match kind:
        case "itself":
            return body
        case "letter":
            return _LETTERS[body]
        case "name":
            return _NAMED.get(body)
        case "byte" | "percent":
            return bytes([int(body, 16)])
        case "octal":
            return bytes([int(body, 8)])
        case "decimal":
            return _utf8(int(body))
        case "pair":
            lead, trail = int(body[:4], 16), int(body[6:], 16)
            return _utf8(0x10000 + ((lead - 0xD800) << 10) + (trail - 0xDC00))
        case _:
            return _utf8(int(body, 16))


def _utf8(code: int) -> bytes | None:
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else None
