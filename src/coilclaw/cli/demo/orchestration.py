"""``coilclaw demo run``: a whole run with scripted models, real git, real gates and a real seal."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

from coilclaw.cli.demo.stage import (
    conclude,
    load_story,
    minimal_environ,
    open_folder,
    write_files,
    write_mock_home,
)
from coilclaw.kernel import EnvironmentFault

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.cli.command import Console
    from coilclaw.cli.runs.run_narrator import Narrator
    from coilclaw.runs import Orchestrator

GIT_TIMEOUT_S: Final = 60.0
_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Demo",
    "GIT_AUTHOR_EMAIL": "demo@coilclaw.invalid",
    "GIT_COMMITTER_NAME": "Demo",
    "GIT_COMMITTER_EMAIL": "demo@coilclaw.invalid",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def run(console: Console, *, keep: bool) -> int:
    """Play a run from one sentence to a merge, then verify its evidence and two forged copies."""
    with open_folder(keep=keep) as folder:
        good = _play(folder, load_story("run"), console)
        if keep:
            console.print()
            console.print(f"all files are kept in {folder}")
            console.print(
                f"look around:  COILCLAW_HOME={folder}/home coilclaw runs show last "
                f"--repo {folder}/shop"
            )
    hint = (
        "In a repository of your own:  ./scripts/run.sh init --repo   then   ./scripts/run.sh "
        "contract init"
    )
    return conclude(console, hint, good=good)


def _play(folder: Path, story: dict[str, Any], console: Console) -> bool:
    from coilclaw.app import open_orchestrator
    from coilclaw.cli.runs.run_narrator import Narrator
    from coilclaw.runs import RunOptions, RunRequest

    runs = open_orchestrator(folder / "shop", folder / "home", _prepare(folder, story))
    narrator = Narrator(
        console, runs.places.bundle, name_task=lambda task_id: task_id.split("-", 2)[-1]
    )
    sentence = story["sentence"]
    narrator.title("A repository with two bugs, and one sentence")
    narrator.tell(f"“{sentence}”")
    options = RunOptions(runner=f"scripted:{folder / 'workers.json'}", merge=True)
    outcome = runs.start(RunRequest(None, sentence), options, narrator.watch)
    if outcome.status != "passed" or outcome.merge != "merged":
        narrator.tell(f"the run ended as {outcome.status}: {outcome.reason}", "red")
        return False
    left = [*runs.places.worktrees.iterdir(), *runs.places.locks.glob("*.lock")]
    narrator.tell(f"the bundle is sealed; worktrees and locks that are left: {len(left)}")
    bundle = runs.places.bundle(outcome.run_id)
    wanted = {**story["files"], **story["result"]}
    merged = all((folder / "shop" / name).read_text() == text for name, text in wanted.items())
    evidence = _check_evidence(runs, bundle, narrator)
    return all((not left, merged, evidence, _find_forgeries(runs, bundle, folder, narrator)))


def _check_evidence(runs: Orchestrator, bundle: Path, narrator: Narrator) -> bool:
    from coilclaw.runs import rehydrate_run

    narrator.title("The evidence: verified, and replayed without a model")
    report = runs.verify(bundle)
    files = sum(1 for path in bundle.rglob("*") if path.is_file())
    good = report.status == "pass"
    said = "everything holds" if good else "it does NOT hold"
    narrator.tell(f"{files} files, {len(report.checks)} checks: {said}", "green" if good else "red")
    narrator.tell(f"the root hash of the run, to keep elsewhere: {report.root_hash[:16]}…")
    told = rehydrate_run(bundle)
    same = not told.divergences
    said = f"replayed from {told.events} events: the same states, tasks and results"
    if not same:
        said = "the events and the reports differ"
    narrator.tell(said, "green" if same else "red")
    return good and same


def _find_forgeries(runs: Orchestrator, bundle: Path, folder: Path, narrator: Narrator) -> bool:
    """Forge two copies of the bundle; return whether verification finds both."""

    narrator.title("Two forged copies of it")
    found = []
    forgeries = (("one byte of the patch is changed", _flip), ("one event is cut out", _cut))
    for number, (said, forge) in enumerate(forgeries, 1):
        copy = folder / f"forged-{number}" / bundle.name
        shutil.copytree(bundle, copy, symlinks=True)
        forge(copy)
        report = runs.verify(copy)
        codes = ", ".join(dict.fromkeys(str(each.code) for each in report.errors))
        bad = report.status == "fail"
        result = f"found ({codes})" if bad else "NOT found"
        narrator.tell(f"{said}: {result}", "green" if bad else "red")
        found.append(bad)
    return all(found)


def _flip(bundle: Path) -> None:
    path = bundle / "patch.diff"
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])


def _cut(bundle: Path) -> None:
    path = bundle / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.chmod(0o600)
    path.write_bytes(b"".join(line for line in lines if b'"policy_violation"' not in line))


def _prepare(folder: Path, story: dict[str, Any]) -> dict[str, str]:
    """Create the repository, the home and the scripts; return the environment of the run."""
    repository, home = folder / "shop", folder / "home"
    write_files(repository, story["files"])
    environ = minimal_environ(folder)
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Shop")):
        _git(repository, environ, *command)
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("/.runtime-cache/\n")
    answers = [
        {"when": '"request":', "text": json.dumps(story["plan"])},
        {"when": '"contract":', "text": json.dumps(story["split"])},
    ]
    write_mock_home(home, answers)
    (folder / "workers.json").write_text(json.dumps(story["script"]))
    return environ


def _git(repository: Path, environ: dict[str, str], *arguments: str) -> None:
    from coilclaw.workspace import command as process

    done = process.run(
        ("git", *arguments),
        cwd=repository,
        env={**environ, **_IDENTITY},
        timeout_s=GIT_TIMEOUT_S,
    )
    if done.exit_code != 0:
        raise EnvironmentFault(
            f"git {arguments[0]} in {repository} failed: {done.stderr.text().strip()}",
            rule="demo.git",
        )
