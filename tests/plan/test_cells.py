"""From a specification to an explicit list of cells."""

import math
from dataclasses import replace

import pytest

from vebench.backends import packages, registry
from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.errors import UsageError
from vebench.machine.host import Placement
from vebench.plan.cells import (
    MOST_PROCESSES,
    Cell,
    CellKey,
    Plan,
    Replica,
    Where,
    expand,
    interleaved,
    memory_of,
    next_pass,
)
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import MAX_PASSES, RunSpec

MIB, GIB = 1 << 20, 1 << 30
PONG = Task("ALE/Pong-v5", "atari", 4)
CART_POLE = Task("CartPole-v1", "classic", 1)
FROZEN_LAKE = Task("FrozenLake-v1", "gymnasium", 1)
TWO_CPUS = Placement((0, 1), usable=2)
pytestmark = pytest.mark.usefixtures("everything_installed")
SPEC = RunSpec(envs=("Pong",), workers=(1, 2, 4), backends=(BackendChoice("for-loop"), BackendChoice("gym-async")))


def plan(spec: RunSpec = SPEC, *tasks: Task, placement: Placement = TWO_CPUS, available: int | None = None) -> Plan:
    """Return the plan of ``spec`` for the tasks, Pong if there are none."""
    return expand(spec, tasks or (PONG,), Where(placement, available))


def one(backend: BackendChoice, workers: int, task: Task = PONG, available: int | None = None, envs: int = 1) -> Cell:
    """Return the only cell of a plan."""
    spec = replace(SPEC, workers=(workers,), backends=(backend,), envs_per_worker=(envs,))
    (cell,) = plan(spec, task, available=available).cells
    return cell


def test_cells_are_all_combinations_of_what_is_asked_for() -> None:
    cells = plan(replace(SPEC, passes=2, envs_per_worker=(1, 8)), PONG, CART_POLE).cells
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * 3 * 2 * 2
    assert {(cell.key.env, cell.key.backend, cell.key.workers, cell.key.envs_per_worker) for cell in cells} == {
        (task.id, backend, workers, envs)
        for task in (PONG, CART_POLE)
        for backend in ("for-loop", "gym-async")
        for workers in (1, 2, 4)
        for envs in (1, 8)
    }
    assert all(cell.shape.num_envs == cell.workers * cell.envs_per_worker for cell in cells)


def added(spec: RunSpec, *tasks: Task, available: int | None = None) -> list[tuple[str, str, int, int, str | None]]:
    """Return what a plan with ``base`` has in addition, and the reason if it is skipped."""
    bare, full = (plan(replace(spec, base=base), *tasks, available=available).cells for base in (False, True))
    new = [cell for cell in full if cell.key not in {old.key for old in bare}]
    assert len(full) == len(bare) + len(new)
    return sorted((*[cell.key.env, cell.key.backend, cell.workers, cell.envs_per_worker], cell.skip) for cell in new)


ASYNC = (BackendChoice("gym-async"),)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (replace(SPEC, workers=(2,)), [1]),
        (replace(SPEC, backends=ASYNC), [1]),
        (replace(SPEC, workers=(2, 4), backends=ASYNC, envs_per_worker=(1, 8)), [1, 8]),
        (SPEC, []),
        (replace(SPEC, backends=()), []),
        (replace(SPEC, workers=(2,), backends=(BackendChoice("ceiling"), BackendChoice("null"))), []),
    ],
)
def test_what_rates_are_compared_with_is_added_where_it_was_not_asked_for(spec: RunSpec, sizes: list[int]) -> None:
    tasks = (PONG, CART_POLE)
    loops = [(task.id, "for-loop", 1, envs, None) for task in tasks for envs in sizes]
    assert [cell for cell in added(spec, *tasks) if cell[1] == "for-loop"] == loops


def test_each_task_that_a_backend_steps_has_one_yardstick() -> None:
    yardsticks = [(task.id, "yardstick", 1, 1, None) for task in (PONG, CART_POLE)]
    sizes = replace(SPEC, workers=(2, 4), envs_per_worker=(2, 8))
    assert [cell for cell in added(sizes, PONG, CART_POLE) if cell[1] == "yardstick"] == yardsticks
    assert added(replace(SPEC, backends=(BackendChoice("ceiling"), BackendChoice("null")))) == []


def test_passes_come_one_after_another_each_in_an_order_of_its_own_by_the_seed() -> None:
    cells = plan(replace(SPEC, passes=3), PONG, CART_POLE).cells
    assert [cell.repeat for cell in cells] == sorted(cell.repeat for cell in cells)
    orders = {tuple(cell.key.without_repeat for cell in cells if cell.repeat == repeat) for repeat in range(3)}
    assert len(orders) == 3
    assert len({frozenset(order) for order in orders}) == 1
    assert plan(SPEC, PONG, CART_POLE) == plan(SPEC, PONG, CART_POLE) != plan(replace(SPEC, seed=1), PONG, CART_POLE)


def test_the_first_pass_begins_with_the_plain_loop_and_then_one_cell_of_each_backend() -> None:
    cells = [cell for cell in plan(replace(SPEC, interleave=False), CART_POLE).cells if cell.skip is None]
    assert (cells[0].backend.name, cells[0].workers) == ("for-loop", 1)
    backends = {cell.backend.name for cell in cells}
    assert {cell.backend.name for cell in cells[: len(backends) + 1]} == backends


def test_a_cell_owns_the_first_cpus_and_is_laid_out_on_them() -> None:
    cell = one(BackendChoice("envpool-sync"), workers=4, envs=8)
    assert cell.cpus == (0, 1)
    assert cell.shape == Shape(num_envs=32, batch_size=32, processes=1, threads=2)
    assert one(BackendChoice("shm-sync"), workers=1).cpus == (0,)


def test_without_a_choice_the_usual_backends_are_planned_or_skipped_with_the_reason() -> None:
    cells = plan(replace(SPEC, backends=())).cells
    usual = {entry.name for entry in registry.ENTRIES if entry.by_default and not entry.means_nothing_for(PONG)}
    assert {cell.backend.name for cell in cells} == usual
    assert all(cell.skip is None for cell in cells)
    cells = plan(replace(SPEC, backends=()), FROZEN_LAKE).cells
    skipped = {(cell.backend.name, cell.workers) for cell in cells if cell.skip}
    assert skipped == {(name, workers) for name in ("envpool-sync", "envpool-async") for workers in (1, 2, 4)}
    cells = plan(replace(SPEC, backends=()), CART_POLE).cells
    assert {cell.backend.name for cell in cells}.isdisjoint(("ceiling", "native"))
    cells = plan(replace(SPEC, backends=()), Task("mine:make_vec", "vectors", 1)).cells
    able = {cell.backend.name for cell in cells if cell.skip is None}
    assert able >= {"for-loop", "gym-sync", "native"}
    assert able.isdisjoint({"gym-async", "shm-sync", "shm-async"})  # a library may keep threads that forks lose


@pytest.mark.parametrize(
    ("backend", "task", "why"),
    [
        ("envpool-sync", Task("ALE/LostGame-v5", "atari", 4), "EnvPool has no ALE/LostGame-v5"),
        ("envpool-sync", FROZEN_LAKE, "EnvPool has no FrozenLake-v1: it steps Atari"),
        ("ceiling", CART_POLE, "ceiling has no CartPole-v1"),
    ],
)
def test_a_cell_that_cannot_run_says_why(backend: str, task: Task, why: str) -> None:
    assert str(one(BackendChoice(backend), 1, task).skip).startswith(why)


def test_a_missing_package_is_the_reason_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "cv2" else True)
    assert one(BackendChoice("gym-sync"), 1).skip == (
        "not installed: opencv-python-headless (in vebench's clone: pip install '.[atari]')"
    )
    assert one(BackendChoice("envpool-sync"), 1).skip is None
    elsewhere = registry.BY_NAME["gym-sync"].why_not(PONG, lambda module: module != "ale_py")
    assert elsewhere == "not installed: ale-py (pip install ale-py)"


def test_a_cell_says_how_much_memory_it_lacks_and_what_would_fit() -> None:
    skip = one(BackendChoice("gym-async"), 2048, available=12 * GIB).skip
    assert skip == ("needs about 18 GiB of memory, 12 GiB may be used; fewer workers or --envs-per-worker would fit")
    assert one(BackendChoice("gym-async"), 1024, available=12 * GIB).skip is None
    assert one(BackendChoice("gym-async"), 2048, available=None).skip is None
    assert one(BackendChoice("null"), 4096, available=GIB).skip is None
    assert "would fit" not in str(one(BackendChoice("for-loop"), 8, available=64 * MIB).skip)


# Proportional set sizes of real cells, in MiB, by the same methods as the table in vebench/plan/cells.py.
@pytest.mark.parametrize(
    ("backend", "suite", "envs", "measured"),
    [
        ("for-loop", "atari", 1, 61),
        ("for-loop", "classic", 32, 37),
        ("gym-async", "atari", 256, 1863),
        ("gym-async[spawn]", "classic", 10, 254),
        ("envpool-sync", "classic", 64, 142),
    ],
)
def test_estimates_are_above_what_was_measured_not_twice(backend: str, suite: str, envs: int, measured: int) -> None:
    task = {"atari": PONG, "classic": CART_POLE, "mujoco": Task("Humanoid-v5", "mujoco", 5)}[suite]
    name, spawn, _ = backend.partition("[spawn]")
    options = {"context": "spawn"} if spawn else {}
    cell = one(BackendChoice(name, options), envs, task)
    estimate = memory_of(cell.task, cell.backend, cell.shape)
    assert measured <= estimate / MIB <= max(2 * measured, 100)


def test_a_plan_without_end_is_refused_before_it_is_laid_out() -> None:
    spec = replace(SPEC, workers=tuple(range(1, 60_001)))
    with pytest.raises(UsageError, match="120000 cells are too many, at most 100000"):
        plan(spec)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("envs", ()), ("workers", (0,)), ("workers", (65537,)), ("workers", (2, 1)), ("envs_per_worker", ()),
        ("envs_per_worker", (10**30,)), ("windows", 0), ("passes", 0), ("seed", -1), ("seed", 2**31), ("duration", 0.0),
        ("duration", math.nan), ("duration", 1e-12), ("warmup", -0.5), ("timeout", 0.0), ("timeout", 7.0),
    ],
)  # fmt: skip
def test_bad_numbers_are_refused_by_the_flag_of_their_option(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"--{field.replace('_', '-').removesuffix('s')}"):
        plan(replace(SPEC, **{field: value}))  # type: ignore[arg-type]


@pytest.fixture
def twice() -> Plan:
    """Return four cells, twice each: two backends with one worker and with two."""
    backends = (BackendChoice("for-loop"), BackendChoice("gym-sync"))
    return plan(RunSpec(("Pong",), (1, 2), backends, passes=2))


def keys(twice: Plan) -> set[CellKey]:
    return {cell.key.without_repeat for cell in twice.cells}


def key_of(backend: str, workers: int) -> CellKey:
    return CellKey(env="ALE/Pong-v5", backend=backend, workers=workers, envs_per_worker=1)


def after(twice: Plan, repeats: int) -> dict[CellKey, int]:
    """Return the next repeat of every cell, after so many that went well."""
    return dict.fromkeys(keys(twice), repeats)


def named(cells: tuple[Cell, ...]) -> list[tuple[str, int, int]]:
    return sorted((cell.backend.name, cell.workers, cell.repeat) for cell in cells)


def test_cells_that_are_wanted_are_measured_once_more_in_one_pass(twice: Plan) -> None:
    wanted = {key_of("for-loop", 1), key_of("gym-sync", 2)}
    more = next_pass(twice, wanted, {**after(twice, 2), key_of("gym-sync", 2): 7})
    assert named(more.cells) == [("for-loop", 1, 7), ("gym-sync", 2, 7)]
    assert more.spec == twice.spec


def test_a_cell_without_a_next_pass_or_that_cannot_run_is_not_measured(twice: Plan) -> None:
    repeats = after(twice, 2)
    del repeats[key_of("gym-sync", 2)]
    assert ("gym-sync", 2) not in {cell[:2] for cell in named(next_pass(twice, keys(twice), repeats).cells)}
    cells = tuple(replace(cell, skip="no memory" if cell.workers == 2 else None) for cell in twice.cells)
    more = next_pass(replace(twice, cells=cells), keys(twice), after(twice, 2))
    assert {cell.workers for cell in more.cells} == {1}


def test_cells_that_take_turns_stay_together_in_every_pass(twice: Plan) -> None:
    pairs = replace(twice, cells=tuple(replace(cell, group=cell.workers) for cell in twice.cells))
    for seed in range(5):
        more = next_pass(replace(pairs, spec=replace(twice.spec, seed=seed)), keys(twice), after(twice, 2))
        assert [cell.group for cell in more.cells] in ([1, 1, 2, 2], [2, 2, 1, 1])
    wanted, repeats = {key_of("gym-sync", 2)}, after(twice, 5)
    assert named(next_pass(pairs, wanted, repeats).cells) == [("for-loop", 2, 5), ("gym-sync", 2, 5)]
    del repeats[key_of("gym-sync", 2)]
    assert next_pass(pairs, wanted, repeats).cells == ()


def test_no_cell_is_measured_more_often_than_may_be(twice: Plan) -> None:
    assert len(next_pass(twice, keys(twice), after(twice, MAX_PASSES - 1)).cells) == 4
    assert next_pass(twice, keys(twice), after(twice, MAX_PASSES)).cells == ()


ANT = Task("Ant-v5", "mujoco", 5)


def cell(workers: int = 1, repeat: int = 0, task: Task = PONG, processes: int = 1, skip: str | None = None) -> Cell:
    shape = Shape(workers, workers, processes, 1)
    return Cell(task, BackendChoice("gym-async"), workers, 1, shape, (0,), repeat=repeat, skip=skip)


def seats(*cells: Cell, memory: int | None = None) -> list[tuple[int, int | None]]:
    """Return each cell's number of workers and its group."""
    plan = interleaved(Plan(RunSpec(("Pong",), (1,)), cells), memory)
    return [(cell.workers, cell.group) for cell in plan.cells]


def test_the_cells_of_a_pass_on_one_task_sit_in_one_group() -> None:
    found = seats(cell(1), cell(2, task=ANT), cell(3), cell(4, repeat=1), cell(5, repeat=1))
    assert found == [(1, 0), (3, 0), (2, 1), (4, 2), (5, 2)]


def test_a_group_has_room_for_what_memory_and_processes_allow() -> None:
    assert seats(cell(1), cell(2), memory=GIB) == [(1, 0), (2, 0)]
    assert seats(cell(1), cell(2), memory=GIB // 8) == [(1, 0), (2, 1)]
    half = MOST_PROCESSES // 2
    assert seats(cell(1, processes=half), cell(2, processes=half), cell(3)) == [(1, 0), (2, 0), (3, 1)]
    assert seats(cell(1), cell(2, processes=4 * half), cell(3)) == [(1, 0), (2, 1), (3, 2)]


def test_who_cannot_run_or_keeps_in_step_with_itself_sits_in_none() -> None:
    pools = replace(cell(3), replicas=(Replica(1, Shape(1, 1, 1, 1), (0,)),) * 2)
    assert seats(cell(1), cell(2, skip="no such game"), pools, cell(4)) == [(2, None), (3, None), (1, 0), (4, 0)]


def test_a_warm_up_that_does_not_settle_leaves_time_for_the_windows() -> None:
    def longest(**given: float) -> float:
        return RunSpec(("Pong",), (1,), **given).longest_warmup

    assert longest(duration=1.0, windows=6, warmup=1.0, timeout=300.0) == 5.0
    assert longest(duration=1.0, windows=6, warmup=1.0, timeout=9.0) == 2.0
    assert [longest(warmup=least) for least in (0.0, 0.1)] == [2.5, 2.5]
