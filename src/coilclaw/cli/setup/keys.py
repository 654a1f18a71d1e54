"""``coilclaw keys``: create and show the key that signs runs."""

from __future__ import annotations

from coilclaw.agent import signing_key_path
from coilclaw.cli.command import Console, Namespace, Parser, find_home


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    summary = "keep the existing key under its own name"
    action("new", "create a key").flag("--force", summary).json()
    action("show", "print the public key").json()


def run(args: Namespace, console: Console) -> None:
    """Create a key, or show its public part."""
    from coilclaw.runs import new_key, read_public_key

    path = signing_key_path(find_home())
    if args.action == "new":
        made = new_key(path, force=args.force)
        if made.aside is not None:
            console.note(f"the old key is now {made.aside}")
    public = read_public_key(path)
    pem = public.pem().decode("ascii")
    if console.emit({"key_id": public.key_id, "public_key": pem, "path": str(path)}):
        return
    console.out.write(pem)
    console.note(f"key id {public.key_id}")
    if args.action == "new":
        console.note("give this public key to everyone who verifies your runs", "dim")
