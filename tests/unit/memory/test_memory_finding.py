"""What a search finds, in which order, and what no query can do."""

from __future__ import annotations

import pytest

from coilclaw.agent.memory import search
from coilclaw.agent.memory.search import WIDTH, excerpt
from coilclaw.agent.memory.store import Memory
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Recollection
from tests.unit.memory.turns import exchange, said, time

TEXT = (
    "The Aardvark adapter in src/foo.py calls lock_detection -> 東京都へ; 100% of it_is "
    'C:\\dir, don\'t say "NEAR" \U0001f98a\U0001f3fd Größe É ΣΑΣ e\u0301tude x*y (a AND b) ^col:'
)
OTHER = "Little of the kind is written here, or there."

HOSTILE = (
    '"',
    '""',
    "' OR 1=1 --",
    "'; DROP TABLE turns; --",
    "NEAR(written here)",
    "written NOT kind",
    "written OR nowhere",
    "written AND",
    "tokens : written",
    "{tokens} : written",
    "^written",
    "- written",
    "writ*ten",
    "wri%",
    "wr_tten",
    "w?itten",
    "[w]ritten",
    "(written",
    "written\0nowhere",
    "\0",
    "\\",
    "\ud800",
    "'delete-all'",
    "rank:bm25",
)


@pytest.mark.parametrize("query", HOSTILE)
def test_no_query_is_anything_but_text(memory: Memory, query: str) -> None:
    with memory:
        memory.append([said(OTHER)])
        assert memory.search(query) == ()
        memory.append([said(f"Somebody asked for {query} once, and written NOT kind.")])
        assert [hit.turn_id for hit in memory.search(query)] == ["t-1"]
        assert len(memory.search("written")) == 2


@pytest.mark.parametrize("query", ["", " ", "\n\t\u3000\xa0"])
def test_a_query_without_a_term_finds_nothing(memory: Memory, query: str) -> None:
    with memory:
        memory.append([said(TEXT)])
        assert memory.search(query) == ()


def test_a_query_may_be_long(memory: Memory) -> None:
    words = [f"word{number}" for number in range(10_000)]
    with memory:
        memory.append([said(" ".join(words), turn="all"), said(" ".join(words[:-1]), turn="most")])
        assert [hit.turn_id for hit in memory.search(" ".join(words))] == ["all"]
        assert memory.search(" ".join([*words, "nowhere"])) == ()
        assert memory.search("".join(words)) == ()
        assert memory.search("->" * 50_000) == ()
        assert memory.search("word1 " * 100_000) == memory.search("word1")


def test_a_query_beyond_the_bound_is_refused_and_one_at_it_is_not(memory: Memory) -> None:
    with memory:
        memory.append([said("aa")])
        assert len(memory.search("a" + " " * (search.MAX_QUERY_CHARS - 1))) == 1
        with pytest.raises(UsageError) as caught:
            memory.search("a" * (search.MAX_QUERY_CHARS + 1))
        assert caught.value.rule == "memory.query"


@pytest.mark.parametrize("limit", [0, -1])
def test_a_search_for_nothing_is_refused_and_one_for_one_is_not(memory: Memory, limit: int) -> None:
    with memory:
        memory.append([said("a"), said("a")])
        with pytest.raises(UsageError) as caught:
            memory.search("a", limit=limit)
        assert caught.value.rule == "memory.limit"
        assert len(memory.search("a", limit=1)) == 1


@pytest.mark.parametrize(
    "query",
    [
        "aardvark",
        "AARDVARK ADAPTER",
        "adapter aardvark",
        "ardvar",
        "aard",
        "lock_detec",
        "ock_d",
        "k_d",
        "detection",
        "src/foo.py",
        "c/fo",
        "foo.p",
        ".py",
        "->",
        ">",
        "東京",
        "京都へ",
        "都",
        "100%",
        "%",
        "it_is",
        "_",
        "C:\\DIR",
        "\\",
        "don't",
        '"near"',
        "\U0001f98a",
        "\U0001f3fd",
        "größe",
        "GRÖSSE",
        "össe",
        "é",
        "e\u0301",
        "σας",
        "\xc9TUDE",
        "x*y",
        "*",
        "^col:",
        "(a and b)",
    ],
)
def test_every_part_of_a_text_is_found(memory: Memory, query: str) -> None:
    with memory:
        memory.append([said(OTHER, turn="other"), said(TEXT, turn="this")])
        assert [hit.turn_id for hit in memory.search(query)] == ["this"]


@pytest.mark.parametrize(
    "query",
    ["aardvarks", "adapter.", "lock-detec", "lock detecs", "src/foo/py", "-->", "etude", "東 都x"],
)
def test_what_is_only_like_a_part_is_not(memory: Memory, query: str) -> None:
    with memory:
        memory.append([said("Aardvark adapter lock_detection src/foo.py -> 東京 étude")])
        assert memory.search(query) == ()


def test_tool_calls_and_results_are_found(memory: Memory) -> None:
    with memory:
        memory.append(exchange())
        for query, role in (
            ("lock_detection.py", "assistant"),
            ("file_read", "assistant"),
            ("КЛЮЧ", "assistant"),
            ("значени", "assistant"),
            ("2.5", "assistant"),
            ("def hold", "tool"),
            ("broken arguments", "tool"),
        ):
            assert role in {hit.role for hit in memory.search(query)}, query
        # What is not said by anybody: ids, providers, the syntax of the columns.
        for query in ("call-1", "receipt-1", "local", "mock", '{"', '"name"'):
            assert memory.search(query) == (), query


def test_a_result_says_where_it_was_found(memory: Memory) -> None:
    with memory:
        memory.append([said("An aardvark.", "c-7", "t-9", time(5)), *map(said, [OTHER] * 3)])
        (hit,) = memory.search("aardvark")
        assert hit.score > 0
    assert hit == Recollection("c-7", "t-9", time(5), "user", "An aardvark.", hit.score)


def found(memory: Memory, query: str, limit: int = 20) -> list[str]:
    return [hit.turn_id for hit in memory.search(query, limit=limit)]


def fill(memory: Memory) -> None:
    """Texts without the terms, so that these are rare."""
    memory.append([said(f"{OTHER} {number}", "filler", f"f{number}") for number in range(20)])


def test_whole_words_come_before_beginnings_before_parts(memory: Memory) -> None:
    texts = {"part": "the padlocks", "start": "the locks", "word": "the lock", "name": "a lock_it"}
    with memory:
        fill(memory)
        memory.append([said(text, "c-1", turn) for turn, text in texts.items()])
        assert set(found(memory, "lock", 2)) == {"word", "name"}
        assert found(memory, "lock")[2:] == ["start", "part"]


def test_more_and_denser_mentions_come_first(memory: Memory) -> None:
    with memory:
        fill(memory)
        memory.append(
            [
                said("lock and lock and lock", turn="dense"),
                said("lock " + "and more " * 50, turn="thin"),
            ]
        )
        assert found(memory, "lock") == ["dense", "thin"]


def test_terms_that_stand_together_come_first(memory: Memory) -> None:
    with memory:
        fill(memory)
        memory.append([said("blue lock here", turn="together"), said("lock is blue", turn="apart")])
        assert found(memory, "blue  lock") == ["together", "apart"]


def test_recent_conversations_come_first(memory: Memory) -> None:
    with memory:
        memory.append([said("the lock", "c-new", "new", time(0, day=20))])
        memory.append([said("the lock", "c-old", "old", time(0, day=1))])
        fill(memory)
        assert found(memory, "lock") == ["new", "old"]
        # A conversation that goes on is recent, whatever was said in it when.
        memory.append([said("something else", "c-old", "later", time(0, day=28))])
        assert found(memory, "lock") == ["old", "new"]


def test_equals_come_in_a_stable_order_newest_first(memory: Memory) -> None:
    with memory:
        memory.append([said("the lock", turn=str(number)) for number in range(30)])
        newest_first = [str(number) for number in reversed(range(30))]
        assert found(memory, "lock", 30) == newest_first
        assert found(memory, "lock", 7) == newest_first[:7]


def test_all_of_many_matches_are_found(memory: Memory) -> None:
    count = search.RANKED + 30
    with memory:
        memory.append([said("lock", turn=str(number)) for number in range(count)])
        assert len(found(memory, "lock", count + 10)) == count
        assert len(found(memory, "lock")) == 20


def test_a_part_of_very_many_words_is_found(memory: Memory) -> None:
    """Beyond the bound the index is not asked, and the texts are looked at."""
    count = search.MAX_WORDS + 50
    with memory:
        memory.append([said(f"w{number:05d}qz", turn="many") for number in range(count)])
        memory.append([said("deadlock.py nothing", turn="one")])
        assert len(found(memory, "qz", count)) == count
        assert found(memory, "qz nothing") == []
        assert found(memory, "ck.p") == ["one"]
        assert len(found(memory, "0qz w0", count)) > 200


def test_words_too_long_to_be_listed_are_found(memory: Memory) -> None:
    long = "0123456789abcdef" * 20
    with memory:
        memory.append([said(OTHER), said(f"see {long}.", turn="long")])
        for query in (long, long[100:200], long[:150], "f0", long[-5:] + ".", "see " + long[5:]):
            assert found(memory, query) == ["long"], query
        assert found(memory, long + "0") == []


def test_an_excerpt_shows_the_place() -> None:
    text = "start " + "x " * 500 + "the Needle,\n\n  in the hay" + " y" * 500
    shown = excerpt(text, "needle")
    assert shown.startswith("…x x")
    assert "the Needle, in the hay y" in shown
    assert shown.endswith("…")
    assert len(shown) == WIDTH


@pytest.mark.parametrize("text", ["needle", "  a needle\n", "needle" + " x" * 60])
def test_a_short_text_is_shown_whole(text: str) -> None:
    assert excerpt(text, "needle") == " ".join(text.split())


@pytest.mark.parametrize("filling", ["ß", "e\u0301", "İ", "\ufb03", "x \n\n"])
def test_an_excerpt_finds_the_place_whatever_folding_does_to_lengths(filling: str) -> None:
    text = filling * 700 + " needle " + filling * 700
    shown = excerpt(text, "needle")
    assert "needle" in shown
    assert len(shown) <= WIDTH


def test_a_term_longer_than_an_excerpt_is_cut() -> None:
    assert excerpt("x" * 1000, "x" * 500) == "x" * (WIDTH - 1) + "…"
