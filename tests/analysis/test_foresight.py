"""What a plan can resolve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.analysis.forecast import Foresight, foresee
from vebench.machine.placement import place
from vebench.plan.cells import expand
from vebench.plan.grammar import parse_backends
from vebench.plan.spec import RunSpec
from vebench.plan.tasks import resolve


def foreseen(*, passes: int = 3, windows: int = 2, backends: str = "for-loop,shm-sync,gym-sync") -> Foresight | None:
    spec = RunSpec(("Pong",), (1, 2), parse_backends((backends,)), passes=passes, windows=windows)
    return foresee(expand(spec, resolve(spec.envs), place("compact", frozenset({0, 1})), None), 0.05)


def test_more_processes_tell_more_and_more_windows_a_little() -> None:
    three, ten, long = foreseen(), foreseen(passes=10), foreseen(windows=20)
    assert ten.half < long.half < three.half
    assert 0.05 < ten.resolves < long.resolves < three.resolves < 1


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)).filter(lambda size: size != (1, 1)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["for-loop,shm-sync", "for-loop,shm-sync,gym-sync"]),
)
def test_passes_and_windows_never_tell_less(size: tuple[int, int], more: int, longer: int, backends: str) -> None:
    passes, windows = size
    few = foreseen(passes=passes, windows=windows, backends=backends)
    many = foreseen(passes=passes + more, windows=windows + longer, backends=backends)
    assert many.half <= few.half
    assert many.resolves <= few.resolves


@pytest.mark.parametrize("backends", ["ceiling,null", "ceiling"])
def test_reference_rows_alone_are_compared_with_nothing(backends: str) -> None:
    assert foreseen(backends=backends) is None


def test_without_the_loop_or_an_interval_there_are_no_speedups_to_foresee() -> None:
    assert foreseen(backends="shm-sync,gym-sync") is None
    assert foreseen(passes=1, windows=1) is None
    assert foreseen(passes=1, windows=6) is not None
