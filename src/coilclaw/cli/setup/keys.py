"""``coilclaw keys``: the key that runs are signed with."""

from __future__ import annotations

from coilclaw.agent import signing_key_path
from coilclaw.cli.command import Console, Namespace, Parser, find_home


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    summary = "put the key that is there aside, under its own name"
    action("new", "make a key").flag("--force", summary).json()
    action("show", "the public part").json()


def run(args: Namespace, console: Console) -> None:
    """Make a key, or show what everybody may know of it."""
    from coilclaw.runs import new_key, read_public_key

    path = signing_key_path(find_home())
    if args.action == "new":
        made = new_key(path, force=args.force)
        if made.aside is not None:
            console.note(f"the old key is {made.aside}")
    public = read_public_key(path)
    pem = public.pem().decode("ascii")
    if console.emit({"key_id": public.key_id, "public_key": pem, "path": str(path)}):
        return
    console.out.write(pem)
    console.note(f"key id {public.key_id}")
    if args.action == "new":
        console.note("give the public key above to those who check your runs", "dim")
