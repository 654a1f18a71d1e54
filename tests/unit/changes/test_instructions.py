"""The instruction texts: complete, and their examples are answers we read."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import coilclaw
from coilclaw.changes import answer, answer_blocks, instructions
from coilclaw.changes.operations import ChangeSet, Format
from coilclaw.kernel.errors import UsageError

FORMATS = {
    "aptix": [Format.BUNDLE, Format.PATCH, Format.GIT],
    "aptix-bundle": [Format.BUNDLE],
    "aptix-patch": [Format.PATCH],
    "aptix-git": [Format.GIT],
    "fence": [Format.FENCE, Format.FENCE, Format.FENCE],
    "envelope": [Format.ENVELOPE],
    "blocks": [Format.BLOCKS, Format.BLOCKS],
}
SENTENCES = {
    "aptix": answer.SENTENCES,
    "aptix-bundle": (answer.NO_PATCH,),
    "aptix-patch": (answer.NO_PATCH, answer.NO_PATCH_ASK),
    "aptix-git": (answer.NO_GIT, answer.NO_GIT_ASK),
    "fence": (answer.NO_PATCH,),
    "envelope": (answer.NO_PATCH,),
    "blocks": (answer.NO_PATCH,),
}


@pytest.mark.parametrize("name", ["", "Aptix", "aptix.txt", "../operations", "bundle"])
def test_other_names_refuse(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        instructions.instruction_text(name)
    assert caught.value.rule == "instructions.unknown"


def test_every_name_has_a_text_and_every_text_a_name() -> None:
    folder = Path(instructions.__file__).with_name("texts")
    assert {file.name for file in folder.iterdir()} == {f"{name}.txt" for name in FORMATS}
    assert set(instructions.NAMES) == set(FORMATS)


@pytest.mark.parametrize("name", instructions.NAMES)
def test_every_example_is_an_answer(name: str) -> None:
    text = instructions.instruction_text(name)
    found = answer_blocks.AnswerSplitter(text).split()
    assert [segment.kind for segment in found] == FORMATS[name]
    # Without the sentences of refusal, the text with its examples is an answer by itself.
    for sentence in sorted(answer.SENTENCES, key=len, reverse=True):
        text = text.replace(sentence, "")
    for form in set(FORMATS[name]):
        assert isinstance(answer.parse_answer(text, format=form), ChangeSet)


@pytest.mark.parametrize("name", instructions.NAMES)
def test_every_text_has_its_sentences_and_they_are_recognised(name: str) -> None:
    lines = instructions.instruction_text(name).split("\n")
    said = [found.sentence for line in lines if (found := answer.find_refusal(line))]
    assert said == list(SENTENCES[name])


@pytest.mark.parametrize(
    "needed",
    [
        "Aptix file bundle",
        "Aptix file patch",
        "Give me an Aptix file bundle for these changes.",
        "Return an Aptix file bundle that I can paste into my extension.",
        "It's okay to overwrite the files, just give me the bundle.",
        "Provide an Aptix file patch only.",
        "I may have local changes, please give me just the patch.",
        "Generate a git patch I can apply locally.",
        "SEVERAL BLOCKS IN ONE ANSWER",
        "If the user names no mode",
        '"create"',
        '"replace"',
        '"delete"',
        '"gitPatch"',
        '"all"',
    ],
)
def test_the_whole_text_has_what_selects_a_mode(needed: str) -> None:
    assert needed in instructions.instruction_text("aptix")


def test_texts_are_read_from_a_zip_too(tmp_path: Path) -> None:
    package = Path(coilclaw.__file__).parent
    archive = tmp_path / "coilclaw.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in package.rglob("*"):
            if file.suffix in {".py", ".txt"}:
                packed.write(file, Path("coilclaw") / file.relative_to(package))
    code = (
        "from coilclaw.changes import instructions as i; print(i.instruction_text('fence'), end='')"
    )
    shown = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout == instructions.instruction_text("fence")
