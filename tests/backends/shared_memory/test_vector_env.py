"""SharedMemoryVectorEnv against Gymnasium's vector environments, element by element, and in their place."""

import math
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import ClipReward, FlattenObservation
from support.recipes import recipe
from various import Sampler, Troubled

from vebench.backends.shared_memory import SharedMemoryVectorEnv, shared_memory_spec

Build = Callable[..., SharedMemoryVectorEnv]
Value = Any  # an argument of the constructor, or a fact of a space
CPUS = sorted(os.sched_getaffinity(0))[:1] if hasattr(os, "sched_getaffinity") else [0]

pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array:UserWarning")

BOX = spaces.Box(-1.0, 2.0, (2, 3), np.float32)
SPACES: dict[str, spaces.Space[Any]] = {
    "box": BOX,
    "scalar-box": spaces.Box(-1.0, 1.0, (), np.float64),
    "half-box": spaces.Box(-1.0, 1.0, (3,), np.float16),
    "pixels": spaces.Box(0, 255, (64, 64), np.uint8),
    "discrete": spaces.Discrete(5),
    "discrete-from": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-discrete-2d": spaces.MultiDiscrete(np.array([[3, 4], [5, 6]])),
    "multi-binary": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict({"z": BOX, "a": spaces.Discrete(3), "in": spaces.Dict({"b": spaces.MultiBinary(2)})}),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Tuple((BOX, spaces.Dict({"c": spaces.MultiDiscrete([2, 2])}))))),
}


@pytest.fixture
def build() -> Iterator[Build]:
    built: list[SharedMemoryVectorEnv] = []

    def build_one(*args: Value, **options: Value) -> SharedMemoryVectorEnv:
        built.append(SharedMemoryVectorEnv(*args, **options))
        return built[-1]

    yield build_one
    for vector in built:
        vector.close()
    assert multiprocessing.active_children() == []


def samplers(space: str = "box", count: int = 5) -> list[Callable[[], Sampler]]:
    return [partial(Sampler, SPACES[space], length=5 + index) for index in range(count)]


def troubled(count: int = 4) -> list[Callable[[], Troubled]]:
    return [Troubled] * count


def agree(left: VectorEnv[Any, Any, Any], right: VectorEnv[Any, Any, Any], steps: int = 14, seed: int = 3) -> None:
    """Step both with the same actions and compare all that they return."""
    assert data_equivalence(left.reset(seed=seed), right.reset(seed=seed))
    left.action_space.seed(seed)
    for _ in range(steps):
        actions = left.action_space.sample()
        assert data_equivalence(left.step(actions), right.step(actions))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("space", SPACES)
def test_rows_and_infos_are_those_of_a_loop(build: Build, space: str, mode: str) -> None:
    ours = build(samplers(space), autoreset_mode=mode, num_processes=2)
    theirs = SyncVectorEnv(samplers(space), autoreset_mode=mode)
    for name in ("observation_space", "single_observation_space", "action_space", "single_action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert (ours.metadata, ours.render_mode) == (theirs.metadata, theirs.render_mode)
    agree(ours, theirs)


@pytest.mark.parametrize(
    ("processes", "caller_steps", "context"),
    [(1, True, "fork"), (1, False, "fork"), (2, True, "spawn"), (5, True, "fork"), (9, False, "forkserver")],
)
def test_any_number_of_processes_does_the_same(build: Build, processes: int, caller_steps: bool, context: str) -> None:
    functions = [
        lambda length=length: Sampler(BOX, length=length) for length in range(5, 10)
    ]  # pickle cannot send them
    ours = build(functions, num_processes=processes, caller_steps=caller_steps, context=context)
    assert len(multiprocessing.active_children()) == min(processes, 5) - caller_steps
    agree(ours, SyncVectorEnv(samplers()))


def test_only_environments_in_the_mask_are_reset(build: Build) -> None:
    ours = build(samplers(), autoreset_mode=AutoresetMode.DISABLED, num_processes=2)
    theirs = SyncVectorEnv(samplers(), autoreset_mode=AutoresetMode.DISABLED)
    agree(ours, theirs, steps=4)
    mask = np.array([True, False, False, True, True])
    seeds = [5, 6, 7, None, 9]
    for vector in (ours, theirs):
        vector.step(vector.action_space.sample())
    after = [vector.reset(seed=seeds, options={"reset_mask": mask, "x": 1})[1] for vector in (ours, theirs)]
    assert data_equivalence(*after)
    kept = ours.observations[1].copy()
    ours.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(ours.observations[1], kept)
    for wrong in ([True] * 5, np.array([True]), np.zeros(5, np.bool_), np.ones(5, np.int64)):
        with pytest.raises((TypeError, ValueError), match="reset_mask"):
            ours.reset(options={"reset_mask": wrong})


def test_seeds_may_be_listed_or_left_out(build: Build) -> None:
    ours, theirs = build(samplers(), num_processes=2), SyncVectorEnv(samplers())
    for seed in ([1, None, 3, 4, 5], None, 7):
        assert data_equivalence(ours.reset(seed=seed), theirs.reset(seed=seed))  # type: ignore[arg-type]  # Gymnasium's own form
    assert ours.np_random_seed == theirs.np_random_seed
    with pytest.raises(ValueError, match="the length must match num_envs=5"):
        ours.reset(seed=[1, 2])
    for wrong in (-1, 2**70, 2**63 - 3, True, [0, 1, 2, 3, 2**70], [0, 1, 2, 3, 0.5]):
        with pytest.raises(ValueError, match=r"^seed must be a whole number from 0 to "):
            ours.reset(seed=wrong)  # type: ignore[arg-type]  # as some would


def test_methods_and_attributes_of_environments_can_be_used(build: Build) -> None:
    ours = build(samplers(), num_processes=2)
    ours.reset(seed=0)
    assert ours.call("add", 1, right=2) == (3,) * 5
    for level, each in ((9.0, (9.0,) * 5), ([1.0, 2.0, 3.0, 4.0, 5.0], (1.0, 2.0, 3.0, 4.0, 5.0))):
        ours.set_attr("level", level)
        assert ours.get_attr("level") == each
    with pytest.raises(ValueError, match="one for each of 5 environments"):
        ours.set_attr("level", [1.0])
    with pytest.raises(ValueError, match="use `step` directly"):
        ours.call("step")
    ours.step(ours.action_space.sample())
    frames = ours.render()
    assert isinstance(frames, tuple)
    assert [frame.shape for frame in frames] == [(2, 2, 3)] * 5
    long = np.arange(1 << 19)
    ours.set_attr("level", [long] * 5)
    assert all(np.array_equal(level, long) for level in ours.get_attr("level"))
    with pytest.raises(AttributeError):
        ours.get_attr("nothing")
    agree(ours, SyncVectorEnv(samplers()))  # after an error in a call, too


def test_observations_are_copies_only_if_asked_for(build: Build) -> None:
    for copy in (True, False):
        ours = build(samplers("dict"), copy=copy, num_processes=2)
        first, _ = ours.reset(seed=0)
        before = first["z"].copy()
        second = ours.step(ours.action_space.sample())[0]
        assert np.array_equal(first["z"], before) == copy
        assert np.shares_memory(first["z"], second["z"]) != copy


def test_environments_may_have_spaces_of_one_shape_and_different_bounds(build: Build) -> None:
    def functions() -> list[Callable[[], Sampler]]:
        return [partial(Sampler, spaces.Box(0.0, high, (2,), np.float32), BOX) for high in (1.0, 2.0, 3.0)]

    theirs = SyncVectorEnv(functions(), observation_mode="different")
    ours = build(functions(), observation_mode="different", num_processes=2)
    assert ours.observation_space == theirs.observation_space
    agree(ours, theirs)
    single, batched = ours.single_observation_space, ours.observation_space
    assert build(functions(), observation_mode=(batched, single)).observation_space == batched
    with pytest.raises(RuntimeError, match="different"):
        build(functions(), num_processes=2)


@pytest.mark.parametrize(
    "options",
    [
        {"worker": print},
        {"max_concurrency": 0},
        {"max_concurrency": 1.5},
        {"observation_mode": "odd"},
        {"autoreset_mode": "odd"},
        {"num_processes": 0},
        {"batch_size": 0},
        {"batch_size": 9},
        {"cpus": [0], "num_processes": 2},
        *({"spin": spin} for spin in (-1, math.nan, 1e30)),
        *({"cpus": cpus} for cpus in ([1 << 20] * 5, [-1] * 5, ["0"] * 5)),
        *({"num_processes": count} for count in (10**9, 1.5, True)),
        {"context": "odd"},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        SharedMemoryVectorEnv(samplers(), **options)


def test_as_many_actions_as_environments_are_needed(build: Build) -> None:
    ours = build([partial(Sampler, BOX, spaces.Discrete(4))] * 4, num_processes=2)
    ours.reset(seed=0)
    ours.step([0, 1, 2, 3])
    for wrong in ([0], [0, 1, 2], [0, 1, 2, 3, 0], np.zeros((3, 1), np.int64)):
        with pytest.raises(ValueError, match="actions must be 4, one for each environment"):
            ours.step(wrong)
    with pytest.raises(TypeError, match="0"):
        ours.step(0)


def test_what_is_asked_for_is_waited_for_before_the_next(build: Build) -> None:
    ours = build(samplers(), num_processes=2)
    actions = ours.action_space.sample()
    for wait in (ours.reset_wait, ours.step_wait, ours.call_wait):
        with pytest.raises(NoAsyncCallError, match="without any prior call"):
            wait()
    ours.reset_async(seed=0)
    with pytest.raises(AlreadyPendingCallError, match="pending call to `reset`"):
        ours.step_async(actions)
    ours.reset_wait()
    ours.step_async(actions)
    for ask in (ours.reset_async, partial(ours.call_async, "render"), partial(ours.set_attr, "level", 1)):
        with pytest.raises(AlreadyPendingCallError, match="pending call to `step`"):
            ask()
    with pytest.warns(UserWarning, match="pending call to `step`"):
        ours.close()
    ours.close()
    for ask in (ours.reset, ours.render, partial(ours.step, 0), ours.step_wait, partial(ours.set_attr, "level", 1)):
        with pytest.raises(ClosedEnvironmentError):
            ask()


def test_what_takes_too_long_can_be_waited_for_again(build: Build) -> None:
    ours = build(troubled(2), num_processes=2)
    ours.reset()
    ours.step_async(np.array([Troubled.FINE, Troubled.SLEEP]))
    with pytest.raises(multiprocessing.TimeoutError):
        ours.step_wait(timeout=0.01)
    assert ours.step_wait()[0].tolist() == [1, 1]
    assert ours.step(np.zeros(2, np.int64))[0].tolist() == [2, 2]


# Asynchronous use.


def test_environments_stepped_as_they_come_do_what_they_do_in_a_loop(build: Build) -> None:
    ours, theirs = build(samplers(count=6), batch_size=2, num_processes=2), SyncVectorEnv(samplers(count=6))
    theirs.action_space.seed(0)
    tape = [theirs.action_space.sample() for _ in range(12)]
    first, *expected = [theirs.reset(seed=1)[0], *(theirs.step(actions) for actions in tape)]
    np.testing.assert_array_equal(ours.reset(seed=1)[0], first)
    count = [0] * 6
    ours.send(tape[0])
    while min(count) < 9:
        received = ours.recv()
        assert len(set(received.env_ids.tolist())) == 2
        for row, env_id in enumerate(received.env_ids.tolist()):
            *rows, infos = expected[count[env_id]]
            for ours_rows, their_rows in zip(received[:4], rows, strict=True):
                np.testing.assert_array_equal(ours_rows[row], their_rows[env_id])
            told = "count" in received.infos and received.infos["_count"][row]
            assert told == ("_count" in infos and infos["_count"][env_id])
            assert not told or received.infos["count"][row] == infos["count"][env_id]
            count[env_id] += 1
        ready = [env_id for env_id in received.env_ids.tolist() if count[env_id] < len(tape)]
        ours.send(np.array([tape[count[env_id]][env_id] for env_id in ready]).reshape(-1, 2, 3), ready)


@pytest.mark.parametrize("caller_steps", [True, False])
def test_a_slow_environment_does_not_hold_up_the_others(build: Build, caller_steps: bool) -> None:
    ours = build(troubled(4), batch_size=2, num_processes=2, caller_steps=caller_steps)
    ours.reset()
    ours.send(np.array([0, 0, 0, Troubled.SLEEP]))
    first, second = ours.recv(), ours.recv(min_batch=1)
    assert 3 not in first.env_ids
    rest = {*range(4)} - {*first.env_ids.tolist(), *second.env_ids.tolist()}
    while rest:
        rest -= set(ours.recv(min_batch=1).env_ids.tolist())


def test_what_can_never_be_received_is_an_error_and_not_a_hang(build: Build) -> None:
    ours = build(samplers(), batch_size=2, num_processes=2)
    ours.reset(seed=0)
    with pytest.raises(RuntimeError, match="2 environments, but 0 were sent"):
        ours.recv()
    ours.send(ours.action_space.sample()[:1], [4])
    with pytest.raises(RuntimeError, match="2 environments, but 1 were sent"):
        ours.recv()
    with pytest.raises(ValueError, match="environment 4 already has"):
        ours.send(ours.action_space.sample()[:2], [3, 4])
    with pytest.raises(ValueError, match="environment 5 does not exist"):
        ours.send(ours.action_space.sample()[:1], [5])
    with pytest.raises(ValueError, match="min_batch"):
        ours.recv(min_batch=3)
    assert ours.recv(min_batch=1).env_ids.tolist() == [4]


def test_a_call_or_a_reset_waits_for_steps_on_their_way(build: Build) -> None:
    ours = build(troubled(4), batch_size=2, num_processes=2)
    ours.reset()
    ours.send(np.array([0, 0, 0, Troubled.SLEEP]))
    assert ours.get_attr("_steps") == (1, 1, 1, 1)
    received = [*ours.recv().env_ids.tolist(), *ours.recv().env_ids.tolist()]
    assert sorted(received) == [0, 1, 2, 3]
    ours.send(np.array([0, 0]))
    ours.reset()
    assert ours.get_attr("_steps") == (0, 0, 0, 0)
    ours.send(np.zeros(4, np.int64))
    assert ours.recv().observations.tolist() == [1, 1]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_without_infos_there_are_only_last_observations(build: Build, mode: str) -> None:
    ours = build(samplers(), infos=False, num_processes=2, autoreset_mode=mode)
    theirs = SyncVectorEnv(samplers(), autoreset_mode=mode)
    for vector in (ours, theirs):
        vector.reset(seed=0)
        vector.action_space.seed(0)
    for _ in range(12):
        infos, others = (vector.step(vector.action_space.sample())[4] for vector in (ours, theirs))
        assert infos.get("final_info", {}) == {}
        assert data_equivalence(infos.get("final_obs"), others.get("final_obs"))
        assert infos.keys() <= {"final_obs", "_final_obs", "final_info", "_final_info"}


@pytest.mark.parametrize("mode", ["same", "different"])
def test_spaces_that_do_not_fit_together_are_refused(build: Build, mode: str) -> None:
    shapes = [partial(Sampler, spaces.Box(0.0, 1.0, (size,), np.float32), BOX) for size in (2, 3)]
    with pytest.raises((RuntimeError, AssertionError, ValueError, TypeError)):
        build(shapes, observation_mode=mode)
    with pytest.raises(RuntimeError, match="action space"):
        build([partial(Sampler, BOX, spaces.Discrete(size)) for size in (2, 3)], observation_mode=mode)


def test_actions_that_are_sent_one_by_one_are_whole_numbers_as_long_as_they_fit(build: Build) -> None:
    ours = build([partial(Sampler, BOX, spaces.Box(0, 200, (), np.uint8))] * 3, num_processes=2, batch_size=2)
    ours.reset(seed=0)
    ours.send([0, 200], [0, 1])
    ours.recv()
    ours.send(np.array([7, 200], np.int32), [0, 1])
    for wrong in ([256], [-1], [0.5]):
        with pytest.raises(TypeError, match="uint8"):
            ours.send(wrong, [2])
    with pytest.raises(ValueError, match="shape"):
        ours.send([[1]], [2])


def test_the_two_ways_of_stepping_do_not_mix(build: Build) -> None:
    some, whole = build(samplers(), batch_size=2, num_processes=2), build(samplers(), num_processes=2)
    actions = whole.action_space.sample()
    for wrong in (partial(some.step, actions), partial(whole.send, actions), whole.recv):
        with pytest.raises(RuntimeError, match="batch_size"):
            wrong()


def test_those_received_and_not_reset_are_sent_to_in_the_order_in_which_they_came(build: Build) -> None:
    ours = build(troubled(4), batch_size=3, num_processes=2, caller_steps=False)
    ours.reset()
    for env_id in (3, 0, 2):
        ours.send(np.zeros(1, np.int64), [env_id])
        ours.get_attr("_steps")  # waits for it, so that it is ready before the next
    assert ours.recv().env_ids.tolist() == [3, 0, 2]
    ours.reset(options={"reset_mask": np.arange(4) == 0})
    ours.send(np.array([0, Troubled.RAISE, 0]))  # to 3, 2, 0
    with pytest.raises(ValueError, match="boom") as raised:
        ours.get_attr("_steps")
    assert "environment 2" in str(raised.value.__cause__)


# Environments and scripts with unusual behaviour.


class Echo(gymnasium.Env[Any, Any]):
    """Observes its last action and the type of this action. An episode has three steps."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = self.action_space = space
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Value = None) -> tuple[Any, dict[str, Any]]:
        self.action_space.seed(seed)
        self._steps = 0
        return self.action_space.sample(), {}

    def step(self, action: Value) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._steps += 1
        dtype, shape = str(getattr(action, "dtype", "")), getattr(action, "shape", ())
        kind = {"type": type(action).__name__, "dtype": dtype, "shape": shape}
        return action, self.rewarded(), self._steps == 3, False, kind

    def rewarded(self) -> Value:
        return float(self._steps)


# The caller and a worker: with each test both ways of an action, an observation or a call are tried.
IN_TWO: dict[str, Value] = {"num_processes": 2, "caller_steps": True}


@pytest.mark.parametrize(
    ("space", "batches"),
    [
        (
            spaces.Box(-1, 9, (2,), np.float32),
            (np.ones((2, 2)), np.ones((2, 2), int), [[1.0, 2.0], [3.0, 4.0]], [np.ones(2), np.zeros(2)]),
        ),
        (spaces.Discrete(4), (np.array([[1], [2]]), np.array([1, 2], np.int32), [1, 2], (3, 0), np.array([1.0, 2.0]))),
        (spaces.Dict({"a": spaces.Discrete(3)}), ({"a": [1, 2]}, {"a": np.array([1.0, 2.0]), "unused": 1})),
    ],
    ids=["box", "discrete", "dict"],
)
def test_an_action_of_another_type_or_shape_comes_as_from_gymnasium(
    build: Build, space: spaces.Space[Any], batches: tuple[Any, ...]
) -> None:
    ours = build([partial(Echo, space)] * 2, **IN_TWO, autoreset_mode="Disabled")
    theirs = AsyncVectorEnv([partial(Echo, space)] * 2, autoreset_mode="Disabled")
    for envs in (ours, theirs):
        envs.reset(seed=3)
    for batch in batches:
        assert data_equivalence(ours.step(batch), theirs.step(batch))
    theirs.close()


class Doubling(Echo):
    """Doubles its action in place."""

    def step(self, action: Value) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        action *= 2
        return super().step(action)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_environment_may_change_its_action_and_the_callers_stays_as_it_is(build: Build, dtype: type) -> None:
    envs = build([partial(Doubling, spaces.Box(0, 9, (2,), np.float32))] * 2, **IN_TWO)
    envs.reset(seed=1)
    actions = np.ones((2, 2), dtype)
    assert envs.step(actions)[0].tolist() == [[2.0, 2.0]] * 2
    assert actions.tolist() == [[1.0, 1.0]] * 2


class Sloppy(Echo):
    """Declares a shape and returns another, and rewards that are arrays."""

    def step(self, action: Value) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        action, _, *rest = super().step(action)
        return (action.reshape(-1), np.array([self._steps]), *rest)  # type: ignore[return-value]


def test_arrays_of_another_shape_with_as_many_elements_are_taken(build: Build) -> None:
    envs = build([partial(Sloppy, spaces.Box(0, 9, (2, 2), np.float32))] * 2, **IN_TWO)
    envs.reset(seed=1)
    actions = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    observations, rewards, *_ = envs.step(actions)
    np.testing.assert_array_equal(observations, actions)
    assert rewards.tolist() == [1.0, 1.0]


class InPlace(Echo):
    """Observes one array, which it uses again."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 99, (1,), np.float64))
        self.observed = np.zeros(1)

    def step(self, action: Value) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.observed += 1
        return self.observed, *super().step(action)[1:]  # type: ignore[return-value]


def test_a_last_observation_stays_though_its_array_is_used_again(build: Build) -> None:
    envs = build([InPlace] * 2, **IN_TWO, autoreset_mode="SameStep")
    envs.reset(seed=1)
    for _ in range(3):
        infos = envs.step(np.zeros((2, 1)))[4]
    envs.step(np.zeros((2, 1)))
    assert [last.tolist() for last in infos["final_obs"]] == [[3.0], [3.0]]


@pytest.mark.parametrize(
    ("at_once", "options", "workers"),
    [
        (None, {}, 4),
        (np.int64(1), {}, 1),
        (3, {"num_processes": 2}, 2),
        (9, {"cpus": CPUS * 2}, 2),
        (1, {"caller_steps": True}, 0),
        (9, {"caller_steps": True, "cpus": CPUS * 2}, 1),
    ],
    ids=str,
)
def test_no_more_processes_step_than_may_at_once(
    build: Build, at_once: int | None, options: dict[str, Any], workers: int
) -> None:
    envs = build([partial(Echo, spaces.Discrete(2))] * 4, max_concurrency=at_once, **options)
    assert len(envs.processes) == workers
    assert all(process.is_alive() for process in envs.processes)
    assert (envs.max_concurrency, envs.shared_memory, envs.context, envs.daemon) == (at_once, True, None, True)


def set_steps(environment: Echo, count: int) -> str:
    environment._steps = count
    return f"{count} now"


def test_a_function_can_be_applied_to_some_environments_where_they_are(build: Build) -> None:
    envs = build([partial(Echo, spaces.Discrete(2))] * 4, **IN_TWO)
    assert envs.apply(set_steps, [3, -4], 7) == ["7 now", "7 now"]
    assert envs.get_attr("_steps") == (7, 0, 0, 7)
    with pytest.raises(IndexError):
        envs.apply(set_steps, [4], 7)


class DrawsGlobally(Sampler):
    """Draws observations from the global generators of its process, which it seeds."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global one
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observe(), 0.0, False, False, {}

    @staticmethod
    def _observe() -> np.ndarray[Any, Any]:
        return np.array([random.random(), np.random.random()], np.float32)  # noqa: NPY002 - the global generator is the point


def test_by_default_environments_may_draw_from_the_generators_of_their_process() -> None:
    functions = [partial(DrawsGlobally, spaces.Box(0, 1, (2,)), spaces.Discrete(3))] * 4
    ours = SharedMemoryVectorEnv(functions, context="fork")
    theirs = AsyncVectorEnv(functions, context="fork")
    rows = []
    for envs in (ours, theirs):
        observations = [envs.reset(seed=5)[0]]
        for _ in range(3):
            random.random()
            np.random.random()  # noqa: NPY002 - the global generator is the point
            observations.append(envs.step(np.zeros(4, np.int64))[0])
        rows.append(observations)
        envs.close()
    np.testing.assert_array_equal(*rows)


def test_make_vec_makes_ours_by_its_spec_with_settings_and_wrappers() -> None:
    wrappers = [FlattenObservation, partial(ClipReward, max_reward=0.5)]
    settings = {"sutton_barto_reward": True, "max_episode_steps": 9}
    spec = shared_memory_spec("CartPole-v1", wrappers=wrappers, num_processes=2, copy=False)
    ours = gymnasium.make_vec(spec, num_envs=3, **settings)
    theirs = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync", wrappers=wrappers, **settings)
    assert data_equivalence(ours.reset(seed=1), theirs.reset(seed=1))
    for _ in range(20):
        actions = theirs.action_space.sample()
        assert data_equivalence(ours.step(actions), theirs.step(actions))
    assert isinstance(ours, SharedMemoryVectorEnv)
    assert not ours.copy
    again = gymnasium.make_vec(ours.spec)  # made from the recorded specification
    assert isinstance(again, SharedMemoryVectorEnv)
    assert again.num_envs == 3
    with_a_module = gymnasium.make_vec(shared_memory_spec("various:various/Troubled-v0"), num_envs=2)
    assert isinstance(with_a_module, SharedMemoryVectorEnv)
    for envs in (ours, theirs, again, with_a_module):
        envs.close()


def test_the_recipe_of_the_documents_makes_ours() -> None:
    envs = recipe("gymnasium-make-vec")["envs"]
    assert isinstance(envs, SharedMemoryVectorEnv)
    envs.reset(seed=1)
    assert envs.step(envs.action_space.sample())[1].tolist() == np.ones(8).tolist()
    envs.close()
