"""Trajectories: recorded runs of any agent, part by part, with the code at every one of them."""

from typing import Final

PUBLIC_MODULES: Final = (
    "bisecting",
    "bundles",
    "checkpoints",
    "comparing",
    "document",
    "evalcache",
    "evaluation",
    "exporting",
    "graphdata",
    "graphdrawing",
    "ignoring",
    "opening",
    "places",
    "plan",
    "publishing",
    "replaying",
    "report",
    "reporttext",
    "running",
    "testing",
    "trace",
    "verifying",
)
