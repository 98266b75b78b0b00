"""Pages that many tests of reports render."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from support.pages import SIZES, page_of
from support.records import make_cell

from vebench.backends.packages import importable
from vebench.reports import charts
from vebench.reports.document import Chart
from vebench.reports.run import RunPage
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


DRAWN: dict[str, bytes] = {}


@pytest.fixture(scope="module")
def each_figure_once() -> Iterator[None]:
    """Draw equal figures once in this process: drawing takes longer than all that is looked at in most tests."""
    really = charts.drawn

    def drawn(shown: Sequence[Chart], form: Literal["svg", "png", "pdf"], **how: Any) -> bytes:
        key = repr((shown, form, how))
        if key not in DRAWN or not importable("matplotlib"):
            DRAWN[key] = really(shown, form, **how)
        return DRAWN[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "drawn", drawn)
        yield
