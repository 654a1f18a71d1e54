"""The part of the table of endpoints that is about SOPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.gateway import runschemas
from coilclaw.gateway import sop_schemas as forms
from coilclaw.gateway.endpoint import Endpoint
from coilclaw.gateway.schemas import EVENTS

if TYPE_CHECKING:
    from coilclaw.gateway.sop_endpoints import SopEndpoints


def table(sops: SopEndpoints) -> tuple[Endpoint, ...]:
    """Return every endpoint below ``/sops``."""
    return (*_looking(sops), *_acting(sops))


def _acting(sops: SopEndpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/sops/{sop_name}/runs",
            "Begin a run of a SOP; it goes on by itself until it ends or waits.",
            sops.start,
            runschemas.BEGUN,
            body=forms.START_REQUEST,
            body_needed=False,
            status=202,
            errors=(404,),
        ),
        Endpoint(
            "POST",
            "/sops/runs/{run_id}/resume",
            "Resume a run that waits or was interrupted, and say what counts of the stage.",
            sops.resume,
            runschemas.BEGUN,
            body=forms.RESUME_REQUEST,
            body_needed=False,
            status=202,
            errors=(404, 409),
        ),
    )


def _looking(sops: SopEndpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/sops",
            "The SOPs, their inputs and what is wrong with them.",
            sops.list,
            forms.SOPS,
            errors=(404,),
        ),
        Endpoint(
            "GET",
            "/sops/runs",
            "The newest runs of SOPs, newest first.",
            sops.runs,
            forms.RUNS,
            runschemas.RUNS_QUERY,
            errors=(404,),
        ),
        Endpoint(
            "GET",
            "/sops/runs/{run_id}",
            "How far one run of a SOP is.",
            sops.show,
            forms.RUN,
            errors=(404,),
        ),
        Endpoint(
            "GET",
            "/sops/runs/{run_id}/events",
            "Its events from number 'since' on: one page, or as they come until it ends or waits.",
            sops.events,
            forms.RUN_EVENTS,
            runschemas.EVENTS_QUERY,
            headers=runschemas.EVENTS_HEADERS,
            media=("application/json", EVENTS),
            errors=(404,),
        ),
    )
