"""Adapters that are right in the exact variant of a task, and not in the one that is measured."""

from altered import On, patching, reporting, seeding, setting
from liars import shrinks_otherwise, sticky

NOOPS = On("no-op|reset|start|seed|frame|observation|picture", "Pong", envs=1, measured=True)
NOISE = On("noise|start|seed|reset|observation", "Hopper", envs=2, measured=True)

NoNoops = setting("Makes no more than one no-op at a reset where 30 are asked for.", NOOPS, "AtariScreen", noop_max=1)
NoNoise = setting("Starts without noise where the task is measured.", NOISE, "unwrapped", _reset_noise_scale=0.0)
SkipsMoreMeasured = setting(
    "Steps 8 frames where the task is measured, and says 4.",
    On("frame", "Pong", envs=1, measured=True),
    "AtariScreen",
    if_exact=False,
    frame_skip=8,
)
LimitlessMeasured = setting(
    "Has no time limit where the task is measured.",
    On("limit|end|truncat", "Pendulum", measured=True),
    "TimeLimit",
    if_exact=False,
    _max_episode_steps=10**9,
)
ResetsUncountedMeasured = reporting(
    "Says same_step where the task is measured, so that its resets count as steps.",
    On("reset|autoreset", measured=True),
    if_exact=False,
    autoreset="same_step",
)
SeedsMeasured = seeding(
    "All environments begin alike where the task is measured.",
    On("seed", "Hopper", envs=4, measured=True),
    lambda _it, seed, _: seed,
)


StickyMeasured = patching(
    "Repeats the last action with probability 0.25 where the task is measured: ale-py's default.",
    On("sticky|random|chance|action", "Pong", envs=1, measured=True),
    lambda _it, _index, environment: sticky(environment),
    if_exact=False,
)
CheaperMeasured = patching(
    "Shrinks the screen by the nearest pixels where the task is measured.",
    On("picture|observation", "Pong", envs=1, measured=True),
    lambda _it, _index, environment: shrinks_otherwise(environment),
    if_exact=False,
)
