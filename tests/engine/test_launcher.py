"""Cells in real processes, forked from another: what becomes of them if backends misbehave, and what is left."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.leaks import processes_that_name, segments
from support.places import ADAPTERS
from support.waiting import eventually

from vebench.backends.entry import BackendEntry, Shape
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES
from vebench.commands.session import World
from vebench.engine.launcher import Launcher
from vebench.engine.runner import CellFinished, Outcome, WindowDone, run
from vebench.machine import guardian, kernel
from vebench.machine.host import format_cpu_list
from vebench.plan.cells import Cell, Plan
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.process_guard import Interrupts, ProcessGuard

pytestmark = [
    pytest.mark.whole_machine,  # each looks for what is left in shared memory
    pytest.mark.skipif(not kernel.SUPPORTED, reason="pinning and /proc are Linux's"),
]


@pytest.fixture(autouse=True)
def in_the_adapters_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Run as a user whose own adapters lie in the current folder, and see that nothing is left afterwards."""
    monkeypatch.setattr(BackendEntry, "preloaded", lambda *_: ())  # third parties' have fresh interpreters otherwise
    monkeypatch.chdir(ADAPTERS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = segments()
    yield
    assert list(tmp_path.iterdir()) == [], "a scratch folder is left"
    assert eventually(lambda: segments() <= before), "shared memory is left"


def cell(adapter: str, cpus: tuple[int, ...] = (), **options: int) -> Cell:
    target = adapter if ":" in adapter else f"faulty:{adapter}"
    return Cell(Task("CartPole-v1", "classic", 1), BackendChoice(target, options), 2, 3, Shape(6, 6, 1, 1), cpus)


@contextmanager
def launched(
    *cells: Cell, timeout: float = 30.0, windows: int = 2, duration: float = 0.05
) -> Iterator[tuple[Launcher, Iterator[object]]]:
    """Begin to measure the cells, in windows of ``duration``: what starts them, and events. Nothing is left of it."""
    spec = RunSpec(
        ("CartPole",), (2,), duration=duration, warmup=0.02, windows=windows, timeout=timeout, isolation="fork"
    )
    with Interrupts() as interrupts, World().start(spec, interrupts) as launch:
        yield launch, run(Plan(spec, cells), launch)
    assert guardian.members(launch._token) == []


def outcomes(*cells: Cell, timeout: float = 30.0, windows: int = 2) -> list[Outcome]:
    """Measure the cells, and return how each ended."""
    with launched(*cells, timeout=timeout, windows=windows) as (_, events):
        return [event.outcome for event in events if isinstance(event, CellFinished)]


def test_a_sound_backend_is_measured() -> None:
    (sound,) = outcomes(cell("Sound", cpus=(kernel.allowed() or ())[:1]))
    assert (sound.status, sound.reason) == ("ok", None)
    assert len(sound.windows) >= 2  # one that something else disturbed is measured again
    for window in sound.windows:
        assert window.rows % 6 == 0
        # Each environment ends after 10 steps, and its 11th row is the reset.
        assert window.resets == pytest.approx(window.rows / 11, abs=6)
        assert window.cpu_ns
    assert sound.ready is not None
    assert (sound.ready.layout.num_envs, sound.ready.layout.affinity) == (6, (min(os.sched_getaffinity(0)),))
    assert sound.ready.startup_ns
    assert (sound.done.peak_rss_bytes or 0) > 1 << 20


def test_a_backend_that_hangs_is_ended_at_its_timeout_and_its_shared_memory_is_freed() -> None:
    (outcome,) = outcomes(cell("LeavesSharedMemory"), timeout=3.0)
    assert (outcome.status, outcome.reason) == ("failed", "timed out after 3 s (--timeout), in a step")
    assert "segment" in outcome.log


def state(process: int) -> str:
    """Return the state of a process, as the kernel's letter."""
    return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()


def states(token: str) -> list[str]:
    """Return the states of all processes with this token, sorted."""
    return sorted(map(state, guardian.members(token)))


def test_cells_take_turns_in_processes_that_are_stopped_meanwhile() -> None:
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    asleep = ["S"]  # what they are forked from
    processes = {"faulty:Sound": 1, "faulty:Bystander": 3, "faulty:Stranger": 2}  # two are in groups of their own
    ended = {}
    with launched(*(replace(cell(name, cpus[:1]), group=0) for name in processes)) as (launch, events):
        for event in events:
            if isinstance(event, WindowDone):
                assert set(os.sched_getaffinity(0)) == set(cpus[1:] or cpus)
                alive = sum(processes[name] for name in processes.keys() - ended)
                assert eventually(lambda: states(launch._token) == asleep + ["T"] * alive)  # noqa: B023 - to find its bearers, at once
            elif isinstance(event, CellFinished):
                ended[event.cell.backend.name] = event.outcome
    assert set(os.sched_getaffinity(0)) == set(cpus)
    for outcome in ended.values():
        assert (outcome.status, outcome.reason) == ("ok", None)
        assert len(outcome.windows) >= 2


def test_what_hangs_dies_or_fails_in_a_group_is_ended_alone() -> None:
    names = ("Sound", "HangsLater", "Killed", "RaisesOnBuild")
    cells = [replace(cell(name), group=0) for name in names]
    ended = outcomes(*cells, timeout=3.0, windows=10)
    windows = {str(outcome.reason).partition(", in ")[0]: len(outcome.windows) for outcome in ended}
    assert windows.pop("OSError: no such game, while it was built") == 0
    assert windows.pop("timed out after 3 s (--timeout)") == 1
    assert windows.pop("its process was ended by SIGKILL (out of memory, or killed from outside)") < 10
    assert windows == {"None": 10}


def test_a_backend_that_leaves_its_cpus_and_its_priority_between_two_windows_is_seen() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    (outcome,) = outcomes(replace(cell("MovesLater", cpus=(allowed[0],)), group=0), windows=3)
    seats = {cpus for threads in outcome.done.seats or () for cpus in threads}
    assert seats == {str(allowed[0]), format_cpu_list(allowed)}
    assert outcome.done.priorities == (f"nice {os.getpriority(os.PRIO_PROCESS, 0) + 1}",)


def test_a_backend_may_close_and_processes_with_an_environment_of_their_own_are_ended(tmp_path: Path) -> None:
    closes, first, second = outcomes(cell("FreesOnClose"), cell("Forgetful"), cell("BecomesAnother"), timeout=3.0)
    assert (closes.status, first.status) == ("ok", "ok")
    assert not (ADAPTERS / "MUJOCO_LOG.TXT").exists()
    assert second.reason == "its process is still running, but has closed the pipe for its answers"
    assert processes_that_name(tmp_path) == []


def test_a_cell_runs_on_its_cpus_with_one_thread_for_each_library() -> None:
    before = os.sched_getaffinity(0)
    (outcome,) = outcomes(cell("Greedy", cpus=(max(before),)))
    assert outcome.reason == f"RuntimeError: cpus=[{max(before)}] omp=1 cwd_is_tmp=True, in reset"
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("names", "group"), [(("Sound", "Sound"), None), (("HoldsSharedMemory", "Sound"), 0)], ids=["alone", "in turn"]
)
def test_an_interrupt_ends_the_run_with_the_windows_that_it_has_and_nothing_is_left(
    names: tuple[str, ...], group: int | None
) -> None:
    cells = [replace(cell(name), group=group) for name in names]
    seen: list[object] = []

    def interrupt_after_a_window_of_the_last() -> None:
        with launched(*cells, timeout=200, windows=500) as (_, events):
            for event in events:
                if isinstance(event, WindowDone) and event.cell == cells[-1]:
                    os.kill(os.getpid(), signal.SIGINT)
                seen.append(event)

    with pytest.raises(KeyboardInterrupt):
        interrupt_after_a_window_of_the_last()
    ended = [event.outcome for event in seen if isinstance(event, CellFinished)]
    assert [outcome.reason for outcome in ended] == ["interrupted"] * (1 if group is None else 2)
    assert all(outcome.windows for outcome in ended)


KILLED = """
import os, signal, sys
from vebench.backends.interface import Task
from vebench.backends.entry import BackendEntry, Shape
from vebench.engine.runner import WindowDone, run
from vebench.process_guard import Interrupts
from vebench.engine.launcher import Launcher
from vebench.plan.cells import Cell, Plan
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec

BackendEntry.preloaded = lambda *_: ()
adapter, guardian = sys.argv[1], sys.argv[2] == "guardian"
task, backend = Task("CartPole-v1", "classic", 1), BackendChoice(adapter)
cell = Cell(task, backend, 2, 1, Shape(2, 2, 1, 1), (), group=0)
spec = RunSpec(("CartPole",), (2,), duration=0.1, warmup=0.05, windows=500, timeout=200, isolation="fork")
with Interrupts() as interrupts, Launcher(spec, interrupts) as launch:
    for event in run(Plan(spec, (cell, cell)), launch):
        if isinstance(event, WindowDone):
            print(launch._token, flush=True)
            if guardian:
                os.kill(launch._guard._guardian.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_runner(folder: Path, adapter: str, first: str) -> str:
    """Let a runner kill itself in the midst of a run, its guardian ``first`` or nobody, and return the run's token."""
    runner = subprocess.run(
        [sys.executable, "-c", KILLED, f"faulty:{adapter}", first],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert runner.returncode == -signal.SIGKILL
    return runner.stdout.split()[0]


def test_a_killed_runner_leaves_neither_processes_nor_files(tmp_path: Path) -> None:
    token = killed_runner(tmp_path, "HangsOnClose", "nobody")
    assert eventually(lambda: not guardian.members(token) and not list(tmp_path.iterdir()))


def test_a_runner_killed_with_its_guardian_leaves_no_cells(tmp_path: Path) -> None:
    token = killed_runner(tmp_path, "HasWorkers", "guardian")
    assert eventually(lambda: len(states(token)) == 2)  # each cell has started a process that left its group
    with ProcessGuard():
        assert guardian.members(token) == []
        assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guardian_that_is_killed_or_stopped_holds_nothing_up(number: signal.Signals) -> None:
    with launched(cell("Sound")) as (launch, events):
        process = launch._guard._guardian.pid
        os.kill(process, number)
        assert eventually(lambda: state(process) in "ZT")
        ended = [event for event in events if isinstance(event, CellFinished)]
    assert [event.outcome.reason for event in ended] == [None]
    assert not Path(f"/proc/{process}").exists()


def test_passes_are_forked_from_processes_of_their_own() -> None:
    zygotes = []
    with launched(*(replace(cell("Sound"), repeat=repeat) for repeat in (0, 0, 1)), windows=1) as (launch, events):
        for event in events:
            if isinstance(event, CellFinished):
                assert event.outcome.status == "ok"
                zygotes.append([one.pid for one in launch._zygotes.values()])
    first, again, other = zygotes
    assert first == again != other
    assert len(first) == len(other) == 1


def test_cells_have_fresh_interpreters_where_none_can_be_forked_and_one_note_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(BackendEntry, "preloaded", lambda *_: ("nowhere",))
    cells = (cell("Sound"), cell("Missing"), replace(cell("Sound"), repeat=1))
    with launched(*cells) as (launch, events):
        ended = (event.outcome.status for event in events if isinstance(event, CellFinished))
        found = [(status, len(launch._zygotes)) for status in ended]
    assert found == [("ok", 0), ("failed", 0), ("ok", 0)]
    assert capsys.readouterr().err.count("nowhere") == 1


def preloads() -> set[tuple[str, ...]]:
    """Return what is imported for any backend on one task of each suite that can be stepped here."""
    tasks = [Task(next(iter(suite.tasks)), suite.name, 1) for suite in SUITES.values() if suite.tasks]
    able = ((entry, task) for entry in ENTRIES for task in tasks if entry.why_not(task) is None)
    return {modules for entry, task in able if (modules := entry.preloaded(task)) is not None}


@pytest.mark.parametrize("modules", sorted(preloads()), ids="-".join)
def test_cells_can_be_forked_from_a_process_that_has_imported_what_backends_need(
    modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BackendEntry, "preloaded", lambda *_: modules)
    with launched(cell("Sound"), windows=1) as (launch, events):
        *_, finished = events
        (zygote,) = launch._zygotes.values()
        assert isinstance(finished, CellFinished)
        assert (finished.outcome.status, zygote.poll()) == ("ok", None)
        assert not launch._unforkable
