"""What is said of a machine: each from the facts that it follows from, and nothing where they are not known."""

from __future__ import annotations

import msgspec
import pytest
from support.records import make_header

from vebench.analysis.findings.machine import MEBIBYTE, Surroundings, of_host, of_run
from vebench.backends.packages import ENVPOOL
from vebench.results.records import HostRecord, TopologyRecord

CORES = TopologyRecord(
    cores=2, threads_per_core=1, packages={"0": "0-1"}, nodes={"0": "0", "1": "1"}, caches=(), last_level=(), kinds=()
)


@pytest.fixture
def host() -> HostRecord:
    return make_header().host


def codes(host: HostRecord, now: Surroundings | None = None, **facts: object) -> list[str]:
    found = of_host(msgspec.structs.replace(host, **facts), now or Surroundings())
    assert all(finding.remedy for finding in found)
    return [finding.code for finding in found]


def test_of_what_is_not_known_nothing_is_said(host: HostRecord) -> None:
    assert codes(host) == []


@pytest.mark.parametrize(("quota", "told"), [(0.5, True), (1.0, True), (1.5, True), (2.0, False), (64.0, False)])
def test_a_quota_below_the_allowed_cpus_is_told(host: HostRecord, quota: float, told: bool) -> None:
    assert codes(host, quota_cpus=quota) == (["quota"] if told else [])
    assert len(of_run(msgspec.structs.replace(host, quota_cpus=quota))) == told


def test_less_than_a_cpu_is_told_as_what_it_does(host: HostRecord) -> None:
    (finding,) = of_run(msgspec.structs.replace(host, quota_cpus=0.5))
    assert "less than one CPU: every cell will be held back" in finding.message


@pytest.mark.parametrize(("governor", "told"), [("performance", False), ("performance, powersave", True)])
def test_a_governor_that_follows_the_load_is_told(host: HostRecord, governor: str, told: bool) -> None:
    assert codes(host, governor=governor) == (["governor"] if told else [])


def test_threads_of_a_core_are_told_unless_they_are_switched_off(host: HostRecord) -> None:
    two = msgspec.structs.replace(CORES, threads_per_core=2)
    assert codes(host, topology=two, smt=True) == ["smt"]
    assert codes(host, topology=two, smt=False) == []


@pytest.mark.parametrize(("nodes", "told"), [((0, 1), False), ((0,), True), (None, False)])
def test_memory_that_is_near_but_barred_is_told(host: HostRecord, nodes: tuple[int, ...] | None, told: bool) -> None:
    assert codes(host, topology=CORES, nodes_allowed=nodes) == (["memory-nodes"] if told else [])


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (Surroundings(others_share=0.3), "other-load"),
        (Surroundings(others_share=0.01), None),
        (Surroundings(shared_memory_bytes=64 * MEBIBYTE), "little-shm"),
        (Surroundings(shared_memory_bytes=1024 * MEBIBYTE), None),
        (Surroundings(missing=(ENVPOOL,)), "missing-packages"),
        (Surroundings(missing=()), None),
    ],
)
def test_what_is_so_at_the_moment_is_told(host: HostRecord, now: Surroundings, code: str | None) -> None:
    assert codes(host, now) == ([code] if code else [])


def test_boost_and_a_hypervisor_are_told(host: HostRecord) -> None:
    assert codes(host, boost=True, virtual=True) == ["boost", "virtual-machine"]
    assert codes(host, boost=False, virtual=False) == []
