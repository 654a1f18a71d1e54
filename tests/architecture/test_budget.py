"""The product gets smaller and plainer: no package grows, no rule is broken more often."""

from __future__ import annotations

import pytest

from tests.support.house_rules import (
    RULES,
    code_lines,
    count_code_lines,
    is_gerund,
    is_participle,
    is_run_together,
    read_budget,
)

SLACK = 150
"""Lines that a package may fall below its budget before the budget has to follow."""


def test_blanks_comments_and_docstrings_are_not_code() -> None:
    source = (
        '"""Doc.\n\nMore."""\n\n# why\nx = (\n    1,  # one\n)\n\n'
        'def f():\n    """Do."""\n    return """a\nb"""\n'
    )
    assert count_code_lines(source) == 6


@pytest.mark.parametrize("stem", ["working", "run_serving"])
def test_a_module_named_after_an_activity_is_found(stem: str) -> None:
    assert is_gerund(stem)


@pytest.mark.parametrize("stem", ["string", "work", "serving_plan", "ring"])
def test_a_module_named_after_a_thing_is_not(stem: str) -> None:
    assert not is_gerund(stem)


def test_two_words_run_together_are_found_and_one_word_is_not() -> None:
    words = frozenset({"run", "view", "work", "space", "jour"})
    assert is_run_together("runview", words)
    assert not is_run_together("workspace", words)
    assert not is_run_together("journal", words)


@pytest.mark.parametrize("name", ["_told", "listed", "_surely"])
def test_a_function_named_after_a_result_is_found(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["tell", "list_runs", "_apply", "feed", "is_listed"])
def test_a_function_named_after_what_it_does_is_not(name: str) -> None:
    assert not is_participle(name)


def test_no_package_grows_and_the_budget_follows_what_shrinks() -> None:
    found, budget = code_lines(), read_budget()["code_lines"]
    assert {name: n for name, n in found.items() if n > budget.get(name, 0)} == {}
    assert {name: n for name, n in budget.items() if n > found.get(name, 0) + SLACK} == {}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_no_rule_is_broken_more_often_than_before(rule: str) -> None:
    found, allowed = RULES[rule](), read_budget()["breaches"][rule]
    assert len(found) <= allowed, "\n".join(found)
