"""What a comparison steps: a few trials, each a backend built anew in a layout of its own, with several resets.

Everything is drawn from one seed, so that the same comparison can be asked for again.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vebench.backends.setup import Setup
    from vebench.child.request import Proving

# The layout of one environment goes on until it has ended so often, up to this many times the steps asked for. Where
# more are alive than a batch takes, they share these ends. In the layout asked for, one environment ends.
ENDS, TIMES_LONGER = 3, 8
END, TIMES_FOR_ONE = 1, 3
# Where steps are cheap, the layout asked for goes on until the judge has worked for this long, but for this many times
# the steps at most: some faults begin late. Backends that are compared together go on for as long as the first. Steps
# that sleep take none of the judge's time, and are not cheap: after a while that ends it, too.
LEAST_S, MOST_TIMES, WHILE_S = 1.0, 10, 5.0
# Environments that are alive beside those asked for: how many of them are followed, and for how many steps.
BESIDE, BESIDE_STEPS = 2, 200
# Environments alive in the layout of many, how many of them are followed, and for how many steps.
MANY, MANY_FOLLOWED, MANY_STEPS = (4, 7), 3, (20, 40)
ONE_STEPS = (40, 80)
MOST_PER_WORKER = 4
FAR_APART = 1 << 17  # seeds of resets: more than environments can be alive
MOST_SEED = 1 << 30


@dataclass(frozen=True)
class Reset:
    """A reset with ``seed``, after which the tape goes on with its batch ``tape_at``.

    Environments are followed for ``steps``, some of them up to ``most`` until they have ended: ``ends`` times if there
    is one, and if there are several, in equal parts as often together, each at least once.
    """

    seed: int
    tape_at: int
    steps: int
    most: int
    ends: int = 0


@dataclass(frozen=True)
class Trial:
    """One backend, built with the seed ``seed``. ``exact``: on the variant of the task without chance, with ``no_ops``.

    ``followed``: how many of its environments are compared over all steps, chosen by the seed ``chooser``, and
    ``longer`` of these until they have ended; ``beside`` others are compared for a while. ``goes_on``: it takes some
    time even if it could be quick.
    """

    workers: int
    envs_per_worker: int
    exact: bool
    no_ops: int
    seed: int
    tape_seed: int
    followed: int
    longer: int
    beside: int
    chooser: int
    goes_on: bool
    resets: tuple[Reset, ...]

    def setup(self, asked: Setup) -> Setup:
        """Return what the adapter is built with; the rest is as in ``asked``."""
        return replace(
            asked,
            task=replace(asked.task, exact=self.exact, no_ops=self.no_ops),
            workers=self.workers,
            envs_per_worker=self.envs_per_worker,
            cpus=asked.cpus[: max(1, self.workers)],
            seed=self.seed,
        )

    def written(self) -> dict[str, Any]:
        """Return the trial as JSON has it."""
        return asdict(self)

    @classmethod
    def read(cls, body: dict[str, Any]) -> Trial:
        """Return the trial from the JSON of ``written``."""
        return cls(**{**body, "resets": tuple(Reset(**reset) for reset in body["resets"])})


def draw(setup: Setup, proving: Proving, *, chance: bool, alive: int = 1, no_ops: int = 1) -> tuple[Trial, ...]:
    """Draw the trials of a comparison: the layout asked for, then one environment, then many.

    ``chance``: whether the last two are on the variant of the task that is measured, chance included. ``alive``: how
    many environments the backend has for each row of a batch. ``no_ops``: what its entry says.
    """
    rng = Random(proving.seed)  # noqa: S311 - it is to be repeated
    lengths = Random(f"{proving.seed} lengths")  # noqa: S311 - likewise; with other steps, all else is to be the same
    seeds = _seeds(rng)
    most = setup.batch_size
    workers, each = _layout(rng, most, most + 1 if most > 1 >= alive else most, setup)
    length = proving.steps + lengths.randrange(max(1, proving.steps // 10))
    main = Trial(
        workers,
        each,
        exact=True,
        no_ops=no_ops,
        seed=next(seeds),
        tape_seed=next(seeds),
        followed=workers * each,
        longer=1,
        beside=BESIDE,
        chooser=next(seeds),
        goes_on=True,
        resets=(
            Reset(next(seeds), rng.randrange(1 << 20), length, TIMES_FOR_ONE * length, END),
            _short(rng, lengths, next(seeds), (1, max(2, min(length, max(20, length // 10))))),
        ),
    )
    long = Reset(next(seeds), rng.randrange(1 << 20), min(length, ONE_STEPS[1]), TIMES_LONGER * length, ENDS)
    one = Trial(
        1,
        1,
        exact=not chance,
        no_ops=no_ops,
        seed=next(seeds),
        tape_seed=next(seeds),
        followed=ENDS,
        longer=ENDS,
        beside=0,
        chooser=next(seeds),
        goes_on=False,
        resets=(_short(rng, lengths, next(seeds), _within(ONE_STEPS, proving.steps)), long),
    )
    count = max(2, rng.randrange(*MANY) // alive)
    workers, each = _layout(rng, count, count, setup)
    many = Trial(
        workers,
        each,
        exact=not chance,
        no_ops=no_ops,
        seed=next(seeds),
        tape_seed=next(seeds),
        followed=MANY_FOLLOWED,
        longer=0,
        beside=0,
        chooser=next(seeds),
        goes_on=False,
        resets=(_short(rng, lengths, next(seeds), _within(MANY_STEPS, proving.steps)),),
    )
    return main, one, many


def _within(steps: tuple[int, int], asked: int) -> tuple[int, int]:
    """Return bounds of a number of steps that are no more than was asked for."""
    return min(steps[0], asked), min(steps[1], asked + 1)


def _short(rng: Random, lengths: Random, seed: int, steps: tuple[int, int]) -> Reset:
    length = lengths.randrange(steps[0], max(steps[0] + 1, steps[1]))
    return Reset(seed, rng.randrange(1 << 20), length, length)


def _seeds(rng: Random) -> Iterator[int]:
    """Yield seeds so far apart that no environment of one has the seed of an environment of another."""
    taken: set[int] = set()
    while True:
        place = rng.randrange(MOST_SEED // FAR_APART)
        if place not in taken:
            taken.add(place)
            yield place * FAR_APART + rng.randrange(FAR_APART // 2)


def _layout(rng: Random, least: int, most: int, setup: Setup) -> tuple[int, int]:
    """Return workers and environments of each: together from ``least`` to ``most``, those asked for among them."""
    if least == most == setup.batch_size:
        return setup.workers, setup.envs_per_worker
    layouts = [
        (count // each, each)
        for count in range(least, most + 1)
        for each in range(1, MOST_PER_WORKER + 1)
        if count % each == 0
    ]
    return rng.choice(layouts)


class Extent:
    """How many ``steps`` the layout asked for goes on for where steps are cheap; None until that is known."""

    def __init__(self) -> None:
        self.steps: int | None = None


class Guide:
    """Says which environments of a trial are followed for how long, once it is known how many are alive.

    ``full``: those that are followed over all steps.
    """

    def __init__(self, trial: Trial, num_envs: int, extent: Extent) -> None:
        chosen = Random(trial.chooser).sample(range(num_envs), num_envs)  # noqa: S311 - it is to be repeated
        # The first is always there: buffers and seeds that are confused most often are its own.
        chosen.insert(0, chosen.pop(chosen.index(0)))
        self._trial, self._extent = trial, extent
        self._until, self._end = time.process_time() + LEAST_S, time.monotonic() + WHILE_S
        self._long = frozenset(chosen[: trial.longer])
        self.full = frozenset(chosen[: trial.followed])
        self._beside = frozenset(chosen[trial.followed :][: trial.beside])

    def follows(self, at: int, env_id: int, step: int, ends: int) -> bool:
        """Return whether the row of ``step`` is compared, in the history of the trial's reset ``at``."""
        return step <= self._limit(at, env_id, ends)

    def enough(self, at: int, made: Mapping[int, tuple[int, int]]) -> bool:
        """Return whether all is compared; ``made`` has each environment's steps and ends since the reset ``at``."""
        long = time.process_time() >= self._until or time.monotonic() >= self._end
        if at == 0 and self._trial.goes_on and self._extent.steps is None and long:
            self._extent.steps = max((made[env_id][0] for env_id in self.full if env_id in made), default=0)
        for env_id in self.full:
            step, ends = made.get(env_id, (-1, 0))
            if step < self._limit(at, env_id, ends):
                return False
        return True

    def _limit(self, at: int, env_id: int, ends: int) -> int:
        reset = self._trial.resets[at]
        if env_id in self._long and reset.ends and ends < max(1, reset.ends // len(self._long)):
            return max(reset.most, self._least(at))
        if env_id in self.full:
            return max(reset.steps, self._least(at))
        return min(reset.steps, BESIDE_STEPS) if env_id in self._beside else -1

    def _least(self, at: int) -> int:
        """Return for how many steps the history of the trial's reset ``at`` goes on because steps are cheap."""
        if at or not self._trial.goes_on:
            return 0
        most = MOST_TIMES * self._trial.resets[0].steps
        return most if self._extent.steps is None else min(self._extent.steps, most)
