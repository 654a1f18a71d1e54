"""Test environments: what an agent is asked to build, and the tests that judge it."""

from typing import Final

PUBLIC_MODULES: Final = (
    "authoring",
    "catalogue",
    "fixtures",
    "installing",
    "judging",
    "results",
    "selfchecking",
    "sessions",
    "uploads",
)
