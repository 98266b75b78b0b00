"""The reason of a cell that fails, whatever its environment raises and its memory allows."""

import subprocess
import sys

import pytest
from various import MuteError

from vebench.child.answers import describe
from vebench.child.probe import in_one_line

PEAK_IS = (
    "import re, resource\n"
    "from vebench.machine import counters\n"
    "peak = int(re.search(r'VmPeak:\\s+(\\d+)', open('/proc/self/status').read())[1]) << 10\n"
    "resource.setrlimit(resource.RLIMIT_AS, (int({} * peak),) * 2)\n"
    "print(counters.address_space_used())\n"
)


def test_an_exception_without_a_text_is_named_by_its_class() -> None:
    for tell in (describe, in_one_line):
        assert tell(MuteError()).startswith("MuteError: ")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell what is mapped")
@pytest.mark.parametrize(("room", "told"), [(1.5, True), (4, False)])
def test_a_limit_on_memory_is_told_if_more_than_half_is_mapped(room: float, told: bool) -> None:
    done = subprocess.run([sys.executable, "-c", PEAK_IS.format(room)], capture_output=True, text=True, check=True)
    assert ("ulimit -v" in done.stdout) == told
