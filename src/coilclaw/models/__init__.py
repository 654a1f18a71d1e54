"""Ask a model service, whatever its wire format is.

A request enters a provider as messages and tools; the provider's module translates them, one HTTP
client sends them under one deadline, and the answer comes back as the same values from every
service. Retry, fallback, routing and recording wrap a provider and are providers themselves.
A new service is one module and one entry in the table of services.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "endpoint": "ModelEndpoint ProviderSettings",
        "mock": "Mock load_fixture",
        "output_schema": "narrow_schema",
        "provider_chain": "BUSY Falling RELIABLE RETRIED RetryPolicy Retrying Router",
        "recorded_answers": "AnswerRecording Playing",
        "services": "KINDS SERVICES find_usual_variable make_wire",
    },
    modules="event_stream",
)
