"""The part of the table of endpoints that is about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.gateway import runschemas as forms
from coilclaw.gateway.endpoint import Endpoint
from coilclaw.gateway.runs import DIFF, TAR
from coilclaw.gateway.schemas import EVENTS

if TYPE_CHECKING:
    from coilclaw.gateway.clients import Role
    from coilclaw.gateway.runs import RunEndpoints

_LOOKING: Final[frozenset[Role]] = frozenset({"read", "approve"})
"""Who approves what a run asks for has to see what it did."""


def table(runs: RunEndpoints) -> tuple[Endpoint, ...]:
    """Return every endpoint below ``/runs``."""
    return (*_looking(runs), *_acting(runs))


def _looking(runs: RunEndpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/runs",
            "The newest runs of the repository, newest first.",
            runs.list,
            forms.RUNS,
            forms.RUNS_QUERY,
            errors=(404,),
            roles=_LOOKING,
        ),
        Endpoint(
            "GET",
            "/runs/{run_id}",
            "State, tasks, gates, reviews, tests and merge of one run.",
            runs.show,
            forms.RUN,
            errors=(404, 409),
            roles=_LOOKING,
        ),
        Endpoint(
            "GET",
            "/runs/{run_id}/events",
            "Its events from number 'since' on: one page, or as they come until it ends.",
            runs.events,
            forms.RUN_EVENTS,
            forms.EVENTS_QUERY,
            headers=forms.EVENTS_HEADERS,
            media=("application/json", EVENTS),
            errors=(404,),
            roles=_LOOKING,
        ),
        Endpoint(
            "GET",
            "/runs/{run_id}/diff",
            "What it changed, as a git patch, or what was rolled back.",
            runs.diff,
            query=forms.DIFF_QUERY,
            media=(DIFF,),
            errors=(404,),
            roles=_LOOKING,
        ),
        Endpoint(
            "GET",
            "/runs/{run_id}/bundle",
            "Its sealed evidence as a tar.",
            runs.bundle,
            media=(TAR,),
            errors=(404, 409),
            roles=_LOOKING,
        ),
    )


def _acting(runs: RunEndpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/runs",
            "Begin a run of a contract, or of one sentence; it goes on by itself.",
            runs.start,
            forms.BEGUN,
            body=forms.RUN_REQUEST,
            status=202,
            errors=(404, 409),
        ),
        Endpoint(
            "POST",
            "/runs/{run_id}/resume",
            "Resume a run that waits or was interrupted, or answer its question.",
            runs.resume,
            forms.BEGUN,
            body=forms.RESUME_REQUEST,
            body_needed=False,
            status=202,
            errors=(404, 409),
        ),
        Endpoint(
            "POST",
            "/runs/{run_id}/cancel",
            "Stop a run that this gateway carries out; it can be resumed.",
            runs.cancel,
            forms.BEGUN,
            status=202,
            errors=(404, 409),
        ),
        Endpoint(
            "POST",
            "/runs/{run_id}/verify",
            "Recompute everything that its evidence says.",
            runs.verify,
            forms.VERIFIED,
            body=forms.VERIFY_REQUEST,
            body_needed=False,
            errors=(404,),
        ),
    )
