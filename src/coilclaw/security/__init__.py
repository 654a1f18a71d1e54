"""Policy: which paths a change may touch. Pure: facts about the tree come in as arguments."""

from typing import Final

PUBLIC_MODULES: Final = (
    "autonomy",
    "commandrules",
    "gate",
    "globs",
    "hosts",
    "judgement",
    "protected",
    "redaction",
    "secret_files",
    "settings",
)
