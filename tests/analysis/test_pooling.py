"""How much processes vary, from all cells of a run together."""

from collections.abc import Mapping, Sequence
from math import exp
from random import Random
from statistics import median

import pytest

from vebench.analysis.statistics import Condition, Estimate, Sample, estimate, pooled, ratio
from vebench.plan.cells import CellKey

RATE = 1000.0
OWN, SHIFT = 0.02, 0.03  # standard deviations of log rates: of a process, and of what a pass does to all cells


def key(workers: int) -> CellKey:
    return CellKey("ALE/Pong-v5", "shm-sync", workers, 1)


def sample(*rates: float) -> Sample:
    return Sample(rates, one_process=False, passes=tuple(range(len(rates))))


def simulated(random: Random, repeats: int, spreads: Sequence[float], shift: float = SHIFT) -> dict[CellKey, Sample]:
    """Return cells whose true rate is the same, and whose processes vary by ``spreads``, beside what passes do."""
    moods = [random.gauss(0, shift) for _ in range(repeats)]
    return {
        key(workers): sample(*(RATE * exp(mood + random.gauss(0, spread)) for mood in moods))
        for workers, spread in enumerate(spreads, start=1)
    }


def together(cells: Mapping[CellKey, Sample], **conditions: Condition) -> dict[CellKey, Sample]:
    """Return the pooled samples; cells are calm but for those named ``w`` and their number of workers."""
    return pooled(cells, {cell: conditions.get(f"w{cell.workers}", "undisturbed") for cell in cells})


def known(found: Estimate | None) -> tuple[float, float, float]:
    """Return the half width and the bounds of an estimate that has an interval."""
    return found.half_width, found.low, found.high


def half_width(found: Estimate | None) -> float:
    return known(found)[0]


@pytest.mark.parametrize("repeats", [2, 3])
def test_intervals_of_rates_and_of_speedups_hold_the_true_value_as_often_as_they_say(repeats: int) -> None:
    random = Random(1)
    rates, speedups = [], []
    for _ in range(100):
        base, *cells = together(simulated(random, repeats, [OWN] * 8)).values()
        for cell in cells:
            _, low, high = known(estimate(cell))
            rates.append(low <= RATE <= high)
            _, low, high = known(ratio(cell, base))
            speedups.append(low <= 1 <= high)
    # Cells of a run share the luck of its passes: 100 runs tell a share of 0.95 to within 0.06 or so.
    assert 0.90 <= sum(rates) / len(rates) <= 0.99
    assert 0.92 <= sum(speedups) / len(speedups) <= 0.98


def test_a_noisy_cell_does_not_widen_the_others_much_and_is_wide_itself() -> None:
    random = Random(1)
    calm, beside, noisy = [], [], []
    for _ in range(60):
        seed = random.random()
        for widths, last in ((calm, OWN), (beside, 15 * OWN)):
            found = together(simulated(Random(seed), 3, [*[OWN] * 7, last]))
            widths.append(half_width(ratio(found[key(2)], found[key(1)])))
        noisy.append(half_width(estimate(found[key(8)])))
    assert median(beside) < 1.6 * median(calm)
    assert median(noisy) > 3 * median(beside)


def test_cells_of_unlike_conditions_are_pooled_apart() -> None:
    random = Random(3)
    cells = simulated(random, 3, [0.005] * 4 + [0.1] * 4)
    crowded: dict[str, Condition] = dict.fromkeys(("w5", "w6", "w7", "w8"), "oversubscribed")
    found, calm = together(cells, **crowded), together({key(n): cells[key(n)] for n in range(1, 5)})
    for cell, expected in calm.items():
        ours, theirs = found[cell].pool, expected.pool
        assert (ours.variance, ours.freedom) == (pytest.approx(theirs.variance), theirs.freedom)
    pools = [{one.pool for cell, one in found.items() if (cell.workers > 4) is many} for many in (False, True)]
    assert not pools[0] & pools[1]


def test_where_every_cell_has_a_single_process_nothing_shows_how_processes_vary() -> None:
    cells = {key(n): Sample((RATE, 1.01 * RATE), one_process=True, passes=(0,)) for n in (1, 2, 3)}
    assert together(cells) == cells


def of_backends(random: Random, spreads: Mapping[str, float]) -> dict[CellKey, Sample]:
    """Return three cells of each backend, with its spread of processes."""
    moods = [random.gauss(0, SHIFT) for _ in range(3)]
    return {
        CellKey("ALE/Pong-v5", backend, workers, 1): sample(
            *(RATE * exp(mood + random.gauss(0, spread)) for mood in moods)
        )
        for backend, spread in spreads.items()
        for workers in (1, 2, 4)
    }


def held(runs: Sequence[Mapping[CellKey, Sample]], backend: str, workers: Sequence[int] = (1, 2, 4)) -> float:
    """Return how often the speedups of a backend's cells, which are 1, lie in their intervals."""
    found = []
    for run in runs:
        cells = together(run)
        base = cells[CellKey("ALE/Pong-v5", "for-loop", 1, 1)]
        for size in workers:
            _, low, high = known(ratio(cells[CellKey("ALE/Pong-v5", backend, size, 1)], base))
            found.append(low <= 1 <= high)
    return sum(found) / len(found)


@pytest.mark.parametrize("spread", [0.04, 0.08, 0.27])
def test_the_intervals_of_a_noisy_backend_hold_beside_quiet_ones_and_so_do_theirs(spread: float) -> None:
    random = Random(7)
    spreads = {"for-loop": 0.01, "gym-sync": 0.01, "shm-sync": 0.01, "shm-async": 0.01, "gym-async": spread}
    runs = [of_backends(random, spreads) for _ in range(100)]
    assert held(runs, "gym-async") >= 0.90
    assert 0.92 <= held(runs, "shm-sync") <= 0.995
