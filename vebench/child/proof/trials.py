"""What a comparison steps: a few trials, each a backend built anew in a layout of its own, with several resets.

Everything is drawn from one seed, so that the same comparison can be asked for again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vebench.backends.setup import Setup
    from vebench.child.request import Proving

# Where few ends have come within the steps that were asked for, some environments are followed for longer.
ENDS, TIMES_LONGER, LONGER_ENVS = 3, 3, 2
# Steps for which those environments are followed that are alive beside the ones that were asked for.
BESIDE_STEPS = 200
# Environments of the layout of many, how many of them are followed, and for how many steps.
MANY, MANY_FOLLOWED, MANY_STEPS = (9, 17), 4, (20, 40)
ONE_STEPS = (40, 80)
MOST_PER_WORKER = 4
FAR_APART = 1 << 17  # seeds of resets: more than environments can be alive
MOST_SEED = 1 << 30


@dataclass(frozen=True)
class Reset:
    """A reset with ``seed``, after which the tape goes on with its batch ``tape_at``.

    Environments are followed for ``steps``, some of them up to ``most`` if fewer episodes have ended than wanted.
    """

    seed: int
    tape_at: int
    steps: int
    most: int


@dataclass(frozen=True)
class Trial:
    """One backend, built with the seed ``seed``. ``exact``: on the variant of the task without chance.

    ``followed``: how many of its environments are compared over all steps, chosen by the seed ``chooser``. The others
    are compared over ``beside`` steps, -1 for not at all.
    """

    workers: int
    envs_per_worker: int
    exact: bool
    seed: int
    tape_seed: int
    followed: int
    beside: int
    chooser: int
    resets: tuple[Reset, ...]

    def setup(self, asked: Setup) -> Setup:
        """Return what the adapter is built with; the rest is as in ``asked``."""
        return replace(
            asked,
            task=replace(asked.task, exact=self.exact),
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


def draw(setup: Setup, proving: Proving, *, chance: bool) -> tuple[Trial, ...]:
    """Draw the trials of a comparison: the layout asked for, then one environment, then many.

    ``chance``: whether the last two are on the variant of the task that is measured, chance included.
    """
    rng = Random(proving.seed)  # noqa: S311 - it is to be repeated
    seeds = _seeds(rng)
    most = setup.batch_size
    workers, each = _layout(rng, most, most + 1 if most > 1 else most, setup)
    length = proving.steps + rng.randrange(max(1, proving.steps // 10))
    main = Trial(
        workers,
        each,
        exact=True,
        seed=next(seeds),
        tape_seed=next(seeds),
        followed=workers * each,
        beside=BESIDE_STEPS,
        chooser=next(seeds),
        resets=(
            Reset(next(seeds), rng.randrange(1 << 20), length, TIMES_LONGER * length),
            _short(rng, next(seeds), (1, max(2, min(length, max(20, length // 10))))),
        ),
    )
    others = []
    for count, steps in ((1, ONE_STEPS), (rng.randrange(*MANY), MANY_STEPS)):
        workers, each = _layout(rng, count, count, setup)
        lengths = min(steps[0], proving.steps), min(steps[1], proving.steps + 1)
        resets = tuple(_short(rng, next(seeds), lengths) for _ in range(2))
        others.append(
            Trial(
                workers,
                each,
                exact=not chance,
                seed=next(seeds),
                tape_seed=next(seeds),
                followed=min(count, MANY_FOLLOWED),
                beside=-1,
                chooser=next(seeds),
                resets=resets,
            )
        )
    return (main, *others)


def _short(rng: Random, seed: int, steps: tuple[int, int]) -> Reset:
    length = rng.randrange(steps[0], max(steps[0] + 1, steps[1]))
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


class Guide:
    """Says which environments of a trial are followed for how long, once it is known how many are alive."""

    def __init__(self, trial: Trial, num_envs: int) -> None:
        chosen = Random(trial.chooser).sample(range(num_envs), num_envs)  # noqa: S311 - it is to be repeated
        self._trial = trial
        self._long = frozenset(chosen[:LONGER_ENVS])
        self._full = frozenset(chosen[: trial.followed])

    def follows(self, at: int, env_id: int, step: int, ends: int) -> bool:
        """Return whether the row of ``step`` is compared, in the history of the trial's reset ``at``."""
        return step <= self._limit(at, env_id, ends)

    def enough(self, at: int, made: Mapping[int, tuple[int, int]]) -> bool:
        """Return whether all is compared; ``made`` has each environment's steps and ends since the reset ``at``."""
        for env_id in self._full:
            step, ends = made.get(env_id, (-1, 0))
            if step < self._limit(at, env_id, ends):
                return False
        return True

    def _limit(self, at: int, env_id: int, ends: int) -> int:
        reset = self._trial.resets[at]
        if env_id in self._long and ends < ENDS:
            return reset.most
        return reset.steps if env_id in self._full else min(reset.steps, self._trial.beside)
