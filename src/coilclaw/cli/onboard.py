"""``coilclaw onboard``: choose a model, try it, and write the configuration."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import ProviderError, Stopped, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from coilclaw.app.setup import Choices
    from coilclaw.cli.console import Console
    from coilclaw.cli.question import Questions
    from coilclaw.config.store import Planned
    from coilclaw.config.values import Config
    from coilclaw.domain.secret import Secret

_TRIED_KEY: Final = "COILCLAW_ONBOARD_KEY"
"""Stands for a typed key while it is tried: it is kept only when the configuration is."""

_VARIABLES: Final = {
    "openai-compatible": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}
_MODELS: Final = {
    "openai-compatible": "OPENAI_MODEL",
    "gemini": "GEMINI_MODEL",
    "anthropic": "ANTHROPIC_MODEL",
}
_ADDRESS: Final = "OPENAI_BASE_URL"
_OPENAI_URL: Final = "https://api.openai.com/v1"
_EXAMPLES: Final = {
    "openai-compatible": "as your server calls it",
    "gemini": "such as gemini-2.5-pro",
    "anthropic": "such as claude-sonnet-4-5",
}
_WAYS: Final = ("variable", "file", "type", "none")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: every question has one."""
    from coilclaw.app.setup import KINDS
    from coilclaw.security.autonomy import Autonomy

    parser.add_argument("--provider", choices=KINDS, metavar="KIND", help=" | ".join(KINDS))
    parser.add_argument("--name", help="what the provider is called in the configuration")
    parser.add_argument("--base-url", metavar="URL", help="the address, if not the vendor's")
    parser.add_argument("--model", help="the model that is asked")
    parser.add_argument("--api-key-env", metavar="VAR", help="the variable that holds the key")
    parser.add_argument("--api-key-file", metavar="FILE", help="the file that holds the key")
    levels = [level.value for level in Autonomy]
    parser.add_argument("--autonomy", choices=levels, metavar="LEVEL", help=" | ".join(levels))
    parser.add_argument("--workspace", metavar="DIR", help="where the agent works")
    parser.add_argument("--no-test", action="store_true", help="do not ask the model anything")
    parser.add_argument("--yes", action="store_true", help="write without asking")


def run(args: argparse.Namespace, console: Console) -> int:
    """Ask what no flag says, try the model, show what would be written, and write it."""
    from coilclaw.app import setup
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.question import Questions
    from coilclaw.config import store

    where = home()
    present = setup.current(where, os.environ)
    questions = Questions(console, sys.stdin)
    choices, key = _provider_choices(args, questions, where)
    if not args.no_test:
        _try(choices, key, where, questions, console)
    choices = _place_choices(args, choices, present, questions)
    planned = setup.plan(choices, where, os.environ)
    _show(planned, console)
    # Without a terminal, a first configuration needs no yes: it replaces nothing.
    replaces = planned.before is not None and planned.after != planned.before
    asking = not args.yes and (questions.attended or replaces)
    if asking and not questions.agrees("Write this?", flag="--yes", default=True):
        raise Stopped("nothing was written", rule="onboard.declined")
    if key is not None and choices.api_key_file is not None:
        setup.store_key(choices.api_key_file, key)
        console.note(f"kept the key in {choices.api_key_file}, for you alone", "green")
    if planned.after != planned.before:
        store.write(planned, home=where)
    done = setup.init(where, os.environ)
    for warning in done.warnings:
        console.warn(warning)
    for item in done.items:
        if item.made:
            console.note(f"made {item.what} {item.path}", "green")
    console.note(f"{choices.name} is the default now", "green")
    console.note(f"next: {_next(choices)}", "dim")
    return DONE


def _next(choices: Choices) -> str:
    """Return what to type next: a contract in a repository, a conversation anywhere else."""
    from coilclaw.app import next_command
    from coilclaw.cli.contract import DEFAULT_FILE
    from coilclaw.workspace.repository import Repository

    if choices.kind != "mock" and not os.path.lexists(DEFAULT_FILE):
        try:
            Repository.open(Path())
        except UsageError:
            return next_command.command("agent")
        return next_command.command("contract", "init")
    return next_command.command("agent")


def _provider_choices(
    args: argparse.Namespace, questions: Questions, home: Path
) -> tuple[Choices, Secret | None]:
    from coilclaw.app.setup import KINDS, Choices, name_of

    kind = args.provider or questions.choose(
        "Which kind of provider?", KINDS, flag="--provider", default=_provided(os.environ)
    )
    usual = name_of(kind)
    name = args.name or questions.text("Its name?", flag="--name", default=usual)
    if kind == "mock":
        _refuse_for_mock(args)
        return Choices(kind, name, args.model or "mock"), None
    base_url = args.base_url
    if base_url is None and kind == "openai-compatible":
        local, given = "http://localhost:1234/v1", _openai_url(os.environ)
        asked = "Its address?"
        base_url = questions.text(asked, flag="--base-url", default=given, suggestion=local)
    elif base_url is None:
        asked = "Its address, if not the vendor's?"
        base_url = questions.text(asked, flag="--base-url", default="") or None
    asked = f"Which model ({_EXAMPLES[kind]})?"
    named = os.environ.get(_MODELS[kind]) or None
    model: str = args.model or questions.text(asked, flag="--model", default=named)
    choices = Choices(kind, name, model, base_url)
    return _with_key(args, choices, questions, home)


def _provided(environ: Mapping[str, str]) -> str | None:
    """Return the one kind of provider that the environment has a key or an address for."""
    found = {kind for kind, variable in _VARIABLES.items() if environ.get(variable)}
    if environ.get(_ADDRESS):
        found.add("openai-compatible")
    return found.pop() if len(found) == 1 else None


def _openai_url(environ: Mapping[str, str]) -> str | None:
    """Return the address that other clients would take from the environment."""
    if environ.get(_ADDRESS):
        return environ[_ADDRESS]
    return _OPENAI_URL if environ.get(_VARIABLES["openai-compatible"]) else None


def _is_keyed(choices: Choices, environ: Mapping[str, str]) -> bool:
    """Whether the usual variable holds the key, without a word of the user.

    A key never goes to an address that it was not set beside.
    """
    if choices.base_url is None:
        return True
    own = choices.kind == "openai-compatible" and choices.base_url == _openai_url(environ)
    return own and bool(environ.get(_VARIABLES[choices.kind]))


def _refuse_for_mock(args: argparse.Namespace) -> None:
    for flag, value in (
        ("--base-url", args.base_url),
        ("--api-key-env", args.api_key_env),
        ("--api-key-file", args.api_key_file),
    ):
        if value is not None:
            raise UsageError(f"{flag} means nothing to the mock provider", rule="onboard.flag")


def _with_key(
    args: argparse.Namespace, choices: Choices, questions: Questions, home: Path
) -> tuple[Choices, Secret | None]:
    if args.api_key_env and args.api_key_file:
        raise UsageError(
            "--api-key-env and --api-key-file cannot both be meant", rule="onboard.flag"
        )
    variable, file = args.api_key_env, args.api_key_file
    if variable or file:
        return _keyed(choices, variable, file), None
    way = questions.choose(
        "Where is its key?",
        _WAYS,
        flag="--api-key-env or --api-key-file",
        default="variable" if _is_keyed(choices, os.environ) else "none",
        suggestion="variable",
    )
    if way == "variable":
        usual = _VARIABLES[choices.kind]
        named = questions.text("The variable?", flag="--api-key-env", default=usual)
        return _keyed(choices, named, None), None
    if way == "file":
        return _keyed(choices, None, questions.text("The file?", flag="--api-key-file")), None
    if way == "none":
        return choices, None
    key = questions.secret("The key (it is not shown)?")
    return replace(choices, api_key_file=home / "keys" / f"{choices.name}.key"), key


def _keyed(choices: Choices, variable: str | None, file: str | None) -> Choices:
    if file is None:
        return replace(choices, api_key_env=variable)
    return replace(choices, api_key_file=_absolute(file))


def _place_choices(
    args: argparse.Namespace, choices: Choices, present: Config, questions: Questions
) -> Choices:
    from coilclaw.security.autonomy import Autonomy

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
    # What is as it was stays as it is written.
    return replace(
        choices,
        autonomy=None if autonomy == present.security.autonomy.value else autonomy,
        workspace=None if workspace == usual else _absolute(workspace),
    )


def _try(
    choices: Choices, key: Secret | None, home: Path, questions: Questions, console: Console
) -> None:
    """Ask the model for a word; a typed key is handed over without being written anywhere."""
    from coilclaw.app import setup

    environ = dict(os.environ)
    if key is not None:
        environ[_TRIED_KEY] = key.reveal()
        choices = replace(choices, api_key_file=None, api_key_env=_TRIED_KEY)
    config = setup.plan(choices, home, environ).examined.config
    assert config is not None
    console.note(f"asking {choices.name} for a word …", "dim")
    try:
        answered = setup.try_provider(config, choices.name, environ)
    except (ProviderError, UsageError) as problem:
        if not questions.attended:
            problem.hint = problem.hint or "--no-test writes the configuration untried"
            raise
        console.error(problem.message, rule=problem.rule, hint=problem.hint)
        if not questions.agrees("Go on anyway?", flag="--no-test", default=False):
            raise
        return
    console.note(f"{choices.name} answered in {answered.latency_s * 1000:.0f} ms", "green")


def _show(planned: Planned, console: Console) -> None:
    """Show the settings of a new file, without its explanations, or what would be different."""
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
        console.note(f"{planned.path} says all of this already", "dim")


def _absolute(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))
