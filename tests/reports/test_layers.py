"""The order within reports: the model knows no result, a page no format, and a format of documents no kind of page."""

from __future__ import annotations

import ast
from pathlib import Path

import vebench.reports

FOLDER = Path(vebench.reports.__path__[0])
OF_DOCUMENTS = (
    "terminal*",
    "markdown",
    "latex",
    "figures_alone",
    "shared",
    "registry",
)


def imported_by(*patterns: str) -> set[str]:
    """Return the modules of vebench that these files import, for types only included."""
    trees = [ast.parse(path.read_text()) for pattern in patterns for path in FOLDER.glob(pattern)]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
    return {name for name in names if name.startswith("vebench.")}


def test_the_model_is_a_leaf() -> None:
    assert imported_by("document.py") == {
        "vebench.analysis.findings.Finding",
        "vebench.analysis.findings.Gravity",
        "vebench.analysis.statistics.Estimate",
        "vebench.errors.one_line",
    }


def test_figures_are_drawn_of_charts_alone() -> None:
    modules = ("document", "figures")
    own = tuple(f"vebench.reports.{module}" for module in modules)
    found = [name for name in imported_by("plots.py") if name.startswith("vebench.reports")]
    assert [name for name in found if not name.startswith(own)] == []


def test_a_page_knows_no_format_and_nowhere_to_write() -> None:
    others = ("vebench.reports.formats", "vebench.reports.output", "vebench.reports.console")
    assert [name for name in imported_by("pages/*.py", "document.py", "columns.py") if name.startswith(others)] == []


def test_formats_of_documents_know_no_kind_of_page() -> None:
    found = imported_by(*(f"formats/{name}.py" for name in OF_DOCUMENTS))
    assert [name for name in found if name.startswith("vebench.reports.pages")] == []
