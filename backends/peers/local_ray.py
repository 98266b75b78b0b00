"""A Ray for one adapter alone, which leaves nothing behind: not its processes, its logs, or a token."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def local_ray(cpus: int) -> Iterator[None]:
    """Start a Ray on this machine, which may use so many CPUs; it ends with the context."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise it writes one into the home folder
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    import ray  # noqa: PLC0415 - imported on use

    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        try:
            with _path_for_others():
                ray.init("local", num_cpus=cpus, include_dashboard=False, _temp_dir=folder, logging_level="error")
            yield
        finally:
            ray.shutdown()


@contextmanager
def _path_for_others() -> Iterator[None]:
    """Let processes that start now find what this one finds: vebench, and environments of users."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
