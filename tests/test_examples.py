"""The scripts among the examples: each runs as a user starts it, and finds what is there in a world of known rates."""

import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.paced import CPUS, Counts, Seconds, paced, uncounted, world_of

import vebench as package
from vebench import measure
from vebench.backends.fast import make_vec
from vebench.backends.registry import find
from vebench.child.answers import Window
from vebench.plan.cells import Cell
from vebench.results import store

Ran = Callable[..., str]


EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
BRIEF = ("proof=off", "base=false", "workers=1", "passes=1", "windows=2", "duration=0.02", "warmup=0.01")
TIMED = "timed:vebench"
STEP = 200e-6

pytestmark = pytest.mark.usefixtures("vebench")  # in an empty folder


def test_a_script_runs_as_a_user_starts_it() -> None:
    words = ("envs=CartPole", "backends=shm-sync,shm-async", "envs_per_worker=1,2", *BRIEF)
    command = [sys.executable, EXAMPLES / "overlap.py", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    # On a machine that others use, the run may be unusable.
    assert re.search(r"faster|slower|inconclusive|not comparable", done.stdout)
    assert done.stderr == ""
    assert store.run_files_in()[-1].exists()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Return what a script prints in a world where batches take so many seconds."""

    def run(script: str, *words: str, seconds: Seconds, noise: float = 0.003, counts: Counts = uncounted) -> str:
        monkeypatch.setattr(package, "measure", partial(measure, world=world_of(paced(seconds, noise, counts))))
        monkeypatch.setattr(sys, "argv", [script, f"workers={CPUS}", "proof=off", *words])
        runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def microseconds(cell: Cell) -> float:
    found = re.search(r"-(\d+)us-", cell.task.id)
    return 1e-6 * int(found[1]) if found else STEP


def test_exchange_finds_from_which_step_time_on_a_backend_pays(ran: Ran) -> None:
    def seconds(cell: Cell) -> float:
        together, hand_over = (CPUS, 0.4e-3) if cell.backend.name == "shm-sync" else (1, 0.0)
        return cell.shape.batch_size * microseconds(cell) / together + hand_over

    printed = ran("exchange", "envs_per_worker=1", "backends=for-loop,shm-sync,gym-sync", seconds=seconds)
    # It hands over in 400 microseconds and saves three quarters of four steps: they are equal at 133 microseconds.
    assert re.search(r"shm-sync, 4 workers: faster above (49|50|51) µs and at (199|20\d) µs and more\n", printed)
    assert re.search(r"gym-sync, 4 workers: not faster at any step time up to \d+ µs\n", printed)
    assert re.search(r"\n    \d+ µs: 2\.8\dx ±\d\.\d%, faster\n", printed)


def test_gil_finds_where_threads_step_at_the_same_time_and_how_much_of_a_step_needs_no_lock(ran: Ran) -> None:
    def seconds(cell: Cell) -> float:
        releases = cell.backend.name == "threads" and "Native" in cell.task.id
        together = CPUS if cell.backend.name == "shm-sync" else 2 if releases else 1
        return cell.shape.batch_size * STEP / together

    printed = ran("gil", f"envs={TIMED}/Busy-200us-v0,{TIMED}/Native-200us-v0", seconds=seconds)
    lines = dict(re.findall(r"vebench/(\w+)-200us-v0, .*: (threads over .*)x", printed))
    assert lines.keys() == {"Busy", "Native"}
    assert re.search(r"Busy.*: threads over for-loop: \d\.\d\dx ±[\d.]+%, inconclusive\n", printed)
    assert re.search(
        r"Native.*: threads over for-loop: (1\.9\d|2\.0\d)x ±[\d.]+%, faster\n    at least (49|50)%", printed
    )
    assert re.search(r"Native.*: threads over shm-sync: 0\.(49|50)x ±[\d.]+%, slower\n", printed)


def test_overlap_compares_with_what_waits_for_as_many_environments(ran: Ran) -> None:
    gain = {False: 1.0, True: 1.3}

    def seconds(cell: Cell) -> float:
        return cell.shape.batch_size * STEP / gain[find(cell.backend.name).asynchronous]

    def counts(cell: Cell, window: Window) -> Mapping[str, int]:
        waited = window.ns // 10 if find(cell.backend.name).asynchronous else window.ns * 6 // 10
        latencies = {"latency_p50_ns": 1_000_000, "latency_p99_ns": 2_000_000}
        acted = {"waited_ns": waited, "inferred_ns": window.ns - waited, "copied_ns": 0}
        return {**acted, **latencies, "aged": window.rows}

    printed = ran("overlap", seconds=seconds, counts=counts)
    assert printed.count(" over ") == 2
    assert re.search(r"64 alive, shm-async over shm-sync: 1\.(29|30|31)x ±[\d.]+%, faster\n", printed)
    assert "the policy waits 10% of the time, before 60%: if neither waited for the other" in printed
    assert "rows are 1.0 actions old" in printed


def test_timeout_finds_where_it_pays_and_where_it_costs(ran: Ran) -> None:
    def is_short(cell: Cell) -> bool:
        return cell.backend.options.get("recv_timeout") == 0.0001

    def seconds(cell: Cell) -> float:
        factor = (1 / 1.25 if cell.envs_per_worker > 100 else 1.5) if is_short(cell) else 1.0
        return cell.shape.batch_size * STEP / 4 * factor

    def counts(cell: Cell, window: Window) -> Mapping[str, int]:
        waited = window.ns // 5 if is_short(cell) else window.ns // 2
        latencies = {"latency_p50_ns": 1_000_000, "latency_p99_ns": 2_000_000}
        acted = {"waited_ns": waited, "inferred_ns": window.ns - waited, "copied_ns": 0, "aged": 0}
        few = {"batches": max(1, window.rows * 4 // cell.shape.batch_size)} if is_short(cell) else {}
        return {**acted, **latencies, **few}

    printed = ran("timeout", seconds=seconds, counts=counts)
    assert re.search(r"x 400 envs, shm-async\[ratio=1,recv_timeout=0.0001\]: 1\.2\dx ±[\d.]+%, faster\n", printed)
    assert re.search(r"x 20 envs, shm-async\[ratio=1,recv_timeout=0.0001\]: 0\.6\dx ±[\d.]+%, slower\n", printed)
    assert re.search(r"x 20 envs, shm-async\[ratio=1,recv_timeout=0.1\]: .*, inconclusive\n", printed)
    assert re.search(r"waits 20% of the time, without the timeout 50%; it acts on (39|40|41)\d of 1600 rows", printed)


def test_impalas_unrolls_have_the_rewards_of_their_own_steps() -> None:
    torch = pytest.importorskip("torch", reason="needs torch: make test-all")
    impala = runpy.run_path(str(EXAMPLES / "impala.py"))
    unrolls = []

    def deliver(unroll: list[Any]) -> bool:
        unrolls.append(unroll)
        return len(unrolls) < 40

    with closing(make_vec("CartPole-v1", 4, batch_size=2, caller_steps=False, seed=1)) as envs:
        impala["act"](impala["Agent"](envs), envs, deliver)
    ends = 0
    for _, _, _, rewards, over in unrolls:
        assert torch.equal(rewards[1:], (~over[:-1]).float())  # a step that only begins an episode has no reward
        ends += int(over.sum())
    assert ends > 10


def test_a_policy_does_as_well_on_the_same_environment() -> None:
    words = ("CartPole-v1", "CartPole-v1", "--steps", "2048", "--episodes", "4")
    command = [sys.executable, EXAMPLES / "transfer.py", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "difference 0.0, 95 % interval 0.0 to 0.0"
