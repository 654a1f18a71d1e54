"""The settings by which a real Codex speaks with our scripted model server."""

from __future__ import annotations

CODEX_CONFIG = """
model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "Scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 1
stream_max_retries = 1
"""
