"""Pairs for ``vebench verify A B``: faults planted into environments and vector environments, and honest pairs.

``tools/faults.py`` compares them. A fault is planted into one side by its number in a table.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordAll

from vebench.backends.shared_memory.vector_env import SharedMemoryVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable

CART, PENDULUM, TAXI, CLIFF = "CartPole-v1", "Pendulum-v1", "Taxi-v4", "MountainCar-v0"
BREAKOUT, STATISTICS, TOLD = "ALE/Breakout-v5", "parted:statistics", "parted:told"


class Hooked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with one thing changed: each hook gets this wrapper and a value, and returns another."""

    def __init__(self, env: gymnasium.Env[Any, Any], **hooks: Callable[..., Any]) -> None:
        super().__init__(env)
        self.hooks = hooks
        self.t = self.resets = self.total = self.ends = 0
        self.before: Any = None

    def hook(self, name: str, value: Any) -> Any:
        """Return what the hook makes of a value, or the value."""
        return self.hooks[name](self, value) if name in self.hooks else value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset with what the hooks make of the seed."""
        self.resets, self.t = self.resets + 1, 0
        observation, info = self.env.reset(seed=self.hook("seed", seed), options=options)
        found = self.hook("first", observation)
        self.before = np.copy(observation)
        return found, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step with what the hooks make of the action, and return what they make of the row."""
        self.t, self.total = self.t + 1, self.total + 1
        observation, reward, terminated, truncated, info = self.env.step(self.hook("action", action))
        self.action, self.ended = action, terminated or truncated
        self.ends += self.ended
        row = self.hook("observation", observation), self.hook("reward", reward)
        self.before = np.copy(observation)
        flags = self.hook("flags", (terminated, truncated))
        return (*row, *flags, self.hook("info", info))


def at(step: int, change: Callable[[Any], Any]) -> Callable[[Hooked, Any], Any]:
    """Return a hook that changes a value in one step of an episode."""
    return lambda it, value: change(value) if it.t == step else value


def always(change: Callable[[Any], Any]) -> Callable[[Hooked, Any], Any]:
    """Return a hook that always changes a value."""
    return lambda _, value: change(value)


def after(total: int, change: Callable[[Any], Any]) -> Callable[[Hooked, Any], Any]:
    """Return a hook that changes values from some step of all on."""
    return lambda it, value: change(value) if it.total > total else value


def put(index: int, number: float) -> Callable[[Any], Any]:
    """Return what sets one number of an array."""

    def changed(array: Any) -> Any:
        array = np.copy(array)
        array.flat[index] = number
        return array

    return changed


SINGLE: dict[str, tuple[str, dict[str, Callable[..., Any]]]] = {
    "reward is 0 in step 7": (CART, {"reward": at(7, lambda _: 0.0)}),
    "reward doubled": (CART, {"reward": always(lambda r: 2 * r)}),
    "reward clipped": (PENDULUM, {"reward": always(lambda r: max(-1.0, r))}),
    "reward rounded to float16": (PENDULUM, {"reward": always(lambda r: float(np.float16(r)))}),
    "reward of the step before": (
        PENDULUM,
        {"reward": lambda it, r: (getattr(it, "late", 0.0), setattr(it, "late", r))[0]},
    ),
    "reward sign": (TAXI, {"reward": always(np.sign)}),
    "reward lost at ends": (TAXI, {"reward": lambda it, r: 0.0 if it.ended else r}),
    "reward off by 1e-9": (PENDULUM, {"reward": always(lambda r: r + 1e-9)}),
    "reward NaN in step 3": (CART, {"reward": at(3, lambda _: float("nan"))}),
    "observation stale": (CART, {"observation": lambda it, _: it.before}),
    "observation stale in step 5": (PENDULUM, {"observation": lambda it, o: it.before if it.t == 5 else o}),
    "observation zero at ends": (CART, {"observation": lambda it, o: np.zeros_like(o) if it.ended else o}),
    "observation clipped": (PENDULUM, {"observation": always(lambda o: np.clip(o, -0.99, 0.99))}),
    "observation one ulp off": (CART, {"observation": always(lambda o: np.nextafter(o, np.float32(9)))}),
    "observation reversed": (PENDULUM, {"observation": always(lambda o: o[::-1].copy())}),
    "observation as float16": (CART, {"observation": always(lambda o: o.astype(np.float16).astype(np.float32))}),
    "observation one number late": (CART, {"observation": lambda it, o: put(2, it.before[2])(o)}),
    "observation lost after 3 ends": (CART, {"observation": lambda it, o: o * 0 if it.ends >= 3 else o}),
    "observation wrong shape": (CART, {"observation": at(4, lambda o: o[:3])}),
    "observation of reset zero": (CART, {"first": always(np.zeros_like)}),
    "observation of a later reset old": (CART, {"first": lambda it, o: o if it.resets == 1 else it.before}),
    "state plus 1": (TAXI, {"observation": at(2, lambda o: (o + 1) % 500)}),
    "seed ignored": (CART, {"seed": always(lambda _: None)}),
    "seed plus 1": (CART, {"seed": always(lambda s: None if s is None else s + 1)}),
    "seed of later resets ignored": (CART, {"seed": lambda it, s: s if it.resets == 1 else None}),
    "seed again at each reset": (
        CART,
        {"seed": lambda it, s: setattr(it, "kept", s) or s if s is not None else getattr(it, "kept", 0)},
    ),
    "seed modulo 8": (CART, {"seed": always(lambda s: None if s is None else s % 8)}),
    "seed 0 means none": (CART, {"seed": always(lambda s: s or None)}),
    "action ignored": (CART, {"action": always(lambda _: 0)}),
    "action of the step before": (
        CART,
        {"action": lambda it, a: (getattr(it, "last", a), setattr(it, "last", a))[0]},
    ),
    "action flipped": (CART, {"action": always(lambda a: 1 - a)}),
    "action flipped in step 6": (CART, {"action": at(6, lambda a: 1 - a)}),
    "action 3 means 0": (TAXI, {"action": always(lambda a: 0 if a == 3 else a)}),
    "action clipped": (PENDULUM, {"action": always(lambda a: np.clip(a, -1, 1))}),
    "action as integers": (PENDULUM, {"action": always(np.round)}),
    "action sign lost": (PENDULUM, {"action": always(np.abs)}),
    "action repeated once": (CLIFF, {"action": lambda it, a: it.env.step(a) and a}),
    "ends one step late": (CART, {"flags": lambda it, f: (False, f[1]) if it.ends == 1 and it.ended else f}),
    "end as a truncation": (CART, {"flags": always(lambda f: (False, f[0] or f[1]))}),
    "truncation as an end": (PENDULUM, {"flags": always(lambda f: (f[0] or f[1], False))}),
    "truncation lost": (PENDULUM, {"flags": always(lambda f: (f[0], False))}),
    "truncated too early": (PENDULUM, {"flags": lambda it, f: (f[0], it.t >= 150)}),
    "ends early in step 5": (TAXI, {"flags": lambda it, f: (it.t == 5 or f[0], f[1])}),
    "raises in step 9": (CART, {"observation": at(9, lambda _: 1 // 0)}),
    "raises for action 5": (TAXI, {"action": always(lambda a: a if a != 5 else 1 // 0)}),
    "begins after 100 steps": (CART, {"reward": after(100, lambda _: 0.0)}),
    "lives wrong after one is lost": (
        BREAKOUT,
        {"info": always(lambda i: {**i, "lives": i["lives"] + (i["lives"] < 5)})},
    ),
    "statistics of an episode off by one": (
        STATISTICS,
        {"info": lambda it, i: {"episode": {**i["episode"], "l": i["episode"]["l"] - 1}} if it.ended else i},
    ),
}


class HookedVector(SyncVectorEnv):
    """A vector environment whose rows are changed by a function of itself and the row."""

    change: Callable[[Any, list[Any]], None]

    def step(self, actions: Any) -> Any:
        """Step, and change the row."""
        self.count = getattr(self, "count", 0) + 1
        row = [np.copy(part) if isinstance(part, np.ndarray) else part for part in super().step(actions)]
        type(self).change(self, row)
        self.last = [np.copy(part) for part in row[:4]]
        return tuple(row)


def _swap(part: int) -> Callable[[Any, list[Any]], None]:
    def swapped(it: Any, row: list[Any]) -> None:
        if it.num_envs > 1:
            row[part][[0, 1]] = row[part][[1, 0]]

    return swapped


def _if_several(it: Any, row: list[Any]) -> None:
    if it.num_envs > 2:
        row[0][2] = row[0][1]


def _shared(_: Any, row: list[Any]) -> None:
    if row[2].any():
        row[2][:] = True


def _of_resets(it: Any, row: list[Any]) -> None:
    if hasattr(it, "last"):
        ended = it.last[2].astype(bool) | it.last[3].astype(bool)
        row[0][ended] = it.last[0][ended]


def _rewards_of_resets(it: Any, row: list[Any]) -> None:
    if hasattr(it, "last"):
        row[1][it.last[2].astype(bool)] = 1.0


VECTOR: dict[str, Callable[[Any, list[Any]], None]] = {
    "rows of two swapped": _swap(0),
    "rewards of two swapped": _swap(1),
    "flags of two swapped": _swap(2),
    "third row is the second": _if_several,
    "one end ends all": _shared,
    "reset rows are old": _of_resets,
    "reset rows have rewards": _rewards_of_resets,
    "all rows are the first": lambda _, row: row[0].__setitem__(slice(None), row[0][:1]),
    "last row frozen": lambda it, row: row[0].__setitem__(-1, 0.5) if it.count > 3 else None,
    "rewards summed": lambda _, row: row[1].__setitem__(slice(None), row[1].sum()),
    "every 16th batch zero": lambda it, row: row[0].__imul__(0) if it.count % 16 == 0 else None,
    "observations scaled": lambda _, row: row[0].__imul__(np.float32(1.0001)),
    "terminated never": lambda _, row: row[2].__setitem__(slice(None), False),
    "truncated with terminated": lambda _, row: row[3].__setitem__(slice(None), row[2]),
}


# The same for infos, of environments whose infos say something, in mode same_step.
INFOS: dict[str, Callable[[Any, list[Any]], None]] = {
    "final_info lacks a value": lambda _, row: [
        row[4].get("final_info", {}).pop(key, None) for key in ("left", "_left")
    ],
    "infos of the wrong environment": lambda _, row: row[4]["left"].__setitem__(slice(None), row[4]["left"][::-1]),
    "mask of an info wrong": lambda it, row: row[4]["_left"].__setitem__(-1, it.count % 8 != 0),
}


def _moved_while_reset(it: Any, actions: Any) -> Any:
    """Return actions that are rolled while an environment resets."""
    return np.roll(actions, 1) if it.resetting.any() else actions


def _copied_while_reset(it: Any, actions: Any) -> Any:
    """Return actions in which the neighbour of one that resets gets its action."""
    actions = np.array(actions)
    for index in np.flatnonzero(it.resetting):
        actions[(index + 1) % len(actions)] = actions[index]
    return actions


class Late(SyncVectorEnv):
    """A vector environment with one thing changed: a part of what it does, as two functions of itself and a value."""

    acted: Callable[[Any, Any], Any] | None = None
    seeded: Callable[[Any, Any], Any] | None = None
    changed: Callable[[Any, list[Any]], None] | None = None
    count = resets = 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Reset with what is made of the seeds."""
        self.resets += 1
        self.resetting = np.zeros(self.num_envs, bool)
        if type(self).seeded is not None and seed is not None:
            seed = type(self).seeded(self, [seed + index for index in range(self.num_envs)])
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        """Step with what is made of the actions, and change the row."""
        self.count += 1
        row = list(super().step(actions if type(self).acted is None else type(self).acted(self, actions)))
        if type(self).changed is not None:
            type(self).changed(self, row)
        self.resetting = row[2] | row[3]
        return tuple(row)


def _again(it: Any, row: list[Any]) -> None:
    """Reset once more in the first step after a reset that has followed an end."""
    if it.resets > 1 and it.count > 1 and getattr(it, "pending", False):
        row[0] = np.stack([env.reset()[0] for env in it.envs])
    it.pending = bool((row[2] | row[3]).any())


def _while_reset(part: int) -> Callable[[Any, list[Any]], None]:
    def swapped(it: Any, row: list[Any]) -> None:
        if it.resetting.any():
            row[part] = np.roll(row[part], 1, axis=0)

    return swapped


LATE: dict[str, dict[str, Any]] = {
    "new: actions rolled while one resets": {"acted": _moved_while_reset},
    "new: neighbour's action is that of one that resets": {"acted": _copied_while_reset},
    "new: resets again after an end": {"changed": _again},
    "new: seeds wrong from the fifth on": {
        "seeded": lambda _, seeds: [seed + (at > 3) for at, seed in enumerate(seeds)]
    },
    "new: one seed for all": {"seeded": lambda _, seeds: seeds[:1] * len(seeds)},
    "new: seeds in reverse": {"seeded": lambda _, seeds: seeds[::-1]},
    "new: second seed ignored": {"seeded": lambda it, seeds: seeds if it.resets < 2 else [None] * len(seeds)},
    "new: observations rolled while one resets": {"changed": _while_reset(0)},
    "new: rewards rolled while one resets": {"changed": _while_reset(1)},
    "new: last action of a batch is the first": {"acted": lambda _, actions: [*actions[:-1], actions[0]]},
    "new: third batch repeats the action": {
        "acted": lambda it, a: getattr(it, "held", a) if it.count % 3 == 0 else (setattr(it, "held", a), a)[1]
    },
    "new: row of every 50th call zero": {"changed": lambda it, row: row[0].fill(0) if it.count % 50 == 0 else None},
    "new: rewards after 30 calls 0": {"changed": lambda it, row: row[1].fill(0) if it.count > 30 else None},
}


class Normalized(NormalizeObservation):
    """Statistics that a fault spares one thing: the start of episodes, or everything before a seed."""

    def __init__(self, env: Any, fault: str) -> None:
        super().__init__(env)
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset, with the fault."""
        if self.fault == "forgets" and seed is not None:
            self.obs_rms = type(self.obs_rms)(shape=self.observation_space.shape, dtype=self.observation_space.dtype)
        self.update_running_mean = self.fault != "starts"
        found = super().reset(seed=seed, options=options)
        self.update_running_mean = True
        return found


def norm(fault: str = "", reward: bool = False) -> Any:
    """Return an environment with statistics that survive a reset."""
    made = gymnasium.make(CART)
    return Normalized(made, fault) if fault else NormalizeReward(made) if reward else NormalizeObservation(made)


def norms(num_envs: int, mode: str = "next_step", reward: bool = False) -> SyncVectorEnv:
    """Return a vector environment of such."""
    return SyncVectorEnv([partial(norm, reward=reward)] * num_envs, autoreset_mode=AutoresetMode[mode.upper()])


def late(fault: int, num_envs: int) -> SyncVectorEnv:
    """Return a vector environment with a fault of the table of faults around resets."""
    changes = {name: staticmethod(change) for name, change in list(LATE.values())[fault].items()}
    made: SyncVectorEnv = type("Late", (Late,), changes)([partial(gymnasium.make, CART)] * num_envs)
    return made


def limited(steps: int, name: str = CART) -> TimeLimit[Any, Any]:
    """Return an environment with a lower limit."""
    return TimeLimit(gymnasium.make(name), steps)


class Unseeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that draws its own seeds, with attributes set and starts and rewards multiplied."""

    def __init__(self, env: Any, starts: float, ends: float, **values: float) -> None:
        super().__init__(env)
        self.starts, self.ends = starts, ends
        for name, value in values.items():
            setattr(env.unwrapped, name, value)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset without the seed, from starts that are multiplied."""
        del seed
        observation, infos = self.env.reset(options=options)
        if self.starts != 1:
            self.unwrapped.state = np.asarray(self.unwrapped.state) * self.starts
            observation = np.array(self.unwrapped.state, np.float32)
        return observation, infos

    def step(self, action: Any) -> Any:
        """Step, and multiply the reward of an end."""
        observation, reward, terminated, *more = self.env.step(action)
        return observation, float(reward) * (self.ends if terminated else 1.0), terminated, *more


def unseeded(name: str = CART, starts: float = 1, ends: float = 1, **values: float) -> Unseeded:
    """Return an environment whose starts do not follow from seeds."""
    return Unseeded(gymnasium.make(name), starts, ends, **values)


class Telling(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose infos have one value more."""

    steps = 0

    def __init__(self, env: Any, which: str) -> None:
        super().__init__(env)
        self.which = which

    def step(self, action: Any) -> Any:
        """Step, and tell the number of a process, all steps so far or the name of a class."""
        *row, infos = self.env.step(action)
        self.steps += 1
        value = {"process": os.getpid(), "steps": self.steps, "text": hash("vebench") % 97}[self.which]
        return *row, {**infos, self.which: value}


def telling(which: str) -> Telling:
    """Return an environment that tells more."""
    return Telling(gymnasium.make(CART), which)


def telling_all(which: str, num_envs: int) -> SyncVectorEnv:
    """Return a vector environment of such."""
    return SyncVectorEnv([partial(telling, which)] * num_envs)


class Hashed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose order of features depends on the process."""

    def step(self, action: Any) -> Any:
        """Step, and put features in the order of a set."""
        observation, *row = self.env.step(action)
        order = list({"cart", "speed", "pole", "turn"})
        return observation[np.argsort([hash(each) for each in order])], *row


def hashed() -> Hashed:
    """Return it."""
    return Hashed(gymnasium.make(CART))


_BY = "--within", "distribution"
PAIRS: dict[str, tuple[str, ...]] = {
    "new: limit of 200 steps": (CART, "CartPole-v0"),
    "new: limit of 200 steps around it": (CART, "parted:limited[steps=200]"),
    "new: limit of 150 steps": (PENDULUM, f"parted:limited[steps=150,name={PENDULUM}]"),
    "new: limit of 1000 steps": ("Pendulum-v1[max_episode_steps=1000]", PENDULUM),
    "new: gravity 9.81": (PENDULUM, f"{PENDULUM}[g=9.81]"),
    "new: statistics without starts": ("parted:norm", "parted:norm[fault=starts]"),
    "new: statistics forgotten with a seed": ("parted:norm", "parted:norm[fault=forgets]"),
    "new: gravity 14": ("parted:unseeded", "parted:unseeded[gravity=14]", *_BY),
    "new: gravity 10.5": ("parted:unseeded", "parted:unseeded[gravity=10.5]", *_BY),
    "new: force 9": ("parted:unseeded", "parted:unseeded[force_mag=9]", *_BY),
    "new: angle of ends 0.23": ("parted:unseeded", "parted:unseeded[theta_threshold_radians=0.23]", *_BY),
    "new: starts twice as wide": ("parted:unseeded", "parted:unseeded[starts=2]", *_BY),
    "new: rewards of ends 2": ("parted:unseeded", "parted:unseeded[ends=2]", *_BY),
    "new: longer steps": ("parted:unseeded", "parted:unseeded[tau=0.021]", *_BY),
    "new: pole heavier": ("parted:unseeded", "parted:unseeded[polemass_length=0.06]", *_BY),
}


def told() -> Hooked:
    """Return an environment whose infos say how many steps are left, and which text that is."""
    return Hooked(gymnasium.make(CART), info=lambda it, _: {"left": 500 - it.t, "deep": {"text": str(it.t)}})


def told_vector(num_envs: int, mode: str) -> SyncVectorEnv:
    """Return a vector environment of such."""
    return SyncVectorEnv([told] * num_envs, autoreset_mode=AutoresetMode[mode.upper()])


def statistics_of(num_envs: int, mode: str, inside: bool) -> Any:
    """Return a vector environment that records episodes, in each environment or in one wrapper for all."""
    how = AutoresetMode[mode.upper()]
    made = SyncVectorEnv([statistics if inside else partial(gymnasium.make, CART)] * num_envs, autoreset_mode=how)
    return made if inside else RecordAll(made)


def plain(name: str) -> gymnasium.Env[Any, Any]:
    """Return the environment without a fault."""
    return gymnasium.make(name)


def statistics() -> gymnasium.Env[Any, Any]:
    """Return an environment that records episodes."""
    return RecordEpisodeStatistics(gymnasium.make(CART))


def single(fault: int) -> gymnasium.Env[Any, Any]:
    """Return an environment with a fault of the first table."""
    import ale_py  # noqa: F401 - registers its environments

    name, hooks = list(SINGLE.values())[fault]
    return Hooked(statistics() if name == STATISTICS else gymnasium.make(name), **hooks)


def vector(fault: int, num_envs: int) -> SyncVectorEnv:
    """Return a vector environment with a fault of the other tables."""
    kind = type("Faulty", (HookedVector,), {"change": staticmethod(list({**VECTOR, **INFOS}.values())[fault])})
    if fault < len(VECTOR):
        made: SyncVectorEnv = kind([partial(gymnasium.make, CART)] * num_envs)
    else:
        made = kind([told] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    return made


def sync(name: str, num_envs: int, mode: str = "next_step", copy: bool = True) -> SyncVectorEnv:
    """Return Gymnasium's vector environment in one process."""
    how = AutoresetMode[mode.upper()]
    return SyncVectorEnv([partial(gymnasium.make, name)] * num_envs, copy=copy, autoreset_mode=how)


def processes(name: str, num_envs: int, mode: str = "next_step", shared: bool = True) -> AsyncVectorEnv:
    """Return Gymnasium's vector environment in processes."""
    how = AutoresetMode[mode.upper()]
    return AsyncVectorEnv([partial(gymnasium.make, name)] * num_envs, shared_memory=shared, autoreset_mode=how)


def ours(name: str, num_envs: int) -> SharedMemoryVectorEnv:
    """Return vebench's vector environment."""
    return SharedMemoryVectorEnv([partial(gymnasium.make, name)] * num_envs)


HONEST = [
    *((name, f"parted:sync[name={name}]") for name in (CART, PENDULUM, TAXI, CLIFF, "Acrobot-v1", "CliffWalking-v1")),
    *((name, f"parted:sync[name={name},mode=same_step]") for name in (CART, PENDULUM, TAXI, "Blackjack-v1")),
    *((name, f"parted:sync[name={name},mode=disabled]") for name in (CART, PENDULUM, TAXI, "CliffWalking-v1")),
    *((name, f"parted:sync[name={name},copy=false]") for name in (CART, PENDULUM, TAXI)),
    *((name, f"parted:processes[name={name}]") for name in (CART, PENDULUM, TAXI, "Acrobot-v1")),
    *((name, f"parted:processes[name={name},mode=same_step]") for name in (CART, "Blackjack-v1")),
    *((name, f"parted:processes[name={name},shared=false]") for name in ("Acrobot-v1", "HalfCheetah-v5")),
    *((name, f"parted:ours[name={name}]") for name in (CART, PENDULUM, TAXI, "Blackjack-v1", "CliffWalking-v1")),
    *((name, name) for name in (CART, "HalfCheetah-v5", "Hopper-v5", "ALE/Breakout-v5", "Blackjack-v1")),
    ("parted:sync[name=Hopper-v5]", "parted:ours[name=Hopper-v5]"),
    ("parted:sync[name=CartPole-v1,mode=same_step]", "parted:sync[name=CartPole-v1]"),
    ("parted:processes[name=Ant-v5]", "parted:sync[name=Ant-v5]"),
    ("ALE/Pong-v5[frameskip=4]", "ALE/Pong-v5"),
    ("parted:plain[name=CartPole-v1]", "gymnasium:make[id=CartPole-v1]"),
    (STATISTICS, "parted:statistics_of[mode=same_step,inside=true]"),
    (STATISTICS, "parted:statistics_of[mode=same_step,inside=false]"),
    (TOLD, "parted:told_vector[mode=disabled]"),
    (BREAKOUT, f"parted:sync[name={BREAKOUT},mode=same_step]"),
    ("HalfCheetah-v5", "parted:processes[name=HalfCheetah-v5,mode=same_step]"),
]
NEW = [
    ("parted:norms", "parted:norm"),
    ("parted:norm", "parted:norms[mode=same_step]"),
    ("parted:norms", "parted:norms[mode=disabled]"),
    ("parted:norms[reward=true]", "parted:norm[reward=true]"),
    ("parted:telling[which=process]", "parted:telling[which=process]"),
    ("parted:telling[which=process]", "parted:telling_all[which=process]"),
    ("parted:telling_all[which=steps]", "parted:telling[which=steps]"),
    ("parted:telling[which=text]", "parted:telling[which=text]"),
    ("parted:hashed", "parted:hashed"),
    (CART, "parted:telling[which=steps]"),
    ("CartPole-v0", "parted:limited[steps=200]"),
    (PENDULUM, f"parted:limited[steps=200,name={PENDULUM}]"),
    ("parted:unseeded", "parted:unseeded", *_BY),
    (CART, "parted:unseeded", *_BY),
    (CART, "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv", *_BY),
    (CLIFF, f"parted:unseeded[name={CLIFF}]", *_BY),
    ("FrozenLake-v1", "parted:unseeded[name=FrozenLake-v1]", *_BY),
    ("Acrobot-v1", "parted:unseeded[name=Acrobot-v1]", *_BY),
    (TAXI, f"parted:unseeded[name={TAXI}]", *_BY),
    (PENDULUM, f"parted:unseeded[name={PENDULUM}]", *_BY),
]


def pairs() -> list[tuple[str, bool, tuple[str, ...]]]:
    """Return the name of each pair, whether it is honest, and its two sides with options."""
    found = [(name, (env, f"parted:single[fault={at}]")) for at, (name, (env, _)) in enumerate(SINGLE.items())]
    vectors = [*((name, CART) for name in VECTOR), *((name, TOLD) for name in INFOS)]
    found += [(name, (env, f"parted:vector[fault={at}]")) for at, (name, env) in enumerate(vectors)]
    found += [(name, (CART, f"parted:late[fault={at}]")) for at, name in enumerate(LATE)]
    found += PAIRS.items()
    faults = [(name, False, sides) for name, sides in found]
    return faults + [(f"{one[0]} and {one[1]}", True, one) for one in [*HONEST, *NEW]]
