"""Edit, build and repair until the build passes or the attempts are used up.

The query and the code roll-up become a prompt; the model's answer is applied through the same
planner and writer as ``coilclaw apply``; the build runs; its failure becomes the next prompt, at
most three times. Every prompt, answer and build is kept in the log of the workflow.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "build": "Build",
        "interrupts": "Interrupts",
        "project": "BUILD CODEBASE Project set_up",
        "run_log": "RunLog",
        "session": "CommitOptions Committed find_known_secrets run_commit",
        "workflow": "CommitOutcome CommitRun REPAIRS",
    },
    modules="rollup",
)
