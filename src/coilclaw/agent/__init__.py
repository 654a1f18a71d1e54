"""Talk, call tools behind the guard, and keep receipts.

The loop asks a model and passes every tool call to the guard: emergency stop, schema, verdict,
approval, intent written and synced, execution in the sandbox, receipt. Plugins, MCP tools and the
stages of SOPs take the same way. Conversations are kept in memory, receipts in a journal that
anyone can verify.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "approvals": (
            "Approval ApprovalQuestion ApprovalStore ApprovalSuspended LOOK_EVERY_S "
            "MAX_ANSWER_CHARS"
        ),
        "channels.prompts": "TerminalApprover TerminalAsker",
        "channels.terminal": "TerminalChannel run_one_turn",
        "channels.visible": "visible",
        "checkpoints": "CheckpointPlace DEFAULT_EVERY classify_place is_ref",
        "estop": "Estop",
        "guard": "Guard",
        "guarded_calls": "APPROVAL_S GuardedCalls MARGIN_S RemotePeople make_question",
        "handle": "TurnOutcome UndoneTurn check_message not_unicode_error",
        "loop": "AgentLoop MAX_MESSAGE_BYTES",
        "mcp.definitions": "Definition ToolListing count_hidden tool_name",
        "mcp.http_server": "McpApp OnDemand",
        "mcp.pins": "Pins",
        "mcp.server_tools": (
            "ComparedTool approve_tools compare_tools find_server list_server_secrets "
            "list_server_tools make_server_tools"
        ),
        "mcp.settings": "McpServer flaws identity",
        "mcp.stdio_server": "divert_output serve_stdio",
        "mcp.tool_server": "Call REQUEST",
        "memory.rows": "fields",
        "memory.store": "Memory",
        "open_turns": "OpenTurns is_abandoned look_up_call",
        "plugins.installation": "approve_plugin install_plugin list_trials review_plugin",
        "plugins.manifest": "Manifest",
        "plugins.plugin_tool": "offer_tools",
        "plugins.store": "InstalledPlugin PluginStore",
        "receipts.book": "ReceiptBook SETTLES export_receipts intents_path",
        "receipts.home_receipts": (
            "CheckedReceipts HomeReceipts find_signing_key signing_key_path"
        ),
        "receipts.settlement": "SettlementFinding Settling",
        "receipts.verification": "ReceiptVerification verify",
        "settings": "AgentLimits PluginSettings SearchSettings",
        "sop.interruption": "Resolution",
        "sop.run_journal": "Decision SopRun SopRuns stored_inputs",
        "sop.sop_runner": (
            "Attended ExaminedSop SopAgent Sops StageApprover end_rejected_run run_record "
            "sop_record"
        ),
        "tools.builtin": "builtin_tools",
        "tools.command_environment": "search_path",
        "tools.contract": (
            "Arguments ReadyCall Tool ToolContext ToolLimits Validators "
            "failure integer_argument object_schema success text_argument"
        ),
        "tools.file_read": "FileSearch",
        "tools.output": "text_size",
        "turn_undo": "TurnUndo",
    },
    modules="estop history plugins.installation tools.command_environment tools.output",
)
