"""The sentences by which a model declines, in all their dresses."""

from __future__ import annotations

import pytest

from coilclaw.changes import refusal
from coilclaw.changes.operations import Refusal


@pytest.mark.parametrize("sentence", refusal.SENTENCES)
@pytest.mark.parametrize(
    "dress",
    [
        "{}",
        "   {}  ",
        "> {}",
        "> `{}`",
        "`{}`",
        '"{}"',
        "“{}”",
        "‘{}’",
        "**{}**",
        "*{}*",
        "__{}__",
        "- {}",
        "### {}",
        "> **“{}”**",
        "{} I am sorry.",
    ],
)
def test_every_sentence_is_recognised_in_every_dress(sentence: str, dress: str) -> None:
    for said in (sentence, sentence.removesuffix(".")):
        text = "Hello.\n\n" + dress.format(said) + "\n"
        assert refusal.find(text) == Refusal(sentence, 3)


@pytest.mark.parametrize("sentence", refusal.SENTENCES)
def test_a_sentence_may_be_wrapped_anywhere(sentence: str) -> None:
    words = sentence.split(" ")
    for at in range(1, len(words)):
        head, tail = " ".join(words[:at]), " ".join(words[at:])
        assert refusal.find(f"{head}\n{tail}") == Refusal(sentence, 1)
        assert refusal.find(f"> {head} \r\n> {tail}") == Refusal(sentence, 1)


@pytest.mark.parametrize("sentence", refusal.SENTENCES)
def test_case_and_blanks_do_not_matter(sentence: str) -> None:
    assert refusal.find(sentence.upper().replace(" ", "\u00a0 ")) == Refusal(sentence, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot do that.",
        f'I would say "{refusal.NO_PATCH}" if I had to.',
        f"I could say: `{refusal.NO_PATCH}`, but I need not.",
        f"The words “{refusal.NO_GIT}” mean no.",
        f'REFUSAL = "{refusal.NO_PATCH}"',
        "Da patch cannot be safely generated with the information provided.",
        "A patch can be safely generated with the information provided.",
        "A patch cannot be safely generated",
        "A patch cannot be safely generated with the information providedness",
        "Unable to generate a safe Git patch",
        "A patch cannot be safely generated\n\nwith the information provided.",
    ],
)
def test_other_text_is_no_refusal(text: str) -> None:
    assert refusal.find(text) is None


@pytest.mark.parametrize("sentence", refusal.SENTENCES)
@pytest.mark.parametrize(
    "lead_in", ["I'm sorry, but {}", "Sorry. {}", 'I looked. "{}"', "So: `{}`", "So **{}**"]
)
def test_a_lead_in_does_not_hide_a_sentence(sentence: str, lead_in: str) -> None:
    said = sentence[0].lower() + sentence[1:]
    assert refusal.find(f"Hello.\n\n{lead_in.format(said)}\n") == Refusal(sentence, 3)


def test_emphasis_on_the_first_sentence_alone_still_gives_the_longer_one() -> None:
    text = f"**{refusal.NO_PATCH}** Please allow a full Aptix file bundle instead."
    assert refusal.find(text) == Refusal(refusal.NO_PATCH_ASK, 1)


def test_what_stands_in_a_block_is_content() -> None:
    text = f"head\n{refusal.NO_GIT}\ntail\n"
    start = text.index("Unable")
    end = text.index("tail")
    assert refusal.find(text, [(start, end)]) is None
    assert refusal.find(text, [(0, 5)]) == Refusal(refusal.NO_GIT, 2)
    assert refusal.find(text + refusal.NO_PATCH, [(start, end)]) == Refusal(refusal.NO_PATCH, 4)
