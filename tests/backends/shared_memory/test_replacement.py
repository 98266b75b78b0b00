"""SharedMemoryVectorEnv where AsyncVectorEnv was: scripts and environments that do what is written nowhere."""

import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from vebench.backends.shared_memory import SharedMemoryVectorEnv

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


def test_without_autoreset_environments_are_stepped_past_their_ends() -> None:
    ours, theirs = beside_gymnasium(partial(Echo, spaces.Discrete(3)), autoreset_mode="Disabled")
    for _ in range(5):
        assert data_equivalence(ours.step(np.array([1, 2])), theirs.step(np.array([1, 2])))
    ours.close()
    theirs.close()


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


class LoudlyClosed(Echo):
    """Cannot be closed, and says so."""

    def close(self) -> None:
        raise OSError(f"no display {self.action_space}")


def test_an_exception_in_close_is_shown_and_the_others_are_closed(capfd: pytest.CaptureFixture[str]) -> None:
    functions = [partial(kind, spaces.Discrete(2)) for kind in (Echo, LoudlyClosed, LoudlyClosed, LoudlyClosed)]
    in_two_processes(functions, context="fork").close()
    assert capfd.readouterr().err.count("OSError: no display") == 3
    assert multiprocessing.active_children() == []


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
