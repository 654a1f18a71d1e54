"""Listen: the HTTP API, the OpenAI-compatible endpoint, MCP over HTTP, environments and metrics.

A request passes admission (host, size, rate), authentication and the schema of its endpoint before
a handler sees it; long work streams events. Handlers call the agent, runs and environments that
``app`` hands in. The package is the only one with asynchronous code of its own.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "clients": "ROLES",
        "environment.server": "FORM_BYTES open_env_gateway token_file",
        "gathered_memory": "GatheredMemory",
        "http.event_stream": "Feed",
        "http.listener": "check",
        "metrics": "Metrics",
        "runs.served_runs": "open_served_runs",
        "runs.served_sops": "ServedSops",
        "served_agent": "ServedAgent make_client_call",
        "server": "Gateway",
        "settings": "GatewaySettings",
        "systemd": "ServiceStatus Systemd Unit program",
        "tokens": "KnownClients StoredToken TokenStore parse_expiry",
    },
    modules="operator_token",
)
