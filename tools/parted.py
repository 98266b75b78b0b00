"""Pairs for ``vebench verify A B``: faults planted into environments and vector environments, and honest pairs.

``tools/faults.py`` compares them. A fault is planted into one side by its number in a table. ``pool`` and ``gathered``
are EnvPool's, for ``tools/survey.py``.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordAll

from vebench.backends.shared_memory.vector_env import SharedMemoryVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable

    Hook = Callable[[Any, Any], Any]  # gets the environment and a value, and returns another value

CART, PENDULUM, TAXI, CLIFF = "CartPole-v1", "Pendulum-v1", "Taxi-v4", "MountainCar-v0"
BREAKOUT, STATISTICS, TOLD = "ALE/Breakout-v5", "parted:statistics", "parted:told"


class Hooked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with one value changed by a hook. ``t`` counts the steps of an episode, ``total`` all of them."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, hook: Hook) -> None:
        super().__init__(env)
        self.name, self.change = name, hook
        self.t = self.resets = self.total = self.ends = 0
        self.before: Any = None
        self.kept: Any = None

    def hook(self, name: str, value: Any) -> Any:
        return self.change(self, value) if name == self.name else value

    def keep(self, value: Any) -> Any:
        """Return the value that was kept last, and keep this one."""
        last, self.kept = self.kept, value
        return value if last is None else last

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.resets, self.t = self.resets + 1, 0
        observation, info = self.env.reset(seed=self.hook("seed", seed), options=options)
        found = self.hook("first", observation)
        self.before = np.copy(observation)
        return found, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t, self.total = self.t + 1, self.total + 1
        observation, reward, terminated, truncated, info = self.env.step(self.hook("action", action))
        self.ended = terminated or truncated
        self.ends += self.ended
        row = self.hook("observation", observation), self.hook("reward", reward)
        self.before = np.copy(observation)
        return (*row, *self.hook("flags", (terminated, truncated)), self.hook("info", info))


# By the name of a fault: the environment, the field that is changed, and the change.
SINGLE: dict[str, tuple[str, str, Hook]] = {
    "reward is 0 in step 7": (CART, "reward", lambda it, r: 0.0 if it.t == 7 else r),
    "reward of the step before": (PENDULUM, "reward", Hooked.keep),
    "reward lost at ends": (TAXI, "reward", lambda it, r: 0.0 if it.ended else r),
    "reward off by 1e-9": (PENDULUM, "reward", lambda _, r: r + 1e-9),
    "reward NaN in step 3": (CART, "reward", lambda it, r: float("nan") if it.t == 3 else r),
    "reward 0 after 100 steps": (CART, "reward", lambda it, r: 0.0 if it.total > 100 else r),
    "observation stale": (CART, "observation", lambda it, _: it.before),
    "observation one ulp off": (CART, "observation", lambda _, o: np.nextafter(o, np.float32(9))),
    "observation lost after 3 ends": (CART, "observation", lambda it, o: o * 0 if it.ends >= 3 else o),
    "observation wrong shape": (CART, "observation", lambda it, o: o[:3] if it.t == 4 else o),
    "observation of reset zero": (CART, "first", lambda _, o: np.zeros_like(o)),
    "observation of a later reset old": (CART, "first", lambda it, o: o if it.resets == 1 else it.before),
    "seed ignored": (CART, "seed", lambda _, __: None),
    "seed of later resets ignored": (CART, "seed", lambda it, s: s if it.resets == 1 else None),
    "seed again at each reset": (CART, "seed", lambda it, s: it.kept if s is None else setattr(it, "kept", s) or s),
    "seed 0 means none": (CART, "seed", lambda _, s: s or None),
    "action ignored": (CART, "action", lambda _, __: 0),
    "action flipped in step 6": (CART, "action", lambda it, a: 1 - a if it.t == 6 else a),
    "action repeated once": (CLIFF, "action", lambda it, a: it.env.step(a) and a),
    "ends one step late": (CART, "flags", lambda it, f: (False, f[1]) if it.ends == 1 and it.ended else f),
    "end as a truncation": (CART, "flags", lambda _, f: (False, f[0] or f[1])),
    "truncation lost": (PENDULUM, "flags", lambda _, f: (f[0], False)),
    "raises in step 9": (CART, "observation", lambda it, o: o if it.t != 9 else 1 // 0),
    "statistics of an episode off by one": (
        STATISTICS,
        "info",
        lambda it, i: {"episode": {**i["episode"], "l": i["episode"]["l"] - 1}} if it.ended else i,
    ),
}


class HookedVector(SyncVectorEnv):
    """A vector environment with one value changed by a hook: the list of seeds, the actions, or the row."""

    name, change = "", None
    count = resets = 0
    kept: Any = None

    def hook(self, name: str, value: Any) -> Any:
        return type(self).change(self, value) if name == self.name else value

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        self.resetting = np.zeros(self.num_envs, bool)
        if isinstance(seed, int):
            seed = self.hook("seeds", [seed + index for index in range(self.num_envs)])
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        self.count += 1
        row = super().step(self.hook("actions", np.array(actions)))
        row = [np.copy(part) if isinstance(part, np.ndarray) else part for part in row]
        self.hook("row", row)
        self.resetting = row[2] | row[3]
        return tuple(row)


def swapped(_: Any, row: list[Any]) -> None:
    """Swap the observations of the first two."""
    row[0][:2] = row[0][:2][::-1].copy()


def rolled(it: Any, row: list[Any]) -> None:
    """Give each environment its neighbour's observation while one resets."""
    if it.resetting.any():
        row[0][:] = np.roll(row[0], 1, axis=0)


def neighbours(it: Any, actions: Any) -> Any:
    """Give the neighbour of an environment that resets its action."""
    for index in np.flatnonzero(it.resetting):
        actions[(index + 1) % len(actions)] = actions[index]
    return actions


def old_resets(it: Any, row: list[Any]) -> None:
    """Leave the last observation of an episode where the first of the next one belongs."""
    if it.kept is not None:
        row[0][it.resetting] = it.kept[it.resetting]
    it.kept = row[0].copy()


def third_repeated(it: Any, actions: Any) -> Any:
    """Repeat the actions of the step before in every third step."""
    it.kept = it.kept if it.count % 3 == 0 else actions
    return it.kept


VECTOR: dict[str, tuple[str, str, Hook]] = {
    "rows of two swapped": (CART, "row", swapped),
    "third row is the second": (CART, "row", lambda _, row: row[0].__setitem__(slice(2, 3), row[0][1:2])),
    "one end ends all": (CART, "row", lambda _, row: row[2].__setitem__(slice(None), row[2].any())),
    "reset rows are old": (CART, "row", old_resets),
    "reset rows have rewards": (CART, "row", lambda it, row: row[1].__setitem__(it.resetting, 1.0)),
    "last row frozen": (CART, "row", lambda it, row: row[0].__setitem__(-1, 0.5) if it.count > 3 else None),
    "terminated never": (CART, "row", lambda _, row: row[2].fill(False)),
    "observations rolled while one resets": (CART, "row", rolled),
    "actions rolled while one resets": (CART, "actions", lambda it, a: np.roll(a, 1) if it.resetting.any() else a),
    "neighbour's action is that of one that resets": (CART, "actions", neighbours),
    "third batch repeats the action": (CART, "actions", third_repeated),
    "seeds wrong from the fifth on": (CART, "seeds", lambda _, s: [seed + (at > 3) for at, seed in enumerate(s)]),
    "one seed for all": (CART, "seeds", lambda _, s: s[:1] * len(s)),
    "second seed ignored": (CART, "seeds", lambda it, s: s if it.resets < 2 else [None] * len(s)),
    "infos of the wrong environment": (TOLD, "row", lambda _, row: row[4].update(left=row[4]["left"][::-1].copy())),
    "mask of an info wrong": (TOLD, "row", lambda it, row: row[4]["_left"].__setitem__(-1, it.count % 8 != 0)),
}


class Unseeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that draws its own seeds, with attributes set and starts and rewards multiplied."""

    def __init__(self, env: Any, starts: float, ends: float, **values: float) -> None:
        super().__init__(env)
        self.starts, self.ends = starts, ends
        for name, value in values.items():
            setattr(env.unwrapped, name, value)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        del seed
        observation, infos = self.env.reset(options=options)
        if self.starts != 1:
            self.unwrapped.state = np.asarray(self.unwrapped.state) * self.starts
            observation = np.array(self.unwrapped.state, np.float32)
        return observation, infos

    def step(self, action: Any) -> Any:
        observation, reward, terminated, *more = self.env.step(action)
        return observation, float(reward) * (self.ends if terminated else 1.0), terminated, *more


# The names of the sides: environments, then vector environments.


def plain(name: str) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(name)


def norm(reward: bool = False) -> Any:
    """Return an environment with statistics that survive a reset."""
    return (NormalizeReward if reward else NormalizeObservation)(gymnasium.make(CART))


def limited(steps: int, name: str = CART) -> TimeLimit[Any, Any]:
    return TimeLimit(gymnasium.make(name), steps)


def unseeded(name: str = CART, starts: float = 1, ends: float = 1, **values: float) -> Unseeded:
    return Unseeded(gymnasium.make(name), starts, ends, **values)


def told() -> Hooked:
    """Return an environment whose infos say how many steps are left, and which text that is."""
    return Hooked(gymnasium.make(CART), "info", lambda it, _: {"left": 500 - it.t, "deep": {"text": str(it.t)}})


def telling(which: str) -> Hooked:
    """Return an environment that reports its process, all steps so far, or the hash of a text."""
    values = {"process": lambda _: os.getpid(), "steps": lambda it: it.total, "text": lambda _: hash("vebench") % 97}
    return Hooked(gymnasium.make(CART), "info", lambda it, info: {**info, which: values[which](it)})


def statistics() -> gymnasium.Env[Any, Any]:
    """Return an environment that records episodes."""
    return RecordEpisodeStatistics(gymnasium.make(CART))


def single(fault: int) -> gymnasium.Env[Any, Any]:
    """Return an environment with a fault of the first table."""
    import ale_py  # noqa: F401 - registers its environments

    env, name, hook = list(SINGLE.values())[fault]
    return Hooked(statistics() if env == STATISTICS else gymnasium.make(env), name, hook)


def vector(fault: int, num_envs: int) -> SyncVectorEnv:
    """Return a vector environment with a fault of the second table."""
    env, name, hook = list(VECTOR.values())[fault]
    kind = type("Faulty", (HookedVector,), {"name": name, "change": staticmethod(hook)})
    make, mode = (told, AutoresetMode.SAME_STEP) if env == TOLD else (partial(plain, env), AutoresetMode.NEXT_STEP)
    made: SyncVectorEnv = kind([make] * num_envs, autoreset_mode=mode)
    return made


def sync(name: str, num_envs: int, mode: str = "next_step", copy: bool = True) -> SyncVectorEnv:
    """Return Gymnasium's vector environment in one process, of an id or of a function of this module."""
    make = globals().get(name) or partial(plain, name)
    return SyncVectorEnv([make] * num_envs, copy=copy, autoreset_mode=AutoresetMode[mode.upper()])


def processes(name: str, num_envs: int, mode: str = "next_step", shared: bool = True) -> AsyncVectorEnv:
    """Return Gymnasium's vector environment in processes."""
    how = AutoresetMode[mode.upper()]
    return AsyncVectorEnv([partial(plain, name)] * num_envs, shared_memory=shared, autoreset_mode=how)


def ours(name: str, num_envs: int) -> SharedMemoryVectorEnv:
    """Return vebench's vector environment."""
    return SharedMemoryVectorEnv([partial(plain, name)] * num_envs)


def recorded(num_envs: int) -> Any:
    """Return a vector environment that records episodes in one wrapper for all."""
    return RecordAll(sync(CART, num_envs, "same_step"))


def pool(task_id: str, num_envs: int, seed: int) -> Any:
    """Return a pool of EnvPool's in which every environment is in each batch."""
    import envpool

    return envpool.make_gymnasium(task_id, num_envs=num_envs, seed=seed)


class Gathered:
    """A pool with batches of half of its environments, which get their next actions once all have answered."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, task_id: str, num_envs: int, seed: int) -> None:
        import envpool

        self._pool = envpool.make_gymnasium(task_id, num_envs=num_envs, batch_size=max(1, num_envs // 2), seed=seed)
        self.num_envs, self.close = num_envs, self._pool.close
        self.single_action_space = self.action_space = self._pool.action_space
        self.single_observation_space = self.observation_space = self._pool.observation_space

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._pool.async_reset()
        return self._rows()[0], {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        self._pool.send(actions, np.arange(self.num_envs, dtype=np.int32))
        return (*self._rows(), {})

    def _rows(self) -> list[Any]:
        batches = [self._pool.recv()]
        while sum(len(batch[0]) for batch in batches) < self.num_envs:
            batches.append(self._pool.recv())
        order = np.argsort(np.concatenate([infos["env_id"] for *_, infos in batches]))
        parts = zip(*(batch[:4] for batch in batches), strict=True)
        return [np.concatenate(part)[order] for part in parts]


_BY = "--within", "distribution"
PAIRS: dict[str, tuple[str, ...]] = {
    "limit of 200 steps": (CART, "CartPole-v0"),
    "limit of 150 steps": (PENDULUM, f"parted:limited[steps=150,name={PENDULUM}]"),
    "gravity 9.81": (PENDULUM, f"{PENDULUM}[g=9.81]"),
    "gravity 10.5": ("parted:unseeded", "parted:unseeded[gravity=10.5]", *_BY),
    "angle of ends 0.23": ("parted:unseeded", "parted:unseeded[theta_threshold_radians=0.23]", *_BY),
    "starts twice as wide": ("parted:unseeded", "parted:unseeded[starts=2]", *_BY),
    "rewards of ends 2": ("parted:unseeded", "parted:unseeded[ends=2]", *_BY),
}
HONEST = [
    *((name, f"parted:sync[name={name}]") for name in (CART, PENDULUM, TAXI, CLIFF, "CliffWalking-v1")),
    *((name, f"parted:sync[name={name},mode=same_step]") for name in (CART, "Blackjack-v1", BREAKOUT)),
    *((name, f"parted:sync[name={name},mode=disabled]") for name in (CART, TAXI)),
    (PENDULUM, f"parted:sync[name={PENDULUM},copy=false]"),
    *((name, f"parted:processes[name={name}]") for name in (CART, TAXI)),
    ("HalfCheetah-v5", "parted:processes[name=HalfCheetah-v5,mode=same_step]"),
    ("HalfCheetah-v5", "parted:processes[name=HalfCheetah-v5,shared=false]"),
    *((name, f"parted:ours[name={name}]") for name in (CART, TAXI, "Blackjack-v1", "Hopper-v5")),
    *((name, name) for name in ("HalfCheetah-v5", BREAKOUT, "Blackjack-v1")),
    ("parted:sync[name=CartPole-v1,mode=same_step]", "parted:sync[name=CartPole-v1]"),
    ("ALE/Pong-v5[frameskip=4]", "ALE/Pong-v5"),
    ("parted:plain[name=CartPole-v1]", "gymnasium:make[id=CartPole-v1]"),
    (STATISTICS, "parted:sync[name=statistics,mode=same_step]"),
    (STATISTICS, "parted:recorded"),
    (TOLD, "parted:sync[name=told,mode=disabled]"),
    ("parted:norm", "parted:sync[name=norm,mode=same_step]"),
    ("parted:norm[reward=true]", "parted:norm[reward=true]"),
    *((f"parted:telling[which={which}]",) * 2 for which in ("process", "steps", "text")),
    (CART, "parted:telling[which=steps]"),
    ("CartPole-v0", "parted:limited[steps=200]"),
    ("parted:unseeded", "parted:unseeded", *_BY),
    (CART, "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv", *_BY),
    *((name, f"parted:unseeded[name={name}]", *_BY) for name in (CART, CLIFF, "FrozenLake-v1", TAXI, PENDULUM)),
]


def pairs() -> list[tuple[str, bool, tuple[str, ...]]]:
    """Return the name of each pair, whether it is honest, and its two sides with options."""
    found = [(name, (env, f"parted:single[fault={at}]")) for at, (name, (env, *_)) in enumerate(SINGLE.items())]
    found += [(name, (env, f"parted:vector[fault={at}]")) for at, (name, (env, *_)) in enumerate(VECTOR.items())]
    faults = [(name, False, sides) for name, sides in [*found, *PAIRS.items()]]
    return faults + [(f"{one[0]} and {one[1]}", True, one) for one in HONEST]
