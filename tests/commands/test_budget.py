"""``run --budget``: plans that do not fit are measured in the order of what they decide, on simulated machines."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from support.commands import Command, lines
from support.simulated import COSTS, GIB, MIB, Costs, Machine, topology_of

pytestmark = pytest.mark.usefixtures("everything_installed")
LARGE = ("run", "-e", "Pong", "-w", "1..256", "-o", "run.jsonl")
SMALL = ("run", "-e", "Pong", "-w", "1..32", "-b", "gym-async,fast-sync", "-o", "run.jsonl")


def passes(path: str = "run.jsonl", status: str = "ok") -> dict[str, dict[int, int]]:
    """Return the number of passes of each size of each backend."""
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for cell in lines(Path(path), "cell"):
        if cell["status"] == status:
            found[cell["backend"]][cell["workers"]] += 1
    return found


def test_a_large_plan_is_over_in_its_budget_and_says_what_it_left_out(vebench: Command) -> None:
    machine = Machine(topology_of(cores=2))
    done = vebench(*LARGE, world=machine.world())
    assert done.status == 0
    assert 510 < machine.clock.now < 630
    found = passes()
    # One CPU steps for-loop, so more environments decide nothing. Every backend is tried up to twice the CPUs.
    assert set(found["for-loop"]) == {1, 2, 4}
    assert all({1, 2, 4} <= set(sizes) for name, sizes in found.items() if name != "yardstick")
    assert max(found["fast-sync"]) > 8
    assert "not run" not in done.out
    assert "left out" in " ".join(done.out.split())
    records = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    assert {record["status"] for record in records} == {"ok"}


def test_counts_that_are_all_far_above_the_cpus_are_measured(vebench: Command) -> None:
    asked = ("run", "-e", "Pong", "-w", "128,256", "-b", "gym-async,fast-sync", "-o", "run.jsonl", "-q")
    assert vebench(*asked, "--budget", "60", world=Machine(topology_of(cores=2)).world()).status == 0
    assert all(128 in passes()[name] for name in ("gym-async", "fast-sync"))


def test_tasks_without_time_are_named(vebench: Command) -> None:
    asked = ("run", "-e", "Pong,Breakout", "-w", "2", "-b", "gym-async,fast-sync", "-o", "run.jsonl")
    done = vebench(*asked, "--budget", "7", world=Machine(topology_of(cores=2)).world())
    (other,) = {"Pong", "Breakout"} - {cell["env"][4:-3] for cell in lines(Path("run.jsonl"), "cell")}
    assert f"Not measured: {other}. Continue with: vebench run --resume run.jsonl" in " ".join(done.out.split())


def test_the_rest_of_a_plan_is_measured_on_request(vebench: Command) -> None:
    machine = Machine(topology_of(cores=2))
    assert vebench(*SMALL, "--budget", "60", "-q", world=machine.world()).status == 0
    assert machine.clock.now < 75
    first = passes()
    more = ("run", "--resume", "run.jsonl", "--budget", "none", "-q")
    assert vebench(*more, world=machine.world()).status == 0
    whole = passes()
    assert 32 not in first["gym-async"]
    assert all(set(whole[name]) == {1, 2, 4, 8, 16, 32} for name in ("gym-async", "fast-sync"))
    assert all(whole[name][size] >= count for name, sizes in first.items() for size, count in sizes.items())


def test_a_check_measures_only_the_cells_that_its_baseline_has(vebench: Command) -> None:
    machine = Machine(topology_of(cores=2))
    assert vebench(*SMALL, "--budget", "60", "-q", world=machine.world()).status == 0
    done = vebench("check", "run.jsonl", "-o", "new.jsonl", "-b", "fast-sync,gym-async", world=machine.world())
    assert done.status == 0
    of_baseline, again = passes(), passes("new.jsonl")
    assert 32 not in of_baseline["gym-async"]
    assert {name: set(sizes) for name, sizes in again.items()} == {n: set(sizes) for n, sizes in of_baseline.items()}


def test_a_run_without_time_for_a_rate_has_no_result(vebench: Command) -> None:
    done = vebench(*SMALL, "--budget", "100ms", world=Machine(topology_of(cores=2)).world())
    assert done.status == 3
    assert "no time was left" in " ".join(done.out.split())


def test_without_a_budget_all_cells_are_measured(vebench: Command) -> None:
    machine = Machine(topology_of(cores=2), costs={**COSTS, "gym-async": Costs(make=5.0)})
    once = ("--passes", "1", "--proof", "off", "-q")
    assert vebench(*SMALL, *once, "--budget", "none", world=machine.world()).status == 0
    assert machine.clock.now > 120
    assert passes()["gym-async"] == dict.fromkeys((1, 2, 4, 8, 16, 32), 1)


@pytest.mark.parametrize(("memory", "options"), [(4 * GIB, ()), (64 * GIB, ("--memory", "4G"))])
def test_a_size_whose_memory_smaller_sizes_show_is_left_out_with_the_number(
    vebench: Command, memory: int, options: tuple[str, ...]
) -> None:
    costs = {**COSTS, "gym-async": Costs(10e-6, batch=2e-4, environment=200 * MIB)}
    machine = Machine(topology_of(cores=2), memory=memory, costs=costs)
    assert vebench(*SMALL, *options, "--budget", "150", "-q", world=machine.world()).status == 0
    assert machine.most_bytes < machine.memory
    assert set(passes()["gym-async"]) == {1, 2, 4, 8, 16}
    (cell,) = (cell for cell in lines(Path("run.jsonl"), "cell") if cell["status"] == "skipped")
    assert (cell["workers"], cell["reason"]) == (32, "needs about 6.4 GiB of memory, 4 GiB may be used")


def test_a_dry_run_ends_with_time_memory_and_processes(vebench: Command) -> None:
    shown = " ".join(vebench(*LARGE[:-2], "--dry-run", world=Machine(topology_of(cores=2)).world()).out.split())
    assert "Time: 10 min 00 s (--budget). All cells would take about" in shown
    assert shown.endswith("processes at the same time. 4..256 workers share 2 CPUs: they only enlarge batches.")
