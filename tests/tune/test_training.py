"""``vebench tune --for ALGORITHM --library LIBRARY``: what is measured, recommended, printed and kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.fakes import FakeClock, FakeStart, Script
from support.paced import paced, world_of

from vebench.child.actions import TAPED
from vebench.child.answers import Failure, UpdateTimes
from vebench.child.request import Updating
from vebench.commands.session import World
from vebench.engine.runner import CellError
from vebench.machine.host import Host
from vebench.plan import cells, verdicts
from vebench.plan.cells import Cell
from vebench.plan.grammar import LearnerStep, parse_learner
from vebench.plan.spec import RunSpec
from vebench.results import store
from vebench.tune import race

STEP = 50e-6
SETTLED = 6  # the passes of a race that is decided early
OVERHEAD = {"gym-async": 1e-3, "shm-sync": 200e-6, "shm-async": 100e-6, "fast-sync": 150e-6}


def batch_seconds(cell: Cell) -> float:
    """Return what a batch takes: steps on as many CPUs as the backend uses, and what handing over takes."""
    at_once = min(len(cell.cpus), cell.shape.processes * cell.shape.threads)
    return OVERHEAD.get(cell.backend.name, 2e-3) + STEP * cell.shape.batch_size / at_once


def world(start: FakeStart | None = None, cpus: int = 4, learned: Script = ()) -> World:
    """Return a world in which updates take ``learned``, by default 10, 6 and 7 ms with 1, 2 and 4 threads."""

    def script(cell: Cell, spec: RunSpec) -> Script:
        return learned if learned and isinstance(cell.job, Updating) else paced(batch_seconds)(cell, spec)

    return replace(world_of(script, cpus, start), clock=FakeClock(0.02))


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cells, race):
        monkeypatch.setattr(module, "importable", lambda _name: True)


OURS = ("-e", "CartPole", "-b", "gym-async,shm-sync,fast-sync", "--batch", "16")


def tuned(vebench: Command, *arguments: str, on: World | None = None) -> dict[str, Any]:
    done = vebench("tune", *arguments, "-f", "json", world=on or world())
    assert done.status == 0, done
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_training_is_compared_with_the_usual_backend(vebench: Command) -> None:
    found = tuned(vebench, *OURS, "--for", "ppo", "-o", "tuned.jsonl")
    assert (found["chosen"]["backend"], found["chosen"]["num_envs"]) == ("fast-sync", 16)
    # A step takes 350 us / 16 to sample, or 1,200 us / 16, and 10 updates of 6 ms for 64 steps to learn.
    learning, ours, usual = 10 * 6e-3 / 64, 350e-6 / 16, 1200e-6 / 16
    training = found["training"]
    assert training["steps_per_second"]["median"] == pytest.approx(1 / (ours + learning), rel=0.01)
    assert training["over_usual"]["median"] == pytest.approx((usual + learning) / (ours + learning), rel=0.01)
    for one in training.values():
        assert one["low"] < one["median"] < one["high"]
    assert found["learning"]["sampling"] == pytest.approx(ours / (ours + learning), rel=0.02)
    assert found["left_out"] == []
    spec = store.read(Path("tuned.jsonl")).header.spec
    assert (spec.policy.label, spec.algorithm) == ("mlp:64x64[threads=2]", "ppo")
    assert spec.learner is not None
    assert replace(spec.learner, error=0.0) == LearnerStep(0.06, 64, 2, (0.1,))
    assert "torch.set_num_threads(2)" in found["code"]
    place = ("backend", "options", "workers", "envs_per_worker")
    rows = json.loads(vebench("report", "tuned.jsonl", "--all", "-f", "json").out)
    (row,) = (row for row in rows if all(row[key] == found["chosen"][key] for key in place))
    assert row["sampling_share"] == pytest.approx(found["learning"]["sampling"], rel=0.02)


def test_a_machine_that_becomes_slower_after_the_race_does_not_change_the_ratio(vebench: Command) -> None:
    drift = paced(lambda cell: batch_seconds(cell) * (1.3 if cell.repeat >= SETTLED else 1))
    start = FakeStart()
    on = replace(world_of(drift, 4, start), clock=FakeClock(0.02))
    found = tuned(vebench, *OURS, "--learner", "350us", on=on)
    passes = [cell.repeat for cell, _ in start.started if cell.key.place == found["chosen"]["setting"]]
    assert passes == list(range(SETTLED + 4))
    over = found["training"]["over_usual"]["median"]
    assert over == pytest.approx((1.3 * 1200 + 350) / (1.3 * 350 + 350), rel=0.02)


def test_the_usual_backend_is_measured_on_all_cpus_and_with_its_own_verdict(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_surveyed", lambda: ())
    tuned(vebench, "-e", "CartPole", "-b", "for-loop", "--for", "ppo", "--batch", "16", "-o", "tuned.jsonl")
    usual = [cell for cell in store.read(Path("tuned.jsonl")).cells if cell.backend == "gym-async"]
    assert {(len(cell.cpus), cell.num_envs, cell.verdict) for cell in usual} == {(4, 16, "unverified")}


def test_the_usual_backend_has_cpus_that_the_race_keeps_off(vebench: Command) -> None:
    start = FakeStart()
    on = world(start)
    idle = on.read_host()
    racing = replace(idle, cpus_allowed=(3,))

    def read_host() -> Host:
        return racing if any(cell.job is None for cell, _ in start.started) else idle

    tuned(vebench, *OURS[:2], "-b", "shm-sync", "--for", "ppo", "--batch", "16", on=replace(on, read_host=read_host))
    usual = {cell.cpus for cell, _ in start.started if cell.backend.name == "gym-async"}
    assert usual == {(0, 1, 2, 3)}


def test_a_report_has_no_program_if_the_library_cannot_use_the_fastest_backend(vebench: Command) -> None:
    asked = ("-e", "CartPole", "-b", "for-loop", "--batch", "16", "--for", "ppo", "--library", "sb3")
    assert "from stable_baselines3 import PPO" in tuned(vebench, *asked, "-o", "tuned.jsonl")["code"]
    reported = vebench("report", "tuned.jsonl")
    assert reported.status == 0, reported
    rows = json.loads(vebench("report", "tuned.jsonl", "-f", "json").out)
    assert max(rows, key=lambda row: row["frames_per_second"]["median"])["backend"] == "gym-async"
    assert "stable_baselines3" not in reported.out


def test_resume_keeps_the_algorithm_the_library_and_the_learner(vebench: Command) -> None:
    asked = ("-e", "CartPole", "--for", "ppo", "--library", "sb3", "-o", "tuned.jsonl")
    start = FakeStart()
    vebench("tune", *asked, "--budget", "3s", world=world())
    found = tuned(vebench, "--resume", "tuned.jsonl", on=world(start))
    assert "from stable_baselines3 import PPO" in found["code"]
    assert found["learning"]["learner"]["seconds"] == 0.06
    assert not any(isinstance(cell.job, Updating) for cell, _ in start.started)


def test_a_library_gets_only_what_it_takes(vebench: Command) -> None:
    found = tuned(vebench, "-e", "CartPole", "--library", "sb3", "--for", "ppo", "--batch", "16")
    names = {"for-loop", "shm-sync", "fast-sync", "sb3-dummy", "sb3-subproc"}
    assert {one["backend"] for one in found["tried"]} <= names
    left_out = {one["backend"] for one in found["left_out"]}
    assert "shm-async" in left_out
    assert not left_out & {"gym-async", "for-loop", "shm-sync"}, "these are measured"
    assert found["chosen"]["backend"] == "fast-sync"
    # AsyncVectorEnv is measured in any case.
    assert found["training"]["over_usual"]["median"] == pytest.approx(1.055, rel=0.01)
    alone = tuned(vebench, "-e", "CartPole", "--library", "cleanrl", "--batch", "16")
    assert (alone["learning"], alone["training"]) == (None, None)
    assert {one["backend"] for one in alone["tried"]} >= {"gym-async", "shm-sync", "envpool-sync"}


@pytest.mark.parametrize(
    ("batch", "workers", "rate"),
    [
        # Three workers make 6 steps in 200 us, 30,000/s, and two in 250 us, 24,000/s.
        (("6",), {2, 3}, 24_000),
        (("4", "--pin", "compact[reserve=2]"), {1, 2}, 20_000),  # reserved CPUs are the learner's
    ],
)
def test_a_learner_that_works_meanwhile_gets_cpus_of_its_own(
    vebench: Command, batch: tuple[str, ...], workers: set[int], rate: float
) -> None:
    # 640 rows take 32 ms with one thread, and 16 ms with two: 20,000 or 40,000 steps/s.
    learned = [UpdateTimes("mlp:64x64", ((32_000_000,) * 6, (16_000_000,) * 6))]
    asked = ("-e", "CartPole", "-b", "shm-async", "--for", "impala", "--batch", *batch)
    found = tuned(vebench, *asked, on=world(learned=learned))
    assert {one["workers"] for one in found["tried"]} == workers
    assert found["chosen"]["workers"] == 2
    assert found["training"]["steps_per_second"]["median"] == pytest.approx(rate, rel=0.02)
    assert found["learning"]["sampling"] == 1
    assert "torch.set_num_threads(2)" in found["code"]


def test_the_learners_error_counts_if_the_numbers_of_threads_differ(vebench: Command) -> None:
    # The learner is slower than all samplers. It has two CPUs besides two workers, and one besides AsyncVectorEnv.
    two, one = (150_000_000, 170_000_000) * 3, (320_000_000,) * 6
    asked = ("-e", "CartPole", "-b", "shm-async", "--for", "impala", "--batch", "6")
    found = tuned(vebench, *asked, on=world(learned=[UpdateTimes("mlp:64x64", (one, two))]))
    assert found["learning"]["learner"]["threads"] == 2
    over = found["training"]["over_usual"]
    assert over["median"] == pytest.approx(2, rel=0.01)
    assert over["high"] / over["low"] > 1.1


def test_a_stated_learner_wins(vebench: Command) -> None:
    found = tuned(vebench, *OURS, "--for", "ppo", "--learner", "350us")
    assert found["learning"]["sampling"] == pytest.approx(0.5, abs=0.01)


def test_without_torch_neither_policy_nor_learner_is_measured(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "importable", lambda _name: False)
    start = FakeStart()
    found = tuned(vebench, *OURS, "--for", "ppo", "-o", "tuned.jsonl", on=world(start))
    assert found["learning"] is None
    assert [cell.job.seconds for cell, _ in start.started if isinstance(cell.job, Updating)] == [0.0]
    assert store.read(Path("tuned.jsonl")).header.spec.policy == TAPED


@pytest.mark.parametrize("learned", [CellError("its process was killed"), Failure("MemoryError: no memory")])
def test_the_page_says_why_updates_could_not_be_timed(vebench: Command, learned: CellError | Failure) -> None:
    done = vebench("tune", *OURS, "--for", "ppo", world=world(learned=[learned]))
    assert done.status == 0
    assert (learned.reason if isinstance(learned, Failure) else str(learned)) in done.out


def test_a_named_policy_keeps_its_threads(vebench: Command) -> None:
    learned = [UpdateTimes("mlp:8", ((9_000_000,) * 6, (6_000_000,) * 6))]
    asked = ("--for", "ppo", "--policy", "mlp:8[threads=1]", "-o", "tuned.jsonl")
    tuned(vebench, *OURS, *asked, on=world(learned=learned))
    spec = store.read(Path("tuned.jsonl")).header.spec
    assert spec.policy.threads == 1
    assert spec.learner is not None
    assert spec.learner.threads == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--for", "ppo", "-b", "shm-async"), "--backend shm-async: PPO needs whole batches in order"),
        (("--for", "ppo", "--async", "ok"), "--async ok: PPO needs whole batches in order"),
        (("--for", "impala", "--library", "sb3"), "--for impala: Stable-Baselines3 has only ppo, a2c, dqn, sac"),
        (("--library", "sb3", "-b", "envpool-sync"), "--backend envpool-sync: Stable-Baselines3 takes"),
        (("--for", "sac"), "--for sac: SAC needs continuous actions"),
    ],
)
@pytest.mark.parametrize("torch", [True, False])
def test_what_does_not_fit_is_one_line_and_status_2(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], complaint: str, torch: bool
) -> None:
    monkeypatch.setattr(race, "importable", lambda _name: torch)
    on = world(learned=[UpdateTimes("tape", (), "SAC needs continuous actions")])
    done = vebench("tune", "-e", "CartPole", *arguments, world=on)
    assert done.status == 2
    assert complaint in done.refusal


def test_a_measured_learner_is_written_as_it_is_read() -> None:
    for step in (LearnerStep(5e-05), LearnerStep(0.06, 64, 2, (0.1,), 0.021), LearnerStep(0.1, 640, 1, overlaps=True)):
        assert parse_learner(step.label) == step
    both = LearnerStep(0.01, 640, 4, (0.04, 0.02), 0.02, overlaps=True)
    assert [both.on(cpus).seconds for cpus in (0, 1, 2, 3, 4, 9)] == [0.04, 0.04, 0.02, 0.02, 0.01, 0.01]
    assert replace(both, overlaps=False).on(1).seconds == 0.01
