"""The sentences by which a model declines, in all their dresses."""

from __future__ import annotations

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import Refusal


@pytest.mark.parametrize("sentence", answer.SENTENCES)
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
        assert answer.find_refusal(text) == Refusal(sentence, 3)


@pytest.mark.parametrize("sentence", answer.SENTENCES)
def test_a_sentence_may_be_wrapped_anywhere(sentence: str) -> None:
    words = sentence.split(" ")
    for at in range(1, len(words)):
        head, tail = " ".join(words[:at]), " ".join(words[at:])
        assert answer.find_refusal(f"{head}\n{tail}") == Refusal(sentence, 1)
        assert answer.find_refusal(f"> {head} \r\n> {tail}") == Refusal(sentence, 1)


@pytest.mark.parametrize("sentence", answer.SENTENCES)
def test_case_and_blanks_do_not_matter(sentence: str) -> None:
    assert answer.find_refusal(sentence.upper().replace(" ", "\u00a0 ")) == Refusal(sentence, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot do that.",
        f'I would say "{answer.NO_PATCH}" if I had to.',
        f"I could say: `{answer.NO_PATCH}`, but I need not.",
        f"The words “{answer.NO_GIT}” mean no.",
        f'REFUSAL = "{answer.NO_PATCH}"',
        "Da patch cannot be safely generated with the information provided.",
        "A patch can be safely generated with the information provided.",
        "A patch cannot be safely generated",
        "A patch cannot be safely generated with the information providedness",
        "Unable to generate a safe Git patch",
        "A patch cannot be safely generated\n\nwith the information provided.",
    ],
)
def test_other_text_is_no_refusal(text: str) -> None:
    assert answer.find_refusal(text) is None


@pytest.mark.parametrize("sentence", answer.SENTENCES)
@pytest.mark.parametrize(
    "lead_in", ["I'm sorry, but {}", "Sorry. {}", 'I looked. "{}"', "So: `{}`", "So **{}**"]
)
def test_a_lead_in_does_not_hide_a_sentence(sentence: str, lead_in: str) -> None:
    said = sentence[0].lower() + sentence[1:]
    assert answer.find_refusal(f"Hello.\n\n{lead_in.format(said)}\n") == Refusal(sentence, 3)


def test_emphasis_on_the_first_sentence_alone_still_gives_the_longer_one() -> None:
    text = f"**{answer.NO_PATCH}** Please allow a full Aptix file bundle instead."
    assert answer.find_refusal(text) == Refusal(answer.NO_PATCH_ASK, 1)


def test_what_stands_in_a_block_is_content() -> None:
    text = f"head\n{answer.NO_GIT}\ntail\n"
    start = text.index("Unable")
    end = text.index("tail")
    assert answer.find_refusal(text, [(start, end)]) is None
    assert answer.find_refusal(text, [(0, 5)]) == Refusal(answer.NO_GIT, 2)
    assert answer.find_refusal(text + answer.NO_PATCH, [(start, end)]) == Refusal(
        answer.NO_PATCH, 4
    )
