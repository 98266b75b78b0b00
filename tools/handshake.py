"""Stresses the handshake of the shared-memory backends, with checksums of rows and with workers stopped at random.

python tools/handshake.py --handshakes 1000000 --workers 1,2,4,8,16

A wake-up that is lost shows as a hang, since nobody looks around for a minute.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import ArraySpec
from vebench.backends.shared_memory import team, worker
from vebench.backends.shared_memory.memory_layout import Division
from vebench.backends.shared_memory.team import InFlight, Team

if TYPE_CHECKING:
    from vebench.backends.shared_memory.memory_layout import RowArrays

    Row = np.ndarray[Any, np.dtype[Any]]

WIDTH = 24  # numbers in a row: three cache lines
ENVS_EACH = 3


class Echo:
    """Answers each row of actions with a row that follows from it, and from how many there have been."""

    def __init__(self, arrays: RowArrays, start: int, stop: int) -> None:
        self.current: int | None = 0
        (self._observations,), self._rewards, (self._actions,) = arrays.observations, arrays.rewards, arrays.actions
        self._counts = [0] * (stop - start)

    def open(self) -> None:
        """Build nothing."""

    def step(self) -> None:
        for index in range(len(self._counts)):
            self.step_one(index)

    def step_one(self, index: int) -> None:
        self._counts[index] += 1
        self._observations[index] = answer(self._actions[index], self._counts[index])
        self._rewards[index] = self._counts[index]

    def answer(self, name: str, argument: object) -> object:
        return (name, argument)

    def close(self) -> None:
        """Close nothing."""


def answer(action: Row, count: int) -> Row:
    """Return the row for an action; its last number is the sum of the others, which a torn row would not keep."""
    row = action * 31 + count
    row[-1] = row[:-1].sum()
    return row


def disturb(pids: list[int], seed: int) -> None:
    """Stop and continue workers at random until the caller is gone."""
    rng = np.random.default_rng(seed)
    caller = os.getppid()
    while os.getppid() == caller:
        pid = int(rng.choice(pids))
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.exponential(0.0005))
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        time.sleep(rng.exponential(0.003))


def make_team(workers: int, one_by_one: bool, spin: float | None) -> Team:
    # One by one the caller would seldom have to wait, if it could step environments of its own meanwhile.
    caller_steps = not one_by_one
    division = Division(
        workers * ENVS_EACH + 1, workers + caller_steps, caller_steps=caller_steps, spin=spin, one_by_one=one_by_one
    )
    leaf = (ArraySpec((WIDTH,), np.dtype(np.int64)),)
    return Team(division, leaf, leaf, Echo, "fork")


def stress_all(team: Team, handshakes: int, rng: np.random.Generator) -> int:
    """Step every environment at a time; return the number of handshakes."""
    steps = -(-handshakes // len(team.workers))
    (actions,), (observations,) = team.arrays.actions, team.arrays.observations
    for count in range(1, steps + 1):
        actions[:] = rng.integers(1 << 40, size=actions.shape)
        sent = actions.copy()
        team.send()
        team.receive()
        expected = sent * 31 + count
        expected[:, -1] = expected[:, :-1].sum(1)
        np.testing.assert_array_equal(observations, expected)
        np.testing.assert_array_equal(team.arrays.rewards, count)
    return steps * len(team.workers)


def stress_one_by_one(team: Team, handshakes: int, rng: np.random.Generator) -> int:
    """Step environments as they come."""
    (actions,), (observations,) = team.arrays.actions, team.arrays.observations
    count = team.division.num_envs
    asked = InFlight(team)
    asked.put_back(range(count), ready=True)
    counts = np.zeros(count, np.int64)
    done = 0
    while done < handshakes:
        ids = asked.recv(1, int(rng.integers(1, count + 1)))
        team.finish()
        rows = observations[ids]
        for row, env_id in zip(rows, ids, strict=True):
            if counts[env_id]:
                np.testing.assert_array_equal(row, answer(actions[env_id], counts[env_id]))
        done += sum(env_id >= team.division.own for env_id in ids)
        actions[ids] = rng.integers(1 << 40, size=(len(ids), WIDTH))
        counts[ids] += 1
        asked.send(ids)
    asked.settle()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--handshakes", type=int, default=20_000)
    parser.add_argument("--workers", type=lambda text: [int(number) for number in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--spin", type=float, default=None)
    parser.add_argument("--fences", choices=("own", "arm"), default="own")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for module in (worker, team):
        module.LOOK_SECONDS = 60.0  # type: ignore[attr-defined]
    if options.fences == "arm":
        worker.KEEPS_ORDER = False
    each = options.handshakes // (2 * len(options.workers))
    for workers in options.workers:
        for one_by_one in (False, True):
            rng = np.random.default_rng(options.seed)
            crew = make_team(workers, one_by_one, options.spin)
            pids = [handle.process.pid for handle in crew.workers]
            context = multiprocessing.get_context("fork")
            other = context.Process(target=disturb, args=(pids, options.seed), daemon=True)
            other.start()
            start = time.monotonic()
            done = (stress_one_by_one if one_by_one else stress_all)(crew, each, rng)
            other.kill()
            other.join()
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            mode = "one by one" if one_by_one else "all"
            seconds = time.monotonic() - start
            slept = crew._waiter.sleeps  # noqa: SLF001 - its insides are what is looked into
            print(f"{workers} workers, {mode}: {done} handshakes in {seconds:.1f} s, the caller slept {slept} times")
            crew.close()


if __name__ == "__main__":
    main()
