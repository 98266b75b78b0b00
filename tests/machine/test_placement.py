"""From a pin policy to CPUs: a pure function."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.simulated import topology_of

from vebench.errors import UsageError
from vebench.machine.host import Node, Topology, order_of, place

SMALL = st.integers(1, 3)
MACHINES = st.builds(topology_of, SMALL, SMALL, SMALL, SMALL, interleaved=st.booleans())
POLICY = st.sampled_from(["compact", "scatter"])
SMT = st.sampled_from(["last", "off", "close"])


@st.composite
def some_allowed(draw: st.DrawFn) -> tuple[Topology, frozenset[int]]:
    """Return a machine and some of its CPUs, at least one."""
    topology = draw(MACHINES)
    return topology, draw(st.frozensets(st.sampled_from(topology.online), min_size=1))


@given(some_allowed(), POLICY, SMT, st.integers(1, 60))
def test_one_worker_more_owns_the_same_cpus_plus_one_whatever_the_machine(
    case: tuple[Topology, frozenset[int]], policy: str, smt: str, workers: int
) -> None:
    placement = place(policy, case[1], topology=case[0], smt=smt)
    assert set(placement.order) <= case[1]
    assert smt == "off" or sorted(placement.order) == sorted(case[1])
    fewer, more = placement.owned(workers), placement.owned(workers + 1)
    assert more[: len(fewer)] == fewer
    assert len(more) == min(workers + 1, placement.usable)


@given(some_allowed(), POLICY, SMT)
def test_no_core_has_two_workers_before_each_has_one_unless_that_is_asked_for(
    case: tuple[Topology, frozenset[int]], policy: str, smt: str
) -> None:
    topology, allowed = case
    core = {cpu: index for index, cpus in enumerate(topology.cores) for cpu in cpus}
    cores = [core[cpu] for cpu in order_of(topology, allowed, policy, smt)]
    if smt == "close":
        assert len([key for key, _ in groupby(cores)]) == len(set(cores)), "a core is filled before the next"
    else:
        turns = [cores[:at].count(which) for at, which in enumerate(cores)]
        assert turns == sorted(turns)
        assert smt == "last" or set(turns) == {0}


@given(some_allowed())
def test_compact_leaves_a_package_or_a_node_only_for_good(case: tuple[Topology, frozenset[int]]) -> None:
    topology, allowed = case
    order = order_of(topology, allowed, "compact", "off")
    for groups in (topology.packages.values(), [node.cpus for node in topology.nodes]):
        where = {cpu: index for index, cpus in enumerate(groups) for cpu in cpus}
        visits = [group for group, _ in groupby(where[cpu] for cpu in order)]
        assert len(visits) == len(set(visits))


@given(some_allowed())
def test_scatter_gives_a_node_at_most_one_worker_more_than_another(case: tuple[Topology, frozenset[int]]) -> None:
    topology, allowed = case
    node = {cpu: node.id for node in topology.nodes for cpu in node.cpus}
    places = [node[cpu] for cpu in order_of(topology, allowed, "scatter", "off")]
    room = Counter(places)
    for count in range(len(places)):
        taken = Counter(places[:count])
        assert taken[places[count]] == min(taken[other] for other in room if taken[other] < room[other])


def test_packages_of_one_node_follow_each_other_where_a_virtual_machine_has_it_so() -> None:
    cpus = tuple(range(4))
    nodes = (Node(0, (0, 2)), Node(1, (1, 3)))
    topology = Topology(cpus, tuple((cpu,) for cpu in cpus), {str(cpu): (cpu,) for cpu in cpus}, nodes, (), (cpus,))
    assert order_of(topology, cpus) == (0, 2, 1, 3)


def test_the_fastest_kind_comes_first_and_second_threads_after_all_kinds() -> None:
    whole = tuple(range(6))
    topology = Topology(
        whole, ((0,), (1,), (2, 3), (4, 5)), {"0": whole}, (Node(0, whole),), (), ((0, 1), (2, 3, 4, 5))
    )
    assert order_of(topology, whole) == (2, 4, 0, 1, 3, 5)
    assert order_of(topology, whole, "scatter") == (2, 4, 0, 1, 3, 5)
    assert order_of(topology, whole, smt="close") == (2, 3, 4, 5, 0, 1)
    assert order_of(topology, whole, smt="off") == (2, 4, 0, 1)


def test_without_second_threads_only_cores_are_usable() -> None:
    smt, four = topology_of(1, 1, 2, 2), frozenset(range(4))
    assert place("compact", four, topology=smt, smt="off").usable == 2
    assert place("none", four, topology=smt, smt="off").usable == 2
    assert place("2,1,0,3", four, topology=smt, smt="close").order == (2, 1, 0, 3)
    assert place("2,1,0,3", four, topology=smt, smt="off").order == (2, 1)
    limited = place("compact", four, quota=2.7)
    assert (limited.usable, limited.owned(8)) == (2, (0, 1))


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,1", "0-99999999", "²", "compakt", "0-65535," * 2000])
def test_what_is_no_cpu_list_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError, match="--pin"):
        place(text, frozenset(range(128)))


@given(some_allowed(), POLICY, SMT, st.integers(0, 4))
def test_reserved_cpus_are_whole_cores_as_far_as_possible(
    some: tuple[Topology, frozenset[int]], policy: str, smt: str, reserve: int
) -> None:
    topology, allowed = some
    whole = place(policy, allowed, topology=topology, smt=smt)
    if reserve >= whole.usable:
        with pytest.raises(UsageError, match=f"reserve={reserve}: no CPU is left for workers"):
            place(policy, allowed, topology=topology, smt=smt, reserve=reserve)
        return
    left = place(policy, allowed, topology=topology, smt=smt, reserve=reserve)
    assert left.usable == len(left.order) == whole.usable - reserve
    assert list(left.order) == [cpu for cpu in whole.order if cpu in set(left.order)]
    free = set(whole.order) - set(left.order)
    shared = [core for core in topology.cores if free & set(core) and set(left.order) & set(core)]
    assert len(shared) <= 1  # the last of them only in part
