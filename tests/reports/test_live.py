"""What is shown while a run measures."""

import errno
import io
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.console import Console
from rich.live import Live
from support.pages import on_terminal

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.child.answers import CellProof
from vebench.child.request import Recording
from vebench.child.window import Window
from vebench.engine.interface import (
    CellFinished,
    CellReady,
    CellStarted,
    CellWarm,
    Event,
    Outcome,
    ProofDone,
    ProofStarted,
    RunStarted,
    WindowDone,
)
from vebench.plan.cells import Cell, Plan
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.reports import live
from vebench.reports.console import OurConsole
from vebench.reports.live import ProofScreen, RunScreen
from vebench.reports.pages.plan import PlanPage

SECOND = 10**9
WINDOWS = tuple(Window(SECOND, rows + 10, 10) for rows in (3280, 3290, 3270, 3280))


class Clock:
    """A clock on which some seconds pass each time it is read: once for each event."""

    def __init__(self, step: float = 10.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def make_cell(backend: str, workers: int, skip: str | None = None) -> Cell:
    task = Task("ALE/Pong-v5", "atari", 4)
    return Cell(task, BackendChoice(backend), workers, 1, Shape(workers, workers, 1, 1), (0,), skip=skip)


@pytest.fixture
def plan() -> Plan:
    cells = (make_cell("shm-sync", 2), make_cell("gym-async", 256, "needs 34 GiB"), make_cell("null", 1))
    return Plan(RunSpec(("Pong",), (1, 2), windows=4), cells)


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


def console_of(*, terminal: bool, width: int = 100, height: int = 30) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, height=height, color_system=None, legacy_windows=False
    )


def shown(events: Iterable[Event], *, quiet: bool = False, step: float = 10.0, **size: int) -> str:
    console = console_of(**size)
    with RunScreen(console, Clock(step), quiet=quiet) as view:
        for event in events:
            view.show(event)
    return console.file.getvalue()


def test_without_a_terminal_each_cell_is_one_plain_line(plan: Plan) -> None:
    assert shown(events_of(plan), terminal=False, width=20).splitlines() == [
        "[11/13] ALE/Pong-v5  shm-sync   2 workers    13,120 frames/s",
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
    assert "0.50 µs a batch" in shown(events, terminal=False)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("goes_on", ["run", "comparison"])
def test_a_fault_in_a_view_ends_nothing_and_is_said_once(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, goes_on: str, *, terminal: bool
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("view\nbroke")

    monkeypatch.setattr(live, "_result" if goes_on == "run" else "_padded", broken)
    text = shown(events_of(plan), terminal=terminal) if goes_on == "run" else compared(FOUND, terminal=terminal)
    said = f"vebench: progress is not shown any more (ValueError: view broke); the {goes_on} goes on"
    assert text.endswith(f"{said}\n")
    assert text.count(said) == 1
    if terminal:
        assert text.index("\x1b[?25l") < text.rindex("\x1b[?25h") < text.index(said)


def test_a_fault_while_a_view_is_put_up_or_taken_away_ends_no_run(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("broke")

    for name in ("start", "stop"):
        with monkeypatch.context() as patch:
            patch.setattr(Live, name, broken)
            told = shown(events_of(plan), terminal=True)
            assert told.count("progress is not shown any more (ValueError: broke)") == 1


def test_a_fault_in_the_runner_is_not_one_of_the_view(plan: Plan) -> None:
    def faulty() -> Iterator[Event]:
        yield RunStarted(plan)
        raise ValueError("no fault of the view")

    with pytest.raises(ValueError, match="no fault of the view"):
        shown(faulty(), terminal=True)


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
def test_a_screen_that_is_not_written_is_quiet_and_ends_nothing(plan: Plan, error: OSError, *, terminal: bool) -> None:
    before = sys.stdout
    console = OurConsole(file=Gone(error), force_terminal=terminal, width=100, height=30)
    with RunScreen(console, Clock()) as view:
        for event in events_of(plan):
            view.show(event)
    assert console.quiet
    assert sys.stdout is before


def test_quiet_shows_nothing(plan: Plan) -> None:
    assert shown(events_of(plan), terminal=True, quiet=True) == ""


def last(text: str) -> list[str]:
    """Return the lines of the last view that was drawn, without what moves the cursor."""
    drawn = re.split(r"\r(?:\x1b\[2K|\x1b\[1A)*", text)
    views = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", view).rstrip("\n") for view in drawn]
    return [view for view in views if view][-1].splitlines()


def test_a_terminal_shows_what_is_measured_now_and_its_rate_so_far(plan: Plan) -> None:
    events = list(events_of(plan))
    for count, state in (
        (2, "starting"),
        (3, "warming up"),
        (4, "window 1 of 4  13,120 frames/s"),
        (5, "window 2 of 4  13,140 frames/s"),
        (8, "ended: ok"),
    ):
        *_, now, _ = last(shown(events[:count], terminal=True))
        assert now == f"ALE/Pong-v5  shm-sync   2 workers    {state}"


def test_a_terminal_shows_the_best_rate_of_each_backend_so_far_also_that_of_a_warm_up(plan: Plan) -> None:
    cells = [make_cell(*cell) for cell in (("shm-sync", 1), ("shm-sync", 2), ("gym-sync", 2), ("null", 1))]
    one, two, other, null = cells
    started: list[Event] = [RunStarted(Plan(plan.spec, tuple(cells))), CellWarm(one, 200.0), CellWarm(two, 100.0)]
    started += [CellWarm(other, 300.0), CellWarm(null, 1e6)]
    bar = "━" * 24
    assert last(shown(started, terminal=True))[:-2] == [
        f"gym-sync  {bar}  1,200 frames/s  2 workers, warming up",
        f"shm-sync  {bar[:16]}          800 frames/s  1 worker, warming up",
    ]
    windows = ((one, 90), (two, 600), (replace(two, repeat=1), 700))  # passes count together
    measured = [*started, *(WindowDone(cell, Window(SECOND, rows, 0)) for cell, rows in windows)]
    gym = f"gym-sync  {bar[:12]}              1,200 frames/s  2 workers, warming up"
    assert last(shown(measured, terminal=True))[:-2] == [f"shm-sync  {bar}  2,600 frames/s  2 workers", gym]
    for end in (CellFinished(two, Outcome("failed", "boom")), ProofDone(two, CellProof("different"))):
        assert last(shown([*measured, end], terminal=True))[:-2] == [
            f"gym-sync  {bar}  1,200 frames/s  2 workers, warming up",
            f"shm-sync  {bar[:8]}                  360 frames/s  1 worker",
        ]


def test_the_board_names_sides_and_one_of_several_tasks_and_leaves_room_on_a_low_screen(plan: Plan) -> None:
    a, b = (replace(make_cell("shm-sync", 1), side=side) for side in "AB")
    spec = replace(plan.spec, envs=("Pong", "CartPole"))
    events: list[Event] = [RunStarted(Plan(spec, (a, b))), CellWarm(a, 200.0), CellWarm(b, 100.0)]
    task, *rows = last(shown(events, terminal=True))[:-2]
    assert task == "ALE/Pong-v5"
    assert [row.split("  ")[0] for row in rows] == ["shm-sync A", "shm-sync B"]
    assert len(last(shown(events, terminal=True, height=13))) == 3


def test_on_a_terminal_each_cell_that_ends_is_a_line_that_stays(plan: Plan) -> None:
    text = shown(events_of(plan), terminal=True)
    for line in shown(events_of(plan), terminal=False).splitlines():
        assert text.count(f"{line}\n") == 1


def test_the_null_backend_has_no_rate_while_it_is_measured(plan: Plan) -> None:
    null = plan.cells[2]
    assert last(shown([RunStarted(plan), WindowDone(null, WINDOWS[0])], terminal=True))[0].endswith("window 1 of 4")


LEFT = re.compile(r"(\d+) of \d+ windows(?: \(\d+% of the time\))?(?:, about (.*) left)?")


def left(events: Iterable[Event], step: float = 10.0) -> tuple[int, str | None]:
    """Return how many windows are done, and the time left, as a view shows them in the end."""
    found = LEFT.search(last(shown(events, terminal=True, step=step))[-1])
    return int(found[1]), found[2]


def test_the_time_left_is_as_planned_until_something_was_measured(plan: Plan) -> None:
    # Two cells: a start of 1 s and about 0.1 s, a warm-up of 1.6 s, 4 windows of 1 s and what comes before each.
    assert left(list(events_of(plan))[:1]) == (0, "15 s")
    assert "about 15 s, of which 2 s to start cells" in on_terminal(PlanPage(plan), 100)


def test_the_time_left_follows_what_each_step_took(plan: Plan) -> None:
    events = list(events_of(plan))
    assert left(events[:2], step=3.0) == (0, "15 s")
    # The start of the first cell took 3 s, so the other one's will. Two warm-ups and eight windows follow.
    assert left(events[:3], step=3.0) == (0, "16 s")
    # The first window took 3 s: seven others will, and each end takes 0.1 s. That of the first cell took 3 s.
    assert left(events[:4], step=3.0)[1] == f"{3 + 7 * 3 + 1} s"
    assert left(events[:8], step=3.0)[1] == f"{3 + 4 * 3 + 3} s"


@pytest.mark.parametrize("group", [None, 0])
def test_something_is_left_until_the_last_cell_has_ended(plan: Plan, group: int | None) -> None:
    first, _, other = (replace(cell, group=group) for cell in plan.cells)
    events: list[Event] = [RunStarted(Plan(plan.spec, (first, other)))]
    for cell in (first, other):
        events += [CellStarted(cell), CellReady(cell, SECOND), *([CellWarm(cell)] if group is not None else [])]
    # Windows that were disturbed are measured again: more come than were planned.
    for window in (*WINDOWS, *WINDOWS):
        events += [WindowDone(first, window), WindowDone(other, window)]
    events += [CellFinished(cell, Outcome("ok", windows=WINDOWS)) for cell in (first, other)]
    for count in range(1, len(events)):
        assert left(events[:count], step=0.001)[1] not in (None, "0 s")
    assert left(events, step=0.001) == (8, None)


def test_a_cell_that_fails_early_leaves_nothing_of_its_own_to_wait_for(plan: Plan) -> None:
    first, _, null = plan.cells
    events = [RunStarted(plan), CellStarted(first), CellFinished(first, Outcome("failed", "boom"))]
    assert left(events, step=0.001) == (4, "8 s")  # those of the other cell, whose end took as long as that of this one
    events.append(CellFinished(null, Outcome("failed", "boom")))
    assert left(events, step=0.001)[0] == 8


def test_what_until_adds_is_not_part_of_the_time_left(plan: Plan) -> None:
    text = shown([RunStarted(replace(plan, spec=replace(plan.spec, until=0.02)))], terminal=True)
    assert "about 15 s left in these passes" in text


def test_what_follows_in_a_race_counts_from_the_start(plan: Plan) -> None:
    console, (first, *_) = console_of(terminal=True), plan.cells
    with RunScreen(console, Clock(), before=20, later=5) as view:
        for event in (RunStarted(plan, 10), CellFinished(first, Outcome("ok", windows=WINDOWS))):
            view.show(event)
        assert "24 of 48 windows, about" in last(console.file.getvalue())[-1]
    assert "[11/18] ALE/Pong-v5  shm-sync" in console.file.getvalue()


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
    with RunScreen(console, Clock()) as view:
        view.show(RunStarted(plan))
        assert threading.active_count() == before


def test_a_line_that_is_too_long_is_cut_off_and_not_wrapped_but_for_reasons(plan: Plan) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(events_of(plan), terminal=True, width=40))
    assert max(map(len, text.replace("\r", "\n").splitlines())) <= 40
    assert "[11/13] ALE/Pong-v5  shm-sync   2 worke…" in text
    assert "skipped: needs 34 GiB" in " ".join(text.split())


def test_the_cursor_comes_back_and_the_view_goes_also_if_a_run_is_interrupted(plan: Plan) -> None:
    def ended_by(error: BaseException | None) -> str:
        console = console_of(terminal=True)
        with suppress(KeyboardInterrupt, GeneratorExit), RunScreen(console, Clock()) as view:
            view.show(RunStarted(plan))
            if error is not None:
                raise error
        return console.file.getvalue()

    texts = [ended_by(error) for error in (None, GeneratorExit(), KeyboardInterrupt())]
    assert [text.endswith("\x1b[1A\x1b[2K") for text in texts] == [True, True, True]
    assert all(text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l") for text in texts)


def test_windows_that_are_measured_again_do_not_count_beyond_the_last(plan: Plan) -> None:
    first = plan.cells[0]
    windows = [WindowDone(first, window) for window in (*WINDOWS, *WINDOWS[:2])]
    text = shown([RunStarted(plan), CellStarted(first), CellReady(first, SECOND), *windows], terminal=True)
    assert "window 4 of 4, 2 again" in text


def test_of_cells_that_take_turns_the_one_whose_turn_it_was_is_shown(plan: Plan) -> None:
    first, _, other = (replace(cell, group=0) for cell in plan.cells)
    events: list[Event] = [RunStarted(plan)]
    for cell in (first, other):
        events += [CellStarted(cell), CellReady(cell, SECOND), CellWarm(cell)]
    events += [WindowDone(first, WINDOWS[0]), WindowDone(other, WINDOWS[1]), WindowDone(first, WINDOWS[2])]
    states = [last(shown(events[:count], terminal=True))[-2] for count in (4, len(events) - 1, len(events))]
    assert [re.split(" {2,}", state)[1:4] for state in states] == [
        ["shm-sync", "2 workers", "waits for its turn"],
        ["null", "1 worker", "window 1 of 4"],
        ["shm-sync", "2 workers", "window 2 of 4"],
    ]


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_on_a_terminal_without_motion_lines_are_plain(plan: Plan, monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    text = shown(events_of(plan), terminal=True)
    assert "\x1b" not in text
    assert text.startswith("[11/13] ALE/Pong-v5  shm-sync")


def test_names_from_outside_cannot_steer_the_terminal() -> None:
    cell = replace(make_cell("\x1b[2Jx\nmine:Class", 1), task=Task("\x1b]0;a\x07\u202eb", "atari", 4), side="\x9bA")
    plan = Plan(RunSpec(("Pong",), (1,)), (cell, replace(cell, repeat=1)))
    events: list[Event] = [RunStarted(plan), CellStarted(cell), WindowDone(cell, WINDOWS[0])]
    events += [CellFinished(cell, Outcome("failed", "boom\x1b[1m\n::error::x"))]
    text = shown(events, terminal=True)
    assert not re.search(r"\x1b(?!\[(\?25[lh]|2K|1A))|[\x07\x9b\u202e]", text)
    assert "\n::error" not in text
    assert "\x1b" not in shown(events, terminal=False)


def proven(plan: Plan, proof: CellProof) -> list[Event]:
    """Return the runner's events for the first cell of a plan whose cells are proven."""
    first, _, null = plan.cells
    measured = [CellStarted(first), CellReady(first, SECOND), *(WindowDone(first, window) for window in WINDOWS)]
    recorded = replace(first, job=Recording("1.rows", 1))
    ended = CellFinished(recorded, Outcome("ok", None, None, SECOND, WINDOWS))
    once = Plan(replace(plan.spec, proof="auto"), (first, null))
    return [RunStarted(once), *measured, ended, ProofStarted(first, 3.0), ProofDone(first, proof)]


SAME = CellProof("identical", rows=40, ends=3, environments=2, steps=900, of_steps=1000)
OTHER = CellProof("different", fault="rewards are clipped")


def test_while_a_cell_is_proven_the_view_says_so_and_it_is_part_of_the_time_left(plan: Plan) -> None:
    events = proven(plan, SAME)
    proving = Plan(replace(plan.spec, proof="auto"), plan.cells)
    assert "to compare a sample of rows (--proof off" in on_terminal(PlanPage(proving), 200)
    # As planned: two cells, and of one of them a process that starts and makes all steps again.
    assert left(events[:1]) == (0, "17 s")
    *_, state, progress = last(shown(events[:-1], terminal=True, width=150))
    assert "proving that it did the same work, about 3 s at most" in state
    assert "4 of 8 windows, 1 to prove, about" in progress
    assert any("40 rows of 2 environments" in line for line in last(shown(events, terminal=True, width=150)))


def test_other_work_that_is_found_in_a_cell_is_a_line_and_the_same_work_is_none(plan: Plan) -> None:
    assert len(shown(proven(plan, SAME), terminal=False).splitlines()) == 1
    line = shown(proven(plan, OTHER), terminal=False).splitlines()[1]
    assert line == "      ALE/Pong-v5  shm-sync  2 workers  other work while it was measured: rewards are clipped"
    assert "other work while it was measured: rewards are clipped" in shown(proven(plan, OTHER), terminal=True)


COMPARED = (make_cell("gym-sync", 2), make_cell("envpool-async", 2, "not installed: envpool"), make_cell("shm-sync", 2))
FOUND = ("identical", "unverified (not installed: envpool)", "different (rewards\n\x1b[2J are odd)")


def compared(found: Sequence[str], *, terminal: bool) -> str:
    """Return what is shown while backends are compared, on a clock on which each look takes four seconds."""
    console = console_of(terminal=terminal)
    with ProofScreen(console, Clock(4.0), COMPARED) as screen:
        screen.say("comparing 20 steps")
        for words in found:
            screen.ended(words)
    return console.file.getvalue()


def test_each_comparison_is_a_line_that_a_terminal_keeps_above_the_next_and_how_long_that_takes() -> None:
    lines = [
        "comparing 20 steps",
        "[1/3] ALE/Pong-v5  gym-sync       identical",
        "[2/3] ALE/Pong-v5  envpool-async  unverified (not installed: envpool)",
        "[3/3] ALE/Pong-v5  shm-sync       different (rewards [2J are odd)",
    ]
    assert compared(FOUND, terminal=False).splitlines() == lines
    text = re.sub(r"\x1b\[\??\d*[A-Za-z]|\r", "", compared(FOUND, terminal=True))
    for line in lines:
        assert f"{line}\n" in text
    assert "ALE/Pong-v5  gym-sync       comparing\n" + " " * 12 + " 0 of 3 comparisons" in text
    # The first took 4 s, one that cannot run takes no time, and one is left.
    half = "━" * 6 + " " * 6
    assert f"ALE/Pong-v5  envpool-async  comparing\n{half} 1 of 3 comparisons, about 4 s left" in text
    assert "ALE/Pong-v5  shm-sync       comparing\n" in text
    assert text.endswith("━" * 12 + " 3 of 3 comparisons\n")
    assert "left" not in compared((), terminal=True), "no time is guessed before a comparison has ended"
