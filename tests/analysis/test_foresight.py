"""What a plan can resolve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assert ten.half < long.half < three.half
    assert 0.05 < ten.resolves < long.resolves < three.resolves < 1


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)).filter(lambda size: size != (1, 1)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["for-loop,shm-sync", "for-loop,shm-sync,gym-sync"]),
)
def test_repeats_and_rounds_never_tell_less(size: tuple[int, int], passes: int, windows: int, backends: str) -> None:
    repeats, rounds = size
    few = foreseen(repeats=repeats, rounds=rounds, backends=backends)
    many = foreseen(repeats=repeats + passes, rounds=rounds + windows, backends=backends)
    assert many.half <= few.half
    assert many.resolves <= few.resolves


@pytest.mark.parametrize("backends", ["ceiling,null", "ceiling"])
def test_reference_rows_alone_are_compared_with_nothing(backends: str) -> None:
    assert foreseen(backends=backends) is None


def test_without_the_loop_or_an_interval_there_are_no_speedups_to_foresee() -> None:
    assert foreseen(backends="shm-sync,gym-sync") is None
    assert foreseen(repeats=1, rounds=1) is None
    assert foreseen(repeats=1, rounds=6) is not None
