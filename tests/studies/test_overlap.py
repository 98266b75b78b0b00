"""``vebench study overlap``: waiting for all against halves in turn and whatever is ready, as many of them alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.studies import ask, paced, world_of

from vebench.backends.registry import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.commands import Command

    from vebench.child.window import Window
    from vebench.plan.cells import Cell

SLEEP = ("--policy", "sleep:1ms", "--env", "HalfCheetah")
GAIN = {"none": 1.0, "half": 1.3, "any": 1.1}


def seconds(cell: Cell) -> float:
    return cell.shape.batch_size * 50e-6 / GAIN[find(cell.backend.name).overlap]


def counts(cell: Cell, window: Window) -> Mapping[str, int]:
    waited = window.ns * 6 // 10 if find(cell.backend.name).overlap == "none" else window.ns // 10
    return {
        "waited_ns": waited,
        "inferred_ns": window.ns - waited,
        "copied_ns": 0,
        "latency_p50_ns": 1_000_000,
        "latency_p99_ns": 2_000_000,
        "aged": window.rows,
    }


def test_what_gains_most_is_named_with_its_gain_and_what_there_was_to_gain(vebench: Command) -> None:
    answer = ask(vebench, "overlap", *SLEEP, world=world_of(paced(seconds, noise=0.003, counts=counts)))
    assert answer.status == 0
    assert answer.headline.startswith(
        "With sleep:1ms, two halves in turn (shm-half, HalfCheetah, 4 workers x 8 envs) is "
    )
    assert answer.headline.endswith(" than waiting for all.")
    for row, true in (("shm-half: two halves in turn", 1.3), ("shm-async: whatever is ready", 1.1)):
        ratio = answer.place(row, "ratio")
        assert ratio["low"] <= true <= ratio["high"]
        assert answer.place(row, "at most")["median"] == 1 / 0.6
        assert answer.place(row, "age")["median"] == 1.0


def test_only_cells_with_as_many_environments_alive_are_compared(vebench: Command) -> None:
    answer = ask(vebench, "overlap", *SLEEP, world=world_of(paced(seconds, noise=0.003, counts=counts)))
    assert {place["table"] for place in answer.data["places"]} == {
        "HalfCheetah, 4 workers, 64 environments alive, sleep:1ms"
    }


def test_if_nothing_gains_waiting_for_all_is_as_good(vebench: Command) -> None:
    def worse(cell: Cell) -> float:
        return 1 / seconds(cell) * (50e-6 * cell.shape.batch_size) ** 2

    answer = ask(vebench, "overlap", *SLEEP, world=world_of(paced(worse, noise=0.003)))
    assert answer.headline.startswith(
        "With sleep:1ms, waiting for all is as good or better: two halves in turn (shm-half"
    )


def test_noise_leaves_the_question_open(vebench: Command) -> None:
    answer = ask(vebench, "overlap", *SLEEP, world=world_of(paced(seconds, noise=1.5)))
    assert (answer.status, answer.headline) == (
        3,
        "Not decided: nothing was faster or slower than waiting for all beyond doubt.",
    )
