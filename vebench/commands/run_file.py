"""The run file that ``-o`` names."""

from __future__ import annotations

from pathlib import Path

from vebench.errors import UsageError
from vebench.reports.formats import registry
from vebench.results import paths


def named(text: str) -> Path:
    """Return the run file that ``-o`` names. Raises UsageError for the name of a report, or a name of no file."""
    suffix = Path(text).suffix.lower()
    suffixes = registry.suffixes("run")
    if text == "-" or suffix in suffixes:
        report = f"report{suffix or '.md'}"
        raise UsageError(
            f"-o {text}: -o is the run file (JSON Lines), such as run{paths.SUFFIX}; "
            f"a table comes from vebench report -o {report}"
        )
    return paths.output(text)
