"""``vebench study exchange``: it finds the break-even that is there, and says so where noise hides it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.studies import CPUS, ask, paced, world_of

if TYPE_CHECKING:
    from support.commands import Command
    from support.studies import Seconds

    from vebench.plan.cells import Cell

CALL = 2e-6  # what the loop takes for each step besides
IN_ONE = ("for-loop", "gym-sync", "threads")  # threads, since the lock is held


def step(cell: Cell) -> float:
    found = re.search(r"-(\d+)us-", cell.task.id)
    return CALL + (int(found[1]) * 1e-6 if found else 3e-6)


def with_hand_over(**hand_over: float) -> Seconds:
    """Return how long a batch takes if backends hand over in so many seconds, and others are as the loop is."""

    def seconds(cell: Cell) -> float:
        name = cell.backend.name.replace("-", "_")
        together = CPUS if name in hand_over else 1
        return cell.shape.batch_size * step(cell) / together + hand_over.get(name, 0.0)

    return seconds


def break_even(hand_over: float, environments: int) -> float:
    """Return at which step time a hand-over takes as long as it saves."""
    return hand_over / (environments * (1 - 1 / CPUS))


@pytest.mark.parametrize("envs", [1, 8])
def test_the_break_even_of_each_backend_is_found_within_its_interval(vebench: Command, envs: int) -> None:
    taking = {"shm_sync": 120e-6 * envs, "gym_async": 900e-6 * envs}
    world = world_of(paced(with_hand_over(**taking)))
    answer = ask(vebench, "exchange", "--envs-per-worker", str(envs), world=world)
    assert answer.status == 0
    for name, hand_over in taking.items():
        label = name.replace("_", "-")
        for column, true in (
            ("break-even", break_even(hand_over, CPUS * envs)),
            ("hand-over", hand_over),
            ("at a time", CPUS),
        ):
            found = answer.place(label, column)
            assert found["low"] <= true <= found["high"], (label, column, found)
            assert found["high"] / found["low"] < 1.25
    size = "4 workers" if envs == 1 else "4 workers x 8 envs"
    assert answer.headline.startswith(f"With {size}, a plain loop is faster where a step takes less than ")
    assert answer.headline.endswith(", and shm-sync where it takes longer.")
    assert re.search(r"\d µs \([\d.]+ to [\d.]+\)", answer.headline)


def test_every_size_has_its_own_break_even_in_the_headline(vebench: Command) -> None:
    answer = ask(vebench, "exchange", world=world_of(paced(with_hand_over(shm_sync=200e-6))))
    assert answer.headline.count("a plain loop is faster") == 2
    assert "With 4 workers, " in answer.headline
    assert "With 4 workers x 8 envs, " in answer.headline


def test_what_gains_nothing_is_never_faster_and_its_gain_is_bounded(vebench: Command) -> None:
    world = world_of(paced(with_hand_over(shm_sync=200e-6), noise=0.001))
    answer = ask(vebench, "exchange", "--envs-per-worker", "8", world=world)
    assert answer.place("threads", "break-even")["text"] == "never faster"
    (line,) = (line for line in answer.data["why"] if "shm-sync from" in line)
    assert re.search(r"threads at no step time up to [\d.]+ .s, where it reaches [01]\.\d+x \(0\.9\d to 1\.0\d\)", line)


def test_what_hands_over_at_no_cost_is_faster_at_every_step_time(vebench: Command) -> None:
    world = world_of(paced(with_hand_over(shm_sync=0.0)))
    answer = ask(vebench, "exchange", "--envs-per-worker", "8", world=world)
    always = r"With 4 workers x 8 envs, shm-sync is faster than a plain loop from the shortest step on, [67]\.\d+ µs\."
    assert re.fullmatch(always, answer.headline)


def test_noise_that_hides_all_differences_leaves_the_question_open(vebench: Command) -> None:
    world = world_of(paced(with_hand_over(shm_sync=200e-6), noise=1.5))
    answer = ask(vebench, "exchange", "--envs-per-worker", "8", world=world)
    assert (answer.status, answer.data["decided"]) == (3, False)
    assert answer.headline.startswith("Not decided: ")
    assert any(line.startswith("shm-sync, 4 workers x 8 envs: ") for line in answer.data["undecided"])


def test_on_one_cpu_nothing_pays(vebench: Command) -> None:
    def seconds(cell: Cell) -> float:
        return cell.shape.batch_size * step(cell) + 40e-6 * (cell.backend.name not in IN_ONE)

    answer = ask(vebench, "exchange", world=world_of(paced(seconds, noise=0.001), cpus=1))
    assert answer.status == 0
    assert (
        "With 1 worker x 8 envs, no backend gains over a plain loop, at no step time up to 1.00 ms." in answer.headline
    )


def test_an_environment_of_the_users_is_measured_beside_and_told_what_to_take(vebench: Command) -> None:
    world = world_of(paced(with_hand_over(shm_sync=200e-6, gym_async=900e-6), noise=0.001))
    answer = ask(vebench, "exchange", "--env", "CartPole", "--envs-per-worker", "1", world=world)
    assert answer.place("shm-sync", "break-even")["low"] > 5e-6
    (line,) = (line for line in answer.data["why"] if "CartPole" in line)
    assert re.match(
        r"A step of CartPole takes [45]\.\d+ µs in a loop; with 4 workers, the best of the others is ", line
    )
    assert "shm-sync" not in line
