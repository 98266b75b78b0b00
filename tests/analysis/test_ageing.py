"""Environments whose steps cost more the more they have made: cells of other ages are no rivals, and it is said."""

import json
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest
from remembering import Remembering
from support.commands import Command, lines
from support.fakes import SECOND, FakeStart, fake_world

from vebench.analysis.windows import trend
from vebench.child.answers import Answer, Done, Layout, Ready, Warm, Window
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec

OVERHEAD = {"for-loop": 0.0, "gym-sync": 20e-6, "shm-sync": 30e-6}  # seconds of a row
ASKED = ("-w", "1", "--envs-per-worker", "1,16", "-b", ",".join(OVERHEAD), "--quick", "-o", "run.jsonl")


def measured(remembers: float) -> Callable[[Cell, RunSpec], list[Answer]]:
    """Return the script of cells that step such environments on a clock of their own."""

    def script(cell: Cell, spec: RunSpec) -> list[Answer]:
        spent = [0.0]

        def spend(seconds: float) -> None:
            spent[0] += seconds + OVERHEAD[cell.backend.name]

        envs = [Remembering(remembers, spend) for _ in range(cell.shape.num_envs)]
        batches = 0

        def step_for(seconds: float) -> Window:
            nonlocal batches
            before, begun = batches, spent[0]
            while spent[0] < begun + seconds:
                batches += 1
                for env in envs:
                    env.step(0)
            span = round((spent[0] - begun) * SECOND)
            return Window(span, (batches - before) * len(envs), 0, steps_before=before)

        step_for(spec.warmup)
        windows = [step_for(spec.duration) for _ in range(spec.windows)]
        built = Layout(**vars(cell.shape), frame_skip=1, affinity=cell.cpus)
        return [Ready(SECOND // 2, built), Warm(), *windows, Done(settled=True)]

    return script


def answered(vebench: Command, remembers: float) -> tuple[str, list[set[str]]]:
    """Return what a run prints, and the codes of each cell but the yardstick."""
    start = FakeStart(dict.fromkeys(OVERHEAD, measured(remembers)))
    found = vebench("run", "-e", "CartPole", *ASKED, world=fake_world(start))
    assert found.status == 0
    cells = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    return found.out, [{one["code"] for one in cell["findings"]} for cell in cells if cell["backend"] in OVERHEAD]


def test_no_cell_wins_because_its_environments_are_younger(vebench: Command) -> None:
    out, codes = answered(vebench, inf)
    assert "no winner" in out
    assert [found & {"ageing", "drifting"} for found in codes] == [{"ageing"}] * 6


def test_an_environment_that_has_settled_has_a_winner(vebench: Command) -> None:
    out, codes = answered(vebench, 100)
    assert "for-loop with 1 worker" in out
    assert not any("ageing" in found for found in codes)


def test_the_slope_of_windows_is_found_with_an_interval_that_holds_it() -> None:
    rng, held = np.random.default_rng(5), 0
    for _ in range(200):
        ages = np.linspace(1000, 4000, 6)
        rates = [rng.lognormal(0, 0.02, len(ages)) * ages**-0.3 for _ in range(3)]
        slope = trend(tuple((at, np.stack((ages, each), axis=1)) for at, each in enumerate(rates)))
        assert slope is not None
        held += abs(slope.log + 0.3) <= slope.error.half_width()
    assert held >= 188


@pytest.mark.parametrize("ages", [(), (10.0,), (10.0, 10.0), (10.0, 20.0)])
def test_there_is_no_slope_of_two_windows(ages: tuple[float, ...]) -> None:
    assert trend(((0, np.array([(age, 1.0) for age in ages]).reshape(-1, 2)),)) is None


def test_windows_say_how_many_batches_were_stepped_before_them(vebench: Command) -> None:
    brief = ("--passes", "1", "--proof", "off", "--duration", "0.05", "--warmup", "0.02", "--windows", "3")
    asked = ("-e", "remembering:Remembering", "-w", "1", "-b", "for-loop", "-q", "-o", "run.jsonl")
    assert vebench("run", *asked, *brief).status in (0, 3)
    (cell,) = (one for one in lines(Path("run.jsonl"), "cell") if one["backend"] == "for-loop")
    ages = [window["steps_before"] for window in cell["windows"]]
    steps = [window["rows"] for window in cell["windows"]]
    assert all(later >= age + rows for age, rows, later in zip(ages, steps, ages[1:], strict=False))
