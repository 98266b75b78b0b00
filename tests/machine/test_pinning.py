"""Memory nodes: what is asked for is what the kernel reports, and pages are counted where they lie."""

import subprocess
import sys
from pathlib import Path

import pytest

from vebench.machine import kernel

# Policies go to what a process starts and cannot be taken back by a test: each is tried in an interpreter of its own.
TRIED = """
import sys
from vebench.machine import kernel
error = kernel.set_memory_policy(sys.argv[1], [int(node) for node in sys.argv[2:]])
print(error or kernel.memory_policy())
"""


def tried(policy: str, *nodes: int) -> str:
    command = [sys.executable, "-c", TRIED, policy, *map(str, nodes)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def node() -> int:
    """Return a memory node of this machine."""
    if kernel.memory_policy() is None:
        pytest.skip("the kernel does not tell")
    with open("/sys/devices/system/node/has_memory") as file:  # noqa: PTH123 - a file of the kernel's
        return int(file.read().partition(",")[0].partition("-")[0])


@pytest.mark.parametrize(("policy", "shown"), [("local", "local"), ("bind", "bind:{}"), ("preferred", "preferred:{}")])
def test_the_kernel_reports_the_policy_that_was_asked_for(policy: str, shown: str, node: int) -> None:
    assert tried(policy, node) in (shown.format(node), "Operation not permitted")


def test_a_node_that_is_not_there_is_refused_with_the_reason(node: int) -> None:
    assert node < 1000
    assert tried("bind", 1000) in ("Invalid argument", "Operation not permitted")


def test_pages_are_counted_by_node_without_those_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PROC", tmp_path)
    maps = {
        1: "7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n"
        "7f01 default file=/usr/lib/libc.so mapped=9 N0=9 kernelpagesize_kB=4\n"
        "7f02 default file=/usr/lib/libc.so anon=1 dirty=1 N1=1 kernelpagesize_kB=4\n",
        2: "7f03 bind:1 huge anon=1 N1=1 kernelpagesize_kB=2048\n7f04 default\n"
        "7f05 default file=/memfd:vebench\\040(deleted) dirty=5 N0=5 kernelpagesize_kB=4\n",
    }
    for pid, text in maps.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "numa_maps").write_text(text)
    assert kernel.bytes_by_node([1, 2, 3]) == {0: 7 * 4096, 1: 2 * 4096 + 2048 * 1024}
    assert kernel.bytes_by_node([3]) is None
