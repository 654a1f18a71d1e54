"""Carry out a contract with several agents, and prove afterwards what happened.

The engine reads a contract, locks its paths, gives every task a worktree, lets a runner perform,
and judges the difference between two snapshots with the gates. Accepted work is merged onto the
baseline, reviewed, tested, merged and sealed. Every move is an event in a journal: a killed run
resumes from it, and verify, replay and re-execute judge the same evidence with the same checks.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "contract_validation": "CheckedContract ContractChecks ContractOptions",
        "contracts.draft": "MAX_RETRIES TIMEOUT_SEC",
        "contracts.roles": "ROLES",
        "contracts.task_contract": "SetupCommand TaskContract",
        "engine.contract_checks": "ContractProposal",
        "engine.contract_stage": "RunRequest",
        "engine.garbage_collection": "CollectionOptions",
        "engine.run": "RoleModel",
        "engine.run_engine": "RunOutcome",
        "engine.run_start": (
            "MAX_CONTRACT_BYTES RunOptions WITH_ARGUMENT is_worked_on make_run_options "
            "make_unknown_run request_stop"
        ),
        "evidence.bundle": "sealed_manifest",
        "evidence.layout": "check_run_id",
        "evidence.progress": "fold_events",
        "evidence.rehydration": "rehydrate_run",
        "hook_check": "HookCheck HookJudgement MAX_PUSH_BYTES find_hook_places",
        "hooks": "GitHook",
        "next_command": "after_listing",
        "orchestrator": "Orchestrator RunSettings WaitTerms write_report write_verification",
        "policy_source": "PolicySource",
        "report.report_page": "render_page",
        "repository_setup": "SetupOptions find_uncommitted set_up_repository",
        "roles.plan_dialogue": "asks_nothing",
        "run_failures": (
            "FailedCommand Failures RunRefusal clean_line read_changed_files read_dropped "
            "read_failed_commands read_failures read_log read_refusals"
        ),
        "run_list": (
            "ListedRun RunStore describe_run is_run_worked_on judge_standing read_events "
            "read_patch read_run"
        ),
        "signing_keys": "new_key read_public_key",
    },
    modules=(
        "engine.garbage_collection engine.merge_stage engine.reexecution evidence.bundle "
        "evidence.layout hooks next_command"
    ),
)
