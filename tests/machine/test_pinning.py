"""Memory nodes: what is asked for is what the kernel reports, and pages are counted where they lie."""

import subprocess
import sys

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
