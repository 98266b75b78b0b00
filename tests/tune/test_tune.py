"""``vebench tune``: which settings are tried, which one is recommended, and what it keeps to."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.fakes import FakeClock, FakeStart, Script, steady
from support.paced import paced, world_of

from vebench.analysis import statistics
from vebench.analysis.summary import summarise
from vebench.backends.registry import find
from vebench.child.answers import Done, Proof, Ready, Timed
from vebench.child.request import Judging, Stepping, Timing
from vebench.commands import session
from vebench.commands.session import World
from vebench.engine.runner import CellError
from vebench.plan import verdicts
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.results import store
from vebench.tune import race

STEP = 50e-6
OVERHEAD = {"for-loop": 0.0, "gym-sync": 5e-6, "gym-async": 400e-6, "shm-sync": 20e-6, "shm-async": 30e-6}


def batch_seconds(cell: Cell) -> float:
    """Return what a batch takes: steps on as many CPUs as the backend uses, and what handing over takes."""
    shape = cell.shape
    at_once = min(len(cell.cpus), shape.processes * shape.threads)
    return OVERHEAD.get(cell.backend.name, 1e-3) + STEP * shape.batch_size / at_once


def world(step: float = 0.02, start: FakeStart | None = None, cpus: int = 4) -> World:
    """Return a world of four CPUs in which each look at the clock takes ``step`` seconds."""
    return replace(world_of(paced(batch_seconds), cpus, start), clock=FakeClock(step))


def tuned(
    vebench: Command, *arguments: str, status: int = 0, step: float = 0.02, on: World | None = None
) -> dict[str, Any]:
    done = vebench("tune", "-e", "Acrobot", *arguments, "-f", "json", world=on or world(step))
    assert done.status == status, done
    found: dict[str, Any] = json.loads(done.out)
    return found


OURS = ("-b", "for-loop,gym-async,shm-sync,shm-async")


def test_the_fastest_setting_is_found_after_more_passes_than_slow_ones(vebench: Command) -> None:
    found = tuned(vebench, *OURS, "-o", "tuned.jsonl")
    assert (found["chosen"]["backend"], found["chosen"]["workers"], found["decided"]) == ("shm-sync", 4, True)
    assert found["chosen"]["envs_per_worker"] == 16
    assert "envs = " in "\n".join(found["code"])
    passes = {(one["backend"], one["workers"], one["envs_per_worker"]): one["repeats"] for one in found["tried"]}
    assert passes["shm-sync", 4, 16] > passes["gym-async", 1, 1] == 1
    assert "incomplete" not in vebench("report", "tuned.jsonl").out


def test_what_is_tried_keeps_to_the_constraints(vebench: Command) -> None:
    start = FakeStart()
    asked = ("--pin", "compact[reserve=2]", "--batch", "12", "--async", "no")
    found = tuned(vebench, *OURS, *asked, on=world(start=start, cpus=4))
    assert {one["batch_size"] for one in found["tried"]} == {12}
    assert not any(find(one["backend"]).asynchronous for one in found["tried"])
    assert found["chosen"]["workers"] == 2
    assert {cpu for cell, _ in start.started for cpu in cell.cpus} == {0, 1}


def test_a_setting_that_needs_too_much_memory_is_not_tried_or_not_recommended(vebench: Command) -> None:
    whys = {one["setting"]: one["why"] for one in tuned(vebench, *OURS, "--memory", "120M")["not_tried"]}
    assert "memory" in whys["gym-async:4x16"]

    def script(cell: Cell, spec: RunSpec) -> Script:
        answers = paced(batch_seconds)(cell, spec)
        size = (400 if cell.backend.name == "shm-sync" else 100) << 20
        return [replace(one, peak_rss_bytes=size) if isinstance(one, Done) else one for one in answers]

    large = replace(world_of(script, 4), clock=FakeClock(0.02))
    found = tuned(vebench, *OURS, "--memory", "300M", on=large)
    assert found["chosen"]["backend"] == "shm-async"
    assert any("300 MiB" in one["why"] for one in found["not_offered"])


def test_the_simplest_of_tied_settings_is_recommended(vebench: Command) -> None:
    found = tuned(vebench, "-b", "for-loop,gym-sync", "--batch", "16", "--margin", "10%")
    assert (found["chosen"]["backend"], found["fastest"]["batch_size"]) == ("for-loop", 16)


def alike(cell: Cell) -> float:
    """Return what a batch takes where both of our own do the same."""
    return batch_seconds(cell) - 10e-6 * (cell.backend.name == "shm-async")


def test_the_answer_has_costs_ties_alternatives_and_the_effect_on_training(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_surveyed", lambda: ())
    machine = replace(world_of(paced(alike), 4), clock=FakeClock(0.02))
    asked = ("-b", "for-loop,gym-async,shm-sync,shm-async,envpool-sync", "--learner", "1ms", "-f", "json", "-o", "a.md")
    found = json.loads(vebench("tune", "-e", "CartPole", *asked, world=machine).out)
    chosen = found["chosen"]
    assert (chosen["setting"], chosen["cpus"], chosen["processes"]) == ("shm-sync:4x16", 4, 4)
    assert (chosen["memory_bytes"], chosen["needs"], chosen["envs_of_a_row"]) == (100 << 20, [], 1)
    assert (found["steps"]["step_p50_ns"], found["steps"]["step_p99_ns"]) == (50_000, 90_000)
    assert any(place.startswith("shm-async") for place in found["tied"])
    assert found["training"]["over_usual"]["median"] == pytest.approx((1.2 + 1) / (0.82 + 1), rel=0.05)
    assert found["learning"]["sampling"] == pytest.approx(0.45, abs=0.01)
    assert [one["setting"].split(":")[0] for one in found["not_offered"]] == ["envpool-sync"]
    asynchronous = next(one for one in found["tried"] if one["backend"] == "shm-async")
    assert asynchronous["envs_of_a_row"] == 2
    report = Path("a.md").read_text()
    assert found["headline"] in report
    assert "\n".join(found["code"]) in report
    assert "vebench verify --env CartPole-v1 -b envpool-sync" in report


SLEEPING = "timed:vebench/Sleep-10000us-v0"


def sleeping(work: Script) -> Callable[[Cell, RunSpec], Script]:
    """Return the script of steps of 10 ms that take no CPU, so that processes make them all at once.

    ``work`` is what comparisons answer.
    """

    def script(cell: Cell, spec: RunSpec) -> Script:
        if isinstance(cell.job, Timing):
            return [Timed(100, 10_000_000, 11_000_000, 5, 5_000, 10**7)]
        if isinstance(cell.job, (Stepping, Judging)):
            return work
        return paced(lambda cell: 0.01 if cell.backend.name == "gym-async" else 0.01 * cell.shape.batch_size)(
            cell, spec
        )

    return script


def slept(vebench: Command, work: Script, *more: str, step: float = 0.05) -> tuple[int, dict[str, Any], FakeStart]:
    start = FakeStart()
    machine = replace(world_of(sleeping(work), 2, start), clock=FakeClock(step))
    asked = ("-e", SLEEPING, "-b", "for-loop,gym-async", "--budget", "60s", "-f", "json", *more)
    done = vebench("tune", *asked, world=machine)
    return done.status, json.loads(done.out), start


def test_a_possible_leader_is_compared_before_further_passes(vebench: Command) -> None:
    status, found, start = slept(vebench, [Proof("identical", rows=100, ends=3)])
    assert (status, found["chosen"]["setting"], found["chosen"]["verdict"]) == (0, "gym-async:2x16", "identical")
    cells = [cell for cell, _ in start.started]
    compared = next(number for number, cell in enumerate(cells) if isinstance(cell.job, (Stepping, Judging)))
    assert {cell.repeat for cell in cells[:compared]} == {0}
    assert {cell.backend.name for cell in cells[compared + 1 :] if cell.repeat} == {"gym-async"}
    assert cells[compared].task.arguments["max_episode_steps"] < 100, "100 steps were timed, and no episode's end"


def test_nothing_is_decided_if_a_backend_was_never_tried(vebench: Command) -> None:
    status, found, _ = slept(vebench, [Proof("identical", rows=100, ends=3)], "--budget", "5s")
    assert {one["backend"] for one in found["tried"]} == {"for-loop"}
    assert (status, found["decided"], found["lack"]) == (3, False, None)


@pytest.mark.parametrize("work", [[Proof("identical", rows=100, ends=0)], [CellError("timed out after 20 s")]])
def test_nothing_is_recommended_if_a_faster_setting_could_not_be_compared(vebench: Command, work: Script) -> None:
    status, found, _ = slept(vebench, work)
    assert (status, found["chosen"], found["code"], found["lack"], found["decided"]) == (3, None, [], "faster", False)
    assert found["faster"][0]["setting"] == "gym-async:2x16"
    assert found["faster"][0]["ratio"]["median"] == pytest.approx(32, rel=0.1)


def test_a_faster_setting_that_does_other_work_is_named_in_the_headline(vebench: Command) -> None:
    status, found, _ = slept(vebench, [Proof("different", rows=100, ends=3, fault="actions are ignored")])
    assert (status, found["chosen"]["backend"], found["lack"]) == (0, "for-loop", None)
    assert [one["setting"] for one in found["faster"]][:1] == ["gym-async:2x16"]
    assert ["gym-async:2x16", "does different work"] in [[*one.values()] for one in found["not_offered"]]


def test_nothing_is_recommended_from_a_disturbed_run(vebench: Command) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        return steady(cell, spec, 1000.0 * cell.shape.batch_size, stolen=0.3)

    asked = ("-b", "for-loop,gym-async", "--batch", "16")
    disturbed = replace(world_of(script, 4), clock=FakeClock(0.05))
    found = tuned(vebench, *asked, status=3, on=disturbed)
    assert (found["chosen"], found["code"], found["lack"]) == (None, [], "unusable")
    assert "unusable" in found["headline"]


def test_nothing_is_recommended_if_a_disturbed_setting_may_be_faster(vebench: Command) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        taken = 0.6 if cell.backend.name == "gym-async" else 0.0
        return steady(cell, spec, 1000.0 * (1 - taken) * cell.shape.batch_size, stolen=taken)

    asked = ("-b", "for-loop,gym-sync,gym-async", "--batch", "16")
    found = tuned(vebench, *asked, status=3, on=replace(world_of(script, 2), clock=FakeClock(0.05)))
    assert (found["chosen"], found["code"], found["lack"]) == (None, [], "disturbed")


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_no_setting_is_faster_than_the_recommended_one_beyond_its_interval(vebench: Command, noise: float) -> None:
    machine = replace(world_of(paced(batch_seconds, noise), 4), clock=FakeClock(0.2))
    asked = ("tune", "-e", "Acrobot", *OURS, "--batch", "16", "--budget", "90s", "-f", "json", "-o", "a.jsonl")
    found = json.loads(vebench(*asked, world=machine).out)
    cells = {cell.key.place: cell for cell in summarise(store.read(Path("a.jsonl")))}
    chosen = cells[found["chosen"]["setting"]]
    ratios = [statistics.ratio(cell.sample, chosen.sample) for cell in cells.values()]
    assert [one for one in ratios if one is not None and one.low is not None and one.low > 1] == []


class Taking:
    """A world in which making, resetting and stepping environments takes time, and everything ``load`` times as long.

    Cells that take longer than there is patience are given up. Cells of ``stuck`` backends never start.
    """

    def __init__(self, step: float, reset: float, load: float = 1.0, stuck: tuple[str, ...] = ()) -> None:
        self.step, self.reset, self.load, self.stuck = step, reset, load, stuck
        self.clock = FakeClock(0.001)
        self.start = FakeStart()
        paces = paced(lambda cell: self.step * cell.shape.batch_size / self.at_once(cell) + 1e-4)

        def script(cell: Cell, spec: RunSpec) -> Script:
            takes = math.inf if cell.backend.name in self.stuck else self.load * self.seconds(cell, spec)
            if cell.patience is not None and takes > cell.patience:
                self.clock.now += cell.patience
                return [CellError(f"timed out after {cell.patience:g} s (--budget)")]
            self.clock.now += takes
            if isinstance(cell.job, Timing):
                return [Timed(50, int(self.step * 1e9), int(self.step * 1e9), 5, int(self.reset * 1e9), 10**7)]
            reset_ns = int(self.reset * cell.shape.num_envs * 1e9)
            return [replace(each, reset_ns=reset_ns) if isinstance(each, Ready) else each for each in paces(cell, spec)]

        self.world = replace(world_of(script, 4, self.start), clock=self.clock)

    @staticmethod
    def at_once(cell: Cell) -> int:
        return min(len(cell.cpus), cell.shape.processes * cell.shape.threads) or 1

    def seconds(self, cell: Cell, spec: RunSpec) -> float:
        """Return what a cell takes on a machine that does nothing else."""
        if isinstance(cell.job, Timing):
            return 0.3 + self.reset + max(cell.job.seconds, 20 * self.step) + min(4 * self.reset, 3 + self.reset)
        if isinstance(cell.job, (Stepping, Judging)):
            return 0.5 + 8 * cell.job.steps * self.step
        batch = self.step * cell.shape.batch_size / self.at_once(cell)
        start = 0.4 + self.reset * cell.shape.num_envs / self.at_once(cell)
        return start + max(spec.warmup, 9 * batch) + spec.windows * max(spec.duration, 3 * batch)

    def tune(self, vebench: Command, *arguments: str) -> dict[str, Any]:
        done = vebench("tune", "-e", "Acrobot", *OURS, *arguments, "-f", "json", world=self.world)
        assert done.status in {0, 3}, done
        found: dict[str, Any] = json.loads(done.out)
        return found


@pytest.mark.parametrize(
    ("step", "reset", "load", "best"),
    [
        (0.02, 2.0, 1.0, {"shm-sync", "shm-async"}),
        (0.02, 14.0, 1.0, {"for-loop"}),  # the cheapest setting takes most of the budget
        (50e-6, 1e-4, 8.0, {"for-loop", "shm-sync", "shm-async"}),
    ],
)
def test_the_budget_is_kept_with_slow_steps_and_resets_and_on_a_busy_machine(
    vebench: Command, step: float, reset: float, load: float, best: set[str]
) -> None:
    world = Taking(step=step, reset=reset, load=load)
    found = world.tune(vebench, "--budget", "60s")
    assert world.clock.now <= 62
    assert found["chosen"]["backend"] in best


def test_the_time_of_a_comparison_belongs_to_no_cell(vebench: Command) -> None:
    clock = FakeClock(0.05)

    def script(cell: Cell, spec: RunSpec) -> Script:
        clock.now += 10 * isinstance(cell.job, Stepping)
        return sleeping([Proof("identical", rows=100, ends=3)])(cell, spec)

    asked = ("-e", SLEEPING, "-b", "for-loop,gym-async", "--budget", "60s", "-o", "a.jsonl")
    assert vebench("tune", *asked, world=replace(world_of(script, 2), clock=clock)).status == 0
    assert max(cell.took_ns or 0 for cell in store.read(Path("a.jsonl")).cells) < 10e9


def test_a_backend_that_does_not_start_is_given_up(vebench: Command) -> None:
    world = Taking(step=50e-6, reset=1e-4, stuck=("gym-async",))
    found = world.tune(vebench, "--budget", "60s")
    started = [cell for cell, _ in world.start.started if cell.backend.name == "gym-async"]
    assert len(started) < 4
    whys = [one["why"] for one in found["not_tried"] if one["setting"].startswith("gym-async")]
    assert any("timed out after" in why and "its setting" in why for why in whys)
    assert found["chosen"]["backend"] in {"shm-sync", "shm-async"}
    assert world.clock.now <= 62


def test_resume_continues_a_race(vebench: Command, tmp_path: Path) -> None:
    path = tmp_path / "tuned.jsonl"
    vebench("tune", "-e", "Acrobot", *OURS, "--budget", "3s", "-o", path, world=world(step=0.5))
    before = len(path.read_text().splitlines())
    done = vebench("tune", "--resume", path, "-f", "json", world=world())
    assert (done.status, json.loads(done.out)["decided"]) == (0, True), done
    assert len(path.read_text().splitlines()) > before


def test_by_default_every_peer_is_tried(vebench: Command) -> None:
    found = tuned(vebench, "--budget", "3s", status=3)
    shown = {one["setting"].partition(":")[0] for one in (*found["tried"], *found["not_tried"])}
    assert shown >= {"for-loop", "gym-sync", "gym-async", "shm-sync", "shm-async", "envpool-sync", "envpool-async"}
    assert "null" not in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-e", "Acrobot,CartPole"), "tune answers for one environment, not 2"),
        (("-e", "Acrobot", "--pin", "compact[reserve=4]"), "reserve=4: no CPU is left for workers (4 usable)"),
        (("-e", "Acrobot", "-b", "shm-async", "--async", "no"), "all backends named with -b are asynchronous"),
        (("-e", "Acrobot", "--allow-code"), "applies to --resume only"),
    ],
)
def test_bad_input_is_one_line_and_status_2(vebench: Command, arguments: tuple[str, ...], complaint: str) -> None:
    done = vebench("tune", *arguments, world=world())
    assert done.status == 2
    assert complaint in done.refusal


def test_a_tuning_of_real_processes_has_times_and_a_rate(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_SETTLED", 2)
    monkeypatch.setattr(session, "TIMING_S", 0.2)
    asked = ("-b", "for-loop", "--batch", "2", "--budget", "15s", "-f", "json")
    done = vebench("tune", "-e", "CartPole", *asked)
    found = json.loads(done.out)
    assert (done.status in {0, 3}, found["best"]["num_envs"]) == (True, 2), done.err
    assert found["steps"]["step_p50_ns"] > 0
    assert found["best"]["frames_per_second"]["low"] > 0
