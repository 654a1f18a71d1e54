"""What an environment file imports to declare its suites; the code is in ``traces``."""

from coilclaw.traces.environments.authoring import *  # noqa: F403
