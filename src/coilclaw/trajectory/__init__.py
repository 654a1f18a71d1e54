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
    "history",
    "ignoring",
    "opening",
    "places",
    "plan",
    "presence",
    "publishing",
    "replaying",
    "report",
    "reporttext",
    "returning",
    "running",
    "testing",
    "trace",
    "verifying",
)
