"""Cutting an answer into blocks: what is one, where it ends, and what is never looked into."""

from __future__ import annotations

import pytest

from coilclaw.changes import answer_blocks
from coilclaw.changes.formats import json_search
from coilclaw.changes.operations import Format
from coilclaw.kernel.errors import AnswerError

BUNDLE = '{"root": ".", "files": [{"path": "a", "content": "x"}]}'
PATCH = '{"patches": [{"path": "a", "replacements": [{"find": "x", "replace": "y"}]}]}'
DIFF = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"
ENVELOPE = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n"
BLOCK = "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n"


def cut(text: str, *wanted: Format) -> list[tuple[Format, str, int]]:
    found = answer_blocks.AnswerSplitter(text, frozenset(wanted) or answer_blocks.EVERY).split()
    for segment in found:
        assert text.count("\n", 0, segment.start) + 1 == segment.first_line
    return [(segment.kind, segment.text, segment.first_line) for segment in found]


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        # code blocks that are cut off
        (f"```json\n{BUNDLE}", "answer.unclosed", 2),
        (f"```json\n{BUNDLE}\n\n", "answer.unclosed", 2),
        (f"```\n{BUNDLE}\n", "answer.unclosed", 2),
        ('a\n```json\n{"root": ".", "fil', "answer.unclosed", 3),
        ('```json\n{"root": ".", "files": [', "json.syntax", 2),
        (f"```patch\n{DIFF}", "answer.unclosed", 1),
        (f"```patch\n{DIFF} ```\n", "answer.unclosed", 1),
        (f"````diff\n{DIFF}```\n", "answer.unclosed", 1),
        (f"~~~patch\n{DIFF}```\n", "answer.unclosed", 1),
        (f"```\n{DIFF}", "answer.unclosed", 1),
        # JSON that is no JSON, but meant
        (f"```json\n// note\n{BUNDLE}\n```\n", "json.syntax", 2),
        (f"```json\n[{BUNDLE}]\n```\n", "json.syntax", 2),
        (f"```json\n{BUNDLE}\nx\n```\n", "json.trailing", 3),
        (f"```json\n{BUNDLE} x\n```\n", "json.trailing", 2),
        (f"```json\n{BUNDLE}\n{BUNDLE}\n```\n", "json.trailing", 3),
        (f'```json\n{{"a": 1}}\n{BUNDLE}\n```\n', "json.trailing", 3),
        (f"```json\n{BUNDLE[:-1]},}}\n```\n", "json.syntax", 2),
        (f'```json\n{BUNDLE[:-1]}, "x": NaN}}\n```\n', "json.number", 2),
        (f'```json\n{BUNDLE[:-1]}, "x": 1e999}}\n```\n', "json.number", 2),
        (f'```json\n{BUNDLE[:-1]}, "root": "b"}}\n```\n', "json.duplicate", 2),
        (f'```json\n{BUNDLE[:-1]}, "x": {"[" * 100}\n```\n', "json.depth", 2),
        ('```json\n{"files": [{"path": "a", "content": "\\ud800"}]}\n```\n', "json.surrogate", 2),
        ('```json\n{"files": [{"path": "a", "content": "x\ny"}]}\n```\n', "json.syntax", 2),
        ('```json\n{\n "files": [ ... ] }\n```\n', "json.syntax", 3),
        ("```json\n{'files': [{'path': 'a'}]}\n```\n", "json.syntax", 2),
        ('```json\n{"x": 1, // c\n "patches": []}\n```\n', "json.syntax", 2),
        # the same without a code block
        (f"{BUNDLE} and more\n", "json.trailing", 1),
        (f"text\n{BUNDLE[:-1]},\n", "json.syntax", 3),
        ('{"root": ".",\n // c\n "files": []}', "json.syntax", 2),
        ('Use:\n{ "root": ".", "files": [ ... ] }\n', "json.syntax", 2),
        ('Use\n{ "root": ".", // c\n  "files": []}\n', "json.syntax", 2),
        ('{ "root": ".",\n // c\n\n  "files": []}\n', "json.syntax", 2),
        # other blocks that are cut off
        ("*** Begin Patch\n*** Delete File: a\n", "envelope.end", 1),
        (f"{ENVELOPE}*** End Patch\n", "envelope.end", 4),
        ("a\n>>>>>>> REPLACE\n", "blocks.marker", 2),
        ("a\n>>>>>> REPLACE\n", "blocks.marker", 2),
        # the same, indented
        ("- a\n  *** Begin Patch\n*** End Patch\n", "envelope.end", 2),
        ("- a\n  ^^^a\nx\n^^^end\n", "fence.unclosed", 2),
        ("- a\n  ^^^a\n  x\ny\n  ^^^end\n", "answer.indent", 4),
        ("- a\n  <<<<<<< SEARCH\n  x\n=======\n>>>>>>> REPLACE\n", "blocks.unclosed", 2),
        ("- a\n  <<<<<<< SEARCH\nx\n  =======\n  >>>>>>> REPLACE\n", "answer.indent", 3),
        # a hunk that lost its file
        (f"{DIFF}\nand\n@@ -5 +5 @@\n-x\n+y\n", "git.header", 9),
        (f"```json5\n{BUNDLE[:-1]},}}\n```\n", "json.syntax", 2),
        (f"```js\n{BUNDLE[:-1]},}}\n```\n", "json.syntax", 2),
    ],
)
def test_what_was_meant_as_a_delivery_and_is_broken_refuses(
    text: str, rule: str, line: int
) -> None:
    with pytest.raises(AnswerError) as caught:
        answer_blocks.AnswerSplitter(text).split()
    assert (caught.value.rule, caught.value.line) == (rule, line)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Just prose.\n\n- with a list\n",
        "```python\nprint('unclosed')\n",
        "```\nunclosed prose\n",
        "```json\n",
        "```patch\n\n```\n",
        '```json\n{"name": "x", "files": ["dist"]}\n```\n',
        '```json\n{"name": "x", "files": ["dist"],}\n```\n',
        '```jsonc\n{"files": ["a.ts"] // c\n}\n```\n',
        '```json\n{"files": [{"name": "x"}]}\n```\n',
        '```json\n{"files": []}\n```\n',
        '```json\n{"files": {"a": 1}}\n```\n',
        '```json\n{"root": true, "files": []}\n```\n',
        '```json\n{"root": ".", "files": ["dist"]}\n```\n',
        f'```json\n{{"result": {BUNDLE}}}\n```\n',
        "```json\n[1, 2]\n```\n",
        '```json\n{"a": NaN, "a": 1}\n```\n',
        '```json\n"files"\n```\n',
        f"```text\n{BUNDLE}\n```\nThat is it.\n",
        f"```js\nconst x =\n{BUNDLE}\n```\n",
        f"The bundle {BUNDLE} is inline.\n",
        f"```json {BUNDLE}```\n",
        f"> {BUNDLE}\n",
        '{"files": ["dist"]}\n',
        "{\n  color: red;\n}\n",
        '{"a": }\n',
        f"```python\n{DIFF}```\n",
        "--- a heading ---\n",
        "Use *** Begin Patch\n",
        "Use <<<<<<< SEARCH\n",
        "  x = 1\n  ^^^^^\n  ^^^ here\n ^^^^^\n",
        "diff --git is a command\n",
        "--- a\n+++ b\n",
        f"```python\n{DIFF}@@ -1 +1 @@\n```\n",
        "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> branch\n",
    ],
)
def test_prose_and_other_code_are_ignored(text: str) -> None:
    assert answer_blocks.AnswerSplitter(text).split() == ()


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{BUNDLE}\n```\n",
        f"```json\n{BUNDLE}\n```",
        f"```JSON\n{BUNDLE}\n```\n",
        f"```jsonc\n{BUNDLE}\n```\n",
        f"```json5\n{BUNDLE}\n```\n",
        f"```aptix\n{BUNDLE}\n```\n",
        f"```javascript\n{BUNDLE}\n```\n",
        f"```js\n{BUNDLE}\n```\n",
        f"```text\n{BUNDLE}\n```\n",
        f'```json title="x"\n{BUNDLE}\n```\n',
        f"``` json\n{BUNDLE}\n```\n",
        f"```\n{BUNDLE}\n```\n",
        f"~~~json\n{BUNDLE}\n~~~~\n",
        f"`````json\n{BUNDLE}\n``````   \n",
        f"   ```json\n   {BUNDLE}\n   ```\n",
        f"   ```json\n{BUNDLE}\n```\n",
        f"```json\r\n{BUNDLE}\r\n```\r\n",
    ],
)
def test_json_in_a_code_block(text: str) -> None:
    assert cut(text) == [(Format.BUNDLE, BUNDLE, 2)]


def test_json_in_a_code_block_may_have_blank_lines_around_it() -> None:
    assert cut(f"a\n```json\n\n {BUNDLE}\n \n```\nb\n") == [(Format.BUNDLE, BUNDLE, 4)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BUNDLE, 1),
        (f"\n\n  {BUNDLE}  \n\n", 3),
        (f"Here you go:\n{BUNDLE}\nThat was it.\n", 2),
        (f"{{\n oops\n}}\n{BUNDLE}\n", 4),
        (f'{{"a": [\n{BUNDLE.replace("files", "list")}, oops\n{BUNDLE}\n', 3),
        (f'{{"a": <b>}} is prose.\n{BUNDLE}\n', 2),
        (f'Text.\n{{"a": <b>}} is prose\nthat goes on.\n\n "files": too.\n{BUNDLE}\n', 6),
    ],
)
def test_bare_json(text: str, line: int) -> None:
    assert cut(text) == [(Format.BUNDLE, BUNDLE, line)]


@pytest.mark.parametrize(
    "text",
    [
        f"```text\nLayout\n```json\n{BUNDLE}\n```\n\n```patch\n{DIFF}```\n```\n",
        f"````markdown\n```json\n{BUNDLE}\n```\nthen\n```diff\n{DIFF}```\n````\n",
        f"```python\nunclosed\n\n```json\n{BUNDLE}\n```\n~~~patch\n{DIFF}~~~\n",
        f"```\nprose\n```\n\n{BUNDLE}\n```\n{DIFF}```\n",
    ],
)
def test_deliveries_are_found_whatever_is_wrapped_around_them(text: str) -> None:
    assert [(kind, body) for kind, body, _ in cut(text)] == [
        (Format.BUNDLE, BUNDLE),
        (Format.GIT, DIFF),
    ]


WRAPPED = f"^^^a\n^^^end\n\n{BUNDLE}\n\n{DIFF}\n```json\n{PATCH}\n```\n"


@pytest.mark.parametrize("label", ["markdown", "md", "text"])
@pytest.mark.parametrize("fence", ["```", "````", "~~~"])
@pytest.mark.parametrize("lead_in", ["", "\n\n", "Here it is:\n\n"])
def test_a_code_block_around_the_whole_answer_does_not_count(
    label: str, fence: str, lead_in: str
) -> None:
    found = [kind for kind, _, _ in cut(f"{lead_in}{fence}{label}\n{WRAPPED}{fence}\n\n")]
    assert found == [Format.FENCE, Format.BUNDLE, Format.GIT, Format.PATCH]


@pytest.mark.parametrize(
    ("opener", "closer"),
    [
        ("````markdown\nHello\n", "````\n"),
        ("````md\n", "````\n"),
        ("`````text\n", "`````\n"),
        ("~~~markdown\n", "~~~\n"),
        ("````\n", "````\n"),
    ],
)
@pytest.mark.parametrize("inner", [f"```json\n{BUNDLE}\n```\n", f"```diff\n{DIFF}```\n"])
def test_code_blocks_in_a_longer_one_of_text_are_an_example(
    opener: str, closer: str, inner: str
) -> None:
    example = f"Answer like this:\n{opener}{inner}\n```py\nx\n```\n{closer}\n"
    assert cut(f"{example}That is how.\n") == []
    (found,) = cut(f"{example}Now:\n{inner}")
    assert found[2] == example.count("\n") + 3


def test_a_code_block_of_text_that_is_not_closed_is_no_example() -> None:
    assert cut(f"Hello\n````md\nHi\n```json\n{BUNDLE}\n```\n") == [(Format.BUNDLE, BUNDLE, 5)]


def test_an_empty_list_with_a_root_is_a_delivery() -> None:
    text = '{"root": ".", "files": []}'
    assert cut(text) == [(Format.BUNDLE, text, 1)]


def test_git_patches_in_code_blocks() -> None:
    assert cut(f"a\n```patch\n{DIFF}```\n~~~diff x\n{DIFF}~~~") == [
        (Format.GIT, DIFF, 3),
        (Format.GIT, DIFF, 11),
    ]


PLAIN = DIFF[DIFF.index("---") :]


@pytest.mark.parametrize("label", ["", "git", "udiff", "unified", "unidiff"])
@pytest.mark.parametrize("diff", [DIFF, PLAIN])
def test_a_patch_is_known_by_its_first_lines(label: str, diff: str) -> None:
    assert cut(f"Text\n```{label}\n{diff}```\n") == [(Format.GIT, diff, 3)]
    assert cut(f"```{label}\nnone\n```\n") == []


@pytest.mark.parametrize("diff", [DIFF, PLAIN, f"{DIFF}{PLAIN}", f"{PLAIN}\n\n{DIFF}"])
@pytest.mark.parametrize(
    "after",
    ["", "\n\n", "Done.\n", "\n- I changed a\n", "\n---\n", "-- \n2.39.5\n\n", "```\nx\n```\n"],
)
def test_a_bare_patch_in_prose_ends_where_its_hunks_do(diff: str, after: str) -> None:
    assert cut(f"^^^b\n^^^end\nAnd:\n\n{diff}{after}") == [
        (Format.FENCE, "^^^b\n^^^end\n", 1),
        (Format.GIT, diff, 5),
    ]
    assert cut(diff + after) == [(Format.GIT, diff, 1)]


@pytest.mark.parametrize(
    "section",
    [
        "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n",
        "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n",
        "diff --git a/a b/a\nnew file mode 100644\nGIT binary patch\nliteral 1\nIcmZ\n\n",
        "diff --git a/a b/a\nBinary files a/a and b/a differ\n",
        "diff --git a a\n--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n",
        "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n\n--- x\n+++ y\n \n\\ No newline at end of file\n",
        # Counts that are wrong are for the format to refuse.
        f"{DIFF} z\n+w\n",
        "--- a/a\n+++ b/a\n@@ -1,7 +1,7 @@\n-x\n+y\n",
        "--- a/a\n+++ b/a\n@@ ... @@\n-x\n+y\n",
    ],
)
def test_a_bare_patch_is_taken_with_all_that_belongs_to_it(section: str) -> None:
    assert cut(f"Text.\n{section}Text.\n") == [(Format.GIT, section, 2)]
    assert cut(f"{section}{DIFF}Text.\n") == [(Format.GIT, section + DIFF, 1)]


@pytest.mark.parametrize("more", ["+w\n", "-w\n", " w\n+v\n"])
def test_what_looks_like_more_of_a_bare_patch_is_taken_after_blank_lines(more: str) -> None:
    assert cut(f"{DIFF}\n\n{more}Text.\n") == [(Format.GIT, f"{DIFF}\n\n{more}", 1)]


def indented(text: str, by: str = "   ") -> str:
    return "".join(f"{by}{line}\n" if line else "\n" for line in text.splitlines())


@pytest.mark.parametrize("by", [" ", "  ", "\t", "     "])
def test_indented_blocks_are_read_without_their_indentation(by: str) -> None:
    fence = "^^^f\nx\n\n  y\n^^^end\n"
    block = "<<<<<<< SEARCH\nx\n\n=======\n  y\n>>>>>>> REPLACE\n"
    assert cut(f"- so\n{indented(fence, by)}") == [(Format.FENCE, fence, 2)]
    assert cut(f"- so\n{by}```\n{indented(fence, by)}{by}```\n") == [(Format.FENCE, fence, 3)]
    assert cut(f"- so\n{indented(ENVELOPE, by)}") == [(Format.ENVELOPE, ENVELOPE, 2)]
    assert cut(f"- so\n{indented(DIFF, by)}") == [(Format.GIT, DIFF, 2)]
    assert cut(f"a\n{block}{indented(block, by)}{block}") == [(Format.BLOCKS, f"a\n{block * 3}", 1)]


def test_the_indentation_of_a_code_block_in_a_list_is_taken_away() -> None:
    inner = "".join(f"  {line}\n" for line in DIFF.splitlines())
    assert cut(f"- item\n  ```patch\n{inner}  ```\n") == [(Format.GIT, DIFF, 3)]
    assert cut(f"- item\n  ```patch\n{DIFF}  ```\n") == [(Format.GIT, DIFF, 3)]


def test_a_context_line_that_looks_like_a_fence_does_not_end_a_patch() -> None:
    diff = "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n ```\n-x\n+```\n ````\n"
    assert cut(f"```diff\n{diff}```\n") == [(Format.GIT, diff, 2)]


@pytest.mark.parametrize("head", ["diff --git a/a b/a\n", "", "\n\n"])
def test_an_answer_that_is_nothing_but_a_diff(head: str) -> None:
    text = head + DIFF[DIFF.index("---") :]
    assert cut(text) == [(Format.GIT, text.lstrip("\n"), 1 + len(head) - len(head.lstrip("\n")))]


def test_a_mail_from_git_is_a_diff() -> None:
    mail = "From " + "0" * 40 + " Mon Sep 17 00:00:00 2001\nSubject: x\n\n" + DIFF
    assert cut(mail) == [(Format.GIT, mail, 1)]


@pytest.mark.parametrize("label", ["", "```\n", "```patch\n", "```diff\n", "```json\n", "```sh\n"])
def test_an_envelope_may_stand_in_any_code_block(label: str) -> None:
    text = f"{label}{ENVELOPE}{'```' if label else ''}\n"
    assert cut(text) == [(Format.ENVELOPE, ENVELOPE, 2 if label else 1)]


def test_what_looks_like_an_end_within_an_envelope_is_content() -> None:
    envelope = "*** Begin Patch\n*** Add File: a\n+*** End Patch\n+```\n*** End Patch\n"
    assert cut(f"```\n{envelope}```\n") == [(Format.ENVELOPE, envelope, 2)]


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        (f"a.py\n{BLOCK}", 0),
        (f"text\n\na.py\n\n{BLOCK}", 6),
        (f"`a.py`\n```python\n{BLOCK}```\n", 0),
        (f"**a.py**:\n\n```diff\n{BLOCK}```\n", 0),
        (f"```diff\na.py\n{BLOCK}```\n", 8),
        (f"```json\na.py\n{BLOCK}```\n", 8),
        (f"````md\na.py\n```py\n{BLOCK}```\n````\n", 7),
        (BLOCK, 0),
    ],
)
def test_a_block_starts_with_its_path_line(text: str, begin: int) -> None:
    end = text.index("REPLACE\n") + len("REPLACE\n")
    line = text.count("\n", 0, begin) + 1
    assert cut(text) == [(Format.BLOCKS, text[begin:end], line)]


def test_blocks_with_nothing_between_them_go_together() -> None:
    together = f"a.py\n```\n{BLOCK}\n{BLOCK}```\n\n```\n{BLOCK}"
    apart = f"b.py\n{BLOCK}"
    assert cut(f"{together}```\nand\n{apart}") == [
        (Format.BLOCKS, together, 1),
        (Format.BLOCKS, apart, 24),
    ]


def test_a_block_that_is_not_closed_is_left_to_its_format() -> None:
    text = "a\n<<<<<<< SEARCH\nx\n"
    assert cut(text) == [(Format.BLOCKS, text, 1)]


def test_a_block_after_another_format_does_not_take_its_last_line_for_a_path() -> None:
    fence = "^^^a\nx\n^^^end\n"
    assert cut(f"{fence}{BLOCK}") == [(Format.FENCE, fence, 1), (Format.BLOCKS, BLOCK, 4)]


FENCED = "^^^f\n{}^^^end\n"
ADDED = "*** Begin Patch\n*** Add File: a\n{}*** End Patch\n"
SEARCHED = "p\n<<<<<<< SEARCH\n{}=======\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize("inner", [f"```json\n{BUNDLE}\n```\n", f"{BUNDLE}\n", ENVELOPE, BLOCK])
def test_a_fence_is_not_looked_into(inner: str) -> None:
    text = FENCED.format(inner)
    assert cut(text) == [(Format.FENCE, text, 1)]


@pytest.mark.parametrize("inner", [f"```json\n{BUNDLE}\n```\n", f"{BUNDLE}\n", "^^^a\n^^^end\n"])
def test_an_envelope_and_a_search_block_are_not_looked_into(inner: str) -> None:
    text = ADDED.format(inner)
    assert cut(text) == [(Format.ENVELOPE, text, 1)]
    text = SEARCHED.format(inner)
    assert cut(text) == [(Format.BLOCKS, text, 1)]


def test_a_git_patch_is_not_looked_into() -> None:
    diff = f"{DIFF}^^^a\n*** Begin Patch\n{BUNDLE}\n"
    assert cut(f"```patch\n{diff}```\n") == [(Format.GIT, diff, 2)]


def test_a_json_string_is_not_looked_into() -> None:
    text = '{"files": [{"path": "a", "content": "\\n```\\n^^^b\\n*** Begin Patch\\n"}]}'
    assert cut(f"```json\n{text}\n```\n") == [(Format.BUNDLE, text, 2)]


MIXED = (
    f"^^^f\nx\n^^^end\n```json\n{BUNDLE}\n```\n{PATCH}\n```patch\n{DIFF}```\n{ENVELOPE}p\n{BLOCK}"
)


def test_all_formats_in_one_answer_stay_in_order() -> None:
    assert cut(MIXED) == [
        (Format.FENCE, "^^^f\nx\n^^^end\n", 1),
        (Format.BUNDLE, BUNDLE, 5),
        (Format.PATCH, PATCH, 7),
        (Format.GIT, DIFF, 9),
        (Format.ENVELOPE, ENVELOPE, 16),
        (Format.BLOCKS, f"p\n{BLOCK}", 19),
    ]


@pytest.mark.parametrize("form", list(Format))
def test_with_one_format_wanted_all_others_are_prose(form: Format) -> None:
    assert [kind for kind, _, _ in cut(MIXED, form)] == [form]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Format.BUNDLE, f"^^^\n*** End Patch\n>>>>>>> REPLACE\n```patch\n{BUNDLE}"),
        (Format.FENCE, f'```json\n{{"files": [oops\n```\n*** Begin Patch\n{BUNDLE} x'),
        (Format.PATCH, '```json\n{"files": [oops]}\n```\n'),
        (Format.BUNDLE, '```json\n{"patches": [oops]}\n```\n'),
    ],
)
def test_what_is_wrong_in_other_formats_does_not_matter_then(form: Format, text: str) -> None:
    assert cut(text, form) == []


def test_the_number_of_blocks_is_bounded() -> None:
    text = "^^^a\n^^^end\n" * 3
    assert len(answer_blocks.AnswerSplitter(text, most=3).split()) == 3
    with pytest.raises(AnswerError) as caught:
        answer_blocks.AnswerSplitter(text, most=2).split()
    assert (caught.value.rule, caught.value.line) == ("answer.bounds", 5)


@pytest.mark.parametrize("stray", ['{"a": x\n', '{"a": 1}\n', "```json\n{}\n```\n"])
def test_the_number_of_json_texts_that_are_no_deliveries_is_bounded(stray: str) -> None:
    assert answer_blocks.AnswerSplitter(stray * 10_000).split() == ()
    with pytest.raises(AnswerError) as caught:
        answer_blocks.AnswerSplitter(stray * 10_001).split()
    assert caught.value.rule == "answer.bounds"


@pytest.mark.slow
def test_the_number_of_lines_that_could_begin_a_block_is_bounded() -> None:
    assert answer_blocks.AnswerSplitter("```\n" * 250_000).split() == ()
    with pytest.raises(AnswerError) as caught:
        answer_blocks.AnswerSplitter("```\n" * 250_001).split()
    assert (caught.value.rule, caught.value.line) == ("answer.bounds", 250_001)


def test_the_values_of_all_json_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_search, "MAX_VALUES", 6)
    stray = '{"a": [1]}\n'
    assert answer_blocks.AnswerSplitter(stray * 2).split() == ()
    with pytest.raises(AnswerError) as caught:
        answer_blocks.AnswerSplitter(stray * 3).split()
    assert (caught.value.rule, caught.value.line) == ("answer.bounds", 3)
