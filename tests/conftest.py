"""One profile for all property tests: what they find must not depend on how busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("coilclaw", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coilclaw")
