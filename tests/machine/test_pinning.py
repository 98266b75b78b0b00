"""Memory nodes: the kernel reports the requested policy."""

import subprocess
import sys
from pathlib import Path

import pytest

# Child processes inherit a policy, and a test cannot take it back. So it is set in an interpreter of its own.
TRIED = """
import sys
from vebench.machine import kernel
print(kernel.bind_memory([int(node) for node in sys.argv[1:]]) or open("/proc/self/numa_maps").readline().split()[1])
"""


def test_memory_is_bound_to_a_node_and_to_none_that_is_not_there() -> None:
    if not Path("/proc/self/numa_maps").exists():
        pytest.skip("the kernel does not tell")
    node = Path("/sys/devices/system/node/has_memory").read_text().partition(",")[0].partition("-")[0].strip()
    for asked, found in ((node, f"bind:{node}"), ("1000", "Invalid argument")):
        done = subprocess.run([sys.executable, "-c", TRIED, asked], capture_output=True, text=True, check=True)
        assert done.stdout.strip() in (found, "Operation not permitted")
