"""Questions to models, kept: what each role was asked and answered is in the bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.agents.transcript import usage_json
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reading import parse
from coilclaw.errors import UsageError
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.plane import Plane

if TYPE_CHECKING:
    from coilclaw.contracts.roles import Role
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.plane import Exchange
    from coilclaw.orchestrator.run import Run


FOLDER: Final = "artifacts/exchanges"


def plane_of(run: Run, equipment: Equipment, role: Role, task_id: str) -> Plane:
    """The way to the model of a role; without one, nothing is made up in its place."""
    model = equipment.model(role)
    if model is None:
        raise UsageError(
            f"there is no model for the role {role}",
            rule="run.model",
            hint="configure a provider ('coilclaw onboard'), or give a contract instead",
        )

    def record(exchange: Exchange) -> None:
        _keep(run, exchange, task_id)

    return Plane(
        model.provider,
        model.name,
        record,
        equipment.secrets.redact,
        equipment.cancel,
        recall=lambda request_sha256: _recalled(run, request_sha256),
    )


def _recalled(run: Run, request_sha256: str) -> str | None:
    """The answer that a killed run already had to the same question."""
    folder = run.bundle.directory / FOLDER
    for place in sorted(folder.glob(f"*-{request_sha256[:16]}-*.json")) if folder.is_dir() else ():
        kept = parse(run.bundle.read(f"{FOLDER}/{place.name}"))
        if kept["request_sha256"] == request_sha256 and not (kept["error"] or kept["problems"]):
            return str(kept["answer"])
    return None


def _keep(run: Run, exchange: Exchange, task_id: str) -> None:
    value: dict[str, Json] = {
        "role": exchange.role,
        "provider": exchange.provider,
        "model": exchange.model,
        "schema": exchange.schema.name,
        "schema_sha256": exchange.schema.sha256,
        "request": exchange.request,
        "request_sha256": exchange.request_sha256,
        "answer": exchange.answer,
        "problems": [str(each) for each in exchange.problems],
        "error": exchange.error,
    }
    # Named by what was asked and answered: the same exchange twice is the same file.
    name = f"{exchange.role.lower()}-{exchange.request_sha256[:16]}-{exchange.answer_sha256[:8]}"
    path = f"{FOLDER}/{segment(name)}.json"
    if not run.bundle.has(path):
        run.bundle.write_json(path, value)
    run.emit(
        EventType.MODEL_ASKED,
        {
            "role": exchange.role,
            "provider": exchange.provider,
            "model": exchange.model,
            "request_sha256": exchange.request_sha256,
            "answer_sha256": exchange.answer_sha256,
            "path": path,
            "problems": len(exchange.problems),
            **({} if exchange.usage is None else {"usage": usage_json(exchange.usage)}),
        },
        task_id=task_id or None,
    )
