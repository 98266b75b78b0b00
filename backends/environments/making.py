"""Makes the environments of a task, the same for every backend."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from vebench.backends.environments.suites import SUITES, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    import gymnasium

    from vebench.backends.interface import Task


def make(task: Task, **variant: int) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. Raises what Gymnasium raises if there is none or a package is missing.

    It can be sent to another process as ``functools.partial(make, task)``. ``variant`` is passed on to the suite's own
    function, for an environment that is not as every backend has it.
    """
    if task.module is not None:
        importlib.import_module(task.module)
    environment: gymnasium.Env[Any, Any] = load(SUITES[task.suite].make)(task, **variant)
    keep_opencv_to_one_thread()
    return environment


def keep_opencv_to_one_thread() -> None:
    """Let OpenCV, if it is loaded, start no pool of threads: it would in every process, however many there are."""
    if (opencv := sys.modules.get("cv2")) is not None:
        opencv.setNumThreads(1)


def faulty_variants(task: Task, environment: gymnasium.Env[Any, Any]) -> Mapping[str, Mapping[str, int]]:
    """Return the variants whose observations faulty backends are known to return, as ``make`` takes them, by fault."""
    target = SUITES[task.suite].faulty_variants
    variants: Mapping[str, Mapping[str, int]] = {} if target is None else load(target)(environment)
    return variants
