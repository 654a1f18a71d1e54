"""``coilclaw token``: create, list and revoke tokens for clients of the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.command import Console, Namespace, Parser, find_home, pick

if TYPE_CHECKING:
    from coilclaw.gateway import StoredToken


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    from coilclaw.gateway import ROLES

    action = parser.actions()
    making = action("new", "create a token, which is shown only once")
    making.value("name", "NAME", "the name of its client in the records")
    summary = (
        "chat: own conversations; approve: answer what waits; read: see everything, change "
        "nothing; admin: everything"
    )
    making.value("--role", None, summary, required=True, choices=ROLES)
    summary = "after 30m, 12h, 30d or 4w, or at a date (default: never)"
    making.value("--expires", "WHEN", summary).json()
    action("list", "list all tokens, oldest first").json()
    revoking = action("revoke", "refuse a token from now on, even while it is in use")
    revoking.value("name", "NAME", "the token").json()


def run(args: Namespace, console: Console) -> None:
    """Create, list or revoke tokens."""
    from datetime import UTC, datetime

    from coilclaw.gateway import TokenStore, parse_expiry

    now = datetime.now(UTC)
    store = TokenStore(find_home(), lambda: now)
    if args.action == "new":
        expires = parse_expiry(args.expires, now) if args.expires else ""
        made, secret = store.new(args.name, args.role, expires)
        if not console.emit({**_record(made), "token": secret.reveal()}):
            console.out.write(f"{secret.reveal()}\n")
            console.note(f"the token {made.name} has role {made.role}; it is shown only once")
        return
    found = store.list() if args.action == "list" else (store.revoke(args.name),)
    width = max((len(one.name) for one in found), default=0)
    if args.action == "list":
        empty = "no tokens except that of the operator, gateway.token"
        console.table(map(_record, found), (_describe(one, width) for one in found), empty)
    elif not console.emit(_record(found[0])):
        console.print(*_describe(found[0], width))


def _record(token: StoredToken) -> dict[str, object]:
    """Return the public facts of a token as JSON values."""
    ends = {"expires": token.expires or None, "revoked": token.revoked or None}
    return {**pick(token, "name", "role", "created"), **ends}


def _describe(token: StoredToken, width: int) -> tuple[str, str | None]:
    state = f"expires {token.expires[:19]}Z" if token.expires else "does not expire"
    if token.revoked:
        state = f"revoked {token.revoked[:19]}Z"
    line = f"{token.name:<{width}}  {token.role:<7}  made {token.created[:19]}Z  {state}"
    return line, "dim" if token.revoked else None
