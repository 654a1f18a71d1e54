"""Runs to be checked and used: verify, replay, reexec, apply, report, export and gc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, count_noun, escape_hidden, pick
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.runs import Orchestrator


def run(args: Namespace, console: Console, runs: Orchestrator) -> int:
    """Do what is asked with one run, or clear up after all of them."""
    actions: dict[str, Callable[[Namespace, Console, Orchestrator], int]] = {
        "report": _report,
        "verify": _verify,
        "checkpoint": _checkpoint,
        "replay": _replay,
        "reexec": _reexec,
        "apply": _apply,
        "export": _export,
        "gc": _gc,
    }
    return actions[args.action](args, console, runs)


def _find(args: Namespace, runs: Orchestrator) -> Path:
    from coilclaw.runs import RunStore

    return RunStore(runs.places).find(args.run)


def _report(args: Namespace, console: Console, runs: Orchestrator) -> int:
    """Write the report; evidence that does not hold is exit code 1, and reported all the same."""
    from coilclaw.runs import render_page, write_report

    to_output = args.out == "-"
    if to_output and console.as_json:
        raise UsageError("'-o -' and --json both want standard output", rule="usage.report")
    report = runs.build_report(_find(args, runs))
    name, state = report.run_id, report.verification
    if to_output:
        console.write_bytes(render_page(report))
    else:
        out = Path(args.out or f"{name}.html")
        write_report(report, out)
        record = {"run_id": name, "status": report.standing, "verification": state}
        if not console.emit({**record, "file": str(out.absolute())}):
            console.print(str(out))
    if state != "broken":
        return DONE
    console.note(report.summary, "red")
    return FAILED


def _verify(args: Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.cli.checkpoint import read_checkpoints
    from coilclaw.runs import write_verification

    directory = _find(args, runs)
    report = runs.verify(
        directory,
        strict=not args.no_strict,
        root=args.root,
        checkpoints=read_checkpoints(args.checkpoint),
    )
    audit = write_verification(report, directory) if args.record else None
    code = DONE if report.status == "pass" else FAILED
    if console.emit({**report.json(), "audit": audit and str(audit)}):
        return code
    for found, label, style in (
        (report.errors, "", "red"),
        (report.warnings, "warning: ", "yellow"),
    ):
        for each in found:
            where = f" {each.path}:" if each.path else ""
            console.show(f"{label}{each.code}:{where} {each.message}", style)
    if code == DONE:
        good = ", ".join(name for name, fine in report.checks.items() if fine)
        console.print(f"{report.run_id} holds: {good}", "green")
        if unchecked := ", ".join(name for name, fine in report.checks.items() if not fine):
            console.print(f"not checked: {unchecked}", "yellow")
    else:
        console.print(f"{report.run_id} does not hold: {len(report.errors)} problems", "red")
    console.print(f"anchor   {escape_hidden(report.root_hash)}")
    if audit is not None:
        console.note(f"kept in {audit}")
    return code


def _checkpoint(args: Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.cli.checkpoint import print_checkpoint

    checkpoint = runs.take_checkpoint(_find(args, runs))
    return print_checkpoint(checkpoint, console, runs.home, sign=args.sign)


def _replay(args: Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.runs import rehydrate_run

    told = rehydrate_run(_find(args, runs))
    code = FAILED if told.divergences else DONE
    if console.emit(told.json()):
        return code
    for moment in told.timeline:
        console.print(
            escape_hidden(f"{moment.ts[:19]:<20}{moment.state:<14} {moment.trigger}").rstrip()
        )
    console.print(f"{told.events} events, {count_noun(len(told.tasks), 'task')}, {told.status}")
    first = told.first_divergence
    if first is None:
        console.print("events and reports say the same", "green")
        return code
    where = f"event {first.event}" if first.event else "no event"
    said = f"the first divergence is at {where}: {first.what} {first.path}"
    console.print(escape_hidden(said).rstrip(), "red")
    for label, value in (("told", first.told), ("recorded", first.recorded)):
        if value is not None:
            console.show(f"  {label}: {value}")
    return code


def _reexec(args: Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.runs import reexecution

    name = _find(args, runs).name
    console.note(f"executing {name} again: baseline, patch, gates and tests …", "dim")
    done = reexecution.reexecute(runs.equipment, name)
    report = done.report
    good = report.status == "pass"
    code = DONE if good else FAILED
    if console.emit({**report.json(), "audit": str(done.audit)}):
        return code
    for error in report.errors:
        console.show(f"error    {error}", "red")
    for found, label, style in (
        (report.hard_diffs, "hard", "red"),
        (report.soft_diffs, "soft", "yellow"),
    ):
        for each in found:
            was, now = _shorten(each.expected), _shorten(each.actual)
            console.show(f"{label}     {each.key}: was {was}, is {now}", style)
    said = "executed again with the same result" if good else "it does not come out again"
    console.print(f"{report.status}: {said}", "green" if good else "red")
    console.note(f"the report is in {done.audit}")
    return code


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _apply(args: Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.runs import merge_stage

    name = _find(args, runs).name
    done = merge_stage.apply_run(runs.equipment, name, branch=args.branch)
    code = DONE if done.merged else FAILED
    record = {
        "run_id": done.run_id,
        "status": "merged" if done.merged else "refused",
        **pick(done, "already", "branch", "commit", "reason", "audit"),
    }
    if console.emit(record):
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


def _export(args: Namespace, console: Console, runs: Orchestrator) -> int:
    directory = _find(args, runs)
    out = None if args.out is None else Path(args.out)
    made = runs.export(directory, out, whole_history=args.whole_history)
    if not console.emit({"run_id": directory.name, "file": str(made.absolute())}):
        console.print(str(made))
        console.note("whoever has the public key (coilclaw keys show) can check it")
    return DONE


def _gc(args: Namespace, console: Console, runs: Orchestrator) -> int:
    from coilclaw.runs import CollectionOptions, garbage_collection

    if (args.older_than or 0) < 0 or (args.keep or 0) < 0:
        raise UsageError("--older-than and --keep are not negative", rule="usage.gc")
    if args.bundles and args.older_than is None and args.keep is None:
        raise UsageError(
            "--bundles removes evidence, so say of which runs: --older-than DAYS or --keep N",
            rule="gc.bundles",
        )
    wishes = CollectionOptions(
        older_than_days=args.older_than or 0.0,
        keep=args.keep or 0,
        bundles=args.bundles,
        pending=args.pending,
        dry_run=args.dry_run,
    )
    removed = garbage_collection.collect_garbage(runs.equipment, wishes)
    rows = [
        pick(one, "what", "run_id", "name")
        | ({} if one.size_bytes is None else {"size_bytes": one.size_bytes})
        for one in removed
    ]
    if console.emit({"dry_run": args.dry_run, "removed": rows}):
        return DONE
    for one in removed:
        size = "" if one.size_bytes is None else f" ({_mebibytes(one.size_bytes)})"
        console.show(f"{one.what:<9} {one.name}{size}")
    word = "would be removed" if args.dry_run else "removed"
    sizes = [one.size_bytes for one in removed if one.size_bytes is not None]
    freed = f", {_mebibytes(sum(sizes))} of set-ups" if sizes else ""
    console.note(f"{len(removed)} {word}{freed}" if removed else "nothing to remove")
    return DONE


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
