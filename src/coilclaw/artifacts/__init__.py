"""Where trajectories and bundles are kept: a directory or an S3-compatible bucket."""

from typing import Final

from coilclaw.artifacts.opening import default_place, fetch, open_store

PUBLIC_MODULES: Final = ("keys", "local", "opening", "s3", "store", "uploader")

__all__ = ["PUBLIC_MODULES", "default_place", "fetch", "open_store"]
