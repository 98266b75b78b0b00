"""What of a run a user wants to see: chosen on the command line, obeyed by pages.

It is a leaf. Data for programs is always complete, whatever the view.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """What documents of a run show besides rates, speedups and what is wrong.

    ``columns`` names columns of the data, each shown as a further table of each task. With ``every_finding``, nothing
    is left out for being of less weight: notes, the row that shows what the measuring loop costs, facts in full. With
    ``each_run``, runs that are shown side by side follow one by one. ``published``: figures that others have published
    for these tasks are shown, too, in tables of their own. ``forecast`` is a number of workers to predict rates for,
    None for no prediction.
    """

    columns: tuple[str, ...] = ()
    every_finding: bool = False
    each_run: bool = True
    published: bool = False
    forecast: int | None = None


DEFAULT = View()
