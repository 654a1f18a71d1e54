"""``coilclaw demo run``: a whole run with scripted models, real git, real gates and a real seal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli import demostory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.cli.console import Console
    from coilclaw.cli.run_narration import Narrator

PLACE: Final = "/var/tmp"  # noqa: S108 - a directory of its own is made there; sandboxes cover /tmp
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
    """Play a run from one sentence to a merge, then check its evidence and a forged copy of it."""
    from coilclaw.cli.dispatch import DONE, FAILED

    with _folder(keep=keep) as folder:
        good = _play(folder, console)
        if keep:
            console.print()
            console.print(f"everything is kept in {folder}")
            console.print(
                f"look around:  COILCLAW_HOME={folder}/home coilclaw runs show last "
                f"--repo {folder}/shop"
            )
    if not good:
        console.error("the demo did not do what it shows", rule="demo.failed")
        return FAILED
    console.print()
    console.print(
        "In a repository of yours:  ./scripts/run.sh init --repo   then   ./scripts/run.sh "
        "contract init"
    )
    return DONE


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    place = PLACE if os.access(PLACE, os.W_OK | os.X_OK) else None
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="coilclaw-demo-", dir=place)))
    try:
        yield folder
    finally:
        if not keep:
            from coilclaw.workspace.removal import remove_tree

            remove_tree(folder)


def _play(folder: Path, console: Console) -> bool:
    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.cli.run_narration import Narrator
    from coilclaw.orchestrator.planning import Request
    from coilclaw.orchestrator.starting import Options

    environ = _prepare(folder)
    runs = Orchestrator(folder / "shop", folder / "home", environ)
    narrator = Narrator(console, runs.places.bundle, name_task=_short)
    narrator.title("A repository with two bugs, and one sentence")
    narrator.tell(f"“{demostory.SENTENCE}”")
    options = Options(runner=f"scripted:{folder / 'workers.json'}", merge=True)
    outcome = runs.start(Request(None, demostory.SENTENCE), options, narrator.watch)
    if outcome.status != "passed" or outcome.merge != "merged":
        narrator.tell(f"the run ended as {outcome.status}: {outcome.reason}", "red")
        return False
    left = [*runs.places.worktrees.iterdir(), *runs.places.locks.glob("*.lock")]
    narrator.tell(f"the bundle is sealed; worktrees and locks that are left: {len(left)}")
    bundle = runs.places.bundle(outcome.run_id)
    done = _merged(folder / "shop")
    return all(
        (not left, done, _evidence(runs, bundle, narrator), _forged(runs, bundle, folder, narrator))
    )


def _short(task_id: str) -> str:
    """Return the part of a task's id that this story calls it by."""
    return task_id.split("-", 2)[-1]


def _merged(repository: Path) -> bool:
    """Whether the branch holds what it should, and nothing else changed."""
    wanted = {**demostory.FILES, **demostory.RESULT}
    return all((repository / name).read_text() == text for name, text in wanted.items())


def _evidence(runs: Orchestrator, bundle: Path, narrator: Narrator) -> bool:
    from coilclaw.app.runaudits import replay, verify

    narrator.title("The evidence: verified, and told again without any model")
    report, _ = verify(runs, bundle)
    files = sum(1 for path in bundle.rglob("*") if path.is_file())
    good = report.status == "pass"
    narrator.tell(
        f"{files} files, {len(report.checks)} checks: "
        f"{'everything holds' if good else 'it does NOT hold'}",
        "green" if good else "red",
    )
    narrator.tell(f"the run's root hash, to be noted elsewhere: {report.root_hash[:16]}…")
    told = replay(bundle)
    same = not told.divergences
    narrator.tell(
        f"replayed from {told.events} events: the same states, tasks and results"
        if same
        else "the events and the reports tell different stories",
        "green" if same else "red",
    )
    return good and same


def _forged(runs: Orchestrator, bundle: Path, folder: Path, narrator: Narrator) -> bool:
    """Change one thing in a copy, twice; both have to be found."""
    from coilclaw.app.runaudits import verify

    narrator.title("Two forged copies of it")
    found = []
    for number, (said, forge) in enumerate(
        (("one byte of the patch is another", _flip), ("one event is cut out", _cut)), 1
    ):
        copy = folder / f"forged-{number}" / bundle.name
        shutil.copytree(bundle, copy, symlinks=True)
        forge(copy)
        report, _ = verify(runs, copy)
        codes = ", ".join(dict.fromkeys(str(each.code) for each in report.errors))
        bad = report.status == "fail"
        narrator.tell(
            f"{said}: {f'found ({codes})' if bad else 'NOT found'}", "green" if bad else "red"
        )
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


def _prepare(folder: Path) -> dict[str, str]:
    """Make the repository, the home and the scripts; return the environment of the run."""
    repository, home = folder / "shop", folder / "home"
    home.mkdir(mode=0o700)
    for name, text in demostory.FILES.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    # Where this Python is, so that the tests find one whatever the caller's PATH holds.
    python = os.path.dirname(os.path.realpath(sys.executable))
    search = os.pathsep.join((python, os.environ.get("PATH", os.defpath)))
    environ = {"PATH": search, "HOME": str(folder / "user")}
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Shop")):
        _git(repository, environ, *command)
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("/.runtime-cache/\n")
    answers = [
        {"when": '"request":', "text": json.dumps(demostory.PLAN)},
        {"when": '"contract":', "text": json.dumps(demostory.SPLIT)},
    ]
    (home / "answers.json").write_text(json.dumps(answers))
    (home / "config.toml").write_text(
        '[providers.models.local]\nkind = "mock"\n'
        f"fixture = {json.dumps(str(home / 'answers.json'))}\n"
    )
    (folder / "workers.json").write_text(json.dumps(demostory.SCRIPT))
    return environ


def _git(repository: Path, environ: dict[str, str], *arguments: str) -> None:
    from coilclaw.errors import EnvironmentFault
    from coilclaw.workspace import process

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
