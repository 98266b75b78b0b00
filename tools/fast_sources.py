"""Prints what our own classes stand for, with the packages installed here: ``python tools/fast_sources.py``.

Each line is a file and its SHA-256, as ``backends/fast/verified.py`` has them. A digest that is not there yet is
marked. Before it is added, the class must be verified with it: read what has changed, then repeat the survey.
"""

from __future__ import annotations

import sys

from vebench.backends.environments.suites import SUITES
from vebench.backends.fast.classes import class_of
from vebench.backends.fast.guard import digest
from vebench.backends.fast.verified import SOURCES


def main() -> int:
    """Print every source once; return 1 if one is new."""
    classes = [class_of(env_id) for suite in SUITES.values() for env_id in suite.tasks]
    sources = sorted({source for ours in classes if ours is not None for source in ours.sources})
    new = [source for source in sources if digest(source) not in SOURCES.get(source, ())]
    for source in sources:
        print(f'    "{source}": "{digest(source)}",{" # new" if source in new else ""}')
    return bool(new)


if __name__ == "__main__":
    sys.exit(main())
