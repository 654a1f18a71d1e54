"""Read the configuration and wire the product together.

``config`` turns TOML into the settings of each package and reports all problems in one pass. The
other modules build the agent, the guard, runs, traces and the gateway from those settings. This
package and ``cli`` are the only ones that read the environment.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agent_runtime": "People Runtime describe open_memory open_runtime",
        "config.load": "FILE_NAME closest examine_config load_config",
        "config.edit": "PlannedEdit",
        "config.values": "Config",
        "doctor": "examine examine_runs",
        "drivers": ("open_orchestrator open_receipts open_sop_runs open_sops open_tracing"),
        "gateway_server": "make_gateway_settings open_gateway",
        "home": "find_home open_config open_desk",
        "policy": "Policy describe_missing",
        "setup": "Choices KINDS init name_of try_provider",
        "telemetry.logs": "Logs VARIABLE configure",
        "tools": "builtin_names collect_tools list_allowed_tools make_redactor open_plugins",
    },
    modules="config.edit config.sample config.show setup",
)
