"""Act on recorded runs: verify, replay, reexec, apply, report, export, stop and gc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, count_noun, escape_hidden, pick
from coilclaw.cli.runs.run_view import open_runs
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.runs import Orchestrator


def _open(args: Namespace) -> tuple[Orchestrator, Path]:
    """Return the runs of the repository, and the directory of the one that is named."""
    from coilclaw.runs import RunStore

    runs = open_runs(args)
    return runs, RunStore(runs.places).find(args.run)


def report(args: Namespace, console: Console) -> int:
    """Write the report; exit with code 1 if the evidence does not hold, which it reports too."""
    from coilclaw.runs import render_page, write_report

    to_output = args.out == "-"
    if to_output and console.as_json:
        raise UsageError("'-o -' and --json cannot both use standard output", rule="usage.report")
    runs, directory = _open(args)
    report = runs.build_report(directory)
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


def verify(args: Namespace, console: Console) -> int:
    """Check the evidence of a run, and print every problem."""
    from coilclaw.cli.checkpoint import read_checkpoints
    from coilclaw.runs import write_verification

    runs, directory = _open(args)
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


def checkpoint(args: Namespace, console: Console) -> int:
    """Print the checkpoint of a sealed run."""
    from coilclaw.cli.checkpoint import print_checkpoint

    runs, directory = _open(args)
    return print_checkpoint(runs.take_checkpoint(directory), console, runs.home, sign=args.sign)


def replay(args: Namespace, console: Console) -> int:
    """Rebuild a run from its events, and compare that with its reports."""
    from coilclaw.runs import rehydrate_run

    replayed = rehydrate_run(_open(args)[1])
    code = FAILED if replayed.divergences else DONE
    if console.emit(replayed.json()):
        return code
    for moment in replayed.timeline:
        console.print(
            escape_hidden(f"{moment.ts[:19]:<20}{moment.state:<14} {moment.trigger}").rstrip()
        )
    tasks = count_noun(len(replayed.tasks), "task")
    console.print(f"{replayed.events} events, {tasks}, {replayed.status}")
    first = replayed.first_divergence
    if first is None:
        console.print("the events and the reports agree", "green")
        return code
    where = f"event {first.event}" if first.event else "no event"
    said = f"the first divergence is at {where}: {first.what} {first.path}"
    console.print(escape_hidden(said).rstrip(), "red")
    for label, value in (("replayed", first.told), ("recorded", first.recorded)):
        if value is not None:
            console.show(f"  {label}: {value}")
    return code


def reexecute(args: Namespace, console: Console) -> int:
    """Execute a run again, and compare the results."""
    from coilclaw.runs import reexecution

    runs, directory = _open(args)
    console.note(f"executing {directory.name} again: baseline, patch, gates and tests …", "dim")
    done = reexecution.reexecute(runs.equipment, directory.name)
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
    said = "executed again with the same result" if good else "the result differs"
    console.print(f"{report.status}: {said}", "green" if good else "red")
    console.note(f"the report is in {done.audit}")
    return code


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def apply(args: Namespace, console: Console) -> int:
    """Merge accepted work; exit with code 1 if a gate refuses it."""
    from coilclaw.runs import merge_stage

    runs, directory = _open(args)
    done = merge_stage.apply_run(runs.equipment, directory.name, branch=args.branch)
    code = DONE if done.merged else FAILED
    record = {
        "run_id": done.run_id,
        "status": "merged" if done.merged else "refused",
        **pick(done, "already", "branch", "commit", "reason", "audit"),
    }
    if console.emit(record):
        return code
    if done.already:
        console.print(f"{done.run_id} is already merged into {done.branch} as {done.commit}")
    elif done.merged:
        console.print(f"merged into {done.branch} as {done.commit}", "green")
    else:
        console.error(f"nothing was merged: {done.reason}", rule="apply.refused")
    if done.audit is not None:
        console.note(f"the evidence is in {done.audit}")
    return code


def export(args: Namespace, console: Console) -> int:
    """Write a run as one signed file."""
    runs, directory = _open(args)
    out = None if args.out is None else Path(args.out)
    made = runs.export(directory, out, whole_history=args.whole_history)
    if not console.emit({"run_id": directory.name, "file": str(made.absolute())}):
        console.print(str(made))
        console.note("the public key (coilclaw keys show) is all that is needed to check it")
    return DONE


def collect_garbage(args: Namespace, console: Console) -> int:
    """Remove what ended runs left behind, or print what would be removed."""
    from coilclaw.runs import CollectionOptions, garbage_collection

    if (args.older_than or 0) < 0 or (args.keep or 0) < 0:
        raise UsageError("--older-than and --keep must not be negative", rule="usage.gc")
    if args.bundles and args.older_than is None and args.keep is None:
        raise UsageError(
            "--bundles removes evidence: choose the runs with --older-than DAYS or --keep N",
            rule="gc.bundles",
        )
    options = CollectionOptions(
        older_than_days=args.older_than or 0.0,
        keep=args.keep or 0,
        bundles=args.bundles,
        pending=args.pending,
        dry_run=args.dry_run,
    )
    removed = garbage_collection.collect_garbage(open_runs(args).equipment, options)
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


def stop(args: Namespace, console: Console) -> None:
    """Have the process that works on a run stop it, and print how it is resumed."""
    from coilclaw.runs import next_command, request_stop

    runs, directory = _open(args)
    request_stop(runs.places.runtime, directory.name)
    again = next_command.resume(directory.name, (), repo=args.repo)
    if not console.emit({"run_id": directory.name, "status": "stopped", "next": again}):
        console.print("status   stopped", "yellow")
        console.print(f"next     {again}")


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
