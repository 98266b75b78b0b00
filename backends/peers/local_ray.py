"""A Ray for one adapter alone, which leaves nothing behind: not its processes, its logs, or a token."""

from __future__ import annotations

import gc
import os
import secrets
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Its processes wait 15 s for each other, which is too short on a machine that others use, too.
_ATTEMPTS = 3
_OBJECT_STORE_BYTES = 256 << 20  # for the rows of a few batches; it is taken as it is used


@contextmanager
def local_ray(cpus: int) -> Iterator[None]:
    """Start a Ray on this machine, which may use so many CPUs; it ends with the context."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise it writes one into the home folder
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    import ray  # noqa: PLC0415 - imported on use

    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        try:
            with _path_for_others():
                _start(cpus, folder)
            yield
        finally:
            ray.shutdown(wait_for_processes=True)
            gc.collect()  # what is left of its clients are circles, with a thread each


def _start(cpus: int, folder: str) -> None:
    import ray  # noqa: PLC0415 - imported on use

    for attempt in range(_ATTEMPTS):
        try:
            ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=folder,
            )
            break
        except RuntimeError:
            ray.shutdown()
            if attempt == _ATTEMPTS - 1:
                raise


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
