"""``coilclaw token``: the tokens that clients of the gateway show, each with a role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.gateway.token_store import StoredToken


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from coilclaw.gateway.clients import ROLES

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    making = actions.add_parser(
        "new", help="make a token, which is shown this once", allow_abbrev=False
    )
    making.add_argument("name", metavar="NAME", help="what its client is called in the records")
    making.add_argument(
        "--role",
        required=True,
        choices=ROLES,
        help="chat: own conversations; approve: answer what waits; read: see everything, change "
        "nothing; admin: everything",
    )
    making.add_argument(
        "--expires", metavar="WHEN", help="after 30m, 12h, 30d or 4w, or at a date (default: never)"
    )
    listing = actions.add_parser("list", help="all tokens, oldest first", allow_abbrev=False)
    revoking = actions.add_parser(
        "revoke", help="refuse a token from now on, also where it is in use", allow_abbrev=False
    )
    revoking.add_argument("name", metavar="NAME", help="the token")
    for action in (making, listing, revoking):
        add_json(action)


def run(args: argparse.Namespace, console: Console) -> int:
    """Make, list or revoke."""
    from datetime import UTC, datetime

    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.gateway.token_store import TokenStore, parse_expiry

    now = datetime.now(UTC)
    store = TokenStore(home(), lambda: now)
    if args.action == "new":
        expires = parse_expiry(args.expires, now) if args.expires else ""
        made, secret = store.new(args.name, args.role, expires)
        if console.as_json:
            console.data({**_record(made), "token": secret.reveal()})
            return DONE
        console.out.write(f"{secret.reveal()}\n")
        console.note(f"the token {made.name} has role {made.role}; it is shown this once")
        return DONE
    found = store.list() if args.action == "list" else (store.revoke(args.name),)
    if console.as_json:
        records = [_record(one) for one in found]
        console.data(records if args.action == "list" else records[0])
        return DONE
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        console.print(_line(one, width), "dim" if one.revoked else None)
    if not found:
        console.note("there are no tokens but the operator's own, gateway.token")
    return DONE


def _record(token: StoredToken) -> dict[str, object]:
    """Return what everybody may know of a token."""
    return {
        "name": token.name,
        "role": token.role,
        "created": token.created,
        "expires": token.expires or None,
        "revoked": token.revoked or None,
    }


def _line(token: StoredToken, width: int) -> str:
    state = f"revoked {token.revoked[:19]}Z" if token.revoked else ""
    until = f"expires {token.expires[:19]}Z" if token.expires else "does not expire"
    return f"{token.name:<{width}}  {token.role:<7}  made {token.created[:19]}Z  {state or until}"
