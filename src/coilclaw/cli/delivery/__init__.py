"""Commands that change a tree: apply, undo, commit, roll-ups and snapshots."""
