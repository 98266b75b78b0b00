"""Pages as JSON for other programs. All JSON that users get is written here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vebench.analysis.findings import Finding
from vebench.analysis.statistics import Estimate

if TYPE_CHECKING:
    from vebench.reports.page import DataPage


def render(page: DataPage) -> str:
    """Return the data of ``page``; what does not apply is null."""
    return dump(page.data)


def dump(data: object) -> str:
    """Return ``data`` as JSON, estimates and findings as objects. Raises ValueError for a number that is not finite."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    return "".join(f"{_escaped(line)}\n" for line in text.split("\n"))


def _escaped(line: str) -> str:
    """Return the line with all escaped that a terminal or the log of a CI service could act on.

    Half of a surrogate pair, as in a file name that is no UTF-8, is, too: it cannot be encoded.
    """
    if not line.isprintable():
        line = "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)
    return line.replace("##", "#\\u0023")


def _plain(value: object) -> dict[str, float | str | None]:
    # Key by key: a field that they may get in the program is not yet part of the format.
    if isinstance(value, Estimate):
        return {"median": value.median, "low": value.low, "high": value.high}
    if isinstance(value, Finding):
        return {"code": value.code, "message": value.message, "remedy": value.remedy}
    raise TypeError(f"no JSON for {value!r}")
