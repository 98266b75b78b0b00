"""``vebench study timeout``: where a timeout pays, where it costs, by how much, and what the time went into."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.studies import ask, paced, world_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.commands import Command

    from vebench.child.window import Window
    from vebench.plan.cells import Cell

SLEEP = ("--policy", "sleep:1ms", "--env", "HalfCheetah")


def seconds(cell: Cell) -> float:
    """Return how long a batch takes: a short timeout pays with many environments, and costs with few of them."""
    whole = cell.shape.batch_size * 50e-6
    if cell.backend.options.get("recv_timeout") != 0.0001:
        return whole
    return whole / 1.25 if cell.envs_per_worker > 100 else whole * 1.5


def counts(cell: Cell, window: Window) -> Mapping[str, int]:
    short = cell.backend.options.get("recv_timeout") == 0.0001
    waited = window.ns // 5 if short else window.ns // 2
    return {
        "waited_ns": waited,
        "inferred_ns": window.ns - waited,
        "copied_ns": 0,
        "latency_p50_ns": 1_000_000,
        "latency_p99_ns": 3_000_000,
        "aged": 0,
        **({"batches": max(1, window.rows * 4 // cell.shape.batch_size)} if short else {}),
    }


def test_where_a_timeout_pays_and_where_it_costs_is_found_with_the_amount(vebench: Command) -> None:
    answer = ask(vebench, "timeout", *SLEEP, world=world_of(paced(seconds, noise=0.003, counts=counts)))
    assert answer.status == 0
    assert answer.headline.startswith(
        "A receive timeout pays in 2 and costs in 2 of 12 settings; 8 not decided: at the best it is 2"
    )
    for label, envs, true in (("queue", 400, 1.25), ("queue", 20, 1 / 1.5), ("shm-async[ratio=1", 400, 1.25)):
        row = f"{label},recv_timeout=0.0001]" if "[" in label else f"{label}[recv_timeout=0.0001]"
        ratio = answer.place(row, "ratio", f"4 workers x {envs} envs")
        assert ratio["low"] <= true <= ratio["high"]
    same = answer.place("queue[recv_timeout=0.1]", "ratio", "x 20 envs")
    assert same["text"].endswith("not decided")
    assert same["low"] < 1 < same["high"]


def test_why_is_said_by_the_share_of_time_waiting_the_rows_and_how_uneven_steps_are(vebench: Command) -> None:
    answer = ask(vebench, "timeout", *SLEEP, world=world_of(paced(seconds, noise=0.003, counts=counts)))
    best, worst = answer.data["why"]
    assert "the policy waits 50% of the time, with it 20%" in best
    assert re.search(r"it then acts on (39|40)\d of 1600 rows at a time", best)
    assert "one batch in a hundred takes 3.0 times as long as usual" in best
    assert "slower (" in worst


def test_a_timeout_that_only_costs_pays_nowhere(vebench: Command) -> None:
    def costly(cell: Cell) -> float:
        return cell.shape.batch_size * 50e-6 * (1.3 if "recv_timeout" in cell.backend.options else 1.0)

    answer = ask(vebench, "timeout", *SLEEP, "--envs-per-worker", "20", world=world_of(paced(costly)))
    assert answer.headline.startswith("A receive timeout pays nowhere: it is slower in 6 of 6 settings, at the worst 2")


def test_noise_leaves_the_question_open(vebench: Command) -> None:
    answer = ask(vebench, "timeout", *SLEEP, "--envs-per-worker", "20", world=world_of(paced(seconds, noise=1.5)))
    assert answer.status == 3
    assert answer.headline == "Not decided: no timeout was faster or slower beyond doubt, in 6 settings."
    assert all("not decided: between " in line for line in answer.data["undecided"])
