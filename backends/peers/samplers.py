"""Samplers of other projects: the rollouts of Stable-Baselines3, TorchRL's collector, RLlib's environment runner.

Each process runs a library's whole loop over its share of the environments: it hands steps over in pieces, as to a
learner. The adapter is the policy. Rows are noted where an environment returns them. Libraries are imported on use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from vebench.backends.environments.making import make
from vebench.backends.interface import Batch, Setup, Task
from vebench.backends.one_in_flight import spaces_for
from vebench.backends.trees import as_rows
from vebench.backends.workers import STEP, QueueBackend, TorchMultiprocessing

PIECE = 200  # steps of each environment in a piece, as is RLlib's default
Makers = Sequence[Callable[[], Any]]  # of environments
Act = Callable[[], NDArray[Any]]  # waits for the actions of the next step, once the rows of the last one are noted


class StoppedError(BaseException):
    """The caller resets or closes. It is not an Exception, so no library handles it."""


class Sampler(QueueBackend):
    """A process for each CPU owned, at most one for each worker, in which ``sample`` runs the loop of a library.

    ``module`` is imported before processes are forked.
    """

    semaphore = TorchMultiprocessing.semaphore

    def __init__(self, setup: Setup, *, sample: Callable[[Makers, Act], None], module: str, autoreset: str) -> None:
        spaces_for(setup, module.partition(".")[0], dicts=True)
        import_module(module)
        self._sample = sample
        super().__init__(setup, autoreset=autoreset)

    def _serve(self, task: Task, rows: Batch, actions: NDArray[Any], commands: Iterator[int]) -> None:
        """Run the library's loop until the caller closes, on new environments after each reset of the caller."""
        seed = next(commands, None)
        arrays: Any = rows._replace(observations=as_rows(rows.observations))
        observations, rewards, terminated, truncated, env_ids = arrays

        def act() -> NDArray[Any]:
            nonlocal seed
            command = next(commands, None)
            seed = None if command == STEP else command
            if command != STEP:
                raise StoppedError
            # A row that is not stepped is a reset's.
            rewards[:] = 0.0
            terminated[:] = truncated[:] = False
            return actions.copy()

        def made(index: int) -> Any:
            """Return an environment that notes its rows. Until the first step, resets have the seed of its row."""
            environment: Any = make(task)
            step, reset = environment.step, environment.reset

            def noted_step(action: Any) -> Any:
                row = step(action)
                observations[index], rewards[index], terminated[index], truncated[index], _ = row
                return row

            def noted_reset(*, options: Any = None, **_seed: Any) -> Any:
                row = reset(seed=None if seed is None else seed + int(env_ids[index]), options=options)
                observations[index] = row[0]
                return row

            environment.step, environment.reset = noted_step, noted_reset
            environments.append(environment)
            return environment

        environments: list[Any] = []
        while seed is not None:
            with suppress(StoppedError):
                self._sample([partial(made, index) for index in range(len(env_ids))], act)
            while environments:
                environments.pop().close()


def _collect_rollouts(makers: Makers, act: Act) -> None:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.vec_env import DummyVecEnv

    model = PPO(ActorCriticPolicy, DummyVecEnv(makers), n_steps=PIECE, batch_size=PIECE, device="cpu")
    values = torch.zeros(len(makers), 1)
    model.policy.forward = lambda _observations: (torch.from_numpy(act()), values, values[:, 0])
    model.policy.predict_values = lambda _observations: values
    model.train = lambda: None
    model.learn(sys.maxsize, log_interval=None)


def _collect(makers: Makers, act: Act) -> None:
    import torch
    from torchrl import collectors
    from torchrl.envs import GymWrapper, SerialEnv

    def wrapped(maker: Callable[[], Any]) -> Any:
        return GymWrapper(maker(), categorical_action_encoding=True)

    def policy(tensordict: Any) -> Any:
        return tensordict.set("action", envs.action_spec.zero() if collector is None else torch.from_numpy(act()))

    envs = SerialEnv(len(makers), [partial(wrapped, maker) for maker in makers])
    kind = getattr(collectors, "Collector", None) or collectors.SyncDataCollector  # its name before TorchRL 0.11
    collector: Any = None  # it tries the policy before it collects
    collector = kind(envs, policy, frames_per_batch=PIECE * len(makers), total_frames=-1, trust_policy=True)
    for _ in collector:
        pass


def _run_episodes(makers: Makers, act: Act) -> None:
    import gymnasium
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch import TorchRLModule
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    class Policy(TorchRLModule):
        def setup(self) -> None: ...

        def _forward(self, _batch: object, **_: object) -> dict[str, Any]:
            return {"actions": act()}

    each = cycle(makers)
    gymnasium.register("vebench-v0", lambda **_: next(each)(), disable_env_checker=True, order_enforce=False)
    config = PPOConfig().environment("vebench-v0", normalize_actions=False, clip_actions=False)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=len(makers))
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Policy))
    runner = SingleAgentEnvRunner(config=config)
    while True:
        runner.sample(num_timesteps=PIECE * len(makers))
        runner.get_metrics()  # otherwise it keeps all episodes for them


SB3Rollouts = partial(Sampler, sample=_collect_rollouts, module="stable_baselines3", autoreset="same_step")
TorchRLCollector = partial(Sampler, sample=_collect, module="torchrl.collectors", autoreset="same_step")
RLlibRunner = partial(Sampler, sample=_run_episodes, module="ray.rllib.algorithms.ppo", autoreset="next_step")
