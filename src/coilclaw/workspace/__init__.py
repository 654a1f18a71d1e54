"""Touch the user's tree and start processes.

``tree`` resolves a path without following links out, reads it, writes a plan with a crash journal
and takes it back. ``snapshot`` pictures a whole tree in a git object store of our own. ``git``
works on repositories, worktrees and merges without running anything that a repository configures.
``process`` starts every program: in a sandbox, with limits on time and output, and ends its whole
process group.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "git.client": "Git list_ignored",
        "git.dependencies": (
            "Dependency changed_files find_dependencies is_beside is_installation is_plain "
            "lay_dependency untracked_parts untracked_paths"
        ),
        "git.landing": "LandingRefused MOVED land_branch",
        "git.merge": "Conflicted Merged",
        "git.borrowed_git": "EXACT_BYTES remove_index",
        "git.object_format": (
            "Entries TREE encode_tree git_mode make_commit parse_tree put_object"
        ),
        "git.object_store": "read_objects",
        "git.repository": "COMMIT_ID Repository append_file check_commit_id open_foreign",
        "git.rollback": "roll_back",
        "git.worktree_mount": "WorktreeMount can_mount mount_worktree",
        "git.worktrees": "Worktree Worktrees",
        "process.cancellation": "Cancellation Waker link_cancellation",
        "process.capture": "Capture Captured",
        "process.confinement": "Enforced Kind Mount NO_SANDBOX SYSTEM_PATHS Sandbox SandboxSupport",
        "process.environment": "search_path",
        "process.escape_trial": "try_to_escape",
        "process.launch": "ProcessResult",
        "process.live_process": "LiveProcess",
        "process.owner": (
            "Owner check_conversation_id format_time is_alive new_id process_exists "
            "this_person this_process"
        ),
        "process.private_home": "CacheFolders SCRATCH fill_home find_tool_variables",
        "process.privileges": "forbid_inspection",
        "process.sandbox": "landlock_can_hide probe_sandboxes",
        "process.sandbox_view": "SandboxView find_git_places",
        "process.supervision": "KernelLimits ProcessBounds WARDENS limit_command",
        "process.toolchain": "RUST",
        "snapshot.store": "Snapshot SnapshotStore",
        "tree.changelog": "CHANGE_ID ChangeEntry Changelog",
        "tree.delivery": "Delivered Delivery DeliveryTerms Denied deliver_answer",
        "tree.path_lookup": "PathLookup",
        "tree.recovery": "Tree open_tree",
        "tree.removal": "is_remainder remove_tree sweep_remainders",
        "tree.root": "Root",
        "tree.state": "TreeState",
        "tree.undo": "restore_snapshot undo_change undo_group",
        "tree.writer": "Purpose Writer new_change_id",
    },
    modules=(
        "git.commits git.merge process.command process.environment process.owner "
        "process.private_home process.sandbox process.toolchain tree.recovery"
    ),
)
