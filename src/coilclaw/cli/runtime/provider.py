"""``coilclaw provider``: list the configured models, and test whether one answers."""

from __future__ import annotations

import os
from typing import Final

from coilclaw.cli.command import Console, Namespace, Parser, find_home
from coilclaw.kernel import UsageError

_SHOWN_CHARS: Final = 200


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list all configured providers", _list).json()
    trying = action("test", "ask one provider for a tiny answer", _test)
    trying.value("name", "NAME", "its name in the configuration").json()


def _list(_: Namespace, console: Console) -> None:
    from coilclaw.app import open_config, show

    config = open_config(find_home(), os.environ)
    clean = show.redactor(config, os.environ)
    records: list[dict[str, object]] = []
    lines: list[tuple[str, str | None]] = []
    for settings in config.providers.values():
        default = settings.name == config.default_provider
        record: dict[str, object] = {
            "name": settings.name,
            "kind": settings.kind,
            "model": clean(settings.model) or None,
            "base_url": clean(show.shown_url(settings.base_url)) if settings.base_url else None,
            "key": settings.api_key_env or (settings.api_key_file and str(settings.api_key_file)),
            "key_state": show.key_state(settings, os.environ),
            "default": default,
        }
        records.append(record)
        key = f"key {record['key']}: {record['key_state']}" if record["key"] else ""
        said = "  ".join(str(part) for part in (record["model"], record["base_url"], key) if part)
        line = f"{'*' if default else ' '} {settings.name:<20} {settings.kind:<18} {said}"
        lines.append((line.rstrip(), "bold" if default else None))
    console.table(records, lines)


def _test(args: Namespace, console: Console) -> None:
    from coilclaw.app import closest, open_config, try_provider

    config, name = open_config(find_home(), os.environ), args.name
    if name not in config.providers:
        near = closest(name, config.providers)
        raise UsageError(
            f"the provider {name!r} does not exist{f'; did you mean {near}?' if near else ''}",
            rule="provider.unknown",
            hint=f"configured: {', '.join(config.providers)}",
        )
    answered = try_provider(config, name, os.environ)
    text = answered.text.strip()
    text = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
    took_ms = answered.latency_s * 1000
    record = {
        "name": name,
        "ok": True,
        "model": answered.model,
        "latency_ms": round(took_ms, 1),
        "text": text,
        "usage": {"input": answered.input_tokens, "output": answered.output_tokens},
    }
    if not console.emit(record):
        console.print(f"{name} ({answered.model}) answered in {took_ms:.0f} ms")
        console.print(" ".join(text.split()), "dim")
