"""Record long agent runs part by part, travel back in them, and evaluate them.

An environment gives a task, its files and its tests. The recorder asks a runner turn by turn,
writes each part to a journal with a git checkpoint when files changed, and uploads artifacts in
the background. Replay rebuilds the trees of a recording and judges the distinct ones in parallel;
evaluation, statistics and reports read the results.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "archive": "TrajectoryArchive read_trace",
        "artifacts.uploader": "UploadReport",
        "environments.archives": "UploadBounds",
        "environments.catalogue": "EnvironmentPlace",
        "environments.fixture_install": "by_hand",
        "environments.fixtures": "FixtureSet FoundFixture",
        "environments.judge": "DEFAULT_TIMEOUT_S FOLDER Judge open_judge",
        "environments.results": "Case Result",
        "environments.self_check": "FIXTURES SelfCheck SuiteCheck find_compiler",
        "environments.sessions": "DEFAULT_IDLE_S MAX_IDLE_S SessionLimits Sessions",
        "evaluation.bisection": "Bisection bisect",
        "evaluation.evaluation": "Evaluation VERSION evaluate",
        "evaluation.export": "export",
        "evaluation.graph": ("Comparison Graph MILESTONES TrajectoryFigures compare graph_of"),
        "evaluation.graph_pictures": "draw_all",
        "evaluation.recorded_trace": "Recording",
        "evaluation.report": "format_duration format_number html_report render_table",
        "modal_payload": "ModalExtras",
        "modal_sandbox": "ModalBox is_bucket require_sdk",
        "stored_trajectory": "verify_stored",
        "trace_session": "Resumable TraceOptions TraceOutcome Tracing",
        "trajectory.plan": "TracePlaces TrajectoryPlan",
        "trajectory.trace": "PartRecord RecordedTurn SessionEnd Trace",
        "trajectory.verification": "verify_trajectory",
    },
    modules=(
        "artifacts.place environments.catalogue environments.fixture_install "
        "environments.fixtures trajectory.plan"
    ),
)
