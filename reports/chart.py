"""The neutral model of a figure: what is drawn and what it means, not how. Pages build it, formats draw it.

It is a leaf, like ``document``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vebench.analysis.statistics import Estimate

# measured: points with intervals, which a line joins. bound: the same of a row that no backend can beat. ideal: what
# would be if each worker added as much as the first. forecast: what a model expects where nothing was measured.
Role = Literal["measured", "bound", "ideal", "forecast"]


@dataclass(frozen=True)
class Series:
    """One line of a figure: its points, by rising ``x``. ``name`` is in the key."""

    name: str
    points: tuple[tuple[float, Estimate], ...]
    role: Role = "measured"


@dataclass(frozen=True)
class Mark:
    """A place on the horizontal axis where something begins, such as oversubscription: in few words."""

    x: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Lines over a common horizontal axis. Both axes are logarithmic; with ``linear``, the vertical one is not.

    ``group`` is what it is of, such as a task: documents show what is of one group together. ``kind`` is one word for
    what it shows, such as ``scaling``: with the group it names the figure. A linear axis begins at zero.
    """

    group: str
    kind: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    linear: bool = False
