"""The table that fills while a run measures: one task, a row for each backend, a column for each size.

Its rows, columns and widths follow from the plan, so that nothing moves while it fills.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from rich.text import Text

from vebench.backends.registry import NULL
from vebench.errors import one_line
from vebench.plan.ordering import report_order
from vebench.reports.figures import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.child.window import Window
    from vebench.plan.cells import Cell, Plan

    Size = tuple[int, int]
    RowName = tuple[str, str]

OPEN = "·"  # in a place of which nothing is known yet
NOW = ">"
# The width of a column and the gap before it: with all digits, or rounded where there are many columns.
WIDE, TIGHT = (9, 2), (6, 1)
UNITS = ((999_500, 1e6, "M"), (999.5, 1e3, "k"))  # from which value on, how much it is, and its name


@dataclass
class Place:
    """What is known of a cell over all its passes: the rate of each window, or why there is none."""

    rates: list[float] = field(default_factory=list)
    state: str = OPEN

    def text(self, *, rounded: bool) -> str:
        """Return the median so far, or the state."""
        if not self.rates:
            return self.state
        return _rounded(median(self.rates)) if rounded else number(median(self.rates))


class Board:
    """The places of one task, without what the measuring loop costs. Rows are in the order of reports."""

    def __init__(self, env: str, plan: Plan) -> None:
        cells = [cell for cell in plan.cells if cell.task.id == env and cell.backend.name != NULL]
        ordered = sorted(cells, key=lambda cell: (report_order(env, cell.backend, plan.spec), cell.side))
        self.env = env
        self.rows: dict[RowName, str] = {_row(cell): _label(cell) for cell in ordered}
        self.sizes: list[Size] = sorted({_size(cell) for cell in cells})
        self.places: dict[tuple[RowName, Size], Place] = {(_row(cell), _size(cell)): Place() for cell in cells}

    def note(self, cell: Cell, state: str) -> None:
        """Note what a cell does now, or how it ended. It is shown as long as the cell has no rate."""
        if (place := self.places.get((_row(cell), _size(cell)))) is not None:
            place.state = state

    def add(self, cell: Cell, window: Window) -> None:
        """Add the rate of a window of a cell."""
        place = self.places.get((_row(cell), _size(cell)))
        if place is not None and window.ns:
            place.rates.append(cell.task.frame_skip * window.transitions / (window.ns / 1e9))

    def fits(self, width: int, height: int) -> bool:
        """Return whether it can be shown in ``width`` columns and ``height`` lines. It needs a row."""
        return len(self.rows) <= height - 2 and self._width(TIGHT) <= width

    def _width(self, column: tuple[int, int]) -> int:
        return max(map(len, self.rows.values())) + len(self.sizes) * sum(column)

    def lines(self, width: int, now: Cell | None = None) -> Iterator[Text]:
        """Yield its lines; ``now`` is the cell that is being measured."""
        rounded = self._width(WIDE) > width
        wide, gap = TIGHT if rounded else WIDE
        label = max(map(len, self.rows.values()))
        at_work = (_row(now), _size(now)) if now is not None else None
        yield Text(f"{one_line(self.env)}: frames/s so far, by workers", style="bold")
        heads = (f"{workers}{f'x{envs}' if envs > 1 else ''}" for workers, envs in self.sizes)
        yield Text("".join((" " * label, *(f"{head:>{wide + gap}}" for head in heads))), style="dim")
        for row, name in self.rows.items():
            line = Text(name.ljust(label))
            for size in self.sizes:
                place = self.places.get((row, size))
                text = "" if place is None else place.text(rounded=rounded)
                mark = NOW if (row, size) == at_work else ""
                known = place is not None and place.rates
                line.append(f"{mark + text:>{wide + gap}}", style="bold" if mark else "" if known else "dim")
            yield line


def _row(cell: Cell) -> RowName:
    return cell.backend.label, cell.side


def _size(cell: Cell) -> Size:
    return cell.workers, cell.envs_per_worker


def _label(cell: Cell) -> str:
    return one_line(f"{cell.backend.label}, {cell.side}" if cell.side else cell.backend.label)


def _rounded(value: float) -> str:
    """Return a rate in at most five characters: ``12.9k``, ``1.23M``."""
    for least, unit, name in UNITS:
        if value >= least:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"
