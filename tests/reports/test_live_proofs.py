"""What is shown while backends are compared."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.console import Console

from vebench.backends.entry import Shape
from vebench.backends.setup import Task
from vebench.plan.cells import Cell
from vebench.plan.spec import BackendChoice
from vebench.reports import live
from vebench.reports.live import ProofScreen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def make_cell(backend: str, skip: str | None = None) -> Cell:
    return Cell(Task("ALE/Pong-v5", "atari", 4), BackendChoice(backend), 2, 1, Shape(2, 2, 1, 1), (0,), skip=skip)


CELLS = (make_cell("gym-sync"), make_cell("envpool-async", "not installed: envpool"), make_cell("shm-sync"))
FOUND = ("identical", "unverified (not installed: envpool)", "different (rewards\n\x1b[2J are odd)")


class Clock:
    """A clock on which four seconds pass each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 4.0
        return self.now


def shown(found: Sequence[str], *, terminal: bool) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=100, height=24, color_system=None, legacy_windows=False
    )
    with ProofScreen(console, Clock(), CELLS) as screen:
        screen.say("comparing 20 steps")
        for words in found:
            screen.ended(words)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


LINES = [
    "comparing 20 steps",
    "[1/3] ALE/Pong-v5  gym-sync       identical",
    "[2/3] ALE/Pong-v5  envpool-async  unverified (not installed: envpool)",
    "[3/3] ALE/Pong-v5  shm-sync       different (rewards [2J are odd)",
]


def test_without_a_terminal_each_comparison_is_one_plain_line() -> None:
    assert shown(FOUND, terminal=False).splitlines() == LINES


def test_a_terminal_keeps_these_lines_and_shows_what_is_compared_and_how_long_it_will_take() -> None:
    text = re.sub(r"\x1b\[\??\d*[A-Za-z]|\r", "", shown(FOUND, terminal=True))
    for line in LINES:
        assert f"{line}\n" in text
    assert "ALE/Pong-v5  gym-sync       comparing\n" + " " * 24 + " 0 of 3 comparisons" in text
    # The first took 4 s, one that cannot run takes no time, and one is left.
    assert (
        "ALE/Pong-v5  envpool-async  comparing\n" + "━" * 12 + " " * 12 + " 1 of 3 comparisons, about 4 s left" in text
    )
    assert "ALE/Pong-v5  shm-sync       comparing\n" in text
    assert text.endswith("━" * 24 + " 3 of 3 comparisons\n")


def test_the_time_left_is_not_guessed_before_a_comparison_has_ended() -> None:
    assert "left" not in shown((), terminal=True)


def test_a_fault_in_a_view_ends_no_comparison_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("view\nbroke")

    monkeypatch.setattr(live, "_padded", broken)
    said = "vebench: progress is not shown any more (ValueError: view broke); the comparison goes on"
    for terminal in (True, False):
        text = shown(FOUND, terminal=terminal)
        assert text.endswith(f"{said}\n")
        assert text.count(said) == 1
        assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == terminal
