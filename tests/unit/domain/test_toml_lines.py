"""Lines of keys: nothing that only looks like a key or a table misleads the search."""

from __future__ import annotations

import time

from coilclaw.kernel.toml_lines import lines_of
from tests.support.children import PATIENCE_S

TEXT = '''\
# a = 1
top = """
[not.a.table]
key = 1
""\\"""" # still the comment
[ a . "b c" ]   # x = 1
'lit\\k' = \'\'\'
x = 1\'\'\'\'
"qu\\u006fted" = 1
d.e . f = 2
list = [ # [x]
  "]", # ]
  [1, 2], { k = 1, m.n = "}" },
  """
  ,""", 3,
]
when = 1979-05-27 07:32:00 # t = 3
[[t]]
x = 1
[[t]]
x = 2
[t.sub]
y = 3
[[t.deep]]
z = {}
empty = ""
[a]
later = []
'''


def test_every_place_has_the_line_on_which_it_stands() -> None:
    assert lines_of(TEXT) == {
        ("top",): 2,
        ("a",): 6,
        ("a", "b c"): 6,
        ("a", "b c", "lit\\k"): 7,
        ("a", "b c", "quoted"): 9,
        ("a", "b c", "d"): 10,
        ("a", "b c", "d", "e"): 10,
        ("a", "b c", "d", "e", "f"): 10,
        ("a", "b c", "list"): 11,
        ("a", "b c", "list", 0): 12,
        ("a", "b c", "list", 1): 13,
        ("a", "b c", "list", 1, 0): 13,
        ("a", "b c", "list", 1, 1): 13,
        ("a", "b c", "list", 2): 13,
        ("a", "b c", "list", 2, "k"): 13,
        ("a", "b c", "list", 2, "m"): 13,
        ("a", "b c", "list", 2, "m", "n"): 13,
        ("a", "b c", "list", 3): 14,
        ("a", "b c", "list", 4): 15,
        ("a", "b c", "when"): 17,
        ("t",): 18,
        ("t", 0): 18,
        ("t", 0, "x"): 19,
        ("t", 1): 20,
        ("t", 1, "x"): 21,
        ("t", 1, "sub"): 22,
        ("t", 1, "sub", "y"): 23,
        ("t", 1, "deep"): 24,
        ("t", 1, "deep", 0): 24,
        ("t", 1, "deep", 0, "z"): 25,
        ("t", 1, "deep", 0, "empty"): 26,
        ("a", "later"): 28,
    }


def test_a_string_may_end_with_quotes_of_its_own() -> None:
    text = 'a = """x"""""\nb = """""" # "\nc = \'\'\'x\'\'\'\'\'\nd = ""\ne = 1\n'
    assert lines_of(text) == {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4, ("e",): 5}


def test_a_text_that_is_no_toml_tells_only_what_stands_before() -> None:
    assert lines_of('a = 1\nb = "\nc = 3\n') == {("a",): 1, ("b",): 2}
    assert lines_of("a = 1 b = 2\nc = 3") == {("a",): 1}
    assert lines_of("[a\nb = 1") == {}
    assert lines_of("a = [1 'x']\nb = 1") == {("a",): 1, ("a", 0): 1}
    assert lines_of("x = " + "[" * 100_000).keys() >= {("x",)}


def test_the_search_is_linear() -> None:
    text = "".join(f"[t{n}]\nk = ['a', 'b', {{ c = 1 }}]\n" for n in range(60_000))
    begin = time.process_time()
    assert len(lines_of(text)) == 60_000 * 6
    # Counting the lines from the beginning for each key takes minutes.
    assert time.process_time() - begin < PATIENCE_S
