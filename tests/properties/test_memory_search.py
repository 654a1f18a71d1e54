"""Search finds exactly the records that contain every term of the query."""

from __future__ import annotations

import tempfile
import unicodedata
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from coilclaw.agent.memory.search import WIDTH
from coilclaw.agent.memory.store import Memory
from coilclaw.kernel.messages import ToolAnswer, ToolCall, TurnRecord

TIME = "2026-01-02T03:04:05.000006Z"

# Few characters of many kinds, so that what is searched for is often there, or nearly so.
_CHARACTERS = (
    "abAB01_-.>/\"'*%()[]:^\\ \t\n\0ßẞſİıÉé\u0301ΣσςЖж東京都ก\U0001f98a\ue02d\ufffd\xa0\x1c"
)
_PIECES = (
    "foo",
    "lock_detection",
    "src/foo.py",
    "AND",
    "NOT",
    "NEAR(",
    "Straße",
    "東京都",
    "x" * 130,
)
texts = st.lists(
    st.one_of(st.text(_CHARACTERS, max_size=12), st.sampled_from(_PIECES), st.text(max_size=4)),
    max_size=6,
).map("".join)


def reference(text: str) -> str:
    """The folded text, written down a second time."""
    text = "".join("\ufffd" if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)
    return unicodedata.normalize("NFC", text.casefold())


def contains(text: str, query: str) -> bool:
    terms = reference(query).split()
    return bool(terms) and all(term in reference(text) for term in terms)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Some texts; and queries, most of which are cut out of one of them."""
    kept = draw(st.lists(texts, min_size=1, max_size=8))
    queries = [draw(texts)]
    for _ in range(4):
        source = draw(st.sampled_from(kept))
        start = draw(st.integers(0, len(source)))
        piece = source[start : start + draw(st.integers(1, 8))]
        queries.append(draw(st.sampled_from((piece, piece.upper(), piece.swapcase()))))
    return kept, queries


@given(worlds())
@example((["a b", "ab", "a-b", "- >", "->"], ["a b", "ab", "->", "-", ">"]))
@example((["x" * 127, "x" * 128, "x" * 129, "x" * 300 + "y"], ["x" * 128, "x" * 129, "xy", "y"]))
@example((["deadlock.py", "lock.pyc", "lock. py"], ["lock.py", "dlock.p", "ock.", ".py"]))
def test_search_finds_exactly_the_records_that_contain_the_terms(
    world: tuple[list[str], list[str]],
) -> None:
    kept, queries = world
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(Path(folder, "memory.sqlite")) as memory,
    ):
        memory.append(
            [TurnRecord("c", str(number), TIME, "user", text) for number, text in enumerate(kept)]
        )
        for query in queries:
            found = memory.search(query, limit=100)
            expected = {str(n) for n, text in enumerate(kept) if contains(text, query)}
            assert {hit.turn_id for hit in found} == expected, query
            assert len(found) == len(expected)
            assert all(len(hit.excerpt) <= WIDTH for hit in found)


@given(texts, st.dictionaries(texts, texts, max_size=3), texts, texts, st.data())
def test_tool_calls_and_their_results_are_searched_too(
    content: str, arguments: dict[str, str], output: str, error: str, data: st.DataObject
) -> None:
    parts = [content, "shell", *arguments, *arguments.values(), output, error]
    source = data.draw(st.sampled_from(parts))
    start = data.draw(st.integers(0, len(source)))
    query = source[start : start + 6]
    record = TurnRecord(
        "c",
        "t",
        TIME,
        "assistant",
        content,
        (ToolCall("1", "shell", arguments),),
        (ToolAnswer("1", "shell", False, output, error),),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(Path(folder, "memory.sqlite")) as memory,
    ):
        memory.append([record])
        found = bool(memory.search(query))
    assert found == contains("\n".join(parts), query)
