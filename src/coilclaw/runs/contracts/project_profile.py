"""``ProjectProfile``: how a project is tested and prepared, by what its own files say.

Everything that is read is untrusted: bounded, and a file that cannot be read is told and
passed over. Nothing of its text becomes a command; commands are chosen from those written here.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError, quote_text
from coilclaw.runs.contracts import task_contract
from coilclaw.runs.contracts.task_contract import SetupCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MAX_MANIFEST_BYTES: Final = 2**20
MAX_TEST_FILES: Final = 20
"""Files of tests that are looked into for what they import."""
LOCK_FILES: Final = (
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "package-lock.json"),
    *("npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"),
    *("Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock", "gradle.lockfile"),
)
CI_PATHS: Final = (
    *(".github/workflows", ".gitlab-ci.yml", ".circleci", ".travis.yml", "azure-pipelines.yml"),
    *("Jenkinsfile", ".buildkite", ".ci"),
)
CONTROL_FOLDERS: Final = ("policies",)
TEST_FOLDERS: Final = ("tests", "test", "spec", "__tests__")
_TEST_FUNCTION: Final = re.compile(r"^(?:async )?def test_", re.MULTILINE)
_PYTHON_TEST: Final = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")
_MAKE_TARGET: Final = re.compile(r"^(test|check)(?:[ \t][^:=\n]*)?::?(?![:=])", re.MULTILINE)
_JUST_RECIPE: Final = re.compile(r"^@?(test|tests|check)(?:[ \t][^:=\n]*)?:(?!=)", re.MULTILINE)
_PYTEST_SECTION: Final = re.compile(r"^\[(?:tool:)?pytest\]", re.MULTILINE)
_TOX_PYTEST: Final = re.compile(
    r"^[ \t]*(?:(?:commands|deps)[ \t]*=[ \t]*)?(?:python3?[ \t]+-m[ \t]+)?pytest\b", re.MULTILINE
)
_REQUIRES_PYTEST: Final = re.compile(r"^\s*pytest\b", re.MULTILINE | re.IGNORECASE)
_TEST_EXTRAS: Final = ("test", "tests", "testing", "dev")


@dataclass(frozen=True, slots=True)
class ProjectFinding:
    """What was recognised in a file, or why nothing was."""

    path: str
    says: str

    def __str__(self) -> str:
        return f"{self.path}: {self.says}"


@dataclass(frozen=True, slots=True)
class ProjectProfile:
    """What is proposed for a project; each part may be empty."""

    findings: tuple[ProjectFinding, ...] = ()
    tests: tuple[str, ...] = ()
    setup: tuple[SetupCommand, ...] = ()
    forbidden_paths: tuple[str, ...] = ()
    """Lock files, continuous integration and policies that are there."""
    test_paths: tuple[str, ...] = ()
    """Directories at the top of the tree in which tests are."""


def recognise_project(
    files: Collection[str], read: Callable[[str], bytes | None], *, python: str = "python"
) -> ProjectProfile:
    """Return what the files of a project say about its tests and its set-up.

    ``files`` are the regular files of the tree, ``read`` returns the content of one of them or
    ``None``. Only what stands at the top of the tree is a manifest.
    """
    known = _Project(frozenset(files), read, python)
    for recognise in (_python, _node, _cargo, _go, _maven, _gradle):
        recognise(known)
    _recipes(known)
    if not known.tests and any(map(_PYTHON_TEST.fullmatch, known.files)):
        _python_tests(known, "tests", {})
    return ProjectProfile(
        tuple(known.findings),
        tuple(dict.fromkeys(known.tests)),
        tuple(known.setup),
        tuple(path for path in (*LOCK_FILES, *CI_PATHS, *CONTROL_FOLDERS) if known.holds(path)),
        tuple(path for path in TEST_FOLDERS if known.holds(path)),
    )


@dataclass(slots=True)
class _Project:
    """The files of a project, and what was found so far."""

    files: frozenset[str]
    read: Callable[[str], bytes | None]
    python: str
    findings: list[ProjectFinding] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    setup: list[SetupCommand] = field(default_factory=list)

    def holds(self, path: str) -> bool:
        """Whether a path is a file of the tree, or a directory with one."""
        return path in self.files or any(name.startswith(f"{path}/") for name in self.files)

    def first(self, *names: str) -> str | None:
        return next((name for name in names if name in self.files), None)

    def find(self, path: str, says: str) -> None:
        self.findings.append(ProjectFinding(path, says))

    def prepare(self, name: str, cmd: str) -> None:
        """Propose a command of the set-up; all of them fetch something."""
        self.setup.append(SetupCommand(name=name, cmd=cmd, network="allow"))

    def text(self, name: str) -> str:
        """Return the text of a file; the empty one where there is none to be read."""
        data = self.read(name) if name in self.files else None
        if data is None:
            if name in self.files:
                self.find(name, "cannot be read, and is passed over")
            return ""
        if len(data) > MAX_MANIFEST_BYTES:
            self.find(name, f"has more than {MAX_MANIFEST_BYTES} bytes, and is passed over")
            return ""
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.find(name, "is not UTF-8, and is passed over")
            return ""

    def toml(self, name: str) -> dict[str, object]:
        try:
            return tomllib.loads(self.text(name))
        except (ValueError, RecursionError):
            self.find(name, "is not valid TOML: only its name counts")
            return {}

    def json(self, name: str) -> Mapping[str, object]:
        text = self.text(name)
        try:
            return task_contract.parse_document(text.encode()) if text else {}
        except UsageError:
            self.find(name, "is not a valid JSON object: only its name counts")
            return {}


def _table(value: object, *keys: str) -> Mapping[str, object]:
    """Return the table below some keys; an empty one where something else stands there."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


_PYTHON_MANIFESTS: Final = (
    *("pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "Pipfile", "requirements.txt"),
)
_PYTHON_LOCKS: Final = (
    ("uv.lock", "uv", "uv sync --frozen"),
    ("poetry.lock", "poetry", "poetry install"),
    ("pdm.lock", "pdm", "pdm sync"),
    ("Pipfile.lock", "pipenv", "pipenv sync --dev"),
)


def _python(known: _Project) -> None:
    manifest = known.first(*_PYTHON_MANIFESTS)
    if manifest is None:
        return
    project = known.toml("pyproject.toml") if "pyproject.toml" in known.files else {}
    for lock, program, install in _PYTHON_LOCKS:
        if lock in known.files:
            extra = _test_extra(project) if program == "uv" else None
            why = _pytest_evidence(known, project)
            known.prepare(
                "install-python", install if extra is None else f"{install} --extra {extra}"
            )
            known.tests.append(f"{program} run {'pytest' if why else _unittest(known, 'python')}")
            known.find(lock, f"the environment is that of {program}; {why or 'no sign of pytest'}")
            return
    _python_tests(known, manifest, project)


def _python_tests(known: _Project, manifest: str, project: Mapping[str, object]) -> None:
    """Propose the tests of a Python project that no lock file gives an environment."""
    why = _pytest_evidence(known, project)
    if _table(project, "tool", "hatch", "envs", "hatch-test"):
        known.tests.append("hatch test")
        known.find("pyproject.toml", "it configures the environment hatch-test")
    elif why:
        known.tests.append(f"{known.python} -m pytest -q")
        known.find(manifest, f"{why}; the environment on PATH is used as it is")
    elif "tox.ini" in known.files:
        known.tests.append("tox -e py")
        known.find("tox.ini", "tox runs the tests, and needs the network to make environments")
    elif any(map(_PYTHON_TEST.fullmatch, known.files)):
        known.tests.append(_unittest(known, known.python))
        known.find(manifest, "there are tests, and no sign of pytest: unittest runs them")
    else:
        known.find(manifest, "a Python project in which no test was found")


def _unittest(known: _Project, python: str) -> str:
    folder = next((name for name in ("tests", "test") if known.holds(name)), None)
    if folder is None:
        return f"{python} -m unittest"
    # With a package of tests, imports start at the top of the tree.
    top = " -t ." if f"{folder}/__init__.py" in known.files else ""
    return f"{python} -m unittest discover -s {folder}{top}"


def _pytest_evidence(known: _Project, project: Mapping[str, object]) -> str:
    """Say what shows that the tests are those of pytest; the empty text if nothing does."""
    if _table(project, "tool", "pytest"):
        return "pyproject.toml configures pytest"
    named = known.first("pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py")
    if named is not None:
        return f"{named} is there"
    for name in ("setup.cfg", "tox.ini"):
        if name in known.files and _PYTEST_SECTION.search(known.text(name)):
            return f"{name} configures pytest"
    if "tox.ini" in known.files and _TOX_PYTEST.search(known.text("tox.ini")):
        return "tox.ini runs pytest"
    if _names_pytest(project):
        return "pyproject.toml requires pytest"
    for name in sorted(known.files):
        if re.fullmatch(r"requirements[\w.-]*\.txt", name) and _REQUIRES_PYTEST.search(
            known.text(name)
        ):
            return f"{name} requires pytest"
    tests = sorted(filter(_PYTHON_TEST.fullmatch, known.files), key=lambda name: (len(name), name))
    for name in tests[:MAX_TEST_FILES]:
        if re.search(r"^\s*(?:import|from) pytest\b", known.text(name), re.MULTILINE):
            return f"{quote_text(name)} imports pytest"
        if _TEST_FUNCTION.search(known.text(name)):
            return f"{quote_text(name)} has tests that are functions, which unittest does not run"
    return ""


def _names_pytest(project: Mapping[str, object]) -> bool:
    poetry = _table(project, "tool", "poetry")
    listed = [
        *_table(project, "project", "optional-dependencies").values(),
        *_table(project, "dependency-groups").values(),
        _table(project, "project").get("dependencies"),
        list(_table(poetry, "dev-dependencies")),
        *(list(_table(group, "dependencies")) for group in _table(poetry, "group").values()),
    ]
    return any(
        isinstance(text, str) and _REQUIRES_PYTEST.match(text)
        for each in listed
        if isinstance(each, list)
        for text in each
    )


def _test_extra(project: Mapping[str, object]) -> str | None:
    extras = _table(project, "project", "optional-dependencies")
    return next((name for name in _TEST_EXTRAS if name in extras), None)


_NODE_MANAGERS: Final = (
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun"),
    ("bun.lockb", "bun"),
    ("package-lock.json", "npm"),
    ("npm-shrinkwrap.json", "npm"),
)
_NODE_LOCKED: Final = {
    "npm": "npm ci",
    "pnpm": "pnpm install --frozen-lockfile",
    "yarn": "yarn install --frozen-lockfile",
    "bun": "bun install --frozen-lockfile",
}


def _node(known: _Project) -> None:
    if "package.json" not in known.files:
        return
    package = known.json("package.json")
    manager, lock, why = _node_manager(known, package)
    scripts, needed = _table(package, "scripts"), _node_dependencies(package)
    script = scripts.get("test")
    if isinstance(script, str) and script.strip() and "no test specified" not in script:
        known.tests.append("bun run test" if manager == "bun" else f"{manager} test")
        known.find("package.json", f"it has a script test; {why}")
    elif "vitest" in needed or "jest" in needed:
        runner = "vitest run" if "vitest" in needed else "jest"
        known.tests.append(f"npx {runner}")
        known.find("package.json", f"it has no script test, and can be tested by {runner}")
    else:
        known.find("package.json", "it has no script test, and requires neither jest nor vitest")
    if lock is None and needed and manager == "npm":
        known.prepare("install-node", "npm install --no-package-lock")
        known.find("package.json", "without a lock file each set-up may install something else")
    elif lock is not None:
        modern = manager == "yarn" and (
            ".yarnrc.yml" in known.files or re.search(r"yarn@[2-9]|yarn@\d\d", why)
        )
        known.prepare(
            "install-node", "yarn install --immutable" if modern else _NODE_LOCKED[manager]
        )


def _node_manager(known: _Project, package: Mapping[str, object]) -> tuple[str, str | None, str]:
    """Return the package manager, its lock file if there is one, and what says so."""
    locks = {manager: name for name, manager in _NODE_MANAGERS if name in known.files}
    named = package.get("packageManager")
    found = re.match(r"(npm|pnpm|yarn|bun)@\d{1,4}", named) if isinstance(named, str) else None
    if found is not None:
        return found[1], locks.get(found[1]), f"packageManager is {found[0]}"
    for manager in ("pnpm", "yarn", "bun", "npm"):
        if manager in locks:
            return manager, locks[manager], f"{locks[manager]} is that of {manager}"
    return "npm", None, "no lock file names another package manager than npm"


def _node_dependencies(package: Mapping[str, object]) -> frozenset[str]:
    return frozenset(
        name for key in ("dependencies", "devDependencies") for name in _table(package, key)
    )


def _cargo(known: _Project) -> None:
    if "Cargo.toml" not in known.files:
        return
    manifest = known.toml("Cargo.toml")
    known.tests.append("cargo test")
    known.find("Cargo.toml", "a crate or workspace of Cargo")
    tables = ("dependencies", "dev-dependencies", "build-dependencies", "workspace", "target")
    if not manifest or any(_table(manifest, name) for name in tables):
        locked = " --locked" if "Cargo.lock" in known.files else ""
        known.prepare("fetch-cargo", f"cargo fetch{locked}")


def _go(known: _Project) -> None:
    if "go.mod" not in known.files:
        return
    known.tests.append("go test ./...")
    known.find("go.mod", "a module of Go")
    if re.search(r"^require\b", known.text("go.mod"), re.MULTILINE):
        known.prepare("fetch-go", "go mod download")


def _maven(known: _Project) -> None:
    if "pom.xml" not in known.files:
        return
    program = "./mvnw" if "mvnw" in known.files else "mvn"
    known.tests.append(f"{program} -B test")
    known.prepare("fetch-maven", f"{program} -B dependency:go-offline")
    known.find("pom.xml", f"a project of Maven, run by {program}")


def _gradle(known: _Project) -> None:
    build = known.first(
        "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"
    )
    if build is None:
        return
    program = "./gradlew" if "gradlew" in known.files else "gradle"
    known.tests.append(f"{program} test")
    known.prepare("fetch-gradle", f"{program} testClasses")
    known.find(build, f"a build of Gradle, run by {program}")


def _recipes(known: _Project) -> None:
    """What a project calls its tests itself, where no language says how they are run."""
    justfile = known.first("justfile", "Justfile", ".justfile")
    makefile = known.first("GNUmakefile", "makefile", "Makefile")
    for name, program, recipe in (
        (justfile, "just", _JUST_RECIPE),
        (makefile, "make", _MAKE_TARGET),
    ):
        found = [each[1] for each in recipe.finditer(known.text(name))] if name else []
        if name is None or not found:
            continue
        # The one that is most about tests, whatever comes first in the file.
        chosen = next(each for each in ("test", "tests", "check") if each in found)
        if known.tests:
            known.find(name, f"'{program} {chosen}' is there as well, and not proposed")
        else:
            known.tests.append(f"{program} {chosen}")
            known.find(name, f"it has the target {chosen}")
