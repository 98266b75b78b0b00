"""SharedMemoryVectorEnv where AsyncVectorEnv was: scripts and environments that do what is written nowhere."""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import ClipReward, FlattenObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from support.recipes import recipe
from various import Sampler

from vebench.backends.shared_memory import SharedMemoryVectorEnv, WorkerError, shared_memory_spec

Space = spaces.Space[Any]
Value = Any  # what a space says

pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array:UserWarning")
CPUS = sorted(os.sched_getaffinity(0))[:1] if hasattr(os, "sched_getaffinity") else [0]


class Echo(gymnasium.Env[Any, Any]):
    """Observes its last action, and says of which kind it was; an episode has three steps."""

    def __init__(self, space: Space) -> None:
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


def boxes() -> st.SearchStrategy[Space]:
    shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    return st.builds(partial(spaces.Box, 0, 9), shape=shapes, dtype=st.sampled_from([np.float32, np.float64, np.uint8]))


WITH_SHAPE = st.one_of(
    boxes(),
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-2, 2)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
)
ANY = st.recursive(
    WITH_SHAPE,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.text("abc", min_size=1), inner, min_size=1, max_size=3).map(spaces.Dict)
    ),
    max_leaves=4,
)


@settings(max_examples=15)
@given(space=ANY, caller_steps=st.booleans())
def test_what_is_done_in_any_space_is_observed_in_it(space: Space, caller_steps: bool) -> None:
    envs = SharedMemoryVectorEnv([partial(Echo, space)] * 3, num_processes=2, caller_steps=caller_steps)
    try:
        first, _ = envs.reset(seed=1)
        assert first in envs.observation_space
        for _ in range(2):
            actions = envs.action_space.sample()
            observed = envs.step(actions)[0]
            assert data_equivalence(observed, actions)
            assert data_equivalence(envs.observations, actions)
    finally:
        envs.close()


# The caller and a worker: with each test both ways of an action, an observation or a call are tried.
in_two_processes = partial(SharedMemoryVectorEnv, num_processes=2, caller_steps=True)


def beside_gymnasium(make: Callable[[], Any], **options: Value) -> tuple[SharedMemoryVectorEnv, Any]:
    """Return ours, which is stepped by the caller and a worker, and Gymnasium's, both at the start of an episode."""
    ours = in_two_processes([make] * 2, **options)
    theirs = AsyncVectorEnv([make] * 2, **options)
    for envs in (ours, theirs):
        envs.reset(seed=3)
    return ours, theirs


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
def test_an_action_of_another_type_or_shape_comes_as_from_gymnasium(space: Space, batches: tuple[Any, ...]) -> None:
    ours, theirs = beside_gymnasium(partial(Echo, space), autoreset_mode="Disabled")
    for batch in batches:
        assert data_equivalence(ours.step(batch), theirs.step(batch))
    ours.close()
    theirs.close()


class Doubling(Echo):
    """Doubles what it is given, where it is."""

    def step(self, action: Value) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        action *= 2
        return super().step(action)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_environment_may_change_its_action_and_the_callers_stays_as_it_is(dtype: type) -> None:
    envs = in_two_processes([partial(Doubling, spaces.Box(0, 9, (2,), np.float32))] * 2)
    envs.reset(seed=1)
    actions = np.ones((2, 2), dtype)
    assert envs.step(actions)[0].tolist() == [[2.0, 2.0]] * 2
    assert actions.tolist() == [[1.0, 1.0]] * 2
    envs.close()


class Sloppy(Echo):
    """Declares a shape and returns another, and rewards that are arrays."""

    def step(self, action: Value) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        action, _, *rest = super().step(action)
        return (action.reshape(-1), np.array([self._steps]), *rest)  # type: ignore[return-value]


def test_arrays_of_another_shape_with_as_many_elements_are_taken() -> None:
    envs = in_two_processes([partial(Sloppy, spaces.Box(0, 9, (2, 2), np.float32))] * 2)
    envs.reset(seed=1)
    actions = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    observations, rewards, *_ = envs.step(actions)
    np.testing.assert_array_equal(observations, actions)
    assert rewards.tolist() == [1.0, 1.0]
    envs.close()


class InPlace(gymnasium.Env[Any, Any]):
    """Observes one array, in which it counts its steps; an episode has two."""

    observation_space, action_space = spaces.Box(0, 99, (1,), np.float64), spaces.Discrete(2)

    def __init__(self) -> None:
        self.observed = np.zeros(1)

    def reset(self, *, seed: int | None = None, options: Value = None) -> tuple[Any, dict[str, Any]]:
        self.observed[:] = 0 if seed is not None else 50
        return self.observed, {}

    def step(self, action: Value) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.observed += 1
        return self.observed, 0.0, bool(self.observed[0] % 50 == 2), False, {"told": [self.observed]}


def test_a_last_observation_stays_though_its_array_is_used_again() -> None:
    ours, theirs = beside_gymnasium(InPlace, autoreset_mode="SameStep")
    told = []
    for envs in (ours, theirs):
        for _ in range(2):
            infos = envs.step(np.zeros(2, np.int64))[4]
        envs.step(np.zeros(2, np.int64))
        told.append(list(infos["final_obs"]))
        envs.close()
    assert data_equivalence(*told)


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
def test_no_more_processes_step_than_may_at_once(at_once: int | None, options: dict[str, Any], workers: int) -> None:
    envs = SharedMemoryVectorEnv([partial(Echo, spaces.Discrete(2))] * 4, max_concurrency=at_once, **options)
    assert len(envs.processes) == workers
    assert all(process.is_alive() for process in envs.processes)
    assert (envs.max_concurrency, envs.shared_memory, envs.context, envs.daemon) == (at_once, True, None, True)
    envs.close()


def set_steps(environment: Echo, count: int) -> str:
    environment._steps = count
    return f"{count} now"


def test_a_function_can_be_applied_to_some_environments_where_they_are() -> None:
    envs = in_two_processes([partial(Echo, spaces.Discrete(2))] * 4)
    assert envs.apply(set_steps, [3, -4], 7) == ["7 now", "7 now"]
    assert envs.get_attr("_steps") == (7, 0, 0, 7)
    with pytest.raises(IndexError):
        envs.apply(set_steps, [4], 7)
    envs.close()


COUNT = 4
BOX = spaces.Box(0, 1, (2,))


class DrawsGlobally(Sampler):
    """Draws what it observes from the global generators of its process, which it seeds."""

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


class Crashes(Sampler):
    """Ends its process at action 1, and crashes it at action 2."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 1:
            os._exit(7)
        if action == 2:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


def functions(kind: Callable[..., Sampler]) -> list[Callable[[], Sampler]]:
    return [partial(kind, BOX, spaces.Discrete(3))] * COUNT


@pytest.mark.parametrize("asked", [{}, {"num_processes": COUNT, "caller_steps": False}])
def test_rows_are_those_of_async_vector_env_though_environments_need_a_process_each(asked: dict[str, Any]) -> None:
    ours = SharedMemoryVectorEnv(functions(DrawsGlobally), context="fork", **asked)
    theirs = AsyncVectorEnv(functions(DrawsGlobally), context="fork")
    rows = []
    for envs in (ours, theirs):
        observations = [envs.reset(seed=5)[0]]
        for _ in range(3):
            random.random()
            np.random.random()  # noqa: NPY002 - the global generator is the point
            observations.append(envs.step(np.zeros(COUNT, np.int64))[0])
        rows.append(observations)
        envs.close()
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(("action", "how"), [(1, "exit status 7"), (2, "SIGSEGV")])
def test_an_environment_that_crashes_its_process_leaves_the_caller_alive(action: int, how: str) -> None:
    envs = SharedMemoryVectorEnv(functions(Crashes), context="fork")
    envs.reset(seed=5)
    with pytest.raises(WorkerError, match=rf"environments 0 to 0 died \({how}\)"):
        envs.step(np.array([action, 0, 0, 0]))
    envs.close()
    assert multiprocessing.active_children() == []


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
    again = gymnasium.make_vec(ours.spec)  # what Gymnasium has kept of it
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
