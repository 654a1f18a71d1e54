"""Listen: the HTTP API, the OpenAI-compatible endpoint, MCP over HTTP, environments and metrics.

A request passes admission (host, size, rate), authentication and the schema of its endpoint before
a handler sees it; long work streams events. Handlers call the agent, runs and environments that
``app`` hands in. The package is the only one with asynchronous code of its own.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agent": (
            "ApprovalPending ChainState DraftedText FinishedTurn Part ToolAnswered "
            "ToolRequested TurnTerms"
        ),
        "clients": "Client ROLES ToolCounter WatchedProvider client_of recalling",
        "environment.server": "FORM_BYTES open_env_gateway token_file",
        "gathered_memory": "GatheredMemory",
        "http.event_stream": "Feed",
        "http.listener": "check",
        "metrics": "Metrics",
        "runs.run_workers": "Archive RunStart RunWorkers Working archive_run",
        "server": "Gateway",
        "settings": "GatewaySettings",
        "tokens": "KnownClients StoredToken TokenStore parse_expiry",
    },
    modules="operator_token",
)
