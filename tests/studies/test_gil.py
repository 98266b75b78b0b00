"""``vebench study gil``: it finds where threads step at the same time, and how much of a step is without the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.studies import CPUS, ask, paced, world_of

if TYPE_CHECKING:
    from support.commands import Command

    from vebench.plan.cells import Cell

STEP = 200e-6
FREE = 0.8  # the share of a step without the lock, where there is one
RELEASING = ("Native", "HalfCheetah")


def seconds(cell: Cell) -> float:
    """Return how long a batch takes: threads wait for each other while one of them holds the lock."""
    whole = cell.shape.batch_size * STEP
    releases = any(name in cell.task.id for name in RELEASING)
    if cell.backend.name == "shm-sync":
        return whole / CPUS
    if cell.backend.name == "threads" and releases:
        return max(whole * (1 - FREE), whole / CPUS)
    return whole


def test_threads_step_at_the_same_time_where_the_lock_is_let_go_and_nowhere_else(vebench: Command) -> None:
    answer = ask(vebench, "gil", world=world_of(paced(seconds, noise=0.003)))
    assert answer.status == 0
    assert answer.headline.startswith("On Busy-200us, Pong threads gain nothing over a loop, ")
    assert ", and on Native-200us, HalfCheetah they step at the same time, 4.0" in answer.headline


def test_how_much_of_a_step_is_without_the_lock_is_a_lower_bound_of_the_truth(vebench: Command) -> None:
    answer = ask(vebench, "gil", "--env", "HalfCheetah", world=world_of(paced(seconds, noise=0.003)))
    row = "HalfCheetah, 4 workers x 8 envs"
    bound = answer.place(row, "without the lock, at least")["median"]
    assert 0.7 < bound <= FREE
    ratio = answer.place(row, "threads over processes")
    assert ratio["low"] < 1.0 < ratio["high"]


def test_that_a_python_without_the_lock_was_left_out_is_said_with_the_command_that_compares_one(
    vebench: Command,
) -> None:
    answer = ask(vebench, "gil", "--env", "HalfCheetah", world=world_of(paced(seconds)))
    assert "free-threaded" in answer.data["why"][-1]
    assert "vebench compare --a python3.13 --b python3.13t" in answer.data["why"][-1]


def test_noise_that_hides_what_threads_do_leaves_the_question_open(vebench: Command) -> None:
    answer = ask(vebench, "gil", "--env", "Ant", world=world_of(paced(seconds, noise=2.0)))
    assert answer.status == 3
    assert answer.headline == "Not decided: the data do not say whether threads step at the same time."
    assert "whether they step at the same time is not decided" in answer.data["undecided"][0]


def test_on_one_cpu_nothing_can_be_said(vebench: Command) -> None:
    answer = ask(vebench, "gil", "--env", "HalfCheetah", world=world_of(paced(seconds), cpus=1))
    assert answer.status == 3
    assert answer.headline == "Not decided: with one CPU, neither threads nor processes can step at the same time."
