"""Uneven steps and resets: predictions of settings whose times are known by hand, and the mix of a cell's steps."""

from dataclasses import replace

import pytest

from vebench.analysis.unevenness import cheaper, predicted
from vebench.child.answers import CellProof, StepCosts, Timed

EVEN = Timed(100, 10, 10, 5, 10, step_ns=(10,), reset_ns=(10,))


def test_even_steps_leave_nothing_to_gain() -> None:
    assert predicted(EVEN, 2, 2) == pytest.approx((0.0, 0.0, 1.0, 1.0), abs=0.001)


def test_nothing_is_predicted_from_unknown_times() -> None:
    for unknown in (Timed(100, 10, 10, 5, 10), replace(EVEN, step_ns=(0, 0)), replace(EVEN, reset_ns=())):
        assert predicted(unknown, 2, 2) is None


def test_whole_batches_wait_for_the_slower_of_two_steps_and_partial_ones_hardly() -> None:
    found = predicted(replace(EVEN, step_ns=(1, 9)), 2, 2)
    assert found is not None
    # Of two steps of 1 or 9, the longer takes 7 on average, and both together 10.
    assert found.waiting == pytest.approx(1 - 5 / 7, abs=0.01)
    assert 1.15 < found.partial <= 1.41
    one_process = predicted(replace(EVEN, step_ns=(1, 9)), 1, 2)
    assert one_process is not None
    assert (one_process.waiting, one_process.partial) == pytest.approx((0.0, 1.0), abs=0.02)


RESETS = replace(EVEN, step_ns=(10,), reset_ns=(100,), lengths=(10,))


@pytest.mark.parametrize(
    ("reset", "cpu", "processes", "rows", "ahead"),
    [
        (100, 0, 1, 1, 2.0),  # ten steps take as long as the reset, which only waits
        (100, 100, 1, 1, 1.0),  # it takes the CPU from the steps
        (100, 0, 2, 8, 2.0),  # four environments of each process end together, and steps take as long as their resets
        (400, 0, 1, 1, 1.25),  # the spare is late
    ],
)
def test_resets_are_hidden_as_far_as_they_wait(reset: int, cpu: int, processes: int, rows: int, ahead: float) -> None:
    found = predicted(replace(RESETS, reset_ns=(reset,), idle_ns=(reset - cpu) // 10), processes, rows)
    assert found is not None
    assert found.resets == pytest.approx(reset / (100 + reset))
    assert found.ahead == pytest.approx(ahead, rel=0.02)


def proof(*costs: tuple[int, int, int, int, int]) -> CellProof:
    return CellProof("identical", costs=tuple(StepCosts(*each) for each in costs))


def test_the_steps_of_a_cell_are_cheaper_if_slow_environments_answer_less_often() -> None:
    found = cheaper(proof((100, 100, 0, 300, 30), (100, 100, 0, 300, 30), (100, 4, 4, 20_000, 200)))
    # 4 of 204 steps, and one of three environments. The mean times are 686 and 6867.
    assert all(figure in found for figure in ("3 environments", "2.0%", "33.3%", "10%"))


def test_slow_steps_that_all_environments_have_alike_make_no_difference() -> None:
    # One step of four is slow, by chance more often in the environment that answered less often.
    assert cheaper(proof((100, 52, 11, 4900, 8400), (100, 48, 14, 5700, 8700))) == ""
    assert cheaper(proof((9, 7, 0, 300, 0), (9, 3, 2, 13_400, 9300))) == ""
    assert cheaper(proof((9, 1, 0, 300, 0), (9, 1, 1, 20_000, 0))) == ""
    assert cheaper(proof((100, 50, 12, 5000, 1200))) == ""
    assert cheaper(None) == ""
