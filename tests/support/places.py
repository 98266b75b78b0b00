"""Where the tests' adapters and environments lie, real machines' trees, and another Python to run cells in."""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ADAPTERS = TESTS / "adapters"
ENVIRONMENTS = TESTS / "environments"
TOOLS = TESTS.parent / "tools"
EXAMPLES = TESTS.parent / "docs" / "examples"
DUMPS = Path(os.environ.get("VEBENCH_TOPOLOGIES", TESTS.parents[1] / "shared" / "topologies"))

OLDEST_PYTHON = Path(sys.prefix) / "oldest" / "bin" / "python"  # made by support/oldest_python.py
NO_OLDEST_PYTHON = "no Python 3.10 with numpy alone: make test makes one if it finds a Python 3.10"
