"""Charts drawn with matplotlib: as SVG for documents and HTML pages, and as PNG and PDF.

The same charts give the same bytes. All text is drawn as it is: nothing in a name means a formula, or a style.
"""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING

from vebench.errors import UsageError
from vebench.reports import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from vebench.reports.chart import Chart

SETTINGS: Mapping[str, object] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it
    "font.size": 9.0,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "vebench",
    "pdf.fonttype": 42,  # letters that can be selected and searched
}
# Without dates, and without the version of the library.
METADATA: Mapping[str, Mapping[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
DOTS_PER_INCH = 150


def missing() -> str:
    """Return why nothing can be drawn here and what to do, in a line; empty if figures can be drawn."""
    return needed.missing("figures", needed.MATPLOTLIB)


def svg(charts: Sequence[Chart], *, inline: bool = False) -> str:
    """Return ``charts``, at least one, as one SVG: a row for each group, a column for each of its charts.

    Its colours follow the reader's scheme, light or dark. It is a file of its own; ``inline``, it is an element for an
    HTML page: without ids and without a ground, and its style touches nothing else. Raises UsageError if matplotlib is
    missing.
    """
    picture = _file(charts, "svg", ground=not inline).decode()
    from vebench.reports.plotting import scalable  # noqa: PLC0415 - imported on use: only SVG is parsed and written

    return scalable.finished(picture, charts, inline=inline)


def png(charts: Sequence[Chart]) -> bytes:
    """Return ``charts``, at least one, as a picture on light ground. Raises UsageError if matplotlib is missing."""
    return _file(charts, "png", ground=True)


def pdf(charts: Sequence[Chart]) -> bytes:
    """Return ``charts``, at least one, as a page of its size. Raises UsageError if matplotlib is missing."""
    return _file(charts, "pdf", ground=True)


def _file(charts: Sequence[Chart], form: Literal["svg", "png", "pdf"], *, ground: bool) -> bytes:
    """Return the file of this form that matplotlib writes. Raises UsageError if it is missing."""
    if reason := missing():
        raise UsageError(reason)
    from matplotlib import style  # noqa: PLC0415 - as above

    from vebench.reports.plotting.figure import figure  # noqa: PLC0415 - as above

    out = BytesIO()
    # What the user has set for figures of his own must not change these.
    with warnings.catch_warnings(), style.context(["default", dict(SETTINGS)]):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # it is drawn as a box, and SVG has the letter itself
        figure(charts, ground=ground).savefig(out, format=form, dpi=DOTS_PER_INCH, metadata=METADATA[form])
    return out.getvalue()
