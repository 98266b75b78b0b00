"""Findings on a machine: each from the facts that it follows from, and none if these are unknown."""

from __future__ import annotations

import msgspec
import pytest
from support.records import make_header

from vebench.analysis.findings import Surroundings, of_host
from vebench.backends.packages import ENVPOOL
from vebench.machine.host import MEBIBYTE
from vebench.results.records import HostRecord, TopologyRecord

CORES = TopologyRecord(
    cores=2,
    threads_per_core=1,
    packages={"0": "0-1"},
    nodes={"0": "0", "1": "1"},
    caches=(),
    last_level=(),
    kinds=(),
    core_cpus=("0", "1"),
)


@pytest.fixture
def host() -> HostRecord:
    return make_header().host


def codes(host: HostRecord, now: Surroundings | None = None, **facts: object) -> list[str]:
    found = list(of_host(msgspec.structs.replace(host, **facts), now or Surroundings()))
    assert all(finding.remedy for finding in found)
    return [finding.code for finding in found]


def test_nothing_is_reported_of_what_is_unknown(host: HostRecord) -> None:
    assert codes(host) == []


@pytest.mark.parametrize(("quota", "found"), [(0.5, True), (1.0, True), (1.5, True), (2.0, False), (64.0, False)])
def test_a_quota_below_the_allowed_cpus_is_reported(host: HostRecord, quota: float, found: bool) -> None:
    assert codes(host, quota_cpus=quota) == (["throttled"] if found else [])


@pytest.mark.parametrize(("governor", "found"), [("performance", False), ("performance, powersave", True)])
def test_a_governor_that_follows_the_load_is_reported(host: HostRecord, governor: str, found: bool) -> None:
    assert codes(host, governor=governor) == (["clocks"] if found else [])


def test_threads_of_a_core_are_reported_unless_they_are_switched_off(host: HostRecord) -> None:
    two = msgspec.structs.replace(CORES, threads_per_core=2)
    assert codes(host, topology=two, smt=True) == ["oversubscribed"]
    assert codes(host, topology=two, smt=False) == []


@pytest.mark.parametrize(("nodes", "found"), [((0, 1), False), ((0,), True), (None, False)])
def test_memory_that_is_near_but_not_allowed_is_reported(
    host: HostRecord, nodes: tuple[int, ...] | None, found: bool
) -> None:
    assert codes(host, topology=CORES, nodes_allowed=nodes) == (["memory"] if found else [])


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (Surroundings(others_share=0.3), "disturbed"),
        (Surroundings(others_share=0.01), None),
        (Surroundings(shared_memory_bytes=64 * MEBIBYTE), "memory"),
        (Surroundings(shared_memory_bytes=1024 * MEBIBYTE), None),
        (Surroundings(missing=(ENVPOOL,)), "skipped"),
        (Surroundings(missing=()), None),
    ],
)
def test_what_the_machine_does_right_now_is_reported(host: HostRecord, now: Surroundings, code: str | None) -> None:
    assert codes(host, now) == ([code] if code else [])


def test_boost_and_a_hypervisor_are_reported(host: HostRecord) -> None:
    assert codes(host, boost=True, virtual=True) == ["clocks", "virtual-machine"]
    assert codes(host, boost=False, virtual=False) == []
