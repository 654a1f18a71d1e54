"""One word for one thing, and no words that do not belong here."""

from __future__ import annotations

import re

import pytest

from tests.support.repository import PACKAGE, files, git_lists, modules, text

# The forbidden strings are put together here, so that this file does not hold them itself.
_WORDS = frozenset(("st" + "ep", "st" + "eps", "cy" + "cle", "cy" + "cles"))
_LEFTOVERS = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
_NAMELESS = frozenset(("util", "helper", "common", "core", "manager", "misc"))
_REGISTRIES = (
    ".".join(("pypi", "org")),
    ".".join(("pythonhosted", "org")),
    ".".join(("registry", "npmjs", "org")),
    ".".join(("registry", "yarnpkg", "com")),
    ".".join(("deb", "debian", "org")),
    ".".join(("crates", "io")),
    ".".join(("rubygems", "org")),
)
_OTHER_RUNTIMES = tuple(
    "".join(parts)
    for parts in (
        ("ai", "der"),
        ("auto", "gpt"),
        ("crew", "ai"),
        ("lang", "chain"),
        ("open", "claw"),
        ("open", "hands"),
        ("swe-", "agent"),
        ("zero", "claw"),
    )
)
_WORKPLACE = ("../" + "shared", "/work/" + "shared", "/work/" + "main")


def _forbidden_words(source: str) -> list[str]:
    """Return the forbidden words, also as parts of snake_case and camelCase names."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", source)
    return [word for word in words if word.lower() in _WORDS]


def _names(source: str, names: tuple[str, ...]) -> list[str]:
    """Return which of the names stand in the text as words of their own, in any case."""
    return [
        name
        for name in names
        if re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z])", source, re.IGNORECASE)
    ]


def _is_nameless(stem: str) -> bool:
    """Tell whether a module is named after nothing: ``utils``, ``manager``, ``lock_helpers``."""
    return any(part.removesuffix("s") in _NAMELESS for part in stem.strip("_").split("_"))


def _our_texts() -> list[str]:
    folders = ("src/", "scripts/", "bench/", ".ci/")
    return [name for name in files() if name.startswith(folders)]


@pytest.mark.parametrize("source", ["a {}", "next_{}", "{}_count", "next{T}", "MAX_{U}", "{T}s"])
@pytest.mark.parametrize("word", sorted(w for w in _WORDS if not w.endswith("s")))
def test_a_forbidden_word_is_found(source: str, word: str) -> None:
    assert _forbidden_words(source.format(word, T=word.title(), U=word.upper()))


@pytest.mark.parametrize("source", ["life{}", "{}ped", "re{}d", "foot{}"])
@pytest.mark.parametrize("word", sorted(w for w in _WORDS if not w.endswith("s")))
def test_a_word_that_only_holds_one_is_not(source: str, word: str) -> None:
    assert _forbidden_words(source.format(word)) == []


def test_a_name_of_its_own_is_found_and_part_of_another_is_not() -> None:
    assert _names("see Foobar.", ("foobar",)) == ["foobar"]
    assert _names("barfoobar, foobars", ("foobar",)) == []


@pytest.mark.parametrize("stem", ["utils", "helpers", "common", "core", "run_manager", "_misc"])
def test_a_module_named_after_nothing_is_found(stem: str) -> None:
    assert _is_nameless(stem)


@pytest.mark.parametrize("stem", ["score", "commonmark", "journal", "errors"])
def test_a_module_named_after_a_thing_is_not(stem: str) -> None:
    assert not _is_nameless(stem)


def test_forbidden_words_are_not_used() -> None:
    found = {name: words for name in _our_texts() if (words := _forbidden_words(text(name)))}
    assert found == {}


def test_nothing_is_left_for_later() -> None:
    ours = [*_our_texts(), *(name for name in files() if name.endswith(".md"))]
    assert [name for name in ours if _LEFTOVERS.search(text(name))] == []


def test_every_module_is_named_after_a_thing() -> None:
    stems = {part for m in modules() for part in m.path.relative_to(PACKAGE).with_suffix("").parts}
    assert sorted(stem for stem in stems if _is_nameless(stem)) == []


@pytest.mark.parametrize(
    "names", [_REGISTRIES, _OTHER_RUNTIMES, _WORKPLACE], ids=["registry", "runtime", "workplace"]
)
def test_no_file_names_what_does_not_belong_here(names: tuple[str, ...]) -> None:
    found = {name: hits for name in files() if (hits := _names(text(name), names))}
    assert found == {}


def test_no_lock_file_with_download_addresses_is_kept() -> None:
    assert not git_lists("--cached", "uv.lock", "**/uv.lock")
    assert "uv.lock" in text(".gitignore").splitlines()
