"""Where the tests' adapters and environments lie, and another Python to run cells in."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ADAPTERS = TESTS / "adapters"
ENVIRONMENTS = TESTS / "environments"
TOOLS = TESTS.parent / "tools"
EXAMPLES = TESTS.parent / "docs" / "examples"

OLDEST_PYTHON = Path(sys.prefix) / "oldest" / "bin" / "python"  # made by support/oldest_python.py
NO_OLDEST_PYTHON = "no Python 3.10 with numpy alone: make test makes one if it finds a Python 3.10"
