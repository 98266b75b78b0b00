"""What a plan will be able to tell."""

from __future__ import annotations

from itertools import pairwise

import pytest

from vebench.analysis.foresight import Foresight, foresee
from vebench.machine.placement import place
from vebench.plan.cells import expand
from vebench.plan.grammar import parse_backends
from vebench.plan.spec import RunSpec
from vebench.plan.tasks import resolve


def foreseen(*, repeats: int = 3, rounds: int = 2, backends: str = "for-loop,shm-sync,gym-sync") -> Foresight | None:
    spec = RunSpec(("Pong",), (1, 2), parse_backends((backends,)), repeats=repeats, rounds=rounds)
    return foresee(expand(spec, resolve(spec.envs), place("compact", frozenset({0, 1})), None), 0.05)


def test_more_processes_tell_more_and_more_windows_a_little() -> None:
    three, ten, long = foreseen(), foreseen(repeats=10), foreseen(rounds=20)
    assert three is not None
    assert ten is not None
    assert long is not None
    assert ten.half < long.half < three.half
    assert 0.05 < ten.resolves < long.resolves < three.resolves < 1


@pytest.mark.parametrize("backends", ["for-loop,shm-sync", "for-loop,shm-sync,gym-sync,gym-async"])
def test_no_repeat_and_no_window_more_resolves_less(backends: str) -> None:
    by_repeats = [foreseen(repeats=count, backends=backends) for count in range(1, 9)]
    by_rounds = [
        foreseen(repeats=repeats, rounds=count, backends=backends) for repeats in (1, 3) for count in (2, 3, 9)
    ]
    for series in (by_repeats, by_rounds[:3], by_rounds[3:]):
        known = [found for found in series if found is not None]
        assert len(known) == len(series)
        assert all(more.half < less.half and more.resolves < less.resolves for less, more in pairwise(known))


@pytest.mark.parametrize("backends", ["ceiling,null", "ceiling"])
def test_reference_rows_alone_are_compared_with_nothing(backends: str) -> None:
    assert foreseen(backends=backends) is None


def test_without_the_loop_or_an_interval_there_are_no_speedups_to_foresee() -> None:
    assert foreseen(backends="shm-sync,gym-sync") is None
    assert foreseen(repeats=1, rounds=1) is None
    assert foreseen(repeats=1, rounds=6) is not None
