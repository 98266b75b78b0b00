"""The contract of Gymnasium's vector environments as tests for pytest (docs/reference/contract.md)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
import pytest
from gymnasium.error import NoAsyncCallError
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
TROUBLE = 4  # the action that calls an environment's ``trouble``
# Two environments with episodes of 2 and 3 steps make three steps. After each step: episode and step of both
# environments. Then the rewards of the first environment.
EPISODES = {
    AutoresetMode.NEXT_STEP: ([[0, 1, 0, 1], [0, 2, 0, 2], [1, 0, 0, 3]], [1, 1, 0]),
    AutoresetMode.SAME_STEP: ([[0, 1, 0, 1], [1, 0, 0, 2], [1, 1, 1, 0]], [1, 1, 1]),
    AutoresetMode.DISABLED: ([[0, 1, 0, 1], [0, 2, 0, 2], [1, 1, 0, 3]], [1, 1, 1]),
}


class FaultError(Exception):
    """An exception that an environment raises. Tests check where it arrives."""


class Counting(gymnasium.Env[Any, Any]):
    """An environment whose observation is its seed, episode, step and action. Its reward is the action.

    Infos have an odd action. An episode ends after ``length`` steps, and a further step is an error. With ``reuses``,
    all observations are the same array, overwritten. The action ``TROUBLE`` calls ``trouble``. ``close`` is ``closed``.
    """

    action_space = Discrete(5)
    observation_space = Box(-1, 2**31, (4,), np.int64)

    def __init__(
        self,
        length: int = 3,
        *,
        truncates: bool = False,
        reuses: bool = False,
        trouble: Callable[[], object] = lambda: None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = length, truncates, reuses, trouble
        self._row, self.close = np.array([-1, -1, 0, 0]), closed  # type: ignore[method-assign]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the first episode of a seed, or the next episode without a seed. Return the options as infos."""
        row = [self._row[0], self._row[1] + 1, 0, 0] if seed is None else [seed, 0, 0, 0]
        return self._observed(row), dict(options or {})

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count the step. Return the action as reward."""
        length, truncates, _, trouble = self._settings
        assert self._row[2] < length, "a step after the end of an episode"
        if action == TROUBLE:
            trouble()
        ends = bool(self._row[2] + 1 == length)
        infos = {"odd": int(action)} if action % 2 else {}
        row = self._observed([*self._row[:2], self._row[2] + 1, action])
        return row, float(action), ends and not truncates, ends and truncates, infos

    def _observed(self, row: Sequence[int]) -> Any:
        self._row = self._row if self._settings[2] else self._row.copy()
        self._row[:] = row
        return self._row


def _raise_fault(_: int = 0) -> NoReturn:
    raise FaultError("planted")


def _interrupt(caller: int) -> None:
    time.sleep(0.1)  # By then, the caller waits.
    os.kill(caller, signal.SIGINT)
    time.sleep(0.1)


def _kill(caller: int) -> None:
    _sleep(caller, 0.0)
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep(caller: int, seconds: float) -> None:
    if os.getpid() == caller:
        pytest.skip("the calling process steps the environments")
    time.sleep(seconds)


@pytest.mark.filterwarnings("ignore")  # A vector environment may warn about the faults.
class VectorEnvContract:
    """Tests of a vector environment: name a subclass ``Test...`` and define ``make``.

    ``metadata`` states the autoreset mode, by default ``NEXT_STEP``. Each mode needs a subclass. A test that does not
    apply is skipped. A test fails after ``limit`` seconds. Some fail if processes of ``multiprocessing`` are left.
    """

    limit = 10.0

    def make(self, env_fns: list[MakeEnv]) -> Any:  # noqa: ARG002 - subclasses use it
        """Return a vector environment with an environment from each function."""
        pytest.skip("it takes no functions that make environments")

    def make_vec(self, num_envs: int) -> Any:
        """Return a vector environment of this size. Define this method if you cannot define ``make``."""
        return self.make([partial(Counting, 3 + index) for index in range(num_envs)])

    @pytest.fixture(autouse=True)
    def _bounded(self) -> Iterator[None]:
        def overdue(*_: object) -> NoReturn:
            pytest.fail(f"not done after {self.limit:g} seconds")

        self._made: list[Any] = []
        self._before = {*multiprocessing.active_children()}
        handler = signal.signal(signal.SIGALRM, overdue)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        for process in self._left():
            process.kill()
            process.join()
        for envs in self._made:
            with suppress(Exception):
                envs.close()

    def _left(self) -> set[BaseProcess]:
        return {*multiprocessing.active_children()} - self._before

    def _start(self, *env_fns: MakeEnv) -> Any:
        """Return a vector environment of these environments, or of any two, after a reset with seed 7."""
        envs = self.make([*env_fns]) if env_fns else self.make_vec(2)
        self._made.append(envs)
        envs.reset(seed=7)
        return envs

    def _end(self, envs: Any) -> None:
        """Close a vector environment, and check that no process is left."""
        envs.close()
        assert self._left() == set()

    def _troubled(self, trouble: Callable[..., object], *args: object) -> Any:
        """Return a vector environment whose second environment has this trouble. ``trouble`` gets the caller's pid."""
        return self._start(Counting, partial(Counting, trouble=partial(trouble, os.getpid(), *args)))

    def _late(self, seconds: float, timeout: float | None) -> Any:
        """Return a vector environment in a step of ``seconds``. With a ``timeout``, ``step_wait`` has timed out."""
        envs = self._troubled(_sleep, seconds)
        if not hasattr(envs, "step_async"):
            pytest.skip("it has no step_async and step_wait")
        envs.step_async(np.array([0, TROUBLE]))
        if timeout:
            with pytest.raises((TimeoutError, multiprocessing.TimeoutError)):
                envs.step_wait(timeout=timeout)
        return envs

    def _broken(self, trouble: Callable[..., object]) -> tuple[Any, BaseException]:
        """Return a vector environment whose step has raised an error because of this trouble, and the error."""
        envs = self._troubled(trouble)
        with pytest.raises(KeyboardInterrupt if trouble == _interrupt else Exception) as caught:
            envs.step(np.array([0, TROUBLE]))
        return envs, caught.value

    def test_rows_are_elements_of_the_spaces(self) -> None:
        """Observations are in ``observation_space``; rewards and ends are arrays with a value for each environment."""
        envs = self._start()
        observations, rewards, terminated, truncated, infos = envs.step(_actions(envs).sample())
        assert envs.observation_space == batch_space(envs.single_observation_space, 2)
        assert (observations in envs.observation_space, rewards.shape, type(infos)) == (True, (2,), dict)
        assert [(ends.shape, ends.dtype) for ends in (terminated, truncated)] == [((2,), np.bool_)] * 2

    def test_each_environment_gets_its_action(self) -> None:
        """Row ``i`` of the actions, and of all returned arrays, belongs to environment ``i``."""
        observations, rewards, *_ = self._start(Counting, Counting, Counting).step(np.array([3, 1, 2]))
        assert (observations[:, 3].tolist(), rewards.tolist()) == ([3, 1, 2], [3.0, 1.0, 2.0])

    def test_too_few_actions_are_an_error(self) -> None:
        """A step needs an action for each environment."""
        envs = self._start()
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one is not laid down
            envs.step(_actions(envs).sample()[:1])

    def test_environments_are_seeded_in_order(self) -> None:
        """Environment ``i`` has the seed ``seed + i``, or ``seed[i]``."""
        envs = self._start()
        (_, second), (first, _) = (_rows(envs, envs.reset(seed=seed)) for seed in (3, 4))
        assert data_equivalence([first, first], [second, _rows(envs, envs.reset(seed=[9, 4]))[1]], exact=True)

    def test_the_same_seed_gives_the_same_rows(self) -> None:
        """A reset with a seed begins the same episodes, also after an end."""
        envs = self._start()
        actions, ended = _actions(envs), False
        first = _played(envs, actions)
        while not ended:
            ended = bool(np.any(envs.step(actions.sample())[2:4]))
        assert data_equivalence(_played(envs, actions), first, exact=True)

    def test_returned_arrays_are_not_overwritten(self) -> None:
        """A later step does not change the arrays of an earlier step or reset."""
        envs = self._start()
        first = envs.reset(seed=7)[0], envs.step(_actions(envs).sample())
        kept = deepcopy(first)
        envs.step(_actions(envs).sample())
        assert data_equivalence(first, kept, exact=True)

    def test_episodes_follow_each_other_as_the_mode_says(self) -> None:
        """After an end, the next step, the same step, or only ``reset_mask`` resets the environment."""
        envs, shown, rewarded = self._start(partial(Counting, 2), Counting), [], []
        for _ in range(3):
            observations, rewards, terminated, *_ = envs.step(np.array([1, 2]))
            shown.append(observations[:, 1:3].ravel().tolist())
            rewarded.append(rewards[0])
            if _mode(envs) == AutoresetMode.DISABLED and len(shown) == 2:  # noqa: PLR2004 - the second step ends an episode
                envs.reset(options={"reset_mask": terminated.copy()})
        assert (shown, rewarded) == EPISODES[_mode(envs)]

    @pytest.mark.parametrize("reuses", [False, True], ids=["new_arrays", "reused_array"])
    def test_the_last_observation_is_returned(self, reuses: bool) -> None:
        """The row of the end has it; with ``SAME_STEP``, ``final_obs`` does. An environment may reuse its array."""
        envs = self._start(partial(Counting, 1, reuses=reuses), Counting)
        observations, _, _, _, infos = envs.step(np.array([3, 2]))
        last = infos["final_obs"] if _mode(envs) == AutoresetMode.SAME_STEP else observations
        assert last[0].tolist() == [7, 0, 1, 3]

    def test_terminated_and_truncated_are_told_apart(self) -> None:
        """The flags tell a termination from a truncation."""
        step = self._start(partial(Counting, 1), partial(Counting, 1, truncates=True)).step(np.array([0, 0]))
        assert [ends.tolist() for ends in step[2:4]] == [[True, False], [False, True]]

    def test_a_mask_resets_only_those_in_it(self) -> None:
        """``options["reset_mask"]`` resets some environments. The reset returns the rows of all environments."""
        envs = self._start()
        before = _rows(envs, envs.step(_actions(envs).sample()))
        after = _rows(envs, envs.reset(seed=9, options={"reset_mask": np.array([True, False])}))
        assert [data_equivalence(*rows, exact=True) for rows in zip(before, after, strict=True)] == [False, True]

    def test_infos_are_arrays_with_masks(self) -> None:
        """A key of the infos has an array of values. The same key after ``_`` has their mask."""
        envs = self._start(Counting, Counting)
        assert envs.reset(options={"note": 5})[1]["note"].tolist() == [5, 5]
        infos = envs.step(np.array([2, 3]))[4]
        assert (infos["odd"][1], infos["_odd"].tolist()) == (3, [False, True])

    def test_options_stay_as_they_are(self) -> None:
        """A reset does not change the caller's options."""
        options = {"reset_mask": np.array([True, False])}
        self._start().reset(options=options)
        assert [*options] == ["reset_mask"]

    def test_close_closes_each_environment(self, tmp_path: Path) -> None:
        """``close`` calls the environments' ``close``, and leaves no process."""
        files = [tmp_path / "first", tmp_path / "second"]
        self._end(self._start(*(partial(Counting, closed=file.touch) for file in files)))
        assert [file.exists() for file in files] == [True, True]

    def test_close_may_be_called_twice(self) -> None:
        """A second ``close`` does nothing."""
        envs = self._start()
        envs.close()
        envs.close()

    def test_a_step_after_close_is_an_error(self) -> None:
        """A closed vector environment returns no rows."""
        envs = self._start()
        envs.close()
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one is not laid down
            envs.step(_actions(envs).sample())

    def test_close_while_stepping(self) -> None:
        """``close`` between ``step_async`` and ``step_wait`` leaves no process."""
        self._end(self._late(0.1, timeout=None))

    def test_an_exception_arrives(self) -> None:
        """``step`` raises an environment's exception with its own type."""
        assert isinstance(self._broken(_raise_fault)[1], FaultError)

    def test_an_exception_has_its_traceback(self) -> None:
        """The traceback, with causes and notes, names the line in the environment."""
        _, error = self._broken(_raise_fault)
        assert _raise_fault.__name__ in "".join(traceback.format_exception(error))

    def test_an_exception_while_an_environment_is_made_arrives(self) -> None:
        """The constructor raises the exception."""
        with pytest.raises(FaultError):
            self._start(Counting, _raise_fault)

    def test_a_killed_worker_is_an_error(self) -> None:
        """``step`` raises an error if a process that steps environments has died."""
        self._broken(_kill)

    @pytest.mark.parametrize("trouble", [_raise_fault, _interrupt], ids=["an_exception", "ctrl_c"])
    def test_a_reset_works_after(self, trouble: Callable[..., object]) -> None:
        """After an exception or an interrupt, a reset of all environments begins anew."""
        envs, _ = self._broken(trouble)
        first, second = envs.reset(seed=7)[0], envs.step(np.array([1, 2]))[0]
        assert (first.tolist(), second.tolist()) == ([[7, 0, 0, 0], [8, 0, 0, 0]], [[7, 0, 1, 1], [8, 0, 1, 2]])

    @pytest.mark.parametrize("trouble", [_raise_fault, _interrupt, _kill], ids=["an_exception", "ctrl_c", "a_death"])
    def test_close_works_after(self, trouble: Callable[..., object]) -> None:
        """After an exception, an interrupt or a worker's death, ``close`` raises nothing and leaves no process."""
        self._end(self._broken(trouble)[0])

    def test_close_ends_a_step_that_has_timed_out(self) -> None:
        """``step_wait(timeout=...)`` raises TimeoutError if an environment hangs; ``close`` then leaves no process."""
        self._end(self._late(1000.0, timeout=0.05))

    def test_a_late_row_is_not_taken_for_the_next(self) -> None:
        """After a timeout, the row of that step is not returned as another step's row."""
        envs = self._late(0.5, timeout=0.05)
        with suppress(NoAsyncCallError):
            envs.step_wait()
        assert envs.step(np.array([1, 2]))[1].tolist() == [1.0, 2.0]


def _mode(envs: Any) -> AutoresetMode:
    return AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))


def _actions(envs: Any) -> Any:
    """Return the space of batches of actions, with seed 0."""
    space = batch_space(envs.single_action_space, envs.num_envs)
    space.seed(0)
    return space


def _rows(envs: Any, returned: Sequence[Any]) -> list[Any]:
    """Return each environment's observation from the tuple that ``reset`` or ``step`` returned."""
    return [*iterate(batch_space(envs.single_observation_space, envs.num_envs), deepcopy(returned[0]))]


def _played(envs: Any, actions: Any) -> list[Any]:
    """Return the results of a seeded reset and two steps, without infos."""
    actions.seed(0)
    return [deepcopy(envs.reset(seed=7)[0]), *(deepcopy(envs.step(actions.sample())[:4]) for _ in range(2))]
