"""The verdicts about contained commands, their network, and files with secrets, at every level."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coilclaw.kernel.effects import Effect, Place, Reads, Runs, Writes
from coilclaw.kernel.errors import UsageError
from coilclaw.policy.commands import policy_rules
from coilclaw.policy.gate import judge_effects
from coilclaw.policy.judgement import Autonomy, Judgement
from coilclaw.policy.settings import NAMES, SecretFiles, SecuritySettings
from tests.support.judging import locate, settings, verdict

FULL, READONLY, SUPERVISED = Autonomy.FULL, Autonomy.READONLY, Autonomy.SUPERVISED


def there(path: str) -> Place:
    """A workspace where every name that has a dot in it is a file."""
    place = locate(path)
    return replace(place, kind="file") if "." in path.rpartition("/")[2][:-1] else place


def judged(
    effect: str | Effect, level: Autonomy = SUPERVISED, *, contained: bool = True, **changes: object
) -> Judgement:
    using = replace(settings(contained=contained, autonomy=level), **changes)  # type: ignore[arg-type]  # the names are those of the settings
    return judge_effects(
        (Runs(command=effect) if isinstance(effect, str) else effect,), using, there
    )


def decided(
    effect: str | Effect, level: Autonomy = SUPERVISED, *, contained: bool = True
) -> tuple[str, str]:
    found = judged(effect, level, contained=contained).verdict
    return str(found.decision), found.rule


@pytest.mark.parametrize(
    ("line", "real", "expected"),
    [
        (".venv/bin/python -m pytest", "/usr/bin/python3.11", ("ask", "allow.contained")),
        (".venv/bin/python3 a.py", "/home/me/.pyenv/bin/python3", ("ask", "allow.contained")),
        (".venv/bin/python a.py", "/usr/bin/tool", ("deny", "path.outside")),
        ("./build a", "/usr/bin/rm", ("deny", "path.outside")),
        ("./rm a", "/usr/bin/rm", ("deny", "command.forbidden")),
        ("./python a.py", "/etc/python", ("deny", "path.forbidden")),
        ("../python a.py", "/usr/bin/python3", ("deny", "path.outside")),
        ("cat .venv/bin/python", "/usr/bin/python3", ("deny", "path.outside")),
    ],
)
def test_the_interpreter_of_a_virtual_environment_is_a_link(
    line: str, real: str, expected: tuple[str, str]
) -> None:
    def linked(path: str) -> Place:
        place = locate(path)
        link = path.rpartition("/")[2] in {"python", "python3", "rm", "build"}
        return replace(place, real=real, kind="file") if link else place

    found = judge_effects((Runs(command=line),), settings(contained=True), linked).verdict
    assert (str(found.decision), found.rule) == expected


@pytest.mark.parametrize(
    "line",
    ["nix-shell --run '{}'", "nix develop -c {}", "hyperfine -p '{}' ./a", "vagrant -c '{}'"],
)
def test_a_command_that_another_program_carries_is_judged(line: str) -> None:
    assert decided(line.format("rm a.txt")) == ("deny", "command.forbidden")
    assert decided(line.format("make clean")) == ("ask", "allow.contained")


def test_a_search_sweeps_and_a_comparison_of_git_does_not() -> None:
    """A comparison would tell a file that is hidden from it as a removed one."""
    sweeping = (
        *("grep -rn x .", "git grep x", "git -C src grep x", "git status; ls"),
        "git diff --no-index src tests",
    )
    assert all(judged(line).terms.sweeps for line in sweeping)
    assert not any(judged(line).terms.sweeps for line in ("git diff", "git log -p", "git status"))


def test_a_contained_command_at_every_level() -> None:
    assert decided("./build.sh") == ("ask", "allow.contained")
    assert decided("./build.sh", FULL) == ("allow", "allow.contained")
    assert decided("./build.sh", READONLY) == ("deny", "autonomy.readonly")
    assert decided("./build.sh", contained=False) == ("deny", "autonomy.supervised")
    assert decided("./build.sh", FULL, contained=False) == ("allow", "command.other")
    terms = judged("./build.sh").terms
    assert (terms.writable, terms.network, terms.contained) == (True, False, True)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("pip install -r requirements.txt", "`pip install` downloads"),
        ("python3 -m pip install x", "`pip install` downloads"),
        ("npm ci", "`npm ci` downloads"),
        ("git pull", "`git pull` talks to a server"),
        ("git push", "`git push` sends to a server"),
        ("git clone https://x/y.git", "`git clone` downloads"),
        ("curl -o f https://x/y", "`curl` talks to a server"),
        ("uv sync", "`uv sync` downloads"),
        ("cargo fetch", "`cargo fetch` downloads"),
        ("cd src && npm ci && npm test", "`npm ci` downloads"),
        ("go mod tidy", "`go mod tidy` downloads"),
    ],
)
def test_the_network_is_asked_for_at_every_level(command: str, why: str) -> None:
    for level in (SUPERVISED, FULL):
        found = judged(command, level)
        assert str(found.verdict.decision) == "ask"
        assert (found.terms.network, found.terms.asked_for) == (True, why)
        assert found.terms.contained
    assert str(judged(command, READONLY).verdict.decision) == "deny"
    # Where nothing contains it, nobody is asked, and there is no network.
    assert not judged(command, FULL, contained=False).terms.network


@pytest.mark.parametrize(
    "command",
    [
        *("npm test", "pytest", "./build.sh", "curl -s localhost:8000/health", "git commit -m x"),
        *(
            "npm start & curl http://127.0.0.1:3000/x",
            "git clone ./a b",
            "pip install --no-index x",
        ),
    ],
)
def test_other_commands_have_no_network(command: str) -> None:
    assert (judged(command).terms.network, judged(command).terms.asked_for) == (False, "")


def test_the_model_may_ask_for_the_network() -> None:
    wish = Runs(command="./deploy.sh", network=True)
    for level in (SUPERVISED, FULL):
        found = judged(wish, level)
        assert (str(found.verdict.decision), found.terms.network) == ("ask", True)
        assert found.terms.asked_for == "the agent asks for it"
    reading = judged(Runs(command="ls", network=True), FULL)
    assert (str(reading.verdict.decision), reading.verdict.rule) == ("ask", "allow.contained")
    assert judged("ls", FULL).terms.network is False
    assert not judged(wish, FULL, contained=False).terms.network
    assert str(judged(Runs(command="rm -rf /", network=True)).verdict.decision) == "deny"
    assert str(judged(Runs(command="ssh host", network=True)).verdict.decision) == "deny"


def test_a_rule_that_grants_the_network_grants_it_to_its_command_only() -> None:
    text = (
        policy_rules.read_shipped_policy()
        + """
[[allow]]
id = "allow.npm.ci"
commands = ["npm ci"]
network = true
match = ["npm ci"]
no_match = ["npm ci --prefix=/tmp"]
"""
    )
    rules = policy_rules.load_rules(text)
    alone = judged("npm ci", FULL, rules=rules)
    assert (str(alone.verdict.decision), alone.terms.network) == ("allow", True)
    mixed = judged("npm ci && ./build.sh", FULL, rules=rules)
    assert (str(mixed.verdict.decision), mixed.terms.network) == ("ask", True)


@pytest.mark.parametrize(
    "name",
    [
        *(
            ".env",
            ".env.local",
            ".envrc",
            "sub/.env",
            "server.pem",
            "tls.KEY",
            "id_rsa",
            "id_custom",
        ),
        *("id_ed25519.bak", "credentials", "aws-credentials.json", ".npmrc", ".netrc", ".pypirc"),
    ],
)
def test_reading_a_file_with_secrets_is_asked_about(name: str) -> None:
    assert decided(Reads(name)) == ("ask", "path.secret")
    assert decided(Reads(name), FULL) == ("ask", "path.secret")
    assert decided(Reads(name), READONLY) == ("deny", "autonomy.readonly")
    assert decided(f"cat {name}") == ("ask", "path.secret")
    assert decided(f"cat {name}", FULL) == ("ask", "path.secret")
    assert decided(Writes(name))[1] == "path.workspace.write"


@pytest.mark.parametrize(
    "name",
    [
        *(".env.example", ".env.sample", ".env.template", "id_map.py", "id_rsa.pub", "environment"),
        *("credentials.py", "CredentialsForm.tsx", "key.py", "keys.json", "README.md"),
    ],
)
def test_files_with_similar_names_are_files_like_others(name: str) -> None:
    assert decided(Reads(name)) == ("allow", "path.workspace")
    assert decided(f"cat {name}") == ("allow", "harmless.cat")


def test_commands_that_name_a_file_with_secrets() -> None:
    for command in (
        *(
            "grep KEY .env",
            "head -5 .env.local",
            "git show HEAD:.env",
            "git diff -- .env",
            "cat .env*",
        ),
        *("sed -n 1p .env", "cat < .env", "cd src && cat ../.env", "git log -p -- .npmrc"),
    ):
        assert decided(command)[0] == "ask", command
        assert decided(command, FULL)[0] == "ask", command
    for command in ("python3 -c 'print(open(\".env\").read())'", "./x .env", "cp .env b"):
        found = judged(command, FULL).verdict
        assert str(found.decision) == "ask", command
        assert "'.env' holds secrets" in found.reason
    for command in ("grep -rn KEY .", "ls -la", "git status", "jq .env a.json", "rg process.env"):
        assert decided(command)[0] == "allow", command
    assert decided("git commit -m credentials", FULL)[0] == "allow"


def test_the_rule_about_secrets_can_be_changed() -> None:
    def using(reading: str) -> SecuritySettings:
        text = policy_rules.read_shipped_policy().replace('read = "ask"', f'read = "{reading}"')
        rules = policy_rules.load_rules(text)
        return replace(settings(), rules=rules, secrets=rules.rules.secrets)

    assert verdict("cat .env", using("allow")) == ("low", "harmless.cat")
    assert verdict("cat .env", using("ask")) == ("medium", "path.secret")
    assert verdict("cat .env", using("deny")) == ("forbidden", "path.secret")
    with pytest.raises(UsageError, match="allowed: allow, ask, deny"):
        using("perhaps")


def test_the_shipped_file_says_what_holds_without_it() -> None:
    assert policy_rules.load_rules(policy_rules.read_shipped_policy()).rules.secrets == SecretFiles(
        "ask", NAMES
    )
