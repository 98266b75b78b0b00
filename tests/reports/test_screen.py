"""Progress that a terminal shows while a run measures."""

import errno
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.console import Console

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.child.answers import CellProof, Window
from vebench.child.request import Recording
from vebench.engine.runner import CellFinished, Event, Outcome, ProofDone, ProofStarted, WindowDone
from vebench.plan.cells import Cell, CellPython, Plan
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.reports.console import OurConsole, RunScreen

SECOND = 10**9
WINDOWS = tuple(Window(SECOND, rows + 10, 10) for rows in (3280, 3290, 3270, 3280))
MOTION = re.compile(r"\r(?:\x1b\[2K|\x1b\[1A)*")
CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def make_cell(backend: str, workers: int, skip: str | None = None) -> Cell:
    task = Task("ALE/Pong-v5", "atari", 4)
    return Cell(task, BackendChoice(backend), workers, 1, Shape(workers, workers, 1, 1), (0,), skip=skip)


@pytest.fixture
def plan() -> Plan:
    cells = (make_cell("shm-sync", 2), make_cell("gym-async", 256, "needs 34 GiB"), make_cell("null", 1))
    return Plan(RunSpec(("Pong",), (1, 2), windows=4), cells)


def events_of(plan: Plan) -> Iterator[Event]:
    """Yield the runner's events for the plan."""
    first, skipped, null = plan.cells
    for window in WINDOWS:
        yield WindowDone(first, window)
    yield CellFinished(first, Outcome("ok", None, None, WINDOWS))
    yield CellFinished(skipped, Outcome("skipped", skipped.skip))
    yield CellFinished(null, Outcome("failed", "killed:\nsignal 9", None, WINDOWS[:1]))


def console_of(*, terminal: bool, width: int = 100, file: io.StringIO | None = None) -> Console:
    return OurConsole(file=file or io.StringIO(), force_terminal=terminal, width=width, height=30, color_system=None)


def shown(plan: Plan, events: Iterable[Event], *, terminal: bool, width: int = 100, **before: int) -> str:
    console = console_of(terminal=terminal, width=width)
    with RunScreen(console, plan, **before) as view:
        for event in events:
            view.show(event)
    return console.file.getvalue()


def bar(plan: Plan, events: Iterable[Event], **before: int) -> str:
    """Return the last bar that was drawn, without what moves the cursor."""
    text = shown(plan, events, terminal=True, **before)
    drawn = [CODE.sub("", part).strip("\n") for part in MOTION.split(text)]
    return [part for part in drawn if part][-1].strip("━╸╺ ")


LINES = [
    "[11/13]    13,120 frames/s  ALE/Pong-v5, shm-sync, 2 workers",
    "[12/13]            skipped  ALE/Pong-v5, gym-async, 256 workers: needs 34 GiB",
    "[13/13]             failed  ALE/Pong-v5, null, 1 worker: killed: signal 9",
]


def test_each_cell_is_one_line_which_a_terminal_keeps(plan: Plan) -> None:
    assert shown(plan, events_of(plan), terminal=False, width=20, done=10).splitlines() == LINES
    text = shown(plan, events_of(plan), terminal=True, done=10)
    assert all(text.count(f"{line}\n") == 1 for line in LINES)


def test_a_reason_why_cells_are_skipped_costs_one_line() -> None:
    cells = [make_cell("envpool-sync", workers, "not installed: envpool") for workers in (1, 2, 4)]
    cells.append(make_cell("gym-async", 256, "needs 34 GiB"))
    plan = Plan(RunSpec(("Pong",), (1, 2)), tuple(cells))
    events = [CellFinished(cell, Outcome("skipped", cell.skip)) for cell in cells]
    assert [line[:5] for line in shown(plan, events, terminal=False).splitlines()] == ["[1/4]", "[4/4]"]


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
def test_a_screen_that_cannot_be_written_is_quiet_and_ends_nothing(
    plan: Plan, error: OSError, *, terminal: bool
) -> None:
    console = console_of(terminal=terminal, file=Gone(error))
    with RunScreen(console, plan) as view:
        for event in events_of(plan):
            view.show(event)
    assert console.quiet


def test_the_bar_has_the_windows_and_the_best_rate_so_far(plan: Plan) -> None:
    events = list(events_of(plan))
    assert bar(plan, []) == "0 of 8 windows"
    assert bar(plan, events[:2]) == "2 of 8 windows, best so far 13,140 frames/s: shm-sync with 2 workers"
    assert bar(plan, events, before=20, later=5).startswith("24 of 48 windows")
    first = plan.cells[0]
    faster = [WindowDone(make_cell("gym-sync", 1), Window(SECOND, 9000, 0))]
    assert "36,000 frames/s: gym-sync with 1 worker" in bar(plan, [*events[:4], *faster])
    for end in (CellFinished(first, Outcome("failed", "boom")), ProofDone(first, CellProof("different"))):
        assert "best" not in bar(plan, [*events[:4], end])


@pytest.mark.parametrize("error", [None, GeneratorExit(), KeyboardInterrupt()])
def test_the_cursor_comes_back_and_the_bar_goes(plan: Plan, error: BaseException | None) -> None:
    console = console_of(terminal=True)
    with suppress(KeyboardInterrupt, GeneratorExit), RunScreen(console, plan):
        if error is not None:
            raise error
    text = console.file.getvalue()
    assert text.endswith("\x1b[1A\x1b[2K")
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_names_from_outside_cannot_steer_the_terminal() -> None:
    cell = replace(
        make_cell("\x1b[2Jx\nmine:Class", 1),
        task=Task("\x1b]0;a\x07\u202eb", "atari", 4),
        interpreter=CellPython("\x9bA"),
    )
    plan = Plan(RunSpec(("Pong",), (1,)), (cell, replace(cell, repeat=1)))
    events: list[Event] = [WindowDone(cell, WINDOWS[0])]
    events += [CellFinished(cell, Outcome("failed", "boom\x1b[1m\n::error::x"))]
    text = shown(plan, events, terminal=True)
    assert not re.search(r"\x1b(?!\[(\?25[lh]|2K|1A))|[\x07\x9b\u202e]", text)
    assert "\n::error" not in text


@pytest.mark.parametrize("verdict", ["identical", "different"])
def test_other_work_that_is_found_in_a_cell_is_a_line(plan: Plan, verdict: str) -> None:
    first = plan.cells[0]
    recorded = replace(first, job=Recording("1.rows", 1))
    ended = CellFinished(recorded, Outcome("ok", None, None, WINDOWS))
    events: list[Event] = [ended, ProofStarted(first)]
    assert bar(plan, events).startswith("0 of 8 windows, comparing rows with the reference")
    events.append(ProofDone(first, CellProof(verdict, fault="rewards are clipped")))
    _, *lines = shown(plan, events, terminal=False).splitlines()
    assert len(lines) == (verdict == "different")
    assert all(line.endswith("different work while it was measured: rewards are clipped") for line in lines)
