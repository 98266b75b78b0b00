"""Where the tests' adapters and environments lie."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ADAPTERS = TESTS / "adapters"
ENVIRONMENTS = TESTS / "environments"
PEERS = TESTS / "peers"
