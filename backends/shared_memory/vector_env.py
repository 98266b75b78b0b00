"""A vector environment of Gymnasium's kind on our own processes, to use in place of ``AsyncVectorEnv``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from importlib import import_module
from multiprocessing.process import BaseProcess
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import gymnasium
import numpy as np
from gymnasium import Space, logger
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_differing_spaces, batch_space, clear_mpi_env_vars

from vebench.backends import trees
from vebench.backends.shared_memory import arguments
from vebench.backends.shared_memory import spaces as in_memory
from vebench.backends.shared_memory.arguments import Seeds
from vebench.backends.shared_memory.errors import OverdueError, WorkerError
from vebench.backends.shared_memory.gymnasium_share import GymnasiumShare, Info, ShareConfig, batch_infos, call_on
from vebench.backends.shared_memory.in_flight import InFlight
from vebench.backends.shared_memory.memory_layout import Division, MakeShare, divide, usable_cpus
from vebench.backends.shared_memory.team import IDLE, RUNNING, State, Team
from vebench.backends.shared_memory.worker import END_WITHIN_SECONDS, TeamConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # Observations and infos; observations, rewards, terminations, truncations and infos.
    Reset = tuple[Any, dict[str, Any]]
    Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]

Environment = gymnasium.Env[Any, Any]
_Result = TypeVar("_Result")
_PENDING = (State.RESET, State.STEP, State.CALL)
_NOT_CALLED = ("reset", "step", "close", "_setattr", "_check_spaces")
_MOST_PROCESSES = 1 << 16


class Received(NamedTuple):
    """The environments that ``recv`` returns: a row for each."""

    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: dict[str, Any]  # in Gymnasium's form
    env_ids: NDArray[np.int64]


class SharedMemoryVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps environments in processes that share memory; used like ``AsyncVectorEnv``.

    >>> import gymnasium as gym
    >>> envs = SharedMemoryVectorEnv([lambda: gym.make("CartPole-v1")] * 4, num_processes=2)
    >>> observations, infos = envs.reset(seed=42)
    >>> observations.shape
    (4, 4)
    >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    >>> rewards
    array([1., 1., 1., 1.])
    >>> envs.close()

    By default each environment has its own process. With ``caller_steps=True`` a few processes, the caller among them,
    step all environments: several times faster if steps are fast, and safe unless an environment may crash its process
    or depends on process-wide state, such as numpy's global generator.

    Only the process that made it can use it. It cannot be copied or pickled.

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
        Processes that step environments. By default one for each environment; with ``caller_steps`` one for each usable
        CPU, and with ``cpus`` one for each of them; at most ``max_concurrency``.
    batch_size
        If less than the number of environments, they are stepped with ``send`` and ``recv``.
    cpus
        A CPU for each process: worker ``k`` runs on ``cpus[k]``. With ``caller_steps``, ``cpus[0]`` is left to the
        caller, which is not moved.
    caller_steps
        Whether the calling process steps a share of the environments itself. These cannot time out.
    spin
        For how many microseconds a waiting process polls before it sleeps. By default 400, or 0 if there are more
        processes than CPUs.
    infos
        False leaves infos out, except the last observations that ``SAME_STEP`` returns in them.

    Notes
    -----
    An exception in an environment is raised unchanged, with a ``WorkerError`` as its cause that names the environment
    and has the worker's traceback. After a worker has died, every call raises ``WorkerError``, until ``close``.

    Ctrl-C, or another signal handler that raises, may interrupt any call. After that ``reset`` of all environments and
    ``close`` work; other calls raise ``BrokenOffError``, or between a request and its ``..._wait`` what they raise
    without an interrupt. ``close`` can be called again, and by another thread.
    """

    __del__ = object.__init__  # nothing, where Gymnasium before 1.3 closes: ``Team`` ends when it is forgotten

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
        self.batch_size = count if batch_size is None else arguments.whole("batch_size", batch_size, 1, count)
        in_flight = self.batch_size < count
        arguments.check_options(context, spin, copy=copy, daemon=daemon, caller_steps=caller_steps, infos=infos)
        cpus = None if cpus is None else arguments.usable(cpus)
        if num_processes is None:
            num_processes = len(cpus) if cpus else usable_cpus() if caller_steps else count
        processes = arguments.whole("num_processes", num_processes, 1, _MOST_PROCESSES)
        if max_concurrency is not None:
            processes = min(processes, arguments.whole("max_concurrency", max_concurrency, 1, _MOST_PROCESSES))
        self.shared_memory, self.copy, self.worker = shared_memory, copy, worker
        self.context, self.daemon, self.max_concurrency = context, daemon, max_concurrency
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        example = self._make_example()
        self._read_spaces(example)
        example.close()
        self.form_infos: Callable[[int, Iterable[tuple[int, Info]]], Any] = batch_infos
        self._last_ids = self._to_reset = np.arange(count)
        division = divide(count, processes, caller_steps=caller_steps, cpus=cpus, spin=spin, one_by_one=in_flight)
        division, make_share = self._make_share(division, infos=infos)
        layout = division.layout(
            in_memory.array_specs(self.single_observation_space), in_memory.array_specs(self.single_action_space)
        )
        config = TeamConfig(division, layout, make_share, context, daemon, name=type(self).__name__)
        try:
            with clear_mpi_env_vars():
                self._team = Team(config)
        except WorkerError as error:
            _raise_as_it_was(error)
        self.closed = False
        self._in_flight = InFlight(self._team) if in_flight else None
        arrays = self._team.arrays
        self._results = (arrays.rewards, arrays.terminated, arrays.truncated)
        self._actions = arrays.actions
        self.observations = in_memory.batch_of(self.single_observation_space, arrays.observations)

    def _make_example(self) -> Environment:
        """Return one environment, whose spaces are read."""
        return self.env_fns[0]()

    def _read_spaces(self, example: Environment) -> None:
        """Take over what the first environment says of itself; spaces from all if ``observation_mode`` says so."""
        mode, count = self.observation_mode, self.num_envs
        self.metadata = {**example.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = example.render_mode
        self.single_observation_space = example.observation_space
        self.single_action_space = example.action_space
        self.action_space = batch_space(example.action_space, count)
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
        config = ShareConfig(
            [CloudpickleWrapper(function) for function in self.env_fns],
            self.single_observation_space,
            self.single_action_space,
            same=self.observation_mode == "same",
            autoreset=self.autoreset_mode.value,
            infos=infos,
        )
        return division, partial(GymnasiumShare, config)

    def _write_step(self, actions: Any) -> bool:
        """Write the actions of all environments; return False if they must be sent, since memory does not hold them."""
        return in_memory.write_unchanged(self.single_action_space, self._actions, actions)

    def _write_actions(self, rows: slice | list[int], count: int, actions: Any) -> None:
        """Write the actions of ``count`` environments. Raises ValueError or TypeError if they do not fit."""
        in_memory.write_cast(self.single_action_space, self._actions, rows, count, actions)

    # Resets, steps and calls. Each is asked for, is pending then, and is waited for.

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Reset:
        """Reset all environments, or those in ``options["reset_mask"]``; return all observations, and the infos.

        Environment ``i`` is seeded with ``seed + i``, or ``seed[i]``. A reset of all discards pending and interrupted
        calls. A reset of some first finishes pending steps; rows of the others can still be received.
        The default ``env_ids`` of the next ``send`` are the last received that were not reset, then the ones reset.
        """
        of_all = options is None or "reset_mask" not in options
        if of_all and self._team.state in _PENDING:
            self._team.state = RUNNING
        self.reset_async(seed, options)
        return self.reset_wait()

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        """Start a reset, which ``reset_wait`` finishes."""
        count = self.num_envs
        seeds = arguments.each_seed(seed, count)
        mask = None
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = arguments.reset_mask(options.pop("reset_mask"), count).tolist()
        self._check_free("reset_async", anew=mask is None)
        self._to_reset = np.arange(count) if mask is None else np.flatnonzero(mask)
        self._ask("reset", (seeds, mask, options), anew=mask is None)
        self._team.state = State.RESET

    def reset_wait(self, timeout: float | None = None) -> Reset:
        """Finish a reset. Raises TimeoutError after ``timeout`` seconds, and can then be called again."""
        infos = self._wait_for_infos(State.RESET, timeout)
        observed = self._observed()
        reset = self._to_reset.tolist()
        if self._in_flight is not None:
            self._in_flight.put_back(reset, ready=False)
            away, gone = self._in_flight.away, set(reset)
            kept = [env_id for env_id in self._last_ids.tolist() if env_id not in gone and not away[env_id]]
            self._last_ids = np.array([*kept, *reset])
        self._team.finish()
        return observed, infos

    def step(self, actions: Any) -> Step:
        """Step every environment and return what Gymnasium's vector environments return."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start a step of all environments, which ``step_wait`` finishes."""
        self._check_free("step_async")
        if self._in_flight is not None:
            raise RuntimeError(f"with batch_size={self.batch_size} of {self.num_envs}, use send() and recv()")
        if self._write_step(actions):
            self._answered(self._team.send)
        else:
            each = in_memory.each_action(self.action_space, self.num_envs, actions)
            # The caller's own environments may change theirs.
            self._ask("step", deepcopy(each) if self._team.division.own else each)
        self._team.state = State.STEP

    def step_wait(self, timeout: float | None = None) -> Step:
        """Finish a step. Raises TimeoutError after ``timeout`` seconds, and can then be called again."""
        infos = self._wait_for_infos(State.STEP, timeout)
        rewards, terminated, truncated = self._results
        result = self._observed(), rewards.copy(), terminated.copy(), truncated.copy(), infos
        self._team.finish()
        return result

    def send(self, actions: Any, env_ids: Iterable[int] | None = None) -> None:
        """Start steps with a row of actions each, by default of the environments of the last ``recv`` or ``reset``."""
        self._check_free("send")
        in_flight = self._checked_in_flight()
        ids = self._last_ids.tolist() if env_ids is None else np.asarray(env_ids, np.int64).tolist()
        arguments.check_ids(ids, in_flight.away)
        self._write_actions(ids, len(ids), actions)
        self._answered(lambda: in_flight.send(ids))

    def recv(self, timeout: float | None = None, min_batch: int | None = None) -> Received:
        """Return the rows of ``min_batch`` to ``batch_size`` environments, in the order in which they became ready.

        By default ``min_batch`` is ``batch_size``. Observations are copies. Raises TimeoutError after ``timeout``
        seconds, and RuntimeError if fewer steps are pending; nothing is lost in either case.
        """
        self._check_free("recv")
        in_flight = self._checked_in_flight()
        least = self.batch_size if min_batch is None else min_batch
        if not 1 <= least <= self.batch_size:
            raise ValueError(f"min_batch must be from 1 to batch_size, {self.batch_size}, not {min_batch}")
        ids = self._answered(lambda: in_flight.recv(least, self.batch_size, timeout))
        rows = np.asarray(ids, np.int64)
        observations = trees.part(self.observations, rows)
        told = [(row, info) for row, env_id in enumerate(ids) for _, info in in_flight.remarks(env_id)]
        infos = batch_infos(len(ids), told)
        rewards, terminated, truncated = self._results
        received = Received(observations, rewards[rows], terminated[rows], truncated[rows], infos, rows)
        self._last_ids = rows
        self._team.state = IDLE  # and not by a call: an interrupt at its end would lose the rows in silence
        return received

    # Everything else.

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute ``name``, or what it returns if it is a method."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Start a call, which ``call_wait`` finishes. Pending steps are finished first."""
        self._check_free("call_async")
        if name in _NOT_CALLED:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._ask("apply", (call_on, range(self.num_envs), (name, args, kwargs)))
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
        """Set each environment's attribute ``name``: from a list or tuple with a value for each, or to one value."""
        self._check_free("set_attr")
        self._ask("set_attr", (name, arguments.each_value(values, self.num_envs)))
        self._answered(self._team.receive)

    def apply(self, function: Callable[..., _Result], env_ids: Iterable[int], *args: Any) -> list[_Result]:
        """Return ``function(environment, *args)`` for each of these environments, called in its process.

        Negative ids count from the end. The function is pickled by name, so define it at the top of a module.
        Raises IndexError for an unknown id.
        """
        self._check_free("apply")
        ids = [range(self.num_envs)[env_id] for env_id in env_ids]
        self._ask("apply", (function, ids, args))
        found = dict(pair for answer in self._answered(self._team.gather) for pair in answer)
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

    def close(self, **kwargs: Any) -> None:
        """End all processes: see ``close_extras``. A second call completes one that an interrupt has aborted."""
        self.close_extras(**kwargs)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End all processes, by force if they do not end within ``timeout`` seconds.

        By default the timeout is 2 seconds if a call was interrupted, timed out, or is pending, otherwise unlimited.
        ``terminate`` or an interrupt ends them by force at once.
        """
        self.closed = True
        state = self._team.state
        if timeout is None:
            timeout = math.inf if state is IDLE else END_WITHIN_SECONDS
        self._team.close(0.0 if terminate else timeout)
        self._team.state = RUNNING
        if state in _PENDING:  # last, since a warning may be an error
            logger.warn(f"Calling `close` while waiting for a pending call to `{state.value}` to complete.")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied, since its processes and threads cannot: create "
            "another one"
        )

    # Helpers.

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")
        self._team.raise_if_lost()

    def _check_free(self, name: str, *, anew: bool = False) -> None:
        """Raise an error unless a call may begin; ``anew``, it may after an interrupt, too."""
        self._check_open()
        state = self._team.state
        if state is IDLE:
            return
        if state in _PENDING:
            raise AlreadyPendingCallError(
                f"Calling `{name}` while waiting for a pending call to `{state.value}` to complete", state.value
            )
        self._team.check_free(anew=anew)

    def _checked_in_flight(self) -> InFlight:
        if self._in_flight is None:
            raise RuntimeError("send() and recv() need batch_size, less than the number of environments; use step()")
        return self._in_flight

    def _ask(self, name: str, argument: object, *, anew: bool = False) -> None:
        """Ask the team, once the steps are made that are on their way."""
        if self._in_flight is not None and not anew:
            self._answered(self._in_flight.settle)
        self._answered(lambda: self._team.ask(name, argument, anew=anew))

    def _wait(self, pending: State, timeout: float | None) -> list[Any]:
        """Return the answers of the team, and leave the state to ``Team.finish``.

        Raises NoAsyncCallError unless this is pending. After the timeout it is pending again.
        """
        self._check_open()
        team = self._team
        if team.state is not pending:
            if team.state not in _PENDING:
                team.check_free()
            name = pending.value
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)
        team.state = RUNNING
        try:
            return self._answered(lambda: team.gather(timeout))
        except OverdueError:
            team.state = pending
            raise

    def _wait_for_infos(self, pending: State, timeout: float | None) -> Any:
        answers = self._wait(pending, timeout)
        return self.form_infos(self.num_envs, [remark for remarks in answers if remarks for remark in remarks])

    def _answered(self, ask: Callable[[], _Result]) -> _Result:
        """Return what ``ask`` returns. Raises an environment's own exception, whose cause is the ``WorkerError``."""
        try:
            return ask()
        except WorkerError as error:
            if self.closed:
                self._check_open()
            _raise_as_it_was(error)

    def _observed(self) -> Any:
        return trees.mapped(_copy_of, self.observations) if self.copy else self.observations


_copy_of = methodcaller("copy")  # half the time of np.copy


def _raise_as_it_was(error: WorkerError) -> NoReturn:
    """Raise the exception that an environment has raised, or the error itself if there is none."""
    if error.failure is None or error.failure.error is None:
        raise error
    raise error.failure.error from error


def shared_memory_spec(
    id: str | EnvSpec,  # noqa: A002 - as gymnasium.make_vec has it
    *,
    wrappers: Sequence[Callable[[Environment], Environment]] = (),
    **vector_kwargs: Any,
) -> EnvSpec:
    """Return a spec from which ``gymnasium.make_vec`` makes a ``SharedMemoryVectorEnv``.

    ``make_vec`` then takes no ``vectorization_mode``, ``wrappers`` or ``vector_kwargs``; other arguments go to
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
    chosen = deepcopy(id)
    chosen.additional_wrappers = ()  # they are around each environment
    chosen.vector_entry_point = partial(_make_vec, deepcopy(id), tuple(wrappers), vector_kwargs)
    return chosen


def _make_vec(
    spec: EnvSpec,
    wrappers: Sequence[Callable[[Environment], Environment]],
    vector_kwargs: Mapping[str, Any],
    *,
    num_envs: int,
    **kwargs: object,
) -> SharedMemoryVectorEnv:
    return SharedMemoryVectorEnv([partial(_make_one, spec, wrappers, kwargs)] * num_envs, **vector_kwargs)


def _make_one(
    spec: EnvSpec, wrappers: Sequence[Callable[[Environment], Environment]], kwargs: Mapping[str, Any]
) -> Environment:
    environment: Environment = gymnasium.make(spec, **kwargs)
    for wrap in wrappers:
        environment = wrap(environment)
    return environment
