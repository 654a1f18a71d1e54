"""``coilclaw keys``: the key that runs are signed with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    making = actions.add_parser("new", help="make a key", allow_abbrev=False)
    making.add_argument(
        "--force", action="store_true", help="put the key that is there aside, under its own name"
    )
    showing = actions.add_parser("show", help="the public part", allow_abbrev=False)
    for action in (making, showing):
        add_json(action)


def run(args: argparse.Namespace, console: Console) -> int:
    """Make a key, or show what everybody may know of it."""
    from coilclaw.app.home import home, signing_key_path
    from coilclaw.app.signingkeys import new_key, shown_key
    from coilclaw.cli.dispatch import DONE

    path = signing_key_path(home())
    if args.action == "new":
        made = new_key(path, force=args.force)
        if made.aside is not None:
            console.note(f"the old key is {made.aside}")
    public = shown_key(path)
    pem = public.pem().decode("ascii")
    if console.as_json:
        console.data({"key_id": public.key_id, "public_key": pem, "path": str(path)})
        return DONE
    console.out.write(pem)
    console.note(f"key id {public.key_id}")
    if args.action == "new":
        console.note("give the public key above to those who check your runs", "dim")
    return DONE
