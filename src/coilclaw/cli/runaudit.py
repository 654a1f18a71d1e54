"""Runs to be checked and used: verify, replay, reexec, apply, export and gc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.console import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.cli.console import Console
    from coilclaw.contracts.reports import Divergence


def run(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    """Do what is asked with one run, or clear up after all of them."""
    actions: dict[str, Callable[[argparse.Namespace, Console, Orchestrator], int]] = {
        "verify": _verify,
        "checkpoint": _checkpoint,
        "replay": _replay,
        "reexec": _reexec,
        "apply": _apply,
        "export": _export,
        "gc": _gc,
    }
    return actions[args.action](args, console, runs)


def _directory(args: argparse.Namespace, runs: Orchestrator) -> Path:
    from coilclaw.app.runlisting import RunStore

    return RunStore(runs.places).find(args.run)


def _verify(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import verify
    from coilclaw.cli.checkpoint_input import read_checkpoints
    from coilclaw.cli.dispatch import DONE, FAILED

    directory = _directory(args, runs)
    report, audit = verify(
        runs,
        directory,
        strict=not args.no_strict,
        root=args.root,
        checkpoints=read_checkpoints(args.checkpoint),
        record=args.record,
    )
    code = DONE if report.status == "pass" else FAILED
    if console.as_json:
        console.data({**report.json(), "audit": None if audit is None else str(audit)})
        return code
    for found, label, style in (
        (report.errors, "", "red"),
        (report.warnings, "warning: ", "yellow"),
    ):
        for each in found:
            where = f" {each.path}:" if each.path else ""
            console.print(visible(f"{label}{each.code}:{where} {each.message}"), style)
    good = [name for name, fine in report.checks.items() if fine]
    if code == DONE:
        console.print(f"{report.run_id} holds: {', '.join(good)}", "green")
        unchecked = [name for name, fine in report.checks.items() if not fine]
        if unchecked:
            console.print(f"not checked: {', '.join(unchecked)}", "yellow")
    else:
        console.print(f"{report.run_id} does not hold: {len(report.errors)} problems", "red")
    console.print(f"anchor   {visible(report.root_hash)}")
    if audit is not None:
        console.note(f"kept in {audit}")
    return code


def _checkpoint(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import take_checkpoint
    from coilclaw.cli.checkpoint_output import print_checkpoint

    return print_checkpoint(
        take_checkpoint(runs, _directory(args, runs)), console, runs.home, sign=args.sign
    )


def _replay(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import replay
    from coilclaw.cli.dispatch import DONE, FAILED

    told = replay(_directory(args, runs))
    code = FAILED if told.divergences else DONE
    if console.as_json:
        console.data(told.json())
        return code
    for moment in told.timeline:
        console.print(visible(f"{moment.ts[:19]:<20}{moment.state:<14} {moment.trigger}").rstrip())
    console.print(f"{told.events} events, {_tasks(len(told.tasks))}, {told.status}")
    first = told.first_divergence
    if first is None:
        console.print("events and reports say the same", "green")
        return code
    where = f"event {first.event}" if first.event else "no event"
    said = f"the first divergence is at {where}: {first.what} {first.path}"
    console.print(visible(said).rstrip(), "red")
    for label, value in (("told", first.told), ("recorded", first.recorded)):
        if value is not None:
            console.print(visible(f"  {label}: {value}"))
    return code


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"


def _reexec(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import reexecute
    from coilclaw.cli.dispatch import DONE, FAILED

    name = _directory(args, runs).name
    console.note(f"executing {name} again: baseline, patch, gates and tests …", "dim")
    done = reexecute(runs, name)
    report = done.report
    code = DONE if report.status == "pass" else FAILED
    if console.as_json:
        console.data({**report.json(), "audit": str(done.audit)})
        return code
    for error in report.errors:
        console.print(visible(f"error    {error}"), "red")
    for found, label, style in (
        (report.hard_diffs, "hard", "red"),
        (report.soft_diffs, "soft", "yellow"),
    ):
        for each in found:
            console.print(visible(f"{label}     {_difference(each)}"), style)
    said = "executed again with the same result" if code == DONE else "it does not come out again"
    console.print(f"{report.status}: {said}", "green" if code == DONE else "red")
    console.note(f"the report is in {done.audit}")
    return code


def _difference(one: Divergence) -> str:
    return f"{one.key}: was {_short(one.expected)}, is {_short(one.actual)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _apply(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import apply
    from coilclaw.cli.dispatch import DONE, FAILED

    done = apply(runs, _directory(args, runs).name, branch=args.branch)
    code = DONE if done.merged else FAILED
    if console.as_json:
        console.data(
            {
                "run_id": done.run_id,
                "status": "merged" if done.merged else "refused",
                "already": done.already,
                "branch": done.branch,
                "commit": done.commit,
                "reason": done.reason,
                "audit": None if done.audit is None else str(done.audit),
            }
        )
        return code
    if done.already:
        console.print(f"{done.run_id} is merged into {done.branch} already, as {done.commit}")
    elif done.merged:
        console.print(f"merged into {done.branch} as {done.commit}", "green")
    else:
        console.error(f"nothing was merged: {done.reason}", rule="apply.refused")
    if done.audit is not None:
        console.note(f"the evidence is in {done.audit}")
    return code


def _export(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import export
    from coilclaw.cli.dispatch import DONE

    out = None if args.out is None else Path(args.out)
    made = export(runs, _directory(args, runs), out, whole_history=args.whole_history)
    if console.as_json:
        console.data({"run_id": _directory(args, runs).name, "file": str(made.absolute())})
        return DONE
    console.print(str(made))
    console.note("whoever has the public key (coilclaw keys show) can check it")
    return DONE


def _gc(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.app.runaudits import collect
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError
    from coilclaw.orchestrator.gc import Wishes

    if (args.older_than or 0) < 0 or (args.keep or 0) < 0:
        raise UsageError("--older-than and --keep are not negative", rule="usage.gc")
    if args.bundles and args.older_than is None and args.keep is None:
        raise UsageError(
            "--bundles removes evidence, so say of which runs: --older-than DAYS or --keep N",
            rule="gc.bundles",
        )
    wishes = Wishes(
        older_than_days=args.older_than or 0.0,
        keep=args.keep or 0,
        bundles=args.bundles,
        pending=args.pending,
        dry_run=args.dry_run,
    )
    removed = collect(runs, wishes)
    if console.as_json:
        rows = [
            {"what": one.what, "run_id": one.run_id, "name": one.name}
            | ({} if one.size_bytes is None else {"size_bytes": one.size_bytes})
            for one in removed
        ]
        console.data({"dry_run": args.dry_run, "removed": rows})
        return DONE
    for one in removed:
        size = "" if one.size_bytes is None else f" ({_mebibytes(one.size_bytes)})"
        console.print(visible(f"{one.what:<9} {one.name}{size}"))
    word = "would be removed" if args.dry_run else "removed"
    sizes = [one.size_bytes for one in removed if one.size_bytes is not None]
    freed = f", {_mebibytes(sum(sizes))} of set-ups" if sizes else ""
    console.note(f"{len(removed)} {word}{freed}" if removed else "nothing to remove")
    return DONE


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
