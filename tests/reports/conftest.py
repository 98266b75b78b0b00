"""Pages that many tests of reports render."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.pages import SIZES, page_of
from support.records import make_cell

from vebench.reports.pages.run import RunPage

if TYPE_CHECKING:
    from vebench.results.records import Run


@pytest.fixture(scope="session")
def page(sweep: Run) -> RunPage:
    """Return the page of a run with every outcome that a cell can have."""
    return RunPage.of([("pong.jsonl", sweep)])


@pytest.fixture(scope="session")
def wide() -> RunPage:
    """Return the page of a run with nine worker counts."""
    cells = [make_cell(backend, size, (2300, 2310) * 3) for size in SIZES for backend in ("for-loop", "envpool-sync")]
    return page_of(*cells, file="wide.jsonl")
