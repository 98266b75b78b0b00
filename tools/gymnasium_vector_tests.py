"""Gymnasium's own tests of its vector environments, with ``SharedMemoryVectorEnv`` in place of ``AsyncVectorEnv``.

``python tools/gymnasium_vector_tests.py FOLDER [--caller-steps] [--gymnasium] [PYTEST-OPTION ...]``

``FOLDER`` is a checkout of https://github.com/Farama-Foundation/Gymnasium at the version that is installed: the tests
are not in its packages. ``--caller-steps`` gives the class this argument; ``--gymnasium`` exchanges nothing. Tests of
what is not installed (pygame, Box2D, MoviePy) count as skipped; on a machine without a screen,
``SDL_VIDEODRIVER=dummy`` and ``-k "not Ant"`` leave out what aborts in a renderer.

Prints how many tests pass and fail, and each that fails with the reason that is known here for it.
Exit status: 0 if all that fail are known, 1 if another fails, 2 if none was run.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from functools import partialmethod
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import async_vector_env

from vebench.backends.shared_memory import SharedMemoryVectorEnv

TESTS = ("tests/vector", "tests/wrappers/vector", "tests/envs/registration/test_make_vec.py")
# What fails and may: the name of the test, which may have * in it, and why.
KNOWN = {
    "test_custom_worker_with_semaphore*": "workers are of our own: another `worker` is refused",
    "test_incompatible_custom_worker*": "likewise, whatever its arguments: it is refused in other words",
    "test_async_vector_subenv_error": "expects warnings that a worker is shut down: it is not, and the exception "
    "itself has the environment and its traceback",
    "test_partial_reset_failure*": "a `reset_mask` that does not fit is refused in words of our own",
    "test_reset_timeout_async_vector_env*": "only with caller_steps=True: the caller cannot be timed out in its own",
}


class Outcomes:
    """A plugin of pytest that counts, and keeps the last line of each failure."""

    def __init__(self) -> None:
        self.passed = self.skipped = 0
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = (crash.message if crash else str(report.longrepr)).partition("\n")[0]
            if "DependencyNotInstalled" in message:
                self.skipped += 1
            else:
                self.failed[report.nodeid] = message
        elif report.skipped:
            self.skipped += 1
        elif report.when == "call":
            self.passed += 1


def exchange(arguments: dict[str, Any]) -> None:
    """Let Gymnasium have our class, with these arguments, where it has its own."""
    changed = {"__init__": partialmethod(SharedMemoryVectorEnv.__init__, **arguments)} if arguments else {}
    ours = type(SharedMemoryVectorEnv.__name__, (SharedMemoryVectorEnv,), changed)
    gymnasium.vector.AsyncVectorEnv = async_vector_env.AsyncVectorEnv = ours


def reason(test: str, message: str) -> str | None:
    """Return why a test fails, if that is known."""
    if "have no fixed shape" in message:
        return "spaces whose values have no fixed shape are refused"
    name = test.partition("::")[2].replace("[", "(").replace("]", ")")  # brackets mean something in patterns
    return next((why for known, why in KNOWN.items() if fnmatch.fnmatchcase(name, known)), None)


def main() -> int:
    """Run the tests and print what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--caller-steps", action="store_true")
    parser.add_argument("--gymnasium", action="store_true")
    arguments, options = parser.parse_known_args()
    if not (arguments.folder / TESTS[0]).is_dir():
        parser.error(f"{arguments.folder} has no {TESTS[0]}: it is not a checkout of Gymnasium")
    if not arguments.gymnasium:
        exchange({"caller_steps": True} if arguments.caller_steps else {})
    os.chdir(arguments.folder)
    outcomes = Outcomes()
    quiet = ["-q", "--no-header", "--tb=no", "--disable-warnings", "-p", "no:cacheprovider"]
    named = [option for option in options if Path(option.partition("::")[0]).exists()]
    pytest.main([*quiet, f"--rootdir={Path.cwd()}", *options, *([] if named else TESTS)], plugins=[outcomes])
    unknown = 0
    for test, message in sorted(outcomes.failed.items()):
        why = reason(test, message)
        unknown += why is None
        print(f"{test}\n    {why or f'UNKNOWN: {message[:300]}'}")
    print(
        f"Gymnasium {gymnasium.__version__}: {outcomes.passed} pass, {len(outcomes.failed)} fail, "
        f"{unknown} of them for no reason known here; {outcomes.skipped} are skipped"
    )
    return 2 if not outcomes.passed else int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
