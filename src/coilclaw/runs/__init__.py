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
        "contracts.draft": "MAX_RETRIES TIMEOUT_SEC draft_contract",
        "contracts.manifest": "RunManifest",
        "contracts.policy_set": "FOLDER PolicySet shipped_files",
        "contracts.roles": "PLANNERS ROLES Role",
        "contracts.task_contract": (
            "ExpectedBaseline PackName RuntimeOptions SetupCommand TaskContract parse_document"
        ),
        "engine.contract_checks": (
            "Baseline ContractGates ContractProposal forbidden_edits propose_contract runner_kinds"
        ),
        "engine.contract_stage": "RunRequest",
        "engine.garbage_collection": "CollectionOptions",
        "engine.locks": "Locks",
        "engine.run": "RoleModel RunDependencies",
        "engine.run_engine": "RunEngine RunOutcome",
        "engine.run_start": (
            "MAX_CONTRACT_BYTES MAX_RUN_S RunOptions WITH_ARGUMENT create_run is_worked_on "
            "make_run_options make_unknown_run reopen_run request_stop"
        ),
        "evidence.audits": "VERIFICATION make_checkpoint",
        "evidence.bundle": "json_bytes new_audit sealed_manifest",
        "evidence.export": "export_run",
        "evidence.layout": "OVERRIDE RUNTIME_ROOT RunPlaces check_run_id",
        "evidence.progress": "fold_events",
        "evidence.rehydration": "rehydrate_run",
        "evidence.verification": "VerifyReport verify_run",
        "gates.diff": "binary_among",
        "gates.result": "Violation",
        "gates.scope": "Scope",
        "hook_check": "HookCheck HookJudgement MAX_PUSH_BYTES find_hook_places",
        "hooks": "GitHook",
        "next_command": "after_listing",
        "orchestrator": "Orchestrator RunSettings WaitTerms write_report write_verification",
        "policy_source": "PolicySource UNCLAIMED",
        "report.report_page": "render_page",
        "report.report_reader": "RunReport read_report",
        "repository_setup": "SetupOptions find_uncommitted set_up_repository",
        "roles.plan_dialogue": "asks_nothing record_answer",
        "run_failures": (
            "FailedCommand Failures RunRefusal clean_line read_changed_files read_dropped "
            "read_failed_commands read_failures read_log read_refusals"
        ),
        "run_list": (
            "ListedRun RunStore describe_run is_run_worked_on judge_standing read_events "
            "read_patch read_run"
        ),
        "runtime_exclusion": "IGNORE_FILE add_ignore_line exclude_runtime_root",
        "signing_keys": "new_key read_public_key",
    },
    modules=(
        "contracts.role_contract engine.garbage_collection engine.merge_stage "
        "engine.reexecution evidence.bundle evidence.layout gates.diff hooks next_command"
    ),
)
