"""A vector environment of Gymnasium's kind on our own processes, to use in place of ``AsyncVectorEnv``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from copy import deepcopy
from functools import partial
from importlib import import_module
from multiprocessing.process import BaseProcess
from operator import methodcaller
from typing import Any, NamedTuple, NoReturn, TypeVar

import gymnasium
import numpy as np
from gymnasium import Space, logger
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_differing_spaces, batch_space, clear_mpi_env_vars, iterate
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.shared_memory import gymnasium_share as share
from vebench.backends.shared_memory.memory_layout import Division, MakeShare, usable_cpus
from vebench.backends.shared_memory.team import END_WITHIN_SECONDS, IDLE, RUNNING, InFlight, OverdueError, State, Team
from vebench.errors import shown
from vebench.machine import kernel

Environment = gymnasium.Env[Any, Any]
Seeds = int | Sequence[int | None] | None  # the seed of environment 0 (others count up), or a seed for each
_Reset = tuple[Any, dict[str, Any]]  # observations and infos
# Observations, rewards, terminations, truncations and infos.
_Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
_Result = TypeVar("_Result")


def checked_number(name: str, value: Any, least: int, most: int) -> int:
    """Return ``value`` as an int. Raises ValueError unless it is a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {shown(repr(value))}")
    return int(value)


def each_seed(seed: Seeds, count: int) -> list[int | None]:
    """Return a seed for each environment, ``seed + i`` or ``seed[i]``. Raises ValueError for invalid seeds."""
    if seed is None:
        return [None] * count
    most = np.iinfo(np.int64).max
    if not isinstance(seed, Sized):
        first = checked_number("seed", seed, 0, most + 1 - count)
        return [first + index for index in range(count)]
    if len(seed) != count:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={count} but got length={len(seed)}."
        )
    return [None if one is None else checked_number("seed", one, 0, most) for one in seed]


def _checked_cpus(cpus: Sequence[int] | None) -> list[int] | None:
    """Return the CPUs as ints. Raises ValueError for a CPU that this process may not use."""
    if cpus is None:
        return None
    allowed = kernel.allowed()
    if allowed is not None and not set(cpus).issubset(allowed):
        usable = ", ".join(map(str, allowed))
        raise ValueError(f"cpus: this process may only use {usable}, not {shown(repr(cpus))}")
    return [int(cpu) for cpu in cpus]


class Received(NamedTuple):
    """The rows that ``recv`` returns, one for each environment that is ready."""

    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: dict[str, Any]  # in Gymnasium's form
    env_ids: NDArray[np.int64]


class SharedMemoryVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps environments in processes that share memory. It is used like ``AsyncVectorEnv``.

    >>> import gymnasium as gym
    >>> envs = SharedMemoryVectorEnv([lambda: gym.make("CartPole-v1")] * 4, num_processes=2)
    >>> observations, infos = envs.reset(seed=42)
    >>> observations.shape
    (4, 4)
    >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    >>> rewards
    array([1., 1., 1., 1.])
    >>> envs.close()

    By default, each environment has its own process. With ``caller_steps=True``, the caller and a few other processes
    step all environments, which is several times faster if steps are fast. Do not use it if an environment may crash
    its process or depends on process-wide state, such as numpy's global generator.

    Only the process that made a ``SharedMemoryVectorEnv`` can use it. It cannot be copied or pickled.

    Parameters
    ----------
    env_fns, copy, context, daemon, observation_mode, autoreset_mode
        As for ``AsyncVectorEnv``.
    shared_memory
        Has no effect: observations and actions are arrays in shared memory.
    worker
        Must be None.
    max_concurrency
        The largest number of processes that step environments.
    num_processes
        Number of processes that step environments, at most ``max_concurrency``. The default is one process for each of
        ``cpus``. Without ``cpus``, it is one for each environment, or with ``caller_steps`` one for each usable CPU.
    batch_size
        The most rows that ``recv`` returns. If less than the number of environments, use ``send`` and ``recv``, not
        ``step``.
    cpus
        A CPU for each process: worker ``k`` runs on ``cpus[k]``. With ``caller_steps``, ``cpus[0]`` is left to the
        caller, which is not moved.
    caller_steps
        Whether the calling process steps a share of the environments itself. These cannot time out.
    spin
        Microseconds for which a waiting process polls before it sleeps. By default 400, or 0 if there are more
        processes than CPUs.
    infos
        Whether to return infos. Without them, ``SAME_STEP`` still returns an episode's last observation in them.

    Notes
    -----
    An exception in an environment is raised unchanged. Its cause is a ``WorkerError`` with the environment's number and
    the worker's traceback. After a worker has died, every call raises ``WorkerError``, until ``close``.

    After an interrupt by Ctrl-C in a call, only ``reset`` of all environments and ``close`` work. Other calls raise
    ``BrokenOffError``. ``close`` can be called again, and by another thread.
    """

    _example: Environment | None = None  # an environment whose spaces are read. None: the first function makes one.

    # Do nothing. Gymnasium before 1.3 closes here, but a ``Team`` ends by itself when it is forgotten.
    __del__ = object.__init__

    def __init__(  # noqa: PLR0913, PLR0917 - AsyncVectorEnv's arguments, in their order, and ours by name
        self,
        env_fns: Sequence[Callable[[], Environment]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: None = None,
        observation_mode: str | tuple[Space[Any], Space[Any]] = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_processes: int | None = None,
        batch_size: int | None = None,
        cpus: Sequence[int] | None = None,
        caller_steps: bool = False,
        spin: float | None = None,
        infos: bool = True,
    ) -> None:
        if worker is not None:
            raise ValueError("SharedMemoryVectorEnv has its own workers and does not support `worker`")
        self.env_fns = list(env_fns)
        self.num_envs = count = len(self.env_fns)
        if not self.env_fns:
            raise ValueError("env_fns must be at least one function that makes an environment")
        self.batch_size = count if batch_size is None else checked_number("batch_size", batch_size, 1, count)
        self._single = self.batch_size < count
        if spin is not None and not 0 <= spin <= 1_000_000:  # noqa: PLR2004 - a second
            raise ValueError(f"spin must be from 0 to 1000000 microseconds, not {spin}")
        cpus = _checked_cpus(cpus)
        if num_processes is None and cpus:
            num_processes = len(cpus)
        elif num_processes is None:
            num_processes = usable_cpus() if caller_steps else count
        processes = checked_number("num_processes", num_processes, 1, 1 << 16)
        if max_concurrency is not None:
            processes = min(processes, checked_number("max_concurrency", max_concurrency, 1, 1 << 16))
        self.shared_memory, self.copy, self.worker = shared_memory, copy, worker
        self.context, self.daemon, self.max_concurrency = context, daemon, max_concurrency
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self._read_spaces()
        self.form_infos: Callable[[int, Iterable[tuple[int, dict[str, Any]]]], Any] = share.batch_infos
        self._last_ids = self._to_reset = np.arange(count)
        asked = Division(count, processes, caller_steps, cpus, spin, self._single)
        division, make_share = self._make_share(asked, infos=infos)
        arrays = share.array_specs(self.single_observation_space), share.array_specs(self.single_action_space)
        with clear_mpi_env_vars():
            self._team = Team(division, *arrays, make_share, context, daemon=daemon, name=type(self).__name__)
        self.closed = False
        self._in_flight = InFlight(self._team)
        rows = self._team.arrays
        self._results, self._actions = rows[1:4], rows.actions
        self.observations = share.batch_of(self.single_observation_space, rows.observations)

    def _read_spaces(self) -> None:
        """Copy the spaces and metadata of the first environment. The mode ``different`` reads the spaces of all."""
        mode, count = self.observation_mode, self.num_envs
        example = self._example or self.env_fns[0]()
        self.metadata = {**example.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = example.render_mode
        self.single_observation_space = example.observation_space
        self.single_action_space = example.action_space
        self.action_space = batch_space(example.action_space, count)
        example.close()
        if mode == "same":
            self.observation_space = batch_space(example.observation_space, count)
        elif mode == "different":
            each = [example.observation_space]
            for function in self.env_fns[1:]:
                environment = function()
                each.append(environment.observation_space)
                environment.close()
            self.observation_space = batch_differing_spaces(each)
        elif isinstance(mode, tuple) and [isinstance(space, Space) for space in mode] == [True, True]:
            self.observation_space, self.single_observation_space = mode
        else:
            raise ValueError(
                "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation "
                f"space, actual got {mode}"
            )

    def _make_share(self, division: Division, *, infos: bool) -> tuple[Division, MakeShare]:
        """Return the division among processes, and the function that makes the share of each."""
        make_share = partial(
            share.GymnasiumShare,
            list(map(CloudpickleWrapper, self.env_fns)),
            self.single_observation_space,
            self.single_action_space,
            same=self.observation_mode == "same",
            autoreset=self.autoreset_mode.value,
            infos=infos,
        )
        return division, make_share

    def _write_step(self, actions: Any) -> bool:
        """Write the actions of all environments. Return False if memory cannot hold them, so that they must be sent."""
        leaves = self._actions
        try:
            one = type(actions) is np.ndarray and len(leaves) == 1  # as in nearly all steps
            values = (actions,) if one else tuple(share.flatten(self.single_action_space, actions))
        except (KeyError, TypeError, ValueError):
            return False
        for leaf, value in zip(leaves, values, strict=True):
            if type(value) is not np.ndarray or value.dtype != leaf.dtype or value.shape != leaf.shape:
                return False
        for leaf, value in zip(leaves, values, strict=True):
            leaf[...] = value
        return True

    def _write_actions(self, rows: slice | list[int], count: int, actions: Any) -> None:
        """Write the actions of ``count`` environments. Raises ValueError or TypeError if they do not fit."""
        for leaf, given in zip(self._actions, share.flatten(self.single_action_space, actions), strict=True):
            values = np.asarray(given)
            shape = (count, *leaf.shape[1:])
            if values.shape != shape:
                wrong = TypeError if values.ndim == 0 else ValueError
                raise wrong(f"actions must have the shape {shape}, not {values.shape}")
            if values.dtype.kind in "iu" and leaf.dtype.kind in "iu":  # only if the conversion changes no number
                fits = values.dtype == leaf.dtype or bool((values.astype(leaf.dtype) == values).all())
            else:
                fits = np.can_cast(values.dtype, leaf.dtype, "same_kind")
            if not fits:
                raise TypeError(f"actions must be {leaf.dtype}, or numbers that it holds, not {values.dtype}")
            leaf[rows] = values

    # Resets, steps and calls. A request is pending until its wait.

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> _Reset:
        """Reset all environments, or those in ``options["reset_mask"]``. Return all observations, and the infos.

        Environment ``i`` is seeded with ``seed + i``, or ``seed[i]``. A reset of all discards pending and interrupted
        calls. A reset by a mask first finishes pending steps. Rows of other environments can still be received.
        The next ``send`` goes by default to the environments last received but not reset, then to those reset.
        """
        of_all = options is None or "reset_mask" not in options
        if of_all and self._team.state.pending:
            self._team.state = RUNNING
        self.reset_async(seed, options)
        return self.reset_wait()

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        """Start a reset, which ``reset_wait`` finishes."""
        count = self.num_envs
        seeds = each_seed(seed, count)
        mask = None
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = options.pop("reset_mask")
            bools = isinstance(mask, np.ndarray) and mask.shape == (count,) and mask.dtype == np.bool_
            if not bools or not mask.any():
                raise ValueError(f"options['reset_mask'] must be an array of {count} bools, one of them True: {mask}")
        self._check_free("reset_async", anew=mask is None)
        self._to_reset = np.arange(count) if mask is None else np.flatnonzero(mask)
        self._ask("reset", (seeds, mask, options), anew=mask is None)
        self._team.state = State.RESET

    def reset_wait(self, timeout: float | None = None) -> _Reset:
        """Finish a reset. Raises TimeoutError after ``timeout`` seconds, and can then be called again."""
        infos = self._wait_for_infos(State.RESET, timeout)
        observed = self._observed()
        if self._single:
            reset = self._to_reset.tolist()
            self._in_flight.put_back(reset, ready=False)
            away, gone = self._in_flight.away, set(reset)
            kept = [env_id for env_id in self._last_ids.tolist() if env_id not in gone and not away[env_id]]
            self._last_ids = np.array([*kept, *reset])
        self._team.finish()
        return observed, infos

    def step(self, actions: Any) -> _Step:
        """Step every environment and return what Gymnasium's vector environments return."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start a step of all environments, which ``step_wait`` finishes."""
        self._check_free("step_async")
        if self._single:
            raise RuntimeError(f"with batch_size={self.batch_size} of {self.num_envs}, use send() and recv()")
        if self._write_step(actions):
            self._team.send()
        else:
            each: Any = list(iterate(self.action_space, actions))
            if len(each) != self.num_envs:
                raise ValueError(f"actions must be {self.num_envs}, one for each environment, not {len(each)}")
            if type(actions) is np.ndarray:
                each = actions  # sent as a whole, which is faster
            # Copy the actions: environments in the caller's process may change them.
            self._ask("step", deepcopy(each) if self._team.division.own else each)
        self._team.state = State.STEP

    def step_wait(self, timeout: float | None = None) -> _Step:
        """Finish a step. Raises TimeoutError after ``timeout`` seconds, and can then be called again."""
        infos = self._wait_for_infos(State.STEP, timeout)
        rewards, terminated, truncated = self._results
        result = self._observed(), rewards.copy(), terminated.copy(), truncated.copy(), infos
        self._team.finish()
        return result

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Start a step of each environment with its row of actions, by default of those last received or reset."""
        in_flight = self._checked_in_flight("send")
        ids = self._last_ids.tolist() if env_ids is None else np.asarray(env_ids, np.int64).tolist()
        for env_id in ids:
            if not 0 <= env_id < self.num_envs:
                raise ValueError(f"environment {env_id} does not exist: there are {self.num_envs}")
            if in_flight.away[env_id]:
                raise ValueError(f"environment {env_id} already has an action, and has not been received since")
        if len(set(ids)) != len(ids):
            raise ValueError(f"an environment cannot be sent two actions at once: {ids}")
        self._write_actions(ids, len(ids), actions)
        in_flight.send(ids)

    def recv(self, timeout: float | None = None, min_batch: int | None = None) -> Received:
        """Return the rows of ``min_batch`` to ``batch_size`` environments, in the order in which they became ready.

        By default ``min_batch`` is ``batch_size``. Observations are copies. Raises TimeoutError after ``timeout``
        seconds, and RuntimeError if fewer steps are pending. No rows are lost in either case.
        """
        in_flight, most = self._checked_in_flight("recv"), self.batch_size
        least = most if min_batch is None else checked_number("min_batch", min_batch, 1, most)
        ids = in_flight.recv(least, most, timeout)
        rows = np.asarray(ids, np.int64)
        observations = trees.part(self.observations, rows)
        by_row = [(row, info) for row, env_id in enumerate(ids) for _, info in in_flight.remarks.pop(env_id, ())]
        infos = share.batch_infos(len(ids), by_row)
        rewards, terminated, truncated = self._results
        received = Received(observations, rewards[rows], terminated[rows], truncated[rows], infos, rows)
        self._last_ids = rows
        # Do not call ``finish`` for this: an interrupt at the end of that call would lose the rows in silence.
        self._team.state = IDLE
        return received

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute ``name``, or the result of the method ``name``."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Start a call, which ``call_wait`` finishes. Pending steps are finished first."""
        self._check_free("call_async")
        if name in ("reset", "step", "close", "_setattr", "_check_spaces"):
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        further = (name, args, kwargs)
        self._ask("apply", (share.call_on, [(env_id, further) for env_id in range(self.num_envs)]))
        self._team.state = State.CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Finish a call. Raises TimeoutError after ``timeout`` seconds, and can then be called again."""
        answers = self._wait(State.CALL, timeout)
        results = tuple(result for answer in answers for _, result in answer)
        self._team.finish()
        return results

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each environment's attribute ``name``."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set each environment's attribute ``name``. A list or tuple has one value for each environment."""
        self._check_free("set_attr")
        count = self.num_envs
        each = values if isinstance(values, (list, tuple)) else [values] * count
        if len(each) != count:
            raise ValueError(f"values must be one for each of {count} environments, not {len(each)}")
        calls = [("set_wrapper_attr", (name, value), dict[str, Any]()) for value in each]
        self._ask("apply", (share.call_on, list(enumerate(calls))))
        self._team.receive()

    def apply(self, function: Callable[..., _Result], env_ids: Iterable[int], *args: Any) -> list[_Result]:
        """Return ``function(environment, *args)`` for each of these environments, called in the environment's process.

        Negative ids count from the end. The function is pickled by name, so define it at the top of a module.
        Raises IndexError for an unknown id.
        """
        self._check_free("apply")
        ids = [range(self.num_envs)[env_id] for env_id in env_ids]
        self._ask("apply", (function, [(env_id, args) for env_id in ids]))
        found = dict(pair for answer in self._team.gather() for pair in answer)
        results = [found[env_id] for env_id in ids]
        self._team.finish()
        return results

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes."""
        return [worker.process for worker in self._team.workers]

    def render(self) -> tuple[Any, ...] | None:
        """Return what each environment renders."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as AsyncVectorEnv has it
        """The seed of each environment's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # to be read only
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # as AsyncVectorEnv has it
        """A copy of each environment's generator."""
        return self.get_attr("np_random")

    def close(  # type: ignore[override]  # as AsyncVectorEnv has them
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """End all processes, by force if they do not end within ``timeout`` seconds.

        By default the timeout is 2 seconds if a call was interrupted, timed out, or is pending, otherwise unlimited.
        ``terminate`` or an interrupt ends processes by force at once. A second call completes an interrupted one.
        """
        self.closed = True
        self._team.lost = ClosedEnvironmentError(f"this `{type(self).__name__}` is closed")
        state = self._team.state
        if timeout is None:
            timeout = math.inf if state is IDLE else END_WITHIN_SECONDS
        self._team.close(0.0 if terminate else timeout)
        self._team.state = RUNNING
        if state.pending:  # last, since a warning may be an error
            logger.warn(f"Calling `close` while waiting for a pending call to `{state.value}` to complete.")

    close_extras = close

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be pickled or copied, since its processes cannot: make another")

    def _check_free(self, name: str, *, anew: bool = False) -> None:
        """Raise an error unless a call may begin. With ``anew``, it may also begin after an interrupt."""
        team = self._team
        if team.state is IDLE and team.lost is None:
            return
        if team.state.pending and team.lost is None:
            pending = team.state.value
            words = f"Calling `{name}` while waiting for a pending call to `{pending}` to complete"
            raise AlreadyPendingCallError(words, pending)
        team.check_free(anew=anew)

    def _checked_in_flight(self, name: str) -> InFlight:
        self._check_free(name)
        if not self._single:
            raise RuntimeError("send() and recv() need batch_size, less than the number of environments; use step()")
        return self._in_flight

    def _ask(self, name: str, argument: object, *, anew: bool = False) -> None:
        """Send the team a request. Unless ``anew``, wait for single steps first."""
        if not anew:
            self._in_flight.settle()
        self._team.ask(name, argument, anew=anew)

    def _wait(self, pending: State, timeout: float | None) -> list[Any]:
        """Return the answers of the team. ``finish`` must set the state. After a timeout, the call is pending again."""
        team = self._team
        team.raise_if_lost()
        if team.state is not pending:
            if not team.state.pending:
                team.check_free()
            name = pending.value
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)
        team.state = RUNNING
        try:
            return team.gather(timeout)
        except OverdueError:
            team.state = pending
            raise

    def _wait_for_infos(self, pending: State, timeout: float | None) -> Any:
        answers = self._wait(pending, timeout)
        return self.form_infos(self.num_envs, [remark for remarks in answers if remarks for remark in remarks])

    def _observed(self) -> Any:
        # ``methodcaller`` takes half the time of ``np.copy``.
        return trees.mapped(methodcaller("copy"), self.observations) if self.copy else self.observations


def shared_memory_spec(
    id: str | EnvSpec,  # noqa: A002 - as gymnasium.make_vec has it
    *,
    wrappers: Sequence[Callable[[Environment], Environment]] = (),
    **vector_kwargs: Any,
) -> EnvSpec:
    """Return a spec from which ``gymnasium.make_vec`` makes a ``SharedMemoryVectorEnv``.

    ``make_vec`` then takes no ``vectorization_mode``, ``wrappers`` or ``vector_kwargs``. Its other arguments go to
    ``gymnasium.make`` for each environment.

    Parameters
    ----------
    id
        The id or the spec of the environment.
    wrappers
        Wrappers of each environment, the innermost first.
    **vector_kwargs
        Arguments of ``SharedMemoryVectorEnv``.
    """
    if isinstance(id, str):
        module, _, name = id.rpartition(":")
        if module:
            import_module(module)  # it registers the environment
        id = gymnasium.spec(name)  # noqa: A001 - as gymnasium.make_vec has it
    spec = deepcopy(id)

    def make_one(**kwargs: Any) -> Environment:
        environment: Environment = gymnasium.make(spec, **kwargs)
        for wrap in wrappers:
            environment = wrap(environment)
        return environment

    def make_vec(*, num_envs: int, **kwargs: Any) -> SharedMemoryVectorEnv:
        return SharedMemoryVectorEnv([partial(make_one, **kwargs)] * num_envs, **vector_kwargs)

    chosen = deepcopy(id)
    chosen.additional_wrappers = ()  # ``make_one`` applies them to each environment
    chosen.vector_entry_point = make_vec  # type: ignore[assignment]  # Gymnasium types it as a vector environment of any
    return chosen
