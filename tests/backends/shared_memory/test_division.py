"""How environments are divided among processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vebench.backends.shared_memory.memory_layout import divide, share_out


@given(st.integers(0, 1000), st.integers(1, 64))
def test_environments_are_shared_out_in_runs_as_equal_as_can_be(count: int, processes: int) -> None:
    shares = share_out(count, processes)
    assert [index for start, stop in shares for index in range(start, stop)] == list(range(count))
    sizes = {stop - start for start, stop in shares}
    assert max(sizes) - min(sizes) <= 1
    assert len(shares) == processes


@given(st.integers(1, 300), st.integers(1, 20), st.booleans(), st.booleans())
def test_every_environment_is_the_callers_or_one_workers(
    envs: int, processes: int, caller_steps: bool, one_by_one: bool
) -> None:
    division = divide(envs, processes, caller_steps=caller_steps, one_by_one=one_by_one, available=4)
    assert division.processes == min(envs, processes) == len(division.shares) + caller_steps
    owned = [*range(division.own), *(index for start, stop in division.shares for index in range(start, stop))]
    assert owned == list(range(envs))
    assert (division.spin_ns == 0) == (division.processes + (not caller_steps) > 4)
    most = max((stop - start for start, stop in division.shares), default=1)
    assert division.layout((), ()).ring >= (most if one_by_one else 1)


def test_workers_keep_to_the_cpus_after_the_callers() -> None:
    division = divide(8, cpus=[5, 6, 7])
    assert (division.processes, [division.cpu_of(worker) for worker in range(2)]) == (3, [6, 7])
    apart = divide(8, cpus=[5, 6], caller_steps=False)
    assert [apart.cpu_of(worker) for worker in range(2)] == [5, 6]
