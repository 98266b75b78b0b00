"""How much a rate changes with what it counts: the same environments, stepped and counted in eight other ways.

``python tools/conventions.py [--repeats 9] [--seconds 1]``

Each factor is the rate by one convention, relative to the one of vebench: random actions drawn before, rows that only
report a reset left out, ended episodes reset, one environment for each row, construction outside the clock. In a
repeat, all ways to step a task take turns of a twentieth of ``--seconds``, forwards and backwards. Prints a Markdown
table, with the median of all repeats and the lowest and highest. One environment in this process, or one of EnvPool's.
"""

from __future__ import annotations

import argparse
import time
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import envpool
import gymnasium
import numpy as np

from vebench.backends.env_pool import envpool_name, envpool_settings
from vebench.backends.environments.making import make
from vebench.plan.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    Way = Iterator[bool]

TAPE = 1024  # actions, which are played again and again
TURNS = 20  # of each way in a repeat
RUN = 10.0  # seconds of a run whose clock includes start-up and close
ROWS = {
    "resets": "rows that only report a reset counted",
    "constant": "the same action at every step (CartPole, Pong: 0; HalfCheetah: zeros)",
    "ended": "episodes that ended never reset",
    "sampled": "`action_space.sample()` inside the clock",
    "highest": f"the highest of {TURNS} windows, not all",
    "start-up": f"start-up and close inside the clock of {RUN:.0f} s",
    "alive": "three environments for each row (EnvPool)",
    "picture": "a cheaper resize than `INTER_AREA` (EnvPool)",
}


class Turn(NamedTuple):
    steps: int
    resets: int
    seconds: float


def tape_of(space: gymnasium.Space) -> list:
    space.seed(0)
    return [space.sample() for _ in range(TAPE)]


def loop(name: str, way: str) -> Way:
    """Step one environment, and yield whether a row only reports a reset; if ``ended``, from the first end on."""
    env, over = make(TASKS[name]), False
    tape = tape_of(env.action_space)
    env.reset(seed=0)
    for action in cycle([np.zeros_like(tape[0])] if way == "constant" else tape):
        if over and way != "ended":
            env.reset()
            over = False
            yield True
        _, _, terminated, truncated, _ = env.step(env.action_space.sample() if way == "sampled" else action)
        over = over or terminated or truncated
        if over or way != "ended":
            yield False


def pool(name: str, way: str) -> Way:
    """Step EnvPool's environments in one thread, in batches of one row, and yield whether it only reports a reset."""
    task = TASKS[name]
    settings = envpool_settings(task) | {"num_threads": 1, "thread_affinity_offset": -1, "batch_size": 1}
    settings |= {"use_inter_area_resize": False} if way == "picture" else {}
    envs = envpool.make_gymnasium(envpool_name(task), num_envs=3 if way == "alive" else 1, **settings)
    envs.async_reset()
    for action in cycle(np.array(tape_of(envs.single_action_space))[:, None]):
        *_, info = envs.recv()
        envs.send(action, info["env_id"])
        yield bool(info["elapsed_step"][0] == 0)


def turn(way: Way, seconds: float) -> Turn:
    rows = resets = 0
    begin = time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        resets += next(way)
        rows += 1
    return Turn(rows - resets, resets, spent)


def rate(turns: list[Turn]) -> float:
    return sum(each.steps for each in turns) / sum(each.seconds for each in turns)


def factors(name: str, ways: dict[str, Way], seconds: float) -> dict[str, float]:
    """Return the factors of one repeat."""
    turns: dict[str, list[Turn]] = {way: [] for way in ways}
    for number in range(TURNS):
        for way in list(ways) if number % 2 else reversed(ways):
            turns[way].append(turn(ways[way], seconds / TURNS))
    rates = {way: rate(all_) for way, all_ in turns.items()}
    ours = turns["ours"]
    begin = time.perf_counter()
    env = make(TASKS[name])
    env.reset(seed=0)
    env.close()
    started = time.perf_counter() - begin
    return {
        "resets": 1 + sum(each.resets for each in ours) / sum(each.steps for each in ours),
        **{way: rates[way] / rates["ours"] for way in ("constant", "ended", "sampled")},
        "highest": max(rate([each]) for each in ours) / rates["ours"],
        "start-up": RUN / (RUN + started),
        **{way: rates[way] / rates["pool"] for way in ("alive", "picture") if way in rates},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # steps past the end are meant
    found: dict[str, list[dict[str, float]]] = {}
    for name in ("Pong", "HalfCheetah", "CartPole"):
        pools = ("pool", "alive", "picture") if name == "Pong" else ("pool", "alive")
        ways = {way: loop(name, way) for way in ("ours", "constant", "ended", "sampled")}
        ways |= {way: pool(name, way) for way in pools}
        for way in ways.values():
            turn(way, 0.2)
        found[name] = [factors(name, ways, asked.seconds) for _ in range(asked.repeats)]
    print(f"| convention | {' | '.join(found)} |\n| --- |{' ---: |' * len(found)}")
    for row, words in ROWS.items():
        texts = []
        for repeats in found.values():
            all_ = [each[row] for each in repeats if row in each]
            texts.append(f"{median(all_):.2f} ({min(all_):.2f} to {max(all_):.2f})" if all_ else "-")
        print(f"| {words} | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
