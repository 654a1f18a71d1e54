"""Read the configuration and wire the product together.

``config`` turns TOML into the settings of each package and reports all problems in one pass. The
other modules build the agent, the guard, runs, traces and the gateway from those settings. This
package and ``cli`` are the only ones that read the environment.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agent_runtime": "People Runtime describe open_book open_memory open_runtime",
        "config.load": "FILE_NAME closest examine_config load_config",
        "config.edit": "PlannedEdit",
        "config.values": "Config",
        "contract_checks": "CheckedContract ContractChecks ContractOptions",
        "doctor": "examine examine_runs",
        "gateway_server": "make_gateway_settings open_gateway",
        "home": "find_home open_config signing_key_path",
        "hook_check": "HookJudgement MAX_PUSH_BYTES open_check",
        "mcp_clients": "Compared",
        "policy": "Policy describe_missing",
        "receipt_checks": "CheckedReceipts take_home_checkpoint verify_home",
        "repository_setup": "SetupOptions set_up uncommitted",
        "run_audits": "build_report export take_checkpoint verify write_report",
        "run_orchestrator": "Orchestrator WaitTerms",
        "service.systemd": "ServiceStatus Systemd Unit program",
        "setup": "Choices KINDS init name_of try_provider",
        "sop_runner": (
            "Attended ExaminedSop Sops end_rejected_run open_desk open_runs open_sops "
            "run_record sop_record"
        ),
        "telemetry.logs": "Logs VARIABLE configure",
        "tools": "builtin_names collect_tools list_allowed_tools make_redactor open_plugins",
        "trace_recorder": "Resumable TraceOptions TraceOutcome Tracing",
    },
    modules="config.edit config.sample config.show mcp_clients setup",
)
