"""The trials of a comparison: in each, a backend is built anew in another layout, and reset several times.

All is drawn from one seed, so that a comparison can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.backends.interface import Setup
    from vebench.child.equality.recording import About
    from vebench.child.request import Judging, Proving, Request

# The layout of one environment goes on until it has ended so often, up to this many times the steps asked for. In the
# layout asked for, one environment ends.
ENDS, TIMES_LONGER = 3, 8
_END, TIMES_FOR_ONE = 1, 3
# Where steps are cheap, the layout asked for is stepped until this much time of a CPU has gone, but for this many times
# the steps at most: some faults begin late. Steps that sleep take no time of a CPU, and are not cheap: after a while
# that ends it, too.
LEAST_S, MOST_TIMES, WHILE_S = 2.0, 10, 5.0
# At least this many environments in the layout of many, or one more, several for each worker; and for how many steps.
MANY, _MANY_STEPS = (5, 8), (20, 40)
_ONE_STEPS = (40, 80)
_MOST_PER_WORKER = 4
_FAR_APART = 1 << 17  # seeds of resets: more than environments can be alive
_MOST_SEED = 1 << 30


@dataclass(frozen=True)
class Reset:
    """A reset and the steps after it. The last batch has an end, so that the next reset comes when one is due."""

    seed: int
    tape_at: int  # the batch of the tape that comes first
    steps: int  # of each environment, at least
    most: int  # of each environment, while fewer than ``ends`` episodes have ended
    ends: int = 0  # of all environments together
    goes_on: bool = False  # until some time has passed, if steps are cheap


@dataclass(frozen=True)
class Trial:
    """One layout in which a backend is built, and the resets that it gets."""

    workers: int
    envs_per_worker: int
    no_ops: int
    seed: int  # of the constructor
    tape_seed: int
    resets: tuple[Reset, ...]
    exact: bool  # on the variant of the task without chance

    def setup(self, asked: Setup) -> Setup:
        """Return the setup of the adapter in this trial."""
        return replace(
            asked,
            task=replace(asked.task, exact=self.exact, no_ops=self.no_ops),
            workers=self.workers,
            envs_per_worker=self.envs_per_worker,
            cpus=asked.cpus[: max(1, self.workers)],
            seed=self.seed,
        )

    def words(self, about: About | None = None) -> str:
        """Return the layout in words: ``with 2 environments``; without ``about``, before the backend is built."""
        count = self.workers * self.envs_per_worker if about is None else about.num_envs
        envs = "1 environment" if count == 1 else f"{count} environments"
        return f"with {envs}" if self.exact else f"with {envs}, including randomness"


def planned(request: Request, proving: Proving | Judging) -> tuple[Trial, ...]:
    """Return the trials of a request's backend."""
    setup, entry = request.setup, request.entry
    shape = entry.shape_of(setup.workers, setup.envs_per_worker, len(setup.cpus), request.options)
    chance = entry.scope.chance(replace(setup.task, exact=False)) is None
    return draw(setup, proving, chance=chance, alive=shape.num_envs // shape.batch_size, no_ops=entry.scope.no_ops)


def draw(setup: Setup, how: Proving | Judging, *, chance: bool, alive: int = 1, no_ops: int = 1) -> tuple[Trial, ...]:
    """Draw the trials of a comparison: the layout asked for, then one environment, then many.

    ``chance``: whether the last two are on the variant of the task that is measured, chance included. ``alive``: how
    many environments the backend has for each row of a batch. ``no_ops``: the no-ops of its entry.
    """
    steps, exact = how.steps, not chance
    rng = Random(how.seed)
    lengths = Random(f"{how.seed} lengths")
    seeds = _seeds(rng)

    def short(least: int, end: int) -> Reset:
        seed, least = next(seeds), min(least, steps)
        length = lengths.randrange(least, max(least + 1, min(end, steps + 1)))
        return Reset(seed, rng.randrange(1 << 20), length, length)

    most = setup.batch_size
    workers, each = _layout(rng, most, most + 1 if most > 1 >= alive else most, setup)
    length = steps + lengths.randrange(max(1, steps // 10))
    built = next(seeds), next(seeds)
    resets = (
        Reset(next(seeds), rng.randrange(1 << 20), length, TIMES_FOR_ONE * length, _END, goes_on=True),
        short(1, max(2, min(length, max(20, length // 10)))),
    )
    main = Trial(workers, each, no_ops, *built, resets, exact=True)
    long = Reset(next(seeds), rng.randrange(1 << 20), min(length, _ONE_STEPS[1]), TIMES_LONGER * length, ENDS)
    # Backends may take seed 0 for none.
    three = short(*_ONE_STEPS), long, replace(short(1, _MANY_STEPS[0]), seed=0)
    one = Trial(1, 1, no_ops, next(seeds), next(seeds), three, exact=exact)
    count = max(2, -(-rng.randrange(*MANY) // alive))
    workers, each = _layout(rng, count, count + 1, setup, several=True)
    many = Trial(workers, each, no_ops, next(seeds), next(seeds), (short(*_MANY_STEPS),), exact=exact)
    return main, one, many


def _seeds(rng: Random) -> Iterator[int]:
    """Yield seeds so far apart that no environment of one has the seed of an environment of another."""
    taken: set[int] = set()
    while True:
        place = rng.randrange(_MOST_SEED // _FAR_APART)
        if place not in taken:
            taken.add(place)
            yield place * _FAR_APART + rng.randrange(_FAR_APART // 2)


def _layout(rng: Random, least: int, most: int, setup: Setup, *, several: bool = False) -> tuple[int, int]:
    """Return workers and environments of each, ``several`` or not: together from ``least`` to ``most``."""
    if least == most == setup.batch_size:
        return setup.workers, setup.envs_per_worker
    pairs = ((count, each) for count in range(least, most + 1) for each in range(1 + several, _MOST_PER_WORKER + 1))
    return rng.choice([(count // each, each) for count, each in pairs if count % each == 0])
