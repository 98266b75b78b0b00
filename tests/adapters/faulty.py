"""Third-party adapters, each with one fault, for the tests of what the engine makes of it."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vebench.backends.bracketed import OptionValue
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Setup


class Sound:
    """No fault. Each environment ends every ``length`` steps, and reports its reset after that."""

    def __init__(self, setup: Setup, length: OptionValue = 10) -> None:
        self._rows = setup.batch_size
        self._length = int(length)
        self._step = 0
        self.info = BackendInfo(self._rows, self._rows, action_space=ActionSpace.discrete(2), frame_skip=1)

    def reset(self, seed: int) -> None:
        self._step = seed * 0

    def send(self, actions: NDArray[np.generic]) -> None:
        time.sleep(0.0005)  # it needs little of a CPU
        self._step = (self._step + 1) % (self._length + 1)
        assert len(actions) == self._rows

    def recv(self) -> Batch:
        ended = np.full(self._rows, self._step == self._length)
        rows = np.zeros(self._rows)
        return Batch(rows, rows, ended, np.zeros(self._rows, np.bool_), np.arange(self._rows))

    def close(self) -> None:
        pass


class Bystander(Sound):
    """Starts a process that leaves the process group, and one more in it."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        idle = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
        self._processes = [subprocess.Popen(idle, start_new_session=far) for far in (False, True)]


class Stranger(Sound):
    """Starts a process that leaves the process group, and has nothing of its environment."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        idle = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
        self._process = subprocess.Popen(idle, start_new_session=True, env={})


class TellsSeeds(Sound):
    """Tells which seeds it was built and reset with."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._built = setup.seed

    def reset(self, seed: int) -> None:
        raise ValueError(f"built with {self._built}, reset with {seed}")


class HasWorkers(Bystander):
    """Forks a process that hangs, besides those that it starts."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if os.fork() == 0:
            time.sleep(600)


class Hangs(Bystander):
    """The tenth answer never comes."""

    _answers = 0

    def recv(self) -> Batch:
        self._answers += 1
        if self._answers > 9:
            time.sleep(600)
        return super().recv()


class HangsLater(Bystander):
    """Hangs in its second turn: it is stopped before each, and then told to continue."""

    _turns = 0

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        signal.signal(signal.SIGCONT, self._count)

    def _count(self, *_: object) -> None:
        self._turns += 1

    def send(self, actions: NDArray[np.generic]) -> None:
        if self._turns > 1:
            self.late()
        super().send(actions)

    def late(self) -> None:
        time.sleep(600)


class MovesLater(HangsLater):
    """Leaves its CPUs and lowers its priority in its second turn."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._nice = os.getpriority(os.PRIO_PROCESS, 0) + 1

    def late(self) -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        os.setpriority(os.PRIO_PROCESS, 0, self._nice)


class HangsOnClose(Bystander):
    def close(self) -> None:
        time.sleep(600)


class Raises(Bystander):
    _answers = 0

    def recv(self) -> Batch:
        self._answers += 1
        if self._answers > 9:
            raise ValueError("the simulator exploded\nin every detail")
        return super().recv()


class RaisesOnBuild(Sound):
    def __init__(self, setup: Setup) -> None:
        raise OSError("no such game")


class Killed(Bystander):
    """Is killed from outside after its first windows, like a process that has taken too much memory."""

    def recv(self) -> Batch:
        if time.monotonic() > self._end:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().recv()

    def reset(self, seed: int) -> None:
        self._end = time.monotonic() + 1


class HoldsSharedMemory(Sound):
    """Takes a named segment of shared memory, and steps on."""

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._segment = shared_memory.SharedMemory(create=True, size=4096)

    def close(self) -> None:
        self._segment.close()
        self._segment.unlink()


class LeavesSharedMemory(Hangs):
    """Takes a named segment of shared memory, and hangs before it could free it."""

    def reset(self, seed: int) -> None:
        self._segment = shared_memory.SharedMemory(create=True, size=4096)
        print("segment", self._segment.name, flush=True)


class Greedy(Sound):
    """Reports of its own process what the tests want to see: CPUs, thread limits, the temporary folder."""

    def recv(self) -> Batch:
        raise RuntimeError(
            f"cpus={sorted(os.sched_getaffinity(0))} omp={os.environ['OMP_NUM_THREADS']}"
            f" cwd_is_tmp={os.environ['TMPDIR'] == os.getcwd()}"  # noqa: PTH109 - compared as text
        )


class FreesOnClose(Sound):
    """Takes a while to close, and frees a named segment of shared memory then that nobody else would free.

    Writes into the working folder and into the temporary folder, as simulators do.
    """

    def reset(self, seed: int) -> None:
        import tempfile

        self._path = Path("/dev/shm") / f"vebench-test-{os.getpid()}"
        self._path.touch()
        for path in ("MUJOCO_LOG.TXT", tempfile.mkstemp()[1]):
            with open(path, "w") as file:  # noqa: PTH123 - a relative path, as libraries write
                file.write("hello")

    def close(self) -> None:
        time.sleep(0.3)
        self._path.unlink()


def nameless() -> list[str]:
    """Return the command of a program that sleeps; only its last argument shows where it comes from."""
    return [sys.executable, "-c", "import time; time.sleep(600)", str(Path.cwd())]


class Forgetful(Sound):
    """Starts a process in its group that has forgotten its environment."""

    def reset(self, seed: int) -> None:
        self._process = subprocess.Popen(nameless(), env={})


class BecomesAnother(Sound):
    """Turns into another program, without the environment it was given."""

    def reset(self, seed: int) -> None:
        os.execve(sys.executable, nameless(), {})  # noqa: S606 - the fault
