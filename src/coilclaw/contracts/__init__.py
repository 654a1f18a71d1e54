"""Contracts: the records of orchestrated work, and their schemas, which are the authority."""

from typing import Final

PUBLIC_MODULES: Final = (
    "approval",
    "artifact",
    "binding",
    "chain",
    "command_launcher",
    "drafting",
    "events",
    "eventtypes",
    "gateresult",
    "handoff",
    "manifest",
    "paths",
    "permissions",
    "policyfiles",
    "policyset",
    "project_profile",
    "reading",
    "record",
    "registry",
    "reports",
    "results",
    "rolecontract",
    "roles",
    "rules",
    "schemas",
    "taskcontract",
    "toolcall",
    "trivial",
)
