"""How processes of the shared-memory backends wait for each other, and that no row is torn and no wake-up lost."""

import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest
from support.places import TOOLS

from vebench.backends.shared_memory import worker
from vebench.backends.shared_memory.worker import Waiter, ring

SCRIPT = TOOLS / "handshake.py"


def flag_and_pipe() -> tuple[memoryview, Connection, Connection]:
    return memoryview(bytearray(8)).cast("q"), *Pipe(duplex=False)


@pytest.mark.parametrize("fenced", [True, False], ids=["membarrier", "light fences"])
def test_a_sleeper_wakes_if_rung_and_gives_up_in_time(fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fenced:
        monkeypatch.setattr(worker, "_membarrier", lambda _: False)
    flag, pipe, writer = flag_and_pipe()
    waiter = Waiter(flag, pipe, spin_ns=0)
    done = threading.Event()
    assert not waiter.wait(done.is_set, 0.01)
    assert flag[0] == 0

    def wake() -> None:
        while not flag[0]:
            pass
        done.set()
        flag[0] = 0
        ring(writer)

    thread = threading.Thread(target=wake)
    thread.start()
    assert waiter.wait(done.is_set, 60.0)
    thread.join()
    assert flag[0] == 0
    assert waiter.sleeps >= 1


@pytest.mark.parametrize(
    "options",
    [
        "--workers 1,2,16",
        "--workers 1,3 --spin 0",
        "--workers 1,3 --spin 1000",
        "--workers 2 --fences arm --spin 0",
    ],
)
def test_no_row_is_torn_and_no_wake_up_lost_while_workers_are_stopped_at_random(options: str) -> None:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--handshakes", "1000", *options.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "handshakes" in done.stdout
