"""Which HTTP status a refused request gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.errors import CoilClawError

STATUSES: Final = {
    "key.in_address": 400,
    "key.missing": 401,
    "key.wrong": 401,
    "request.body_size": 413,
    "request.encoding": 415,
    "request.foreign_host": 403,
    "request.foreign_origin": 403,
    "request.header_size": 431,
    "request.malformed": 400,
    "request.method": 405,
    "request.model": 404,
    "request.path": 404,
    "request.shape": 400,
    "request.target": 400,
    "request.timeout": 408,
    "request.version": 505,
    "script.exhausted": 400,
    "script.tool": 400,
    "server.connections": 503,
}
OUR_FAULT: Final = 500


def status_of(problem: CoilClawError) -> int:
    """Return the status for an error; whatever has none of its own is our own fault."""
    return STATUSES.get(problem.rule, OUR_FAULT)
