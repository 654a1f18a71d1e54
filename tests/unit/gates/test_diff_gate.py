"""The diff gate over made-up differences: every rule, with the neighbour that is fine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from coilclaw.kernel.tree_files import ChangeKind, EntryType, TreeChange, TreeDiff
from coilclaw.runs.gates.command_line import forbidden_paths
from coilclaw.runs.gates.diff import MAX_VIOLATIONS, Observed, find_leavings, judge_diff
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.gates.scope import Scope

FILE, PROGRAM, LINK = EntryType.FILE, EntryType.EXECUTABLE, EntryType.SYMLINK
DIRECTORY, OPAQUE = EntryType.DIRECTORY, EntryType.OPAQUE
SCOPE = Scope(("src", "README.md", "docs/"))
NOTHING = Observed(
    binary=frozenset(),
    secrets=frozenset(),
    ignored=frozenset(),
    modes={},
    tree=(),
    submodules=(),
)


def added(path: str, kind: EntryType = FILE) -> TreeChange:
    return TreeChange(ChangeKind.ADDED, path, new_type=kind, new_id="1" * 40)


def modified(path: str, old: EntryType = FILE, new: EntryType = FILE) -> TreeChange:
    return TreeChange(ChangeKind.MODIFIED, path, None, old, new, "1" * 40, "2" * 40)


def removed(path: str, kind: EntryType = FILE) -> TreeChange:
    return TreeChange(ChangeKind.REMOVED, path, old_type=kind, old_id="1" * 40)


def moved(old: str, new: str, kind: ChangeKind = ChangeKind.RENAMED) -> TreeChange:
    return TreeChange(kind, new, old, FILE, FILE, "1" * 40, "1" * 40)


def judged(
    *changes: TreeChange, scope: Scope = SCOPE, git: tuple[str, ...] = (), **known: Any
) -> GateResult:
    return judge_diff(TreeDiff(changes, git), scope=scope, observed=replace(NOTHING, **known))


def rules(result: GateResult) -> list[tuple[str, str]]:
    return [(violation.rule, violation.path) for violation in result.violations]


def test_what_is_inside_passes_and_is_told() -> None:
    result = judged(modified("src/a.py"), removed("docs/x/y.md"), modified("README.md"))
    assert result == GateResult(
        "diff_gate",
        (),
        {
            "changes": 3,
            "names": ["README.md", "docs/x/y.md", "src/a.py"],
            "mode_changes": [],
            "empty_directories": [],
            "leavings": [],
            "leavings_count": 0,
            "git_changes": [],
            "allowed_paths": ["README.md", "docs/", "src"],
            "violations_count": 0,
        },
    )
    assert result.passed


def test_every_path_outside_is_listed() -> None:
    result = judged(modified("src/a.py"), modified("lib/a.py"), removed("setup.py"))
    assert result.violations == (
        Violation(
            "diff.out_of_scope",
            "'lib/a.py' was modified; allowed: src, README.md, docs/",
            "lib/a.py",
        ),
        Violation(
            "diff.out_of_scope",
            "'setup.py' was removed; allowed: src, README.md, docs/",
            "setup.py",
        ),
    )


@pytest.mark.parametrize(
    ("allowed", "path"),
    [
        ("github", ".github/workflows/ci.yml"),
        (".github", "github/workflows/ci.yml"),
        ("src", "src2/a.py"),
        ("src/a", "src/ab.py"),
        ("src", "./src/a.py"),
        ("src", "src/../lib/a.py"),
        ("docs/", "docs"),
        ("Src", "src/a.py"),
        ("a.py", "a.pyc"),
    ],
)
def test_defect_1_a_path_is_compared_by_its_segments_and_never_normalised(
    allowed: str, path: str
) -> None:
    assert ("diff.out_of_scope", path) in rules(judged(modified(path), scope=Scope((allowed,))))


@pytest.mark.parametrize(
    ("allowed", "path"),
    [
        (".github", ".github/workflows/ci.yml"),
        ("src/a.py", "src/a.py"),
        ("docs/", "docs/a/b.md"),
        ("environment.py", "environment.py"),
        ("envs", "envs/a.yml"),
        ("git", "git/notes.md"),
    ],
)
def test_defect_1_neighbours_of_protected_names_are_plain_files(allowed: str, path: str) -> None:
    assert judged(modified(path), scope=Scope((allowed,))).passed


@pytest.mark.parametrize(
    "entry", ["", ".", "/", "..", "../x", "/etc", "src/**", "a*", "a//b", "./src", ".git", "a\\b"]
)
def test_defect_1_a_malformed_entry_is_a_violation_and_allows_nothing(entry: str) -> None:
    result = judged(modified("src/a.py"), scope=Scope((entry,)))
    found = [violation.rule for violation in result.violations]
    assert found == ["diff.scope", "diff.out_of_scope"]


def test_an_empty_scope_allows_nothing() -> None:
    assert rules(judged(scope=Scope(()))) == [("diff.scope", "allowed_paths")]
    assert rules(judged(modified("a"), scope=Scope(()))) == [
        ("diff.scope", "allowed_paths"),
        ("diff.out_of_scope", "a"),
    ]


def test_a_read_only_scope_allows_no_change_at_all() -> None:
    scope = replace(SCOPE, read_only=True)
    assert rules(judged(modified("src/a.py"), scope=scope)) == [("diff.read_only", "src/a.py")]
    assert judged(scope=scope).passed


@pytest.mark.parametrize("kind", [ChangeKind.RENAMED, ChangeKind.COPIED])
def test_both_ends_of_a_rename_and_of_a_copy_have_to_be_allowed(kind: ChangeKind) -> None:
    assert rules(judged(moved("lib/a.py", "src/a.py", kind))) == [("diff.out_of_scope", "lib/a.py")]
    assert rules(judged(moved("src/a.py", "lib/a.py", kind))) == [("diff.out_of_scope", "lib/a.py")]
    assert judged(moved("src/a.py", "docs/a.py", kind)).passed


def test_an_empty_file_is_no_copy_of_another_empty_file() -> None:
    empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    copy = replace(moved("lib/__init__.py", "src/__init__.py", ChangeKind.COPIED), new_id=empty)
    assert judged(copy).passed
    rename = replace(moved("lib/__init__.py", "src/__init__.py"), new_id=empty)
    assert rules(judged(rename)) == [("diff.out_of_scope", "lib/__init__.py")]


@pytest.mark.parametrize(
    "change",
    [
        added("src/l", LINK),
        removed("src/l", LINK),
        modified("src/l", LINK, LINK),
        replace(modified("src/l", FILE, LINK), kind=ChangeKind.TYPE),
        replace(modified("src/l", LINK, FILE), kind=ChangeKind.TYPE),
        replace(moved("src/k", "src/l"), old_type=LINK, new_type=LINK),
    ],
)
def test_defect_3_a_symbolic_link_is_refused_however_it_changes(change: TreeChange) -> None:
    assert "diff.symlink" in [rule for rule, _ in rules(judged(change))]


def test_defect_3_a_nested_repository_is_refused() -> None:
    result = judged(added("src/vendored/.git", OPAQUE), added("src/vendored/a.py"))
    assert rules(result) == [
        ("diff.protected", "src/vendored/.git"),
        ("diff.nested", "src/vendored/.git"),
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [(".git", FILE), (".git", OPAQUE), (".GIT", FILE), (".git", LINK), (".git/config", FILE)],
)
def test_a_git_directory_or_a_file_that_leads_to_one_is_refused_at_any_depth(
    name: str, kind: EntryType
) -> None:
    for folder in ("src", "src/a", "src/a/b/c"):
        found = rules(judged(added(f"{folder}/{name}", kind)))
        assert ("diff.protected", f"{folder}/{name}") in found


BARE = ("HEAD", "config", "objects/info/packs", "refs/heads/main")


@pytest.mark.parametrize("folder", ["src/r", "src/r.git", "src/a/b/c", "docs/x"])
@pytest.mark.parametrize(
    "names",
    [
        BARE,
        ("HEAD", "objects", "refs"),
        ("HEAD", "refs"),
        ("head", "OBJECTS/x", "Refs/x"),
        ("HEAD", "commondir"),
    ],
    ids=["bare", "empty", "objects-elsewhere", "case", "worktree"],
)
def test_a_directory_that_git_takes_for_a_repository_is_refused(
    folder: str, names: tuple[str, ...]
) -> None:
    kinds = {"objects": DIRECTORY, "refs": DIRECTORY}
    changes = [added(f"{folder}/{name}", kinds.get(name, FILE)) for name in names]
    assert rules(judged(*changes)) == [("diff.nested", folder)]


def test_a_repository_is_refused_however_little_of_it_is_new() -> None:
    tree = [f"src/r/{name}" for name in BARE]
    for change in (
        added("src/r/HEAD"),
        added("src/r/objects/ab/cd"),
        modified("src/r/config"),
        added("src/r/hooks/post-checkout"),
    ):
        assert rules(judged(change, tree=tree)) == [("diff.nested", "src/r")]
    gone = removed("src/r/HEAD")
    assert rules(judged(gone, tree=tree[1:])) == [("diff.nested", "src/r")]
    moving = moved("src/head.txt", "src/r/HEAD")
    assert ("diff.nested", "src/r") in rules(judged(moving, tree=tree))


@pytest.mark.parametrize(
    "names",
    [
        ("HEAD",),
        ("HEAD", "objects/a.py"),
        ("objects/a.py", "refs/a.md"),
        ("commondir",),
        ("HEAD.md", "refs/a.md"),
        ("HEAD", "sub/refs/a.md"),
    ],
)
def test_a_directory_with_a_part_of_a_repository_is_none(names: tuple[str, ...]) -> None:
    assert judged(*(added(f"src/{name}") for name in names)).passed


def test_a_tree_that_was_laid_out_like_a_repository_can_be_worked_in() -> None:
    scope = Scope(("src", "HEAD", "objects", "refs"))
    tree = ["HEAD", "objects/a.py", "refs/a.md", "src/a.py"]
    assert judged(added("src/b.py"), modified("objects/a.py"), tree=tree, scope=scope).passed
    assert rules(judged(added("HEAD"), tree=tree, scope=scope)) == [("diff.nested", ".")]


def test_a_fifo_a_socket_or_a_device_is_refused() -> None:
    assert rules(judged(added("src/pipe", OPAQUE))) == [("diff.special", "src/pipe")]


def test_a_file_that_becomes_a_directory_is_refused() -> None:
    change = replace(modified("src/a", FILE, DIRECTORY), kind=ChangeKind.TYPE)
    assert rules(judged(change, added("src/a/b"))) == [("diff.type", "src/a")]


def test_defect_2_binary_contents_are_refused_unless_the_contract_allows_them() -> None:
    change, known = modified("src/logo.png"), frozenset({"src/logo.png"})
    assert rules(judged(change, binary=known)) == [("diff.binary", "src/logo.png")]
    assert judged(change, binary=known, scope=replace(SCOPE, binary_paths=("src/logo.png",))).passed
    assert judged(change, binary=known, scope=replace(SCOPE, binary_paths=("src",))).passed
    elsewhere = replace(SCOPE, binary_paths=("src/logos",))
    assert rules(judged(change, binary=known, scope=elsewhere)) == [("diff.binary", "src/logo.png")]


def test_binary_paths_do_not_widen_the_scope() -> None:
    scope = replace(SCOPE, binary_paths=("lib",))
    found = rules(judged(added("lib/x.bin"), binary=frozenset({"lib/x.bin"}), scope=scope))
    assert found == [("diff.out_of_scope", "lib/x.bin")]


def test_the_executable_bit_may_change_and_is_told() -> None:
    change = TreeChange(ChangeKind.MODE, "src/run.sh", None, FILE, PROGRAM, "1" * 40, "1" * 40)
    result = judged(change)
    assert result.passed
    assert result.facts["mode_changes"] == ["src/run.sh"]
    assert rules(judged(replace(change, path="run.sh"))) == [("diff.out_of_scope", "run.sh")]


@pytest.mark.parametrize(
    ("mode", "fine"), [(0o4755, False), (0o2644, False), (0o1644, False), (0o600, True)]
)
def test_set_user_id_and_the_like_are_refused(mode: int, fine: bool) -> None:
    result = judged(added("src/run", PROGRAM), modes={"src/run": mode})
    assert rules(result) == ([] if fine else [("diff.mode", "src/run")])
    assert judged(modified("src/other"), modes={"src/run": mode}).passed


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "src/.env",
        "src/deep/.env.local",
        "src/.ENV",
        "src/.envrc",
        "src/.env/bin/python",
        ".gitmodules",
        "src/.gitmodules",
        ".runtime-cache/cortexpilot/runs/x/events.jsonl",
        ".Runtime-Cache/CortexPilot/locks/x",
        ".coilclaw/policy.toml",
        "src/.coilclaw-stage-1",
        "policies/command_allowlist.json",
        "Policies/x.json",
        "schemas/task_contract.v1.json",
    ],
)
def test_no_contract_can_allow_these(path: str) -> None:
    for scope in (Scope((path,)), Scope((path.partition("/")[0],))):
        assert ("diff.protected", path) in rules(judged(modified(path), scope=scope))


@pytest.mark.parametrize(
    "path", ["src/.env.example", "src/env.py", "src/policies/x.json", "src/schemas/x.json"]
)
def test_their_neighbours_can_be_allowed(path: str) -> None:
    assert judged(modified(path)).passed


def test_the_caller_names_what_else_is_protected_and_where_its_control_files_are() -> None:
    scope = replace(SCOPE, protected=("src/vendor",), control=("src/rules",), runtime_root="src/rt")
    for path in ("src/vendor/a.c", "src/rules/a.json", "src/rt/runs"):
        assert ("diff.protected", path) in rules(judged(modified(path), scope=scope))
    assert judged(modified("src/vendored.c"), scope=scope).passed
    own = Scope(("schemas",), control=())
    assert judged(modified("schemas/app.json"), scope=own).passed


def test_what_an_action_forbids_to_edit_is_protected() -> None:
    actions = ("edit ./src/uv.lock", "edit src/ci", "rm -rf", "edit .env")
    assert forbidden_paths(actions) == ("src/uv.lock", "src/ci", ".env")
    scope = replace(SCOPE, protected=forbidden_paths(actions))
    for path in ("src/uv.lock", "src/ci/x.yml"):
        assert ("diff.protected", path) in rules(judged(modified(path), scope=scope))
    for path in ("src/uv.locked", "src/cis", "src/rm"):
        assert judged(modified(path), scope=scope).passed


@pytest.mark.parametrize(
    "path",
    [
        "src/.gitignore",
        "src/.gitattributes",
        "src/pytest.ini",
        "src/pytest.toml",
        "src/tox.ini",
        "src/conftest.py",
        "src/Conftest.py",
        "src/sitecustomize.py",
        "src/evil.pth",
        "src/.npmrc",
    ],
)
def test_some_files_have_to_be_named_themselves(path: str) -> None:
    assert rules(judged(modified(path))) == [("diff.unnamed", path)]
    assert judged(modified(path), scope=Scope(("src", path))).passed
    assert rules(judged(modified(path), scope=Scope(("src", path + "/")))) == [
        ("diff.unnamed", path)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a\x1b[2Jb",
        "aux.py",
        "trailing.",
        "trailing ",
        "back\\slash",
        "bi\u202edi",
        "x\udcff",
    ],
)
def test_names_that_are_unsafe_anywhere_are_refused(name: str) -> None:
    result = judged(added(f"src/{name}"))
    assert [violation.rule for violation in result.violations] == ["diff.name"]
    for violation in result.violations:
        (violation.message + violation.path).encode("utf-8")
    assert judged(added("src/größe – 例.py")).passed


def test_git_in_a_path_is_told_once() -> None:
    assert rules(judged(added("src/.GIT/config"))) == [("diff.protected", "src/.GIT/config")]
    assert rules(judged(added("src/git~1"))) == [("diff.name", "src/git~1")]


@pytest.mark.parametrize(
    ("changes", "tree"),
    [
        ([added("src/Readme")], ["src/Readme", "src/README"]),
        ([moved("src/readme", "src/Readme")], ["src/Readme"]),
        ([added("src/Readme"), removed("src/readme")], ["src/Readme"]),
        ([added("src/SUB/a")], ["src/SUB/a", "src/sub/b"]),
        ([added("src/ﬁle")], ["src/ﬁle", "src/file"]),
    ],
)
def test_two_names_that_are_one_on_some_file_system(
    changes: list[TreeChange], tree: list[str]
) -> None:
    assert [rule for rule, _ in rules(judged(*changes, tree=tree))] == ["diff.case"]


def test_names_that_clashed_before_are_not_the_workers_fault() -> None:
    tree = ["lib/A", "lib/a", "src/new", "src/x/y", "src/X"]
    assert judged(added("src/new"), tree=tree).passed
    assert judged(modified("src/X"), tree=["src/X", "src/x"]).passed


def test_a_secret_in_the_contents() -> None:
    found = rules(judged(modified("src/a.py"), secrets=frozenset({"src/a.py", "lib/b"})))
    assert found == [("diff.secret", "src/a.py")]


def test_changes_of_the_trees_own_git_are_always_refused() -> None:
    assert rules(judged(git=("hooks", "config"))) == [
        ("diff.git", ".git:hooks"),
        ("diff.git", ".git:config"),
    ]


def test_what_belongs_to_a_submodule_is_refused() -> None:
    result = judged(added("src/sub/a.py"), removed("src/sub", DIRECTORY), submodules=("src/sub",))
    assert rules(result) == [("diff.submodule", "src/sub/a.py"), ("diff.submodule", "src/sub")]
    assert judged(added("src/subtle.py"), submodules=("src/sub",)).passed


def test_empty_directories_count_like_files_except_on_the_way_to_the_scope() -> None:
    assert rules(judged(added("lib", DIRECTORY))) == [("diff.out_of_scope", "lib")]
    result = judged(
        added("a", DIRECTORY), added("src/x", DIRECTORY), scope=Scope(("a/b/c.py", "src"))
    )
    assert result.passed
    assert result.facts["empty_directories"] == ["a", "src/x"]
    assert judged(added("docs", DIRECTORY)).passed


CACHED = "src/__pycache__/a.cpython-311.pyc"


def test_defect_4_what_is_ignored_is_left_out_of_the_work_and_listed() -> None:
    hidden = frozenset({"lib/out.log", "src/out.log"})
    result = judged(
        added("lib/out.log"), added("src/out.log"), modified("src/a.py"), ignored=hidden
    )
    assert result.passed
    assert result.facts["leavings"] == ["lib/out.log", "src/out.log"]
    assert result.facts["names"] == ["src/a.py"]


def test_what_tools_leave_is_set_aside_and_listed() -> None:
    known: Mapping[str, Any] = {
        "ignored": frozenset({CACHED, "lib/.pytest_cache/v/x"}),
        "binary": frozenset({CACHED}),
    }
    result = judged(added(CACHED), added("lib/.pytest_cache/v/x"), modified("src/a.py"), **known)
    assert result.passed
    assert result.facts["leavings"] == ["lib/.pytest_cache/v/x", CACHED]
    assert result.facts["names"] == ["src/a.py"]


@pytest.mark.parametrize(
    ("change", "ignored"),
    [
        (added(CACHED), False),
        (added("lib/mod.py"), False),
        (modified(CACHED), True),
        (removed(CACHED), True),
        (added("lib/.git/config"), True),
        (added("policies/__pycache__/x.pyc"), True),
        (added(".coilclaw/state"), True),
        (added(".runtime-cache/cortexpilot/x"), True),
    ],
)
def test_nothing_else_passes_as_a_leaving(change: TreeChange, ignored: bool) -> None:
    hidden = frozenset({change.path}) if ignored else frozenset()
    assert find_leavings(TreeDiff((change,)), SCOPE, hidden) == ()
    known: Mapping[str, Any] = {"ignored": hidden, "binary": frozenset({CACHED})}
    assert not judged(change, **known).passed


def test_what_tools_leave_below_a_protected_directory_is_set_aside() -> None:
    scope = replace(SCOPE, protected=("lib", "src/local.json"))
    cached, named = "lib/__pycache__/t.pyc", "src/local.json"
    hidden = frozenset({cached, named})
    assert find_leavings(TreeDiff((added(cached), added(named))), scope, hidden) == (cached,)
    assert judged(added(cached), scope=scope, ignored=hidden).passed
    assert rules(judged(added(named), scope=scope, ignored=hidden)) == [("diff.protected", named)]
    assert not judged(modified(cached), scope=scope, ignored=hidden).passed


def test_very_many_violations_are_counted_and_the_first_are_listed() -> None:
    result = judged(*(added(f"lib/{number:05}") for number in range(MAX_VIOLATIONS + 7)))
    assert len(result.violations) == MAX_VIOLATIONS + 1
    assert result.violations[-1] == Violation("diff.more", "there are 7 more violations")
    assert result.facts["violations_count"] == MAX_VIOLATIONS + 7


def test_a_pack_may_limit_how_much_changes() -> None:
    changes = [modified(f"src/{number}") for number in range(3)]
    assert rules(judged(*changes, scope=replace(SCOPE, max_changes=2))) == [("diff.many", "")]
    assert judged(*changes, scope=replace(SCOPE, max_changes=3)).passed
