"""Where objects are wired together, and nowhere else."""

from typing import Final

PUBLIC_MODULES: Final = ("committing", "doctor", "home", "tree")
