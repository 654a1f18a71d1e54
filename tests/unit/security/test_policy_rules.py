"""The policy file: the shipped one holds, a broken one says everything that is wrong with it."""

from __future__ import annotations

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.policy.commands import policy_rules
from coilclaw.policy.commands.destructive import BUILT_IN
from coilclaw.policy.commands.rule import ExampleResult
from tests.support.judging import default_settings, settings, verdict

RULE = """
[[{cls}]]
id = "{id}"
commands = ["{command}"]
operands = "path*"
match = ["{command} a"]
no_match = ["{command} -x"]
"""


def policy(*rules: str) -> str:
    return "version = 1\n" + "".join(rules)


def rule(cls: str = "allow", name: str = "tool", extra: str = "") -> str:
    return RULE.format(cls=cls, id=f"{cls}.{name}", command=name) + extra


def problems(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        policy_rules.load_rules(text)
    return caught.value.message


def test_every_example_of_the_shipped_file_holds() -> None:
    rules = default_settings().rules
    assert rules is not None
    results = policy_rules.check_examples(rules)
    assert [result for result in results if not result.holds] == []
    assert len(results) > 600


def test_every_shipped_rule_has_examples_of_both_sorts() -> None:
    rules = policy_rules.load_rules(policy_rules.read_shipped_policy()).rules
    assert all(examples.match and examples.no_match for examples in rules.examples)
    named = {r.id for table in (rules.harmless, rules.allow) for rs in table.values() for r in rs}
    assert {examples.rule for examples in rules.examples} == named | {
        "allow.contained",
        *(rule.id for rule in rules.deny),
    }


def test_every_built_in_rule_is_shown_in_the_shipped_file() -> None:
    rules = policy_rules.load_rules(policy_rules.read_shipped_policy()).rules
    assert {rule.id for rule in rules.deny} == BUILT_IN


def test_no_shipped_rule_opens_the_network() -> None:
    rules = policy_rules.load_rules(policy_rules.read_shipped_policy()).rules
    tables = (rules.harmless, rules.allow)
    assert [r.id for table in tables for rs in table.values() for r in rs if r.network] == []


def test_rules_are_equal_when_their_text_is() -> None:
    one = policy_rules.load_rules(policy(rule()))
    assert one == policy_rules.load_rules(policy(rule()))
    assert one != policy_rules.load_rules(policy(rule(name="other")))
    assert len(one.digest) == 64


def test_check_shows_every_example_with_what_came() -> None:
    assert policy_rules.check_examples(policy_rules.load_rules(policy(rule()))) == (
        ExampleResult("allow.tool", "tool a", expected=True, came="allow.tool", holds=True),
        ExampleResult("allow.tool", "tool -x", expected=False, came="command.other", holds=True),
    )


def test_all_problems_are_told_in_one_pass() -> None:
    text = policy(
        rule(extra="colour = 1\n"),
        rule(extra=""),
        rule(name="b", extra='special = "magic"\n'),
        rule(name="c", extra='options = "-a=<what>"\n'),
        rule(name="d", extra='style = "odd"\n'),
        rule(name="e", extra="needs = 5\n"),
        rule(name="f", extra='tree = "yes"\n'),
        rule("harmless", "g", extra="network = true\n"),
        rule(name="h", extra='options = "@none"\n'),
        "\n[[deny]]\nid = 'destructive.everything'\nmatch = ['x']\nno_match = ['y']\n",
        "\n[[deny]]\nid = 'destructive.dd'\ncommands = ['dd']\nmatch = ['x']\nno_match = ['y']\n",
        "\n[more]\n",
    )
    message = problems(text)
    for expected in (
        "more: is not a known key",
        "allow[0].colour: is not a known key",
        "allow[1].id: there are two rules with the id 'allow.tool'",
        "allow[2].special: is 'magic'",
        "allow[3]: '-a=<what>' has a value of an unknown kind",
        "allow[4].style: is 'odd' (allowed: gnu, single)",
        "allow[5].needs: must be a string, not a whole number",
        "allow[6].tree: must be true or false, not a string",
        "harmless[0].network: a harmless command has no network",
        "allow[7].options: no set of options is named '@none'",
        "deny[0].id: no built-in rule is called 'destructive.everything'",
        "deny[1].commands: destructive.dd is built in; its commands cannot be changed",
    ):
        assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version = 1\n[[allow]\n", "line 2: is not valid TOML"),
        ("version = 1\n", "it has no rule"),
        (policy(rule()).replace("version = 1", ""), "version: must be 1"),
        (policy(rule()).replace('match = ["tool a"]', "match = []"), "match: has no example"),
        (policy(rule()).replace('no_match = ["tool -x"]', ""), "no_match: has no example"),
        (policy(rule()).replace('id = "allow.tool"', ""), "id: is missing"),
        (policy(rule()).replace("path*", "paths"), "operand 'paths' is not one of"),
        (policy(rule()).replace("path*", "path* text*"), "only one of the operands"),
        (
            policy(rule()).replace('commands = ["tool"]', 'commands = ["/bin/tool"]'),
            "name programs",
        ),
        ("version = 1\nallow = 1\n", "allow: must be a list, not a whole number"),
        (
            policy(rule()).replace("tool -x", "tool b"),
            "allow.tool: the example 'tool b' must not match, and came to allow.tool",
        ),
        (
            policy(rule()).replace("tool a", "tool -a"),
            "allow.tool: the example 'tool -a' must match, and came to command.other",
        ),
    ],
)
def test_a_broken_file_does_not_load(text: str, expected: str) -> None:
    assert expected in problems(text)


def test_a_file_that_is_too_long_does_not_load() -> None:
    assert "longer than" in problems(policy(rule()) + "#" * 2**20)


def test_a_deny_rule_of_the_file_wins_over_every_permission() -> None:
    deny = """
[[deny]]
id = "deny.push"
commands = ["git push --force", "git push -f", "tool -x"]
reason = "force-pushing is not for agents"
match = ["git push --force", "git push -uf origin", "git push --forc", "env git push -f"]
no_match = ["git push", "git log -f"]
"""
    using = settings(policy=policy(rule(), deny), allowed_commands=("tool -x", "git push -f"))
    assert verdict("tool a", using) == ("medium", "allow.tool")
    assert verdict("tool -x", using) == ("forbidden", "deny.push")
    assert verdict("git push -f", using) == ("forbidden", "deny.push")
    assert verdict("git push", using) == ("medium", "allowed_commands.git")


def test_a_rule_with_network_opens_it_for_its_command_only() -> None:
    from tests.support.judging import judged

    using = settings(policy=policy(rule(extra="network = true\n"), rule(name="other")))
    assert judged("tool a", using).terms.network
    assert not judged("other a", using).terms.network
    assert not judged("tool /etc/passwd", using).terms.network


@pytest.mark.parametrize(
    ("entry", "command", "expected"),
    [
        ("tox", "tox", "medium"),
        ("tox", "tox py311 src", "medium"),
        ("tox", "tox -e py", "high"),
        ("tox -e=<text> -q", "tox -qe py", "medium"),
        ("tox -e=<text> -q", "tox -r", "high"),
        ("tox", "tox /etc/passwd", "forbidden"),
        ("tox", "tox $X", "high"),
        ("tox", "./tox", "high"),
        ("terraform plan", "terraform plan", "medium"),
        ("terraform plan", "terraform apply", "high"),
        ("tox", "tox > out.txt", "medium"),
        ("tox", "tox > /tmp/x", "forbidden"),
        ("tox", "tox; curl x", "high"),
    ],
)
def test_an_entry_of_allowed_commands(entry: str, command: str, expected: str) -> None:
    assert verdict(command, settings(allowed_commands=(entry,)))[0] == expected


@pytest.mark.parametrize("entry", ["", " ", "-q", "-q tox", "/bin/tox", "./tox", "tox -e=<what>"])
def test_an_entry_that_names_no_program_is_refused(entry: str) -> None:
    with pytest.raises(UsageError):
        policy_rules.check_entry(entry)
