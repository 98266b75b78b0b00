"""Adapters whose faults need some environments or layouts: the last one, those after the eighth, 65 of them."""

from typing import Any

import numpy as np
from altered import On, acting, altering, ending, patching, seeding

OTHERS = "swap|shows? the row|same row"

BeyondSixteen = altering(
    "Environments above 15 show the row of environment 15.",
    On(OTHERS, envs=24),
    observations=lambda _, batch: batch.observations[np.minimum(np.arange(len(batch.env_ids)), 15)],
)
OddRows = altering(
    "Odd environments get the reward of the even one before them.",
    On("reward|row|environment", "Pendulum"),
    rewards=lambda _, batch: batch.rewards[np.arange(len(batch.env_ids)) & ~1],
)
ManyInOneKernel = altering(
    "With more than 8 environments observations are rounded.",
    On("round|observation|float16", envs=12),
    observations=lambda _, batch: (
        batch.observations.astype(np.float16).astype(np.float32) if len(batch.env_ids) > 8 else batch.observations
    ),
)
SharedByOneWorker = seeding(
    "Environments of one worker begin alike.",
    On("seed|row 0|environment"),
    lambda it, seed, index: seed + index // it.setup.envs_per_worker,
)
ActionsOfOneWorker = acting(
    "Environments of one worker take the action of its first.",
    On("action"),
    lambda it, sent: sent[np.arange(len(sent)) // it.setup.envs_per_worker * it.setup.envs_per_worker],
)


SixtyFourEnds = ending(
    "Environments above 63 are not reset where they end.",
    On("no reset|end|reset", envs=72),
    lambda _, over: over[:64] + [False] * len(over[64:]),
)
AloneWithoutReset = ending(
    "With one environment ends are not followed by resets.",
    On("no reset|reset|end", envs=1),
    lambda _, over: over if len(over) > 1 else [False],
)


def every_second(it: Any, index: int, environment: Any) -> None:
    """Let environment 5 make every second step only."""
    step, kept = environment.step, list[Any]()

    def stepped(action: object) -> Any:
        if it.batches % 2 and kept:
            return kept.pop()
        kept[:] = [step(action)]
        return kept[0]

    if index == 5:
        environment.step = stepped


OneStandsStill = patching(
    "Environment 5 is stepped every second time only.", On("not step|stale|environment|action", envs=8), every_second
)
