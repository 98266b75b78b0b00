"""What is shown while a run measures."""

from __future__ import annotations

import errno
import io
import re
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.live import Live

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.child.window import Window
from vebench.engine.events import CellFinished, CellReady, CellStarted, CellWarm, Outcome, RunStarted, WindowDone
from vebench.plan.cells import Cell, Plan
from vebench.plan.spec import BackendChoice, RunSpec
from vebench.reports.console import OurConsole
from vebench.reports.live import screen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vebench.engine.events import Event

SECOND = 10**9
WINDOWS = tuple(Window(SECOND, rows + 10, 10) for rows in (3280, 3290, 3270, 3280))


class Clock:
    """A clock on which ten seconds pass each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


def make_cell(backend: str, workers: int, skip: str | None = None) -> Cell:
    task = Task("ALE/Pong-v5", "atari", 4)
    return Cell(task, BackendChoice(backend), "m:C", workers, 1, Shape(workers, workers, 1, 1), (0,), skip=skip)


@pytest.fixture
def plan() -> Plan:
    cells = (make_cell("shm-sync", 2), make_cell("gym-async", 256, "needs 34 GiB"), make_cell("null", 1))
    return Plan(RunSpec(("Pong",), (1, 2), rounds=4), cells)


def events_of(plan: Plan) -> Iterator[Event]:
    """Yield the runner's events for the plan, ten cells of which were done before."""
    yield RunStarted(plan, 10)
    first, skipped, null = plan.cells
    yield CellStarted(first)
    yield CellReady(first, SECOND)
    for window in WINDOWS:
        yield WindowDone(first, window)
    yield CellFinished(first, Outcome("ok", None, None, 900_000_000, WINDOWS))
    yield CellFinished(skipped, Outcome("skipped", skipped.skip))
    yield CellStarted(null)
    yield CellFinished(null, Outcome("failed", "killed:\nsignal 9", None, SECOND, WINDOWS[:1]))


def shown(events: Iterable[Event], *, terminal: bool, width: int = 100, quiet: bool = False) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=width, height=30, color_system=None, legacy_windows=False
    )
    with screen(console, Clock(), quiet=quiet) as view:
        for event in events:
            view.show(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_each_cell_is_one_plain_line(plan: Plan) -> None:
    assert shown(events_of(plan), terminal=False, width=20).splitlines() == [
        "[11/13] ALE/Pong-v5  shm-sync   2 workers    13,120 frames/s ±4.0%  startup 0.9 s",
        "[12/13] ALE/Pong-v5  gym-async  256 workers  skipped: needs 34 GiB",
        "[13/13] ALE/Pong-v5  null       1 worker     failed: killed: signal 9",
    ]


def test_a_reason_why_cells_are_skipped_costs_one_line() -> None:
    cells = [make_cell("envpool-sync", workers, "not installed: envpool") for workers in (1, 2, 4)]
    cells.append(make_cell("gym-async", 256, "needs 34 GiB"))
    plan = Plan(RunSpec(("Pong",), (1, 2)), tuple(cells))
    events = [RunStarted(plan, 0), *(CellFinished(cell, Outcome("skipped", cell.skip)) for cell in cells)]
    assert shown(events, terminal=False).splitlines() == [
        "[1/4] ALE/Pong-v5  envpool-sync  1 worker     skipped: not installed: envpool",
        "[4/4] ALE/Pong-v5  gym-async     256 workers  skipped: needs 34 GiB",
    ]


def test_the_null_backend_is_shown_by_what_the_loop_costs(plan: Plan) -> None:
    (null,) = plan.cells[2:]
    windows = (Window(SECOND, 2_000_000, 0),) * 4
    events: list[Event] = [RunStarted(plan), CellFinished(null, Outcome("ok", windows=windows))]
    assert "0.50 µs ±4.0% a batch" in shown(events, terminal=False)


class Gone(io.StringIO):
    """A stream whose reader goes away after the first line, or whose disk is full then."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        if "\n" in self.getvalue():
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("terminal", [True, False])
def test_a_screen_that_cannot_be_written_goes_quiet_and_ends_nothing(
    plan: Plan, error: OSError, *, terminal: bool
) -> None:
    before = sys.stdout
    console = OurConsole(file=Gone(error), force_terminal=terminal, width=100, height=30)
    with screen(console, Clock()) as view:
        for event in events_of(plan):
            view.show(event)
    assert console.quiet
    assert sys.stdout is before


def test_quiet_shows_nothing(plan: Plan) -> None:
    assert shown(events_of(plan), terminal=True, quiet=True) == ""


def test_a_terminal_shows_windows_as_they_come_and_what_is_left(plan: Plan) -> None:
    text = shown(events_of(plan), terminal=True)
    assert "shm-sync  2 workers  starting" in text
    assert "shm-sync  2 workers  warming up" in text
    assert "shm-sync  2 workers  window 2/4" in text
    assert "13,120  13,160 frames/s" in text
    assert "10 of 13 cells" in text
    assert "13 of 13 cells, 0 s left" in text


def test_the_time_left_is_as_planned_until_a_cell_has_ended_and_then_as_measured(plan: Plan) -> None:
    events = list(events_of(plan))
    first = shown(events[:1], terminal=True)
    assert "10 of 13 cells, 10 s left" in first  # two cells of 1 s of warm-up and 4 windows of 1 s
    ended = shown([events[0], events[1], events[7]], terminal=True)
    # The clock was read when the cell started, when that was drawn, and when it ended: 20 s. One cell is left.
    assert "11 of 13 cells, 20 s left" in ended


def test_a_terminal_is_drawn_once_for_each_event(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Live] = []
    refresh = Live.refresh

    def counted(live: Live) -> None:
        drawn.append(live)
        refresh(live)

    monkeypatch.setattr(Live, "refresh", counted)
    events = list(events_of(plan))
    shown(events, terminal=True)
    assert len(drawn) <= len(events) + 2  # and when the view is put up and taken away


def test_nothing_is_drawn_in_the_background(plan: Plan) -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    before = threading.active_count()
    with screen(console, Clock()) as view:
        view.show(RunStarted(plan))
        assert threading.active_count() == before


def test_a_long_line_is_cut_off_and_not_wrapped(plan: Plan) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(events_of(plan), terminal=True, width=40))
    assert max(map(len, text.replace("\r", "\n").splitlines())) <= 40
    assert "gym-async  256 workers  sk…" in text
    assert "\n                    left" not in text


def test_the_cursor_comes_back_when_a_run_is_interrupted(plan: Plan) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None, legacy_windows=False)
    view = screen(console, Clock())

    def interrupted() -> None:
        with view:
            view.show(RunStarted(plan))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_windows_that_are_measured_again_do_not_count_beyond_the_last(plan: Plan) -> None:
    first = plan.cells[0]
    windows = [WindowDone(first, window) for window in (*WINDOWS, *WINDOWS[:2])]
    text = shown([RunStarted(plan), CellStarted(first), CellReady(first, SECOND), *windows], terminal=True)
    assert "window 4/4, 2 again" in text


def test_of_cells_that_take_turns_the_one_whose_turn_it_was_is_shown(plan: Plan) -> None:
    first, _, other = (replace(cell, group=0) for cell in plan.cells)
    events: list[Event] = [RunStarted(plan)]
    for cell in (first, other):
        events += [CellStarted(cell), CellReady(cell, SECOND), CellWarm(cell)]
    events += [WindowDone(first, WINDOWS[0]), WindowDone(other, WINDOWS[1]), WindowDone(first, WINDOWS[2])]
    assert "shm-sync  2 workers  warming up, then taking turns" in shown(events[:3], terminal=True)
    assert "null  1 worker  window 1/4\n" in shown(events[:-1], terminal=True).replace("\x1b[1m", "")
    assert "shm-sync  2 workers  window 2/4\n" in shown(events, terminal=True)
    assert "13,120  13,080 frames/s" in shown(events, terminal=True)
