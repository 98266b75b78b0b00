"""How processes of the shared-memory backends wait for each other, and that no row is torn and no wake-up lost."""

import mmap
import subprocess
import sys
import threading
from multiprocessing import Pipe

import pytest
from support.places import TOOLS

from vebench.backends.shared_memory import handshake
from vebench.backends.shared_memory.handshake import FutexBell, PipeBell, Waiter, light_fence

SCRIPT = TOOLS / "handshake.py"


def bells(kind: str, memory: mmap.mmap, flag: memoryview) -> FutexBell | PipeBell:
    return FutexBell(memory, flag) if kind == "futex" else PipeBell(*Pipe(duplex=False))


@pytest.mark.parametrize("fenced", [True, False], ids=["membarrier", "naps"])
@pytest.mark.parametrize("kind", ["futex", "pipe"])
def test_a_sleeper_wakes_if_rung_and_gives_up_in_time(kind: str, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fenced:
        monkeypatch.setattr(handshake, "heavy_fence", lambda: False)
    memory = mmap.mmap(-1, 4096)
    flag = memoryview(memory)[:4].cast("i")
    bell = bells(kind, memory, flag)
    waiter = Waiter(flag, bell, spin_ns=0)
    done = threading.Event()
    assert not waiter.wait(done.is_set, 0.01)
    assert flag[0] == 0

    def wake() -> None:
        while not flag[0]:
            pass
        done.set()
        flag[0] = 0
        bell.ring()

    thread = threading.Thread(target=wake)
    thread.start()
    assert waiter.wait(done.is_set, 60.0)
    thread.join()
    assert flag[0] == 0
    assert waiter.sleeps >= 1


def test_what_has_changed_already_is_not_waited_for() -> None:
    memory = mmap.mmap(-1, 4096)
    flag = memoryview(memory)[:4].cast("i")
    waiter = Waiter(flag, bells("futex", memory, flag), spin_ns=0)
    assert waiter.wait(lambda: True, 60.0)
    assert waiter.sleeps == 0


def test_a_fence_is_there_where_the_processor_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "KEEPS_ORDER", False)
    fence = light_fence()
    assert fence is not None
    fence()
    fence()
    monkeypatch.setattr(handshake, "KEEPS_ORDER", True)
    assert light_fence() is None


@pytest.mark.parametrize(
    "options",
    [
        "--workers 1,2,16",
        "--workers 1,3 --spin 0",
        "--workers 1,3 --spin 1000",
        "--workers 2 --bell pipe",
        "--workers 2 --fences arm --spin 0",
    ],
)
def test_no_row_is_torn_and_no_wake_up_lost_while_workers_are_stopped_at_random(options: str) -> None:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "stress", "--handshakes", "1000", *options.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "handshakes" in done.stdout
