"""Perform a turn with our agent, a script, Codex, opencode or any ACP agent.

Every runner takes an assignment and returns its parts and its answer. An external agent runs in
one confinement (sandbox, private home, model route, test tool); its client speaks the agent's
protocol, its mapping turns what it says into our parts and what it asks into our approvals. An
agent that speaks ACP is an entry in a table.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agent_requests": "Denial SANDBOX_RULE TOOL_RULE find_denials",
        "builtin": "BuiltinRunner",
        "code_commit": "CodeCommitRunner",
        "confinement": "environ_of make_home sandbox_of",
        "external_agent": "read_bounded",
        "external_runners": "CODEX_HOME MAX_SCRIPT_BYTES OPENCODE_SETTINGS",
        "process": "ProcessRunner",
        "runner": "AgentRequest Assignment Ending Filesystem Means Network Runner ask_nobody parse",
        "scripted": "ScriptedRunner",
        "transcript": "MAX_SUMMARY_CHARS Timed summarize_part usage_json",
    },
    modules="agent_install agent_program external_runners runner transcript",
)
