"""How many faults ``vebench verify A B`` names, how small its examples are, and whether it accuses who is honest.

``python tools/parted.py [FILE] [--only NAME,...]``: each fault of the tables below is planted into an environment or a
vector environment, which is compared with the one without it. Each example script is run alone, and has to fail.
FILE keeps the answers as JSON Lines. Takes about 15 minutes on two CPUs.
"""

# ruff: noqa: ANN401 - hooks take and return what environments do

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
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


def compared(one: str, other: str, *more: str) -> dict[str, Any]:
    """Return what ``vebench verify`` says of two, and whether its example shows it alone."""
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "vebench", "verify", one, other, "-f", "json", *more]
        run = partial(
            subprocess.run, cwd=folder, env={**os.environ, **here}, capture_output=True, text=True, check=False
        )
        done = run(command)
        found = json.loads(done.stdout) if done.stdout else {"verdict": "none", "why": done.stderr[-200:]}
        script = Path(folder, ".vebench", "example.py")
        shows = run([sys.executable, str(script)]).returncode == 1 if script.exists() else None
    return {"a": one, "b": other, "status": done.returncode, "shows": shows, **found}


def main() -> None:
    """Compare all pairs, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path(os.devnull))
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    faults = [(name, env, f"parted:single[fault={at}]") for at, (name, (env, _)) in enumerate(SINGLE.items())]
    vectors = [*((name, CART) for name in VECTOR), *((name, TOLD) for name in INFOS)]
    faults += [(name, env, f"parted:vector[fault={at}]") for at, (name, env) in enumerate(vectors)]
    answers: dict[str, list[dict[str, Any]]] = {"fault": [], "honest": []}
    pairs = [("fault", *each) for each in faults] + [("honest", "", *each) for each in HONEST]
    for kind, name, one, other in pairs:
        if asked.only and not any(part in f"{name}{one}{other}" for part in asked.only.split(",")):
            continue
        answer = {"kind": kind, "fault": name, **compared(one, other)}
        answers[kind].append(answer)
        words = (answer["verdict"], answer.get("field"), answer.get("actions"), answer["shows"], answer.get("why"))
        print(f"{name or other}: {', '.join(map(str, words))}", flush=True)
        with asked.file.open("a") as file:
            file.write(json.dumps(answer) + "\n")
    found = [one for one in answers["fault"] if one["status"] == 1]
    accused = [one for one in answers["honest"] if one["status"] != 0]
    shown = sum(one["shows"] is True for one in found)
    actions = median(one["actions"] for one in found if one.get("actions") is not None) if found else None
    print(
        f"{len(found)} of {len(answers['fault'])} faults found, {shown} examples show theirs, median {actions} actions"
    )
    print(f"{len(accused)} of {len(answers['honest'])} honest pairs accused")


if __name__ == "__main__":
    main()
