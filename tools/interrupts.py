"""Interrupt the shared-memory environments at random moments, and see that nothing hangs and nothing is left.

python tools/interrupts.py --trials 1000
python tools/interrupts.py --trials 200 --what fast --seed 7

A trial is a process of its own. It makes a vector environment, learns which rows follow from a seed, and is interrupted
by SIGINT at a random moment in one kind of call: from outside, or by a timer of its own. Then it makes another call,
which may raise one of the errors that say why not; resets, and compares its rows; is interrupted in ``close`` in some
trials; closes, and counts its children and descriptors. From outside it is seen that it ends in time, and that no
process of its session, no file in its folder and no named segment is left.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "environments")]  # as pytest has them

from support.leaks import segments
from support.waiting import eventually
from various import Sampler

from vebench.backends.fast import make_vec
from vebench.backends.shared_memory import BrokenOffError, SharedMemoryVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COUNT, BATCH, STEPS = 4, 2, 3
LIMIT = 30.0  # seconds for a trial
SAID = (AlreadyPendingCallError, NoAsyncCallError, BrokenOffError, ValueError, RuntimeError)
FINE, WRONG_ROWS, LEFT, NOT_SAID = 0, 11, 12, 13  # how a trial ends
WORDS = {FINE: "fine", WRONG_ROWS: "wrong rows", LEFT: "something left", NOT_SAID: "an error of another kind"}


class Vector:
    """``SharedMemoryVectorEnv`` or what ``make_vec`` makes, in the calls that a trial needs."""

    def __init__(self, make: Callable[..., SharedMemoryVectorEnv], one_by_one: bool, caller_steps: bool) -> None:
        self.one_by_one = one_by_one
        self.envs = make(batch_size=BATCH if one_by_one else COUNT, caller_steps=caller_steps, num_processes=2)
        self.envs.action_space.seed(3)
        self.actions = [self.envs.action_space.sample() for _ in range(STEPS)]

    def reset(self) -> None:
        self.envs.reset(seed=5)

    def steps(self) -> None:
        """Make a few steps, which may be interrupted."""
        if not self.one_by_one:
            for _ in range(3):
                self.envs.step(self.actions[0])
            return
        self.envs.send(self.actions[0], range(COUNT))
        for _ in range(3):
            received = self.envs.recv()
            self.envs.send(self.actions[1][received.env_ids], received.env_ids)

    def after(self) -> list[Callable[[], object]]:
        """Return what may be called after an interrupt, in addition to ``reset`` and ``close``."""
        if self.one_by_one:
            return [partial(self.envs.recv, min_batch=1), partial(self.envs.send, self.actions[0], range(COUNT))]
        return [self.envs.step_wait, self.envs.reset_wait, partial(self.envs.step, self.actions[0])]

    def rows(self) -> list[NDArray[Any]]:
        """Return what all environments observe, from a reset on."""
        rows = [np.array(self.envs.reset(seed=7)[0])]
        for actions in self.actions:
            if not self.one_by_one:
                rows.append(np.array(self.envs.step(actions)[0]))
                continue
            self.envs.send(actions, range(COUNT))
            rows.append(np.zeros_like(rows[0]))
            left = COUNT
            while left:
                received = self.envs.recv(min_batch=1)
                rows[-1][received.env_ids] = received.observations
                left -= len(received.env_ids)
        return rows

    def close(self) -> None:
        self.envs.close()


def sampler(**options: Any) -> SharedMemoryVectorEnv:
    one = partial(Sampler, spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(3))
    return SharedMemoryVectorEnv([one] * COUNT, **options)


KINDS = {
    "class": partial(Vector, sampler),
    "fast": partial(Vector, partial(make_vec, "HalfCheetah-v5", COUNT)),
}
CALLS = ("steps", "steps", "reset", "constructor", "close")


def trial(kind: str, call: str, one_by_one: bool, caller_steps: bool, seed: int) -> int:
    """Run one trial in this process; return how it ended."""
    rng = random.Random(seed)
    make = partial(KINDS[kind], one_by_one, caller_steps)
    built = [make()]
    expected = built[0].rows()
    built.pop().close()
    descriptors = count_descriptors()
    if call == "constructor":
        interrupted_in(lambda: built.append(make()), 0.05, rng)
    else:
        built.append(make())
        made = built[0]
        made.rows()
        if call == "close":
            interrupted_in(made.close, 0.01, rng)
        else:
            start = time.perf_counter()
            getattr(made, call)()
            seconds = time.perf_counter() - start
            made.rows()
            interrupted_in(getattr(made, call), seconds, rng)
            with contextlib.suppress(*SAID):
                rng.choice([*made.after(), lambda: None])()
            if not all(map(np.array_equal, made.rows(), expected)):
                return WRONG_ROWS
        del made
    while built:
        built.pop().close()
    # What was built and never given out is ended by a thread.
    clean = eventually(lambda: not multiprocessing.active_children() and count_descriptors() <= descriptors)
    return FINE if clean else LEFT


def interrupted_in(call: Callable[[], object], seconds: float, rng: random.Random) -> None:
    """Make the call, and be interrupted about within so many seconds, by a timer or by another process."""
    delay = max(1e-5, rng.uniform(0.0, 1.2 * seconds))
    other = 0 if rng.random() < 0.5 else other_process(delay)
    with contextlib.suppress(KeyboardInterrupt):
        if other:
            os.kill(other, signal.SIGUSR1)
        else:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, delay)
        call()
        time.sleep(delay + 5)  # it comes after the call, then, unless a library has swallowed it
    if other:
        os.waitpid(other, 0)


def other_process(delay: float) -> int:
    """Return a process that sends this one SIGINT so many seconds after it was sent SIGUSR1."""
    caller = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if (other := os.fork()) == 0:
        signal.sigwait({signal.SIGUSR1})
        time.sleep(delay)
        os.kill(caller, signal.SIGINT)
        os._exit(0)
    return other


def count_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def in_a_process(run: Callable[[], int], folder: str) -> str:
    """Run a trial in a session of its own; return how it ended, in words."""
    if (child := os.fork()) == 0:
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        faulthandler.dump_traceback_later(LIMIT - 5, exit=False)
        try:
            code = run()
        except BaseException:  # noqa: BLE001 - whatever it is, it is printed
            traceback.print_exc()
            code = NOT_SAID
        sys.stdout.flush()
        os._exit(code)
    until = time.monotonic() + LIMIT
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hangs"
        time.sleep(0.002)
    # Before its id is given back, which is that of its session, too.
    left = [process for process in session_of(child) if process != child]
    _, status = os.waitpid(child, 0)
    if left or any(Path(folder).iterdir()):
        return WORDS[LEFT]
    return WORDS.get(os.waitstatus_to_exitcode(status), f"ended with {status}")


def session_of(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in {"Z", "X"}:
                found.append(int(path.parent.name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--what", choices=tuple(KINDS), action="append")
    options = parser.parse_args()
    before = segments()
    rng = random.Random(options.seed)
    counts: Counter[tuple[str, ...]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.trials):
            kind, call = rng.choice(options.what or [*KINDS]), rng.choice(CALLS)
            one_by_one, caller_steps = rng.random() < 0.5, rng.random() < 0.5
            seed = options.seed * 1_000_000 + number
            ended = in_a_process(partial(trial, kind, call, one_by_one, caller_steps, seed), folder)
            mode = ("async" if one_by_one else "sync") + (", caller steps" if caller_steps else "")
            counts[kind, mode, call, ended] += 1
            if ended != "fine":
                print(f"seed {seed}: {kind}, {mode}, {call}: {ended}", flush=True)
    for (kind, mode, call, ended), count in sorted(counts.items()):
        print(f"{kind:8} {mode:20} {call:14} {ended:16} {count:5}")
    totals = Counter(ended for *_, ended in counts.elements())
    print(f"{totals.total()} interrupts, seed {options.seed}: {dict(totals)}")
    if left := segments() - before:
        print(f"segments left: {sorted(map(str, left))}")
    return int(bool(left) or set(totals) != {"fine"})


if __name__ == "__main__":
    sys.exit(main())
