"""The sentences by which a model declines to write a patch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.changes.operations import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_PATCH: Final = "A patch cannot be safely generated with the information provided."
NO_PATCH_ASK: Final = f"{NO_PATCH} Please allow a full Aptix file bundle instead."
NO_GIT: Final = "Unable to generate a safe Git patch; fallback to Aptix file bundle."
NO_GIT_ASK: Final = (
    "Unable to generate a safe Git patch; fallback to Aptix file bundle or structured patch."
)
SENTENCES: Final = (NO_PATCH, NO_PATCH_ASK, NO_GIT, NO_GIT_ASK)

_QUOTES: Final = "`\"'“”„‘’«»"
# Quotes, emphasis, block quotes, headings and list marks a sentence may be dressed in.
_MARKS: Final = f" \t\u00a0>*_~#{_QUOTES}-"
_DRESS: Final = f"[{re.escape(_MARKS)}]"
# Between two words: blanks, or one line break with the block quote of the next line.
_BREAK: Final = r"(?:\r?\n[ \t>]*)"
_GAP: Final = rf"(?:[ \t\u00a0]+{_BREAK}?|{_BREAK})"
_MAX_DRESS: Final = 40
"""Characters before a sentence that are looked at to see how it is dressed."""
# What follows a quoted sentence when the one around it goes on.
_GOES_ON: Final = re.compile(rf"[.]?[{re.escape(_QUOTES)}*_]+[ \t\u00a0]*{_BREAK}?[ \t,;]*[a-z]")


def _words(sentence: str) -> str:
    return _GAP.join(map(re.escape, sentence.strip(" .").split(" "))) + r"(?![^\W_])"


_PATTERN: Final = re.compile(
    rf"(?<![^\W_])(?P<words>(?P<patch>{_words(NO_PATCH)})"
    # Bounded, because what may stand between the two sentences overlaps.
    rf"(?P<ask_patch>\.?{_DRESS}{{0,8}}{_BREAK}?{_DRESS}{{0,8}}"
    rf"{_words(NO_PATCH_ASK.removeprefix(NO_PATCH))})?"
    f"|{_words(NO_GIT)}(?P<ask_git>{_GAP}{_words(NO_GIT_ASK.removeprefix(NO_GIT[:-1]))})?)",
    re.IGNORECASE,
)


def find(text: str, taken: Iterable[tuple[int, int]] = ()) -> Refusal | None:
    """Return the first refusal in the text outside the spans that are taken.

    A sentence that is quoted within another is talked about and not said.
    """
    begin = 0
    for start, end in (*taken, (len(text), len(text))):
        for match in _PATTERN.finditer(text, begin, start):
            if _is_talked_about(text, match):
                continue
            asks = match["ask_patch"] is not None or match["ask_git"] is not None
            first = 0 if match["patch"] is not None else 2
            return Refusal(SENTENCES[first + asks], 1 + text.count("\n", 0, match.start("words")))
        begin = end
    return None


def _is_talked_about(text: str, match: re.Match[str]) -> bool:
    """Say whether a sentence stands in quotes in the middle of another."""
    place = match.start()
    before = text[max(place - _MAX_DRESS, 0) : place].rpartition("\n")[2]
    lead_in = before.rstrip(_MARKS)
    if lead_in == "" or not set(before[len(lead_in) :]) & set(_QUOTES):
        return False
    if lead_in[-1] in ".!?":
        return False
    return lead_in[-1] != ":" or _GOES_ON.match(text, match.end()) is not None
