"""The names of faults: of backends that are stepped and judged in this process, and of what a cell has recorded."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altered import Altered
from wrong_late import BehindByOne, StaleLater

from vebench.backends.interface import Setup, Task
from vebench.child.actions import action_tape
from vebench.child.answers import CellProof
from vebench.child.equality import judge, recorder
from vebench.child.equality import replay as module
from vebench.child.equality.recorder import Trial, TrialReset, step_trials
from vebench.child.equality.recording import About, Began, Ended, Record, Rows, write
from vebench.child.equality.replay import compare_trials, replay
from vebench.child.request import Judging, Recorded, Replaying, Request, Settings, Stepping

CARTPOLE = Task("CartPole-v1", "classic", 1)
SEED, OTHER_SEED = 1000, 300_000
LATER_ROWS = 40


@pytest.fixture(autouse=True)
def _however_busy_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_ON_S", 300.0)


def request_for(task: Task) -> Request:
    settings = Settings(1.0, 1, 0.0, 0.0, 3000.0, "local")
    return Request(Setup(task, workers=3), "for-loop", {}, settings, "/")


def name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, adapter: type[Altered]) -> str | None:
    """Return what a fault is called in a comparison that steps the backend 40 times, resets it, and goes on."""
    resets = (TrialReset(SEED, 0, 40, 40), TrialReset(OTHER_SEED, 11, LATER_ROWS, LATER_ROWS))
    for place in (recorder, module):
        monkeypatch.setattr(place, "trials_of", lambda *_: (Trial(request_for(CARTPOLE).setup, 6, resets),))
    request, proving = request_for(CARTPOLE), Stepping(50, path=str(tmp_path / "rows"))
    step_trials(request, proving, adapter)
    proof = compare_trials(request, Judging(50, path=proving.path))
    assert proof.verdict == "different"
    return proof.fault


class BehindSoon(BehindByOne):
    since = 20


class StaleSoon(StaleLater):
    since = 20


LATE = "whole rows are one step late"


@pytest.mark.parametrize(
    ("adapter", "fault"),
    [
        (BehindSoon, f"from step 20 on in environment 2 {LATE}"),
        (StaleSoon, "from step 20 on observations are one step stale"),
    ],
)
def test_whole_rows_that_are_late_are_told_from_observations_that_are_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, adapter: type[Altered], fault: str
) -> None:
    assert name(monkeypatch, tmp_path, adapter) == fault


def record(path: Path, adapter: type[Altered], moments: Sequence[int], spoiled: Iterable[Record] = ()) -> None:
    """Write the recording of a cell that keeps three batches at each moment."""
    setup = replace(request_for(CARTPOLE).setup, seed=SEED)
    shown = np.arange(setup.workers)
    kept: dict[int, Rows] = {}
    with closing(adapter(setup)) as backend:

        def received(number: int) -> Rows:
            batch: Any = [array.copy() for array in backend.recv()]
            observations, rewards, terminated, truncated, env_ids = batch
            return Rows(number, env_ids, rewards, terminated, truncated, shown, observations)

        first = About(replace(backend.info, in_order=True), SEED)
        tape = action_tape(backend.info.action_space, SEED, setup.workers)
        backend.reset(SEED)
        kept[0] = received(0)
        for number in range(1, max(*moments, 10) + 3):
            backend.send(tape[(number - 1) % len(tape)])
            kept[number] = received(number)
    numbers = sorted({*range(11), *(number + more for number in moments for more in range(3))})
    records = [first, Began(SEED), *(kept[number] for number in numbers), *spoiled, Ended()]
    with path.open("wb") as file:
        for each in records:
            write(file, each)


def found_in(*paths: Path) -> list[CellProof]:
    """Return what is found where one process compares the recordings in these files."""
    job = Replaying(tuple(Recorded(path.name, "for-loop", 3000.0) for path in paths), str(paths[0].parent))
    return list(replay(request_for(CARTPOLE), job))


@pytest.mark.parametrize(
    ("adapter", "fault"), [(StaleLater, "from step 2000 on observations are one step stale"), (BehindByOne, LATE)]
)
def test_in_a_cell_a_fault_has_its_name_where_it_began(tmp_path: Path, adapter: type[Altered], fault: str) -> None:
    record(tmp_path / "rows", adapter, range(100, 3000, 100))
    (proof,) = found_in(tmp_path / "rows")
    assert proof.verdict == "different"
    assert fault in str(proof.fault)


def test_a_fault_that_the_recorder_has_seen_stands_though_the_rest_cannot_be_followed(tmp_path: Path) -> None:
    fault = "rows were counted but not returned: batches do not have 3 rows"
    unknown = Rows(7, np.arange(3), np.zeros(3), np.zeros(3, bool), np.zeros(3, bool), np.arange(3), np.zeros((3, 4)))
    record(tmp_path / "rows", Altered, (20,), [unknown, Ended(fault)])
    (proof,) = found_in(tmp_path / "rows")
    assert (proof.verdict, proof.fault) == ("different", fault)


def test_recordings_that_share_the_steps_of_the_reference_are_judged_as_if_each_were_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, short, faulty, broken = paths = [tmp_path / name for name in ("long", "short", "faulty", "broken")]
    record(long, Altered, (60, 200))
    record(short, Altered, (90,))
    record(faulty, StaleSoon, (10, 50, 150))
    broken.write_bytes(short.read_bytes()[:-40])
    copies = {path: path.read_bytes() for path in paths}
    alone = [found for path in paths for found in found_in(path)]
    assert [found.verdict for found in alone] == ["identical", "identical", "different", "unverified"]
    for again in (*([paths] * 2), paths[::-1]):
        for path, content in copies.items():
            path.write_bytes(content)
        together = found_in(*again)
        assert sorted(together, key=repr) == sorted(alone, key=repr)
        monkeypatch.setattr(judge, "_MOST_SHARED", 30)  # more cannot be shared, and is stepped by each
    assert not [*tmp_path.iterdir()]


def test_a_recording_that_differs_by_chance_leaves_the_others_to_be_compared(tmp_path: Path) -> None:
    for name_of in ("chance", "rows"):
        record(tmp_path / name_of, Altered, (20,))
    recorded = Recorded("chance", "envpool-sync", 3000.0), Recorded("rows", "for-loop", 3000.0)
    found = list(replay(request_for(CARTPOLE), Replaying(recorded, str(tmp_path))))
    assert [(proof.verdict, proof.impossible) for proof in found] == [("unverified", True), ("identical", False)]
