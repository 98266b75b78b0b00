"""The file that a run is measured into, as ``-o`` names it."""

from __future__ import annotations

from pathlib import Path

from vebench.errors import UsageError
from vebench.reports.formats import table
from vebench.results import paths

# By these, too, a user means a report, though no format has them (yet).
OF_DOCUMENTS = frozenset({".html", ".htm", ".pdf"})


def named(text: str) -> Path:
    """Return the run file that ``-o`` names. Raises UsageError for the name of a report, and for one of no file."""
    suffix = Path(text).suffix.lower()
    suffixes = table.suffixes("run")
    if text == "-" or suffix in OF_DOCUMENTS.union(suffixes):
        report = f"report{suffix if suffix in suffixes else '.md'}"
        raise UsageError(
            f"-o {text}: -o is the run file (JSON Lines), such as run{paths.SUFFIX}; "
            f"a table comes from vebench report -o {report}"
        )
    return paths.output(text)
