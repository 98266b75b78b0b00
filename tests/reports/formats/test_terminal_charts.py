"""Scaling curves on a terminal: right without colour, within the width, and only where there is room."""

from __future__ import annotations

from vebench.analysis.statistics import Estimate
from vebench.reports.chart import Chart, Mark, Series
from vebench.reports.formats.terminal_charts import ROWS, drawn


def line_of(name: str, *rates: float, role: str = "measured") -> Series:
    """Return a series over 1, 2, 4 ... workers."""
    return Series(name, tuple((float(2**power), Estimate(rate)) for power, rate in enumerate(rates)), role)


def chart(*series: Series, marks: tuple[Mark, ...] = (), kind: str = "scaling") -> Chart:
    return Chart("Pong", kind, "Pong: frames/s", "workers", "frames/s", series, marks)


def lines(figure: Chart, width: int = 60) -> list[str]:
    """Return the lines of the only figure."""
    (found,) = drawn([figure], width)
    return [line.plain for line in found]


def places(figure: Chart, letter: str) -> list[tuple[int, int]]:
    """Return row and column of each ``letter``, from the left."""
    rows = lines(figure)[1 : 1 + ROWS]
    found = [(row, column) for row, line in enumerate(rows) for column, mark in enumerate(line) if mark == letter]
    return sorted(found, key=lambda place: place[1])


def test_each_line_has_a_letter_that_the_key_explains() -> None:
    figure = chart(
        line_of("shm-sync", 100, 200), line_of("ceiling", 400, 800, role="bound"), line_of("gym-sync", 90, 80)
    )
    assert lines(figure)[0] == "Pong: frames/s by workers (both axes logarithmic)"
    assert lines(figure)[-1] == "a shm-sync  ^ ceiling  b gym-sync"
    assert [len(places(figure, letter)) for letter in "ab^"] == [2, 2, 2]


def test_the_same_factor_is_the_same_height_and_the_same_breadth() -> None:
    figure = chart(line_of("a", 100, 200, 400, 800))
    (_, first), *others = places(figure, "a")
    assert [row for row, _ in places(figure, "a")] == [6, 4, 2, 0]
    steps = [
        column - before
        for before, column in zip([first, *(c for _, c in others)], [c for _, c in others], strict=False)
    ]
    assert max(steps) - min(steps) <= 1


def test_rates_stand_beside_their_rows_and_workers_below_their_points() -> None:
    text = lines(chart(line_of("a", 1000, 8000)))
    assert [line[:5] for line in text[1 : 1 + ROWS] if line[:5].strip()] == ["8,000", "2,800", "1,000"]
    below = text[1 + ROWS]
    assert [below.index(number) for number in "12"] == [
        column for _, column in places(chart(line_of("a", 1000, 8000)), "a")
    ]
    assert below.endswith(" workers")


def test_points_that_would_lie_on_each_other_stand_side_by_side() -> None:
    figure = chart(*(line_of(name, 100, 100 + 400 * number) for number, name in enumerate(("x", "y", "z"))))
    left = [places(figure, letter)[0] for letter in "abc"]
    assert len({row for row, _ in left}) == 1
    assert [column - left[0][1] for _, column in left] == [0, 1, 2]


def test_more_points_than_fit_beside_each_other_say_so() -> None:
    crowd = [line_of(f"n{number}", *[100.0] * 9) for number in range(12)]
    (found,) = drawn([chart(*crowd, line_of("fast", *[400.0] * 9))], 50)
    assert "+" in "".join(line.plain for line in found)


def test_the_ideal_is_a_line_and_does_not_stretch_the_figure() -> None:
    figure = chart(line_of("a", 100, 150, 200), line_of("ideal", 100, 10_000, 1e6, role="ideal"))
    assert lines(figure)[1][:3] == "200"
    assert "·" in "".join(lines(figure)[1 : 1 + ROWS])
    assert "· ideal" in lines(figure)[-1]


def test_a_mark_is_a_line_of_its_own_that_the_key_explains() -> None:
    figure = chart(line_of("a", 100, 200, 400), marks=(Mark(2.0, "CPUs end"),))
    assert len({column for _, column in places(figure, "|")}) == 1
    assert len(places(figure, "|")) == ROWS - 1  # the curve covers it once
    assert "| CPUs end" in lines(figure)[-1]


def test_a_long_key_is_broken_between_its_entries() -> None:
    figure = chart(*(line_of(f"a-very-long-name-of-a-backend-{number}", 100, 200) for number in range(4)))
    text = lines(figure, 60)
    assert max(map(len, text)) <= 60
    assert [line.split()[0] for line in text[-4:]] == ["a", "b", "c", "d"]


def test_no_figure_is_wider_than_the_terminal_and_none_is_drawn_where_it_shows_nothing() -> None:
    figure = chart(*(line_of(f"b{number}", *(100.0 * 2**power for power in range(9))) for number in range(9)))
    for width in (50, 80, 200):
        assert max(map(len, lines(figure, width))) <= width
    assert list(drawn([figure], 30)) == []
    assert list(drawn([chart(line_of("a", 100))], 80)) == []  # one number of workers is no curve
    assert list(drawn([chart(line_of("a", 1, 2), kind="efficiency")], 80)) == []


def test_a_level_curve_is_drawn() -> None:
    assert [row for row, _ in places(chart(line_of("a", 100, 100)), "a")] == [ROWS // 2] * 2
