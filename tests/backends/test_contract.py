"""What every backend must do, with the reference as the oracle.

Backends and suites are read from their tables: a new entry is tested without a change here.
"""

import importlib
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest
from support.leaks import segments

from vebench.backends import trees
from vebench.backends.bracketed import OptionValue
from vebench.backends.environments.making import sample
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import BackendInfo, Batch, Setup, Task, VectorBackend
from vebench.backends.packages import importable
from vebench.backends.registry import BY_NAME, ENTRIES, NULL, REFERENCE


class Build(Protocol):
    def __call__(
        self, name: str, task: Task, workers: int = 2, envs_per_worker: int = 1, **options: OptionValue
    ) -> VectorBackend: ...


# EnvPool declares the bounds of its float32 boxes in float64.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting to float32:UserWarning")

CARTPOLE = Task("CartPole-v1", "classic", 1)
PENDULUM = Task("Pendulum-v1", "classic", 1)
PONG = Task("ALE/Pong-v5", "atari", 4)
CHEETAH = Task("HalfCheetah-v5", "mujoco", 5)
# Dicts and tuples, one in the other, of what is observed and of actions; the other way round only by the reference.
NESTED = Task("odd/Nested-v0", "gymnasium", 1, module="odd")
FURTHER = tuple(
    Task(*next((name, suite.name, frame_skip) for name, frame_skip in suite.tasks.items()))
    for suite in SUITES.values()
    if suite.tasks and suite.name not in ("classic", "atari", "mujoco")
)
# Of a suite whose environments are known by their ids alone.
HALLWAY = Task("MiniGrid-Empty-5x5-v0", "minigrid", 1)
TASKS = (CARTPOLE, PENDULUM, PONG, CHEETAH, *FURTHER, HALLWAY, NESTED)

# Rows of each environment that are compared. CartPole ends several times in them, and Pendulum once.
LENGTHS = {CARTPOLE: 60, PENDULUM: 210, PONG: 16}
LENGTH = 40  # of other tasks
MOST = 10_000  # batches: whose rows an asynchronous backend returns is the scheduler's affair
FEW = 3  # batches of what is no contestant, which need not have rows of every environment
LONG = 20.0  # seconds after which a test that waits gives up

# Another project's library is seldom here: only then are its backends tried (make test-peers has them all).
HERE = [
    one
    for one in ENTRIES
    if not one.library.installation or all(importable(each.module) for each in one.library.packages)
]
CONTESTANTS = [entry for entry in HERE if not entry.reference_row]
ON_GYMNASIUM = [entry.name for entry in CONTESTANTS if entry.steps_gymnasium]


def steps(name: str, task: Task) -> bool:
    """Return whether a backend can step a task where everything is installed."""
    return BY_NAME[name].why_not(task, lambda _module: True) is None


ON_ANY_SUITE = [name for name in ON_GYMNASIUM if steps(name, NESTED)]


def defaults(name: str) -> dict[str, OptionValue]:
    return {key: option.default for key, option in BY_NAME[name].options.items() if option.default is not None}


def in_step(name: str) -> bool:
    """Return whether every environment is in each batch, in the order of ids."""
    shape = BY_NAME[name].shape_of(2, 1, 2, defaults(name))
    return shape.num_envs == shape.batch_size


def is_tried(name: str, task: Task) -> bool:
    """Return whether a backend is tried on a task: on all that it can step, or else on one of each space of actions.

    Those that are only measured if they are named know of no suite, and step with the loops and classes of others; some
    have games alone. What others declare to differ on a suite that is not usual is not looked at here. Of those that
    pass on what Gymnasium's environments return only one of our own is tried on games.
    """
    passes_on = BY_NAME[name].steps_gymnasium and name != "fast-sync"
    if not steps(name, task) or (task == PONG and passes_on):
        return False
    some = (CARTPOLE, CHEETAH, NESTED)
    usual = BY_NAME[name].by_default and (SUITES[task.suite].usual or BY_NAME[name].steps_gymnasium)
    return usual or task in some or not steps(name, CARTPOLE)


STEPPING = [(entry.name, task) for task in TASKS for entry in CONTESTANTS if is_tried(entry.name, task)]
EVERY = [
    *STEPPING,
    *((entry.name, task) for task in TASKS for entry in HERE if entry.reference_row and is_tried(entry.name, task)),
]


def envs_each(task: Task) -> int:
    """Return how many environments a worker steps; one of Atari, since loading a game takes as long as 1,000 steps."""
    return 1 if task.suite == "atari" else 3


def build_one(
    name: str, task: Task, workers: int = 2, envs_per_worker: int = 1, **options: OptionValue
) -> VectorBackend:
    entry = BY_NAME[name]
    if (not entry.by_default or not SUITES[task.suite].usual) and (missing := entry.missing(task)):
        pytest.skip(f"not installed: {', '.join(package.name for package in missing)}: make test-all")
    module, _, attribute = entry.target.partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    try:
        backend: VectorBackend = factory(Setup(task, workers, envs_per_worker, cpus=(0, 1)), **options)
    except ValueError as refused:
        if entry.library.installation is None or task != NESTED:
            raise
        pytest.skip(str(refused))
    return backend


def identify(case: object) -> str:
    if isinstance(case, tuple):
        return "-".join(map(identify, case))
    return case.id if isinstance(case, Task) else str(case)


def of_recorded(cases: list[tuple[str, Task]]) -> pytest.MarkDecorator:
    """Try a test on each backend and task, all tests of a task in the same process, which opens each backend once."""
    marked = [pytest.param(case, marks=pytest.mark.xdist_group(identify(case[1]))) for case in cases]
    return pytest.mark.parametrize("recorded", marked, indirect=True, ids=identify)


# What does not depend on the task is tried on one that a backend steps, on a game if it must be: games load long.
CHEAPEST = sorted(EVERY, key=lambda case: case[1].suite == "atari")
FIRST = list({name: (name, task) for name, task in reversed(CHEAPEST)}.values())

# Where a backend has simulators of its own, what it leaves behind may depend on the suite. Games load long.
LEAVING = [
    (name, task)
    for name, task in EVERY
    if (name, task) in FIRST
    or ((not BY_NAME[name].steps_gymnasium or BY_NAME[name].scope.own_classes) and task not in (PENDULUM, NESTED))
    if task != PONG or ((name, task) not in FIRST and not in_step(name))
]

every_backend = of_recorded(EVERY)
every_stepping_backend = of_recorded(STEPPING)


class Stepped(NamedTuple):
    """What a backend returned after a reset.

    ``rows``: as many of each environment, whatever order the batches brought them in. ``batches``: copies of all.
    ``overwritten``: whether what it had returned was another when the last batch was there.
    """

    rows: list[list[Batch]]
    batches: list[Batch]
    overwritten: bool


@dataclass(frozen=True)
class Recorded:
    """A backend that is closed by now: what it returned after a reset with seed 1, and after one with 0 after that."""

    name: str
    task: Task
    info: BackendInfo
    of_seed_1: Stepped
    of_seed_0: Stepped


@cache
def record(name: str, task: Task) -> Recorded:
    """Open a backend, step it, and close it: once for all tests that look at what it returned, since a game loads long.

    It is closed at once, since simulators of the ceiling go on by themselves.
    """
    backend = build_one(name, task, envs_per_worker=envs_each(task))
    length, most = LENGTHS.get(task, LENGTH), FEW if BY_NAME[name].reference_row else MOST
    try:
        first = stepped(backend, 1, min(length, LENGTH), most)
        return Recorded(name, task, backend.info, first, stepped(backend, 0, length, most))
    finally:
        backend.close()


@pytest.fixture
def build() -> Iterator[Build]:
    """Build backends by name, two workers on two CPUs by default, and close them in the end."""
    with ExitStack() as built:

        def build_to_close(name: str, task: Task, *shape: int, **options: OptionValue) -> VectorBackend:
            backend = build_one(name, task, *shape, **options)
            built.callback(backend.close)
            return backend

        yield build_to_close


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """Return what one backend has returned on one task."""
    return record(*request.param)


def stepped(backend: VectorBackend, seed: int, length: int, most: int = MOST) -> Stepped:
    """Step a backend until each environment has returned so many rows, or until there were so many batches.

    What an environment is given depends on nothing but how many rows it has returned.
    """
    actions = sample(backend.info.action_space, 7, 100 * length)
    rows: list[list[Batch]] = [[] for _ in range(backend.info.num_envs)]
    returned, copies = [], []
    backend.reset(seed)
    for _ in range(most):
        returned.append(backend.recv())
        copies.append(batch := Batch._make(trees.mapped(np.copy, array) for array in returned[-1]))
        for index, env_id in enumerate(batch.env_ids):
            rows[env_id].append(Batch._make(trees.part(array, index) for array in batch))
        if min(map(len, rows)) >= length:
            break
        backend.send(trees.part(actions, [len(rows[env_id]) % (100 * length) for env_id in batch.env_ids]))
    overwritten = not alike(returned, copies)
    return Stepped([environment[:length] for environment in rows], copies, overwritten)


def episodes(backend: VectorBackend, seed: int, length: int) -> list[list[Batch]]:
    """Return each environment's first ``length`` rows."""
    return stepped(backend, seed, length).rows


def alike(left: list[Batch], right: list[Batch]) -> bool:
    return [named_bytes(batch) for batch in left] == [named_bytes(batch) for batch in right]


def beginnings(recorded: Recorded) -> tuple[list[list[Batch]], list[list[Batch]]]:
    """Return as many rows of each environment after a reset with seed 0 as there are after one with 1, and those."""
    other = recorded.of_seed_1.rows
    return [rows[: len(other[0])] for rows in recorded.of_seed_0.rows], other


def named_bytes(batch: Batch) -> list[tuple[str, bytes]]:
    return [(name, bytes(leaf)) for name, leaf in trees.named_leaves(tuple(batch))]


def same(left: list[list[Batch]], right: list[list[Batch]]) -> bool:
    return len(left) == len(right) and all(map(alike, left, right))


@cache
def by_the_reference(task: Task) -> Stepped:
    """Return what every backend on Gymnasium's environments has to return for a task, stepped once for all of them."""
    backend = build_one(REFERENCE, task, envs_per_worker=envs_each(task))
    try:
        return stepped(backend, 0, LENGTHS.get(task, LENGTH))
    finally:
        backend.close()


def kinds_of(observations: Any) -> list[tuple[tuple[int, ...], str]]:
    return [(array.shape, str(array.dtype)) for array in trees.leaves(observations)]


@every_stepping_backend
def test_a_batch_has_the_shapes_and_types_of_the_interface(recorded: Recorded) -> None:
    info, task = recorded.info, recorded.task
    rows = 2 * envs_each(task)
    rounded = any(difference.text == "rewards are float32" for difference in info.differences)
    kinds = kinds_of(by_the_reference(task).rows[0][0].observations)
    for batch in recorded.of_seed_0.batches:
        assert kinds_of(batch.observations) == [((rows, *shape), dtype) for shape, dtype in kinds]
        assert batch.rewards.shape == batch.terminated.shape == batch.truncated.shape == batch.env_ids.shape == (rows,)
        assert batch.rewards.dtype == (np.float32 if rounded else np.float64)
        assert batch.terminated.dtype == batch.truncated.dtype == np.bool_
        assert np.issubdtype(batch.env_ids.dtype, np.integer)


@every_backend
def test_the_rows_of_a_reset_report_no_reward_and_no_end(recorded: Recorded) -> None:
    batch = recorded.of_seed_0.batches[0]
    assert not batch.rewards.any()
    assert not batch.terminated.any()
    assert not batch.truncated.any()


@every_stepping_backend
def test_no_id_comes_twice_in_a_batch_and_their_order_is_declared(recorded: Recorded) -> None:
    info, batches = recorded.info, [batch.env_ids.tolist() for batch in recorded.of_seed_0.batches]
    for ids in batches:
        assert len(set(ids)) == len(ids) == info.batch_size
    assert {env_id for ids in batches for env_id in ids} == set(range(info.num_envs))
    assert info.in_order == in_step(recorded.name)
    assert not info.in_order or all(ids == list(range(info.num_envs)) for ids in batches)


@every_stepping_backend
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(build: Build, recorded: Recorded) -> None:
    found = recorded.of_seed_0.rows
    assert not same(*beginnings(recorded))
    # Of those on Gymnasium's environments it is shown below; of pools of games one in step stands for the other.
    if recorded.name not in ON_GYMNASIUM and (recorded.task != PONG or in_step(recorded.name)):
        # What one backend returned after other episodes, another returns at once.
        fresh = build(recorded.name, recorded.task, 2, envs_each(recorded.task))
        assert same(found, stepped(fresh, 0, len(found[0])).rows)


@of_recorded([case for case in STEPPING if case[0] != "gym-vector"])  # one generator draws all its starts
def test_environment_i_is_seeded_with_the_seed_plus_i(recorded: Recorded) -> None:
    first, second = beginnings(recorded)
    renamed = [[row._replace(env_ids=row.env_ids + 1) for row in rows] for rows in second]
    assert same(first[1:], renamed[:-1])
    assert not same(first, renamed)


@of_recorded(
    [(name, task) for name, task in STEPPING if name in ON_GYMNASIUM and not BY_NAME[name].library.installation]
)
def test_backends_on_gymnasiums_environments_equal_a_fresh_reference_to_the_byte(recorded: Recorded) -> None:
    expected, found = by_the_reference(recorded.task), recorded.of_seed_0
    # An asynchronous backend has more environments, so that some can wait.
    assert same(found.rows[: len(expected.rows)], expected.rows)
    dtypes = [
        [(name, array.dtype) for name, array in trees.named_leaves(tuple(each.batches[0]))]
        for each in (found, expected)
    ]
    assert dtypes[0] == dtypes[1]
    if in_step(recorded.name):
        assert alike(found.batches, expected.batches)
    ends = sum(bool(row.terminated or row.truncated) for rows in expected.rows for row in rows)
    assert ends or recorded.task not in (CARTPOLE, PENDULUM)


@of_recorded([case for case in STEPPING if case[1] == CARTPOLE])
def test_the_row_of_an_end_or_the_one_after_it_has_the_next_start(recorded: Recorded) -> None:
    info = recorded.info
    next_step = info.autoreset == "next_step"
    ends = 0
    for rows in recorded.of_seed_0.rows:
        for row, after in itertools.pairwise(rows):
            if row.terminated or row.truncated:
                ends += 1
                assert not (next_step and any((after.rewards, after.terminated, after.truncated)))
                first = after if next_step else row
                # Gymnasium starts CartPole within 0.05 of rest.
                assert np.abs(first.observations[:4]).max() <= 0.05
                assert bytes(first.observations) != bytes(rows[0].observations)
    assert ends >= info.num_envs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gym-async", {"max_concurrency": 1}),
        ("gym-async", {"context": "spawn"}),
        ("shm-sync", {"context": "spawn"}),
        ("shm-sync", {"caller_steps": False}),
        ("shm-sync", {"spin": 0}),
        ("shm-async", {"ratio": 1, "context": "forkserver"}),
    ],
    ids=str,
)
def test_options_do_not_change_the_bytes(build: Build, name: str, options: dict[str, Any]) -> None:
    assert same(episodes(build(name, CARTPOLE, **options), 0, 60), episodes(build(REFERENCE, CARTPOLE), 0, 60))


@pytest.mark.parametrize("name", ON_ANY_SUITE)
@pytest.mark.parametrize("space", ["Observes-discrete", "Observes-box", "Observes-multi-binary"])
def test_whatever_array_is_observed_comes_back_in_its_type(build: Build, name: str, space: str) -> None:
    backend = build(name, Task(f"odd/{space}-v0", "gymnasium", 1, module="odd"))
    next_step = backend.info.autoreset == "next_step"
    rows = episodes(backend, 0, 12)[0]
    expected = {"Observes-discrete": np.int64, "Observes-box": np.float32, "Observes-multi-binary": np.int8}[space]
    assert rows[0].observations.dtype == expected
    # Five steps, the last of which may show the row of the next reset.
    shown = [0, 1, 2, 3, 4, 5] * 2 if next_step else [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert [int(row.observations.flat[0]) for row in rows] == shown
    assert [place for place, row in enumerate(rows) if row.truncated] == ([5, 11] if next_step else [5, 10])


@pytest.mark.parametrize("name", [name for name in ON_ANY_SUITE if in_step(name)])
@pytest.mark.parametrize("space", ["Acts-from-two", "Acts-multi-discrete", "Acts-multi-binary"])
def test_whatever_array_of_actions_is_sent_arrives(build: Build, name: str, space: str) -> None:
    backend = build(name, Task(f"odd/{space}-v0", "gymnasium", 1, module="odd"))
    backend.reset(0)
    backend.recv()
    taken: Any = backend.info.action_space
    for actions in sample(taken, 7, 4, backend.info.num_envs):
        backend.send(actions)
        # The reward is the sum of the action.
        assert backend.recv().rewards.tolist() == [float(np.sum(action)) for action in actions]


@every_backend
def test_a_batch_is_not_overwritten_by_the_next_unless_declared(recorded: Recorded) -> None:
    assert recorded.info.reuses_buffers or not recorded.of_seed_0.overwritten


def running() -> tuple[int, int, list[Path]]:
    """Return the threads and child processes of this process, and what lies in the machine's shared memory."""
    threads = list(Path("/proc/self/task").iterdir())
    return len(threads), len(multiprocessing.active_children()), sorted(segments())


def is_more(now: tuple[int, int, list[Path]], before: tuple[int, int, list[Path]]) -> bool:
    """Return whether anything runs that did not run before. Before, a thread may have been listed that had ended."""
    return now[0] > before[0] or now[1:] != before[1:]


@cache
def start_libraries(name: str, suite: str) -> None:
    """Let libraries that a backend needs for a suite start what they start once."""
    build_one(name, next(task for task in TASKS if task.suite == suite), workers=1).close()


@pytest.mark.whole_machine
@pytest.mark.parametrize(
    ("name", "task", "outstanding"),
    [*((*case, False) for case in FIRST), *((*case, True) for case in LEAVING)],
    ids=identify,
)
def test_nothing_is_left_after_close_however_often(build: Build, name: str, task: Task, outstanding: bool) -> None:
    start_libraries(name, task.suite)
    before = running()
    backend = build(name, task, 1 if task == PONG else 2)
    backend.reset(0)
    backend.recv()
    if outstanding:
        backend.send(sample(backend.info.action_space, 0, backend.info.batch_size))
    backend.close()
    backend.close()
    deadline = time.monotonic() + LONG
    while is_more(running(), before) and time.monotonic() < deadline:
        time.sleep(0.01)  # the kernel lists a thread for an instant after it was joined
    assert not is_more(running(), before)


@pytest.mark.parametrize(("workers", "envs"), [(1, 1), (5, 2)])
@pytest.mark.parametrize("name", [*(name for name, task in STEPPING if task == CARTPOLE), NULL])
def test_a_backend_is_laid_out_as_it_was_planned(build: Build, name: str, workers: int, envs: int) -> None:
    planned = BY_NAME[name].shape_of(workers, envs, 2, defaults(name))
    before = running()
    info: BackendInfo = build(name, CARTPOLE, workers, envs).info
    assert (info.num_envs, info.batch_size) == (planned.num_envs, planned.batch_size)
    assert (info.processes, info.threads) == (planned.processes, planned.threads)
    assert info.frame_skip == CARTPOLE.frame_skip
    if info.processes > 1 and not any(
        package.name == "ray" for package in BY_NAME[name].library.packages
    ):  # its daemon's
        caller_steps = bool(defaults(name).get("caller_steps", False))
        assert running()[1] - before[1] == info.processes - caller_steps
