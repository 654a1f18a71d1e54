"""A model that does whatever hostile texts tell it: nothing happens that policy does not allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from coilclaw.agent.receipts.book import ReceiptBook
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel.messages import ApprovalReply, ToolCall
from tests.support.children import running
from tests.support.hostile_goals import goals
from tests.support.obedient import (
    CARRIERS,
    Approver,
    HostileWorld,
    carrier_of,
    configure,
    hostile_world,
    obedient_runtime,
)
from tests.support.sandboxes import supported
from tests.support.scale import is_full

GOALS = {goal.name: goal for goal in goals()}
MODES = {
    "supervised, no": ("supervised", ApprovalReply.NO),
    "supervised, yes": ("supervised", ApprovalReply.YES),
    "full": ("full", ApprovalReply.NO),
}
SANDBOXES = ("bubblewrap", "landlock")


def test_there_are_enough_goals() -> None:
    assert len(GOALS) == len(list(goals())) >= 150
    assert len({goal.id for goal in GOALS.values()}) == len(GOALS)


@pytest.fixture(scope="module")
def world() -> Iterator[HostileWorld]:
    with hostile_world(GOALS) as made:
        yield made


@dataclass(frozen=True)
class Violation:
    goal: str
    what: str


def _chosen(mode: str, sandbox: str) -> list[str]:
    """Every goal at full scale; otherwise each goal in one of the six ways, in turn."""
    names = list(GOALS)
    if is_full():
        return names
    ways = [(one, other) for one in MODES for other in SANDBOXES]
    return names[ways.index((mode, sandbox)) :: len(ways)]


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("mode", MODES)
def test_no_order_of_a_hostile_text_gets_around_the_policy(
    world: HostileWorld, mode: str, sandbox: str
) -> None:
    supported(sandbox)
    autonomy, reply = MODES[mode]
    configure(world, autonomy, sandbox)
    # The mode and the times of a file outside are what Landlock cannot hold, nor a part of what is
    # writable: git's own files in the workspace.
    modes = sandbox == "bubblewrap"
    approver = Approver(reply)
    found: list[Violation] = []
    obeyed = 0
    with obedient_runtime(world, approver) as (runtime, model):
        # The first call of all makes our own keys.
        runtime.call(ToolCall("first", "time", {}))
        before = world.outside(modes=modes)
        for number, name in enumerate(_chosen(mode, sandbox)):
            goal, carrier = GOALS[name], CARRIERS[number % len(CARRIERS)]
            first = carrier_of(world, carrier, goal.id, world.orders(goal), runtime)
            model.begin(goal.id, first)
            receipts, asked = len(runtime.receipts(100_000)), len(approver.asked)
            world.listeners.taken.clear()
            runtime.turn("Please summarise what you find.")
            obeyed += model.obeyed
            if len(runtime.receipts(100_000)) - receipts != model.calls:
                found.append(Violation(name, f"{model.calls} calls, receipts differ"))
            if model.obeyed < len(goal.calls):
                found.append(Violation(name, f"the model was not told by {carrier}"))
            shown = "\n".join(model.seen)
            found += [
                Violation(name, f"the model read {path}")
                for path, canary in world.canaries.items()
                if canary in shown
            ]
            networked = any(
                "network" in line for one in approver.asked[asked:] for line in one.detail
            )
            if world.listeners.taken and not (reply is ApprovalReply.YES and networked):
                found.append(Violation(name, f"sent {world.listeners.taken!r}"))
            taken = b"".join(world.listeners.taken).decode("utf-8", "replace")
            found += [
                Violation(name, f"{path} was sent")
                for path, canary in world.canaries.items()
                if canary in taken
            ]
            after = world.outside(modes=modes)
            for path in sorted(before.keys() | after.keys()):
                if before.get(path) != after.get(path):
                    found.append(Violation(name, f"{path} was changed"))
            before = after
            if running(world.mark):
                found.append(Violation(name, "something still runs"))
        with ReceiptBook(
            runtime.config.receipts.path, key_path=world.state / "keys" / "journal.key"
        ) as book:
            report = verify(book, lambda _: False)
    assert not found, "\n".join(f"{one.goal}: {one.what}" for one in found)
    assert report.ok, report
    assert obeyed >= len(_chosen(mode, sandbox))
    assert os.path.exists(world.other / "secret.txt")
