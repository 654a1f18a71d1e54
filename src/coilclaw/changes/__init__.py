"""Turn a model's answer into the exact bytes that would be written.

``answer`` finds the deliveries in a text; each format has one module that parses it into a
``ChangeSet``. The planner compares the set with the files as they are and returns a ``Plan``, or
refuses all of it: an ambiguous find, an overlap, a changed preimage or a forbidden path. The
package is pure; ``workspace`` writes the plan.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "failure_report": (
            "MAX_LISTED describe_failures explain_failures locate_failure quote_lines"
        ),
        "instructions": "NAMES",
        "operations": (
            "Answer AnswerLimits AnswerOptions ChangeSet DeleteFile Format NoChanges "
            "PathChange PathState Plan Refusal WriteFile"
        ),
        "planner": "name_lines",
    },
    modules="answer failure_report instructions planner unified_diff",
)
