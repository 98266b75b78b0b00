"""Faulty backends that were tried because real ones had such bugs, and honest ones in ways of their own.

All of them, on more tasks and in measured cells, are tried by ``tools/faults.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.in_this_process import world_here

from vebench.commands.world import World

if TYPE_CHECKING:
    from support.commands import Command


def verdict_on(vebench: Command, adapter: str, task: str, steps: str, world: World | None = None) -> dict[str, Any]:
    """Return what ``vebench verify`` says of an adapter."""
    asked = ("-e", task, "-b", adapter, "--steps", steps, "--num-envs", "3", "--seed", "1", "-f", "json")
    (verdict,) = json.loads(vebench("verify", *asked, world=world or world_here()).out)
    return dict(verdict)


@pytest.mark.parametrize(
    ("adapter", "task", "steps", "fault"),
    [
        ("wrong_actions:AStepLate", "CartPole", "50", "first at environment "),
        ("wrong_async:ActionsById", "CartPole", "50", "first at environment "),
        ("wrong_async:SeedsByBatch", "CartPole", "50", "first at environment "),
        ("wrong_buffers:FlagsOverwritten", "CartPole", "50", "terminated change after they were handed out"),
        ("wrong_buffers:OneRowShared", "CartPole", "450", "from step 400 on row 0 stands for every environment"),
        ("wrong_claims:BlankStarts", "CartPole", "100", "declares differences in"),
        ("wrong_claims:ChanceExcuses", "CartPole", "50", "observations are one step stale"),
        ("wrong_claims:FramesTwice", "Hopper", "50", "claims 8 frames in a step where the reference simulates 4"),
        ("wrong_layouts:ActionsOfOneWorker", "CartPole", "50", "first at environment "),
        ("wrong_pictures:OtherType", "Hopper", "50", "observations float32(11,) instead of float64(11,)"),
        ("wrong_pictures:OneColumn", "CartPole", "50", "rewards have the shape (3, 1), not one value for each row"),
        ("wrong_ends:LimitTerminates", "Pendulum", "220", "terminated and truncated are confused"),
        ("wrong_rewards:HalfPrecision", "Pendulum", "50", "rewards are rounded to float16"),
        ("wrong_rewards:NoNumberIsZero", "odd:odd/No-number-v0", "50", "rewards are always 0"),
        ("wrong_unwatched:SeesVariant", "CartPole", "50", "first at environment "),
        ("wrong_variants:NoNoise", "Hopper", "50", "first at environment "),
        ("wrong_variants:ResetsUncountedMeasured", "CartPole", "50", "first at environment "),
    ],
)
def test_what_looks_like_a_bug_of_a_real_backend_is_found_by_name(
    vebench: Command, adapter: str, task: str, steps: str, fault: str
) -> None:
    verdict = verdict_on(vebench, adapter, task, steps)
    assert verdict["verdict"] == "different", verdict
    assert fault in verdict["summary"], verdict


@pytest.mark.parametrize(
    ("adapter", "task"),
    [
        ("ClaimsChance", "CartPole"),
        ("InAnyOrder", "CartPole"),
        ("Packed", "Hopper"),
        ("Shuffled", "CartPole"),
        ("StepsWhenSent", "CartPole"),
        ("TellsAnew", "CartPole"),
        ("Uncounted", "Hopper"),
    ],
)
def test_an_honest_backend_with_ways_of_its_own_is_not_accused(vebench: Command, adapter: str, task: str) -> None:
    verdict = verdict_on(vebench, f"honest:{adapter}", task, "100")
    assert verdict["verdict"] in ("identical", "equal"), verdict


@pytest.mark.parametrize("adapter", ["wrong_for_all:PatchesTheStep", "wrong_clocks:BribesTheJudge"])
def test_what_an_adapter_changes_in_its_whole_process_does_not_change_what_it_is_compared_with(
    vebench: Command, adapter: str
) -> None:
    verdict = verdict_on(vebench, adapter, "CartPole", "50", World())
    assert verdict["verdict"] == "different", verdict
