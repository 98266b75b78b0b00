"""A cell ends when its parent is gone, whatever the cell has done to its signals and descriptors."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it asks Linux for signals")

HOLD = "import os, signal, sys, time; from vebench.child.main import hold_lifeline; fd = int(sys.argv[1])"
WAIT = "print(flush=True); time.sleep(600)"


def held(*lines: str, hung_up: bool = False) -> int:
    """Return how a process ends that holds a lifeline and runs these lines, when the other end is closed."""
    lifeline, parent = os.pipe()
    if hung_up:
        os.close(parent)
    with subprocess.Popen(
        [sys.executable, "-c", "\n".join((HOLD, *lines, WAIT)), str(lifeline)],
        pass_fds=[lifeline],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        os.close(lifeline)
        assert process.stdout is not None
        process.stdout.readline()
        if not hung_up:
            os.close(parent)
        return process.wait(20)


@pytest.mark.parametrize(
    "lines",
    [
        ("hold_lifeline(fd)",),
        ("hold_lifeline(fd)", "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))"),
        ("hold_lifeline(fd)", "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGCONT)]"),
    ],
    ids=["nothing", "masks signals", "ignores signals"],
)
def test_a_cell_ends_with_its_parent_whatever_it_has_done(lines: tuple[str, ...]) -> None:
    assert held(*lines) in (-signal.SIGKILL, -signal.SIGTERM)


def test_a_cell_whose_parent_ended_before_it_began_does_nothing() -> None:
    assert held("hold_lifeline(fd)", hung_up=True) == 1
