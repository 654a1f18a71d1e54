"""``coilclaw provider``: which models are configured, and whether one answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.config.values import Config

_SHOWN_CHARS: Final = 200


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all that are configured", allow_abbrev=False)
    add_json(listing)
    trying = actions.add_parser("test", help="ask one for a tiny answer", allow_abbrev=False)
    trying.add_argument("name", metavar="NAME", help="as the configuration calls it")
    add_json(trying)


def run(args: argparse.Namespace, console: Console) -> int:
    """List them, or try one."""
    from coilclaw.app.home import home
    from coilclaw.app.setup import current

    config = current(home(), os.environ)
    if args.action == "list":
        return _list(config, console)
    return _test(config, args.name, console)


def _list(config: Config, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.config import show

    clean = show.redactor(config, os.environ)
    records = [
        {
            "name": settings.name,
            "kind": settings.kind,
            "model": clean(settings.model) or None,
            "base_url": clean(show.shown_url(settings.base_url)) if settings.base_url else None,
            "key": settings.api_key_env or _text(settings.api_key_file),
            "key_state": show.key_state(settings, os.environ),
            "default": settings.name == config.default_provider,
        }
        for settings in config.providers.values()
    ]
    if console.as_json:
        console.data(records)
        return DONE
    for record in records:
        mark = "*" if record["default"] else " "
        key = f"key {record['key']}: {record['key_state']}" if record["key"] else ""
        parts = (record["model"] or "", record["base_url"] or "", key)
        said = "  ".join(str(part) for part in parts if part)
        console.print(
            f"{mark} {record['name']:<20} {record['kind']:<18} {said}".rstrip(),
            "bold" if record["default"] else None,
        )
    return DONE


def _test(config: Config, name: str, console: Console) -> int:
    from coilclaw.app.setup import try_provider
    from coilclaw.cli.dispatch import DONE
    from coilclaw.config.problem import closest
    from coilclaw.errors import UsageError

    if name not in config.providers:
        near = closest(name, config.providers)
        raise UsageError(
            f"there is no provider {name!r}{f'; did you mean {near}?' if near else ''}",
            rule="provider.unknown",
            hint=f"configured: {', '.join(config.providers)}",
        )
    answered = try_provider(config, name, os.environ)
    text = answered.text.strip()
    text = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
    if console.as_json:
        console.data(
            {
                "name": name,
                "ok": True,
                "model": answered.model,
                "latency_ms": round(answered.latency_s * 1000, 1),
                "text": text,
                "usage": {"input": answered.input_tokens, "output": answered.output_tokens},
            }
        )
        return DONE
    console.print(f"{name} ({answered.model}) answered in {answered.latency_s * 1000:.0f} ms")
    console.print(" ".join(text.split()), "dim")
    return DONE


def _text(value: object) -> str | None:
    return None if value is None else str(value)
