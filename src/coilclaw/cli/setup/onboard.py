"""``coilclaw onboard``: choose a model, try it, and write the configuration."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import Console, Namespace, Parser, find_home
from coilclaw.kernel import ProviderError, Stopped, UsageError
from coilclaw.models import SERVICES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.app import Choices, Config, PlannedEdit
    from coilclaw.cli.question import Questions
    from coilclaw.kernel import Secret

_TRIED_KEY: Final = "COILCLAW_ONBOARD_KEY"
"""Holds a typed key during the test; the key is stored only with the configuration."""

_ADDRESS: Final = "OPENAI_BASE_URL"
_OPENAI_URL: Final = "https://api.openai.com/v1"
_WAYS: Final = ("variable", "file", "type", "none")


def declare(parser: Parser) -> None:
    """Declare the arguments, one for every question."""
    from coilclaw.app import KINDS
    from coilclaw.policy import Autonomy

    parser.value("--provider", "KIND", " | ".join(KINDS), choices=KINDS)
    parser.value("--name", None, "the name of the provider in the configuration")
    parser.value("--base-url", "URL", "the URL, if not that of the vendor")
    parser.value("--model", None, "the model")
    parser.value("--api-key-env", "VAR", "the variable that holds the key")
    parser.value("--api-key-file", "FILE", "the file that holds the key")
    levels = [level.value for level in Autonomy]
    parser.value("--autonomy", "LEVEL", " | ".join(levels), choices=levels)
    parser.value("--workspace", "DIR", "where the agent works")
    parser.flag("--no-test", "do not test the model")
    parser.flag("--yes", "write without asking")


def run(args: Namespace, console: Console) -> None:
    """Ask for what no flag gives, test the model, show the configuration and write it."""
    from coilclaw.app import edit, open_config, setup
    from coilclaw.cli.question import Questions

    where = find_home()
    present = open_config(where, os.environ)
    questions = Questions(console, sys.stdin)
    choices, key = _provider_choices(args, questions, where)
    if not args.no_test:
        _try(choices, key, where, questions, console)
    choices = _place_choices(args, choices, present, questions)
    planned = setup.plan(choices, where, os.environ)
    _show(planned, console)
    # Without a terminal, a first configuration needs no confirmation: it replaces nothing.
    replaces = planned.before is not None and planned.after != planned.before
    asking = not args.yes and (questions.attended or replaces)
    if asking and not questions.confirm("Write this?", flag="--yes", default=True):
        raise Stopped("nothing was written", rule="onboard.declined")
    if key is not None and choices.api_key_file is not None:
        setup.store_key(choices.api_key_file, key)
        console.note(f"stored the key in {choices.api_key_file}, readable only by you", "green")
    if planned.after != planned.before:
        edit.write(planned, home=where)
    done = setup.init(where, os.environ)
    for warning in done.warnings:
        console.warn(warning)
    for item in done.items:
        if item.made:
            console.note(f"made {item.what} {item.path}", "green")
    console.note(f"{choices.name} is now the default", "green")
    console.note(f"next: {_next(choices)}", "dim")


def _next(choices: Choices) -> str:
    """Return the next command: a contract in a repository, a conversation elsewhere."""
    from coilclaw.cli.runs.contract import DEFAULT_FILE
    from coilclaw.runs import next_command
    from coilclaw.workspace import Repository

    if choices.kind != "mock" and not os.path.lexists(DEFAULT_FILE):
        with suppress(UsageError):
            Repository.open(Path())
            return next_command.command("contract", "init")
    return next_command.command("agent")


def _provider_choices(
    args: Namespace, questions: Questions, home: Path
) -> tuple[Choices, Secret | None]:
    from coilclaw.app import KINDS, Choices, name_of

    kind = args.provider or questions.choose(
        "Which kind of provider?", KINDS, flag="--provider", default=_find_kind(os.environ)
    )
    usual = name_of(kind)
    name = args.name or questions.text("Its name?", flag="--name", default=usual)
    if kind == "mock":
        for given in ("base_url", "api_key_env", "api_key_file"):
            if getattr(args, given) is not None:
                flag = f"--{given.replace('_', '-')}"
                raise UsageError(f"{flag} does not apply to the mock provider", rule="onboard.flag")
        return Choices(kind, name, args.model or "mock"), None
    base_url = args.base_url
    if base_url is None and kind == "openai-compatible":
        base_url = questions.text(
            "Its URL?",
            flag="--base-url",
            default=_openai_url(os.environ),
            suggestion="http://localhost:1234/v1",
        )
    elif base_url is None:
        asked = "Its URL, if not that of the vendor?"
        base_url = questions.text(asked, flag="--base-url", default="") or None
    asked = f"Which model ({SERVICES[kind].example})?"
    named = os.environ.get(SERVICES[kind].model_variable) or None
    model: str = args.model or questions.text(asked, flag="--model", default=named)
    choices = Choices(kind, name, model, base_url)
    return _with_key(args, choices, questions, home)


def _find_kind(environ: Mapping[str, str]) -> str | None:
    """Return the one kind of provider that the environment has a key or an address for."""
    found = {kind for kind, service in SERVICES.items() if environ.get(service.key_variable)}
    if environ.get(_ADDRESS):
        found.add("openai-compatible")
    return found.pop() if len(found) == 1 else None


def _openai_url(environ: Mapping[str, str]) -> str | None:
    """Return the URL that other clients would use from the environment."""
    if environ.get(_ADDRESS):
        return environ[_ADDRESS]
    return _OPENAI_URL if environ.get(SERVICES["openai-compatible"].key_variable) else None


def _is_keyed(choices: Choices, environ: Mapping[str, str]) -> bool:
    """Return whether the usual variable holds the key, without asking the user.

    A key is never sent to a URL that was not set together with it.
    """
    if choices.base_url is None:
        return True
    own = choices.kind == "openai-compatible" and choices.base_url == _openai_url(environ)
    return own and bool(environ.get(SERVICES[choices.kind].key_variable))


def _with_key(
    args: Namespace, choices: Choices, questions: Questions, home: Path
) -> tuple[Choices, Secret | None]:
    if args.api_key_env and args.api_key_file:
        raise UsageError("--api-key-env and --api-key-file exclude each other", rule="onboard.flag")
    if args.api_key_env:
        return replace(choices, api_key_env=args.api_key_env), None
    if args.api_key_file:
        return replace(choices, api_key_file=_absolute(args.api_key_file)), None
    way = questions.choose(
        "Where is its key?",
        _WAYS,
        flag="--api-key-env or --api-key-file",
        default="variable" if _is_keyed(choices, os.environ) else "none",
        suggestion="variable",
    )
    if way == "variable":
        usual = SERVICES[choices.kind].key_variable
        named = questions.text("The variable?", flag="--api-key-env", default=usual)
        return replace(choices, api_key_env=named), None
    if way == "file":
        file = questions.text("The file?", flag="--api-key-file")
        return replace(choices, api_key_file=_absolute(file)), None
    if way == "none":
        return choices, None
    key = questions.secret("The key (not shown)?")
    return replace(choices, api_key_file=home / "keys" / f"{choices.name}.key"), key


def _place_choices(
    args: Namespace, choices: Choices, present: Config, questions: Questions
) -> Choices:
    from coilclaw.policy import Autonomy

    autonomy = args.autonomy or questions.choose(
        "How much may the agent do on its own?",
        tuple(level.value for level in Autonomy),
        flag="--autonomy",
        default=present.security.autonomy.value,
    )
    usual = str(present.workspace_dir)
    workspace = args.workspace or questions.text(
        "Its workspace?", flag="--workspace", default=usual
    )
    # Unchanged settings stay as they are written.
    return replace(
        choices,
        autonomy=None if autonomy == present.security.autonomy.value else autonomy,
        workspace=None if workspace == usual else _absolute(workspace),
    )


def _try(
    choices: Choices, key: Secret | None, home: Path, questions: Questions, console: Console
) -> None:
    """Send the model a short request; a typed key is not written to disk for it."""
    from coilclaw.app import setup

    environ = dict(os.environ)
    if key is not None:
        environ[_TRIED_KEY] = key.reveal()
        choices = replace(choices, api_key_file=None, api_key_env=_TRIED_KEY)
    config = setup.plan(choices, home, environ).examined.config
    assert config is not None
    console.note(f"testing {choices.name} …", "dim")
    try:
        answered = setup.try_provider(config, choices.name, environ)
    except (ProviderError, UsageError) as problem:
        if not questions.attended:
            problem.hint = problem.hint or "--no-test writes the configuration without a test"
            raise
        console.error(problem.message, rule=problem.rule, hint=problem.hint)
        if not questions.confirm("Continue anyway?", flag="--no-test", default=False):
            raise
        return
    console.note(f"{choices.name} answered in {answered.latency_s * 1000:.0f} ms", "green")


def _show(planned: PlannedEdit, console: Console) -> None:
    """Show the settings of a new file without its comments, or the diff of an existing one."""
    from difflib import unified_diff

    if planned.before is None:
        console.print(f"{planned.path}:", "bold")
        for line in planned.after.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                console.print(line)
        return
    name = planned.path.name
    before, after = planned.before.splitlines(), planned.after.splitlines()
    console.diff(unified_diff(before, after, name, name, lineterm=""))
    if planned.after == planned.before:
        console.note(f"{planned.path} already has these settings", "dim")


def _absolute(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))
