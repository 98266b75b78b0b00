"""What is kept of a cell that is timed: with a backend that plays a script, and a clock that it moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from tempfile import NamedTemporaryFile

import numpy as np
import pytest
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference
from vebench.child.actions import Tape
from vebench.child.answers import READINGS_PER_WINDOW
from vebench.child.equality import recorder as module
from vebench.child.equality.recorder import MOMENTS_PER_SECOND, ROWS_CHANGED, Recorder
from vebench.child.equality.recording import FIRST, OUT_OF_ORDER, About, Ended, Order, Record, Rows, read_records
from vebench.child.loop import Loop
from vebench.child.request import Recording

TAPE = [np.full(1, number) for number in range(7)]


class Played:
    """Batch ``n`` has ``n`` in its observations. Environments take turns; all of every ninth batch end."""

    def __init__(self, num_envs: int, batch_size: int, length: int = 9) -> None:
        self.info = BackendInfo(num_envs, batch_size, ActionSpace.discrete(2), 1)
        self.now = 0
        self._length = length
        self._numbers = count()

    def recv(self) -> Batch:
        number = next(self._numbers)
        self.now += 1000
        ids = (number * self.info.batch_size + np.arange(self.info.batch_size)) % self.info.num_envs
        ended = np.full(len(ids), number % self._length == self._length - 1)
        return Batch(np.full((len(ids), 3), float(number)), np.zeros(len(ids)), ended, np.zeros_like(ended), ids)

    def send(self, actions: NDArray[np.generic]) -> None:
        assert actions is TAPE[(self.now // 1000 - 1) % len(TAPE)], "no batch of the tape is left out"


def recorded(
    backend: Played, windows: int = 3, batches: int = 3000, spoil: Callable[[Batch], Batch] | None = None
) -> tuple[list[Record], Loop]:
    """Return what is recorded in windows of so many batches, and the loop."""
    recorder = Recorder(backend, backend.recv(), (0, 0), Recording("", 5, chooser=1))  # of six, it shows one that ends
    loop = Loop(backend, Tape(TAPE), lambda: backend.now, recorder)
    if spoil is not None:
        honest = backend.recv
        backend.recv = lambda: spoil(honest())  # type: ignore[method-assign]
    loop.keep_first(FIRST)
    for _ in range(windows):
        recorder.expect(MOMENTS_PER_SECOND)
        stretch = loop.run_for(batches * 1000, batches // READINGS_PER_WINDOW)
        assert stretch.rows == stretch.ns // 1000 * backend.info.batch_size
        recorder.expect(0)
        recorder.keep_last(loop.batches + 1, loop.step())
    if silent := recorder.ids.silent():
        recorder.waited(loop.wait_for(silent, 5000 * 1000), silent)
    return written(recorder), loop


def written(recorder: Recorder) -> list[Record]:
    with NamedTemporaryFile(buffering=0) as file:
        recorder.write(file)
        return list(read_records(file.name))


def rows_of(records: list[Record]) -> list[Rows]:
    return [record for record in records if isinstance(record, Rows)]


def fault_of(records: list[Record]) -> str:
    """Return what the last record says, empty if nothing was wrong."""
    last = records[-1]
    assert isinstance(last, Ended)
    return last.fault


@pytest.mark.parametrize(("num_envs", "batch_size"), [(1, 1), (3, 3), (40, 40), (6, 2)])
def test_what_is_kept_are_the_rows_of_the_batches_whose_numbers_they_have(num_envs: int, batch_size: int) -> None:
    records, loop = recorded(Played(num_envs, batch_size))
    rows = rows_of(records)
    assert [record.number for record in rows[: FIRST + 1]] == [*range(FIRST + 1)]
    assert all(record.shown.tolist() == [*range(batch_size)] for record in rows[: FIRST + 1]), "of all environments"
    numbers = [record.number for record in rows]
    assert numbers == sorted(set(numbers))
    rows = rows[FIRST + 1 :]
    assert 5 * MOMENTS_PER_SECOND < len(rows) < 12 * MOMENTS_PER_SECOND
    for record in rows:
        assert (record.observations == record.number).all()
        assert record.terminated.all() == (record.number % 9 == 8)
    shown = {int(env_id) for record in rows for env_id in record.env_ids[record.shown]}
    assert len(shown) == min(num_envs, 4 if num_envs > 16 else 2)
    assert sum(record.terminated.any() and len(record.shown) > 0 for record in rows) >= 3, "some begin with an end"
    assert fault_of(records) == ""
    assert rows[-1].number == loop.batches
    orders = [record.env_ids for record in records if isinstance(record, Order)]
    assert sum(map(len, orders)) == loop.batches + 1


def test_moments_go_on_while_an_end_is_waited_for_that_does_not_come() -> None:
    records, _ = recorded(Played(3, 3, length=10**9))
    assert len(rows_of(records)) > 5 * MOMENTS_PER_SECOND


def test_ends_are_counted_for_each_environment_to_the_last_window() -> None:
    records, loop = recorded(Played(6, 2))
    counted = [record.ends for record in rows_of(records) if record.ends is not None][-1]
    ended = [number for number in range(loop.batches + 1) if number % 9 == 8]
    expected = np.bincount([(2 * number + place) % 6 for number in ended for place in range(2)], minlength=6)
    assert counted.tolist() == expected.tolist()


def test_two_cells_record_at_other_moments_and_rows_are_counted_as_without_a_recorder() -> None:
    numbers = []
    for seed in (1, 2):
        backend = Played(3, 3)
        recorder = Recorder(backend, backend.recv(), (0, 0), Recording("", seed))
        loop = Loop(backend, Tape(TAPE), lambda backend=backend: backend.now, recorder)
        recorder.expect(MOMENTS_PER_SECOND)
        stretch = loop.run_for(3_000_000, 30)
        bare = Played(3, 3)
        bare.recv()
        assert stretch == Loop(bare, Tape(TAPE), lambda bare=bare: bare.now).run_for(stretch.ns, 1)
        numbers.append([record.number for record in rows_of(written(recorder))])
    assert numbers[0] != numbers[1]


def test_batches_that_are_shorter_between_two_that_are_kept_are_a_fault_though_rows_add_up_later() -> None:
    backend, numbers = Played(4, 4), count()

    def shorter_and_longer(batch: Batch) -> Batch:
        number = next(numbers)
        if number not in (1000, 2000):
            return batch
        ids = [0, 1, 2] if number == 1000 else [0, 1, 2, 3, 3]
        return Batch(*(array[ids] for array in batch))

    records, _ = recorded(backend, windows=1, spoil=shorter_and_longer)
    assert "rows were counted but not returned" in fault_of(records)


@pytest.mark.parametrize(("num_envs", "batch_size"), [(4, 4), (6, 2), (9, 4)])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_batches_of_another_length_are_a_fault_in_whatever_order(num_envs: int, batch_size: int, rows: int) -> None:
    """Now and then, and with ends, which are told apart by places in batches."""
    backend, numbers = Played(num_envs, batch_size), count()
    recorder = Recorder(backend, backend.recv(), (0, 0), Recording("", 5))
    loop = Loop(backend, Tape(TAPE), lambda: backend.now, recorder)
    honest = backend.recv

    def now_and_then() -> Batch:
        batch, number = honest(), next(numbers)
        return (
            batch
            if number < 500 or number % 50
            else Batch(*(np.resize(array, (rows, *array.shape[1:])) for array in batch))
        )

    backend.recv = now_and_then  # type: ignore[method-assign]
    loop.keep_first(FIRST)
    for _ in range(3):
        recorder.expect(MOMENTS_PER_SECOND)
        loop.run_for(1_000_000, 5)
    records = written(recorder)
    assert recorder.broken is not None
    number, fault = recorder.broken
    assert fault_of(records) == fault == f"rows were counted but not returned: batches do not have {batch_size} rows"
    assert 500 < number < 520
    known = sum(len(record.env_ids) for record in records if isinstance(record, Order))
    assert rows_of(records)[-1].number < known, "which environments are in it is known"


def test_what_is_kept_takes_no_more_memory_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 4000)
    records, _ = recorded(Played(40, 40))
    rows = rows_of(records)
    assert sum(record.observations.nbytes + 4 * record.rewards.nbytes for record in rows) < 8000


def test_an_order_that_is_only_usual_is_not_taken_for_a_promise() -> None:
    numbers = count()

    def once_backwards(batch: Batch) -> Batch:  # this batch is hardly ever kept or looked at
        return batch if next(numbers) != 2222 else Batch(*(array[::-1] for array in batch))

    records, loop = recorded(Played(5, 5), spoil=once_backwards)
    about = records[0]
    assert isinstance(about, About)
    assert not about.info.in_order
    order = np.concatenate([record.env_ids for record in records if isinstance(record, Order)])
    assert len(order) == loop.batches + 1
    assert np.flatnonzero((order != np.arange(5)).any(axis=1)).tolist() == [2223]
    assert fault_of(records) == ""


def test_a_declared_order_that_is_broken_is_a_fault_by_name() -> None:
    backend, numbers = Played(5, 5), count()
    backend.info = replace(backend.info, in_order=True)

    def later_backwards(batch: Batch) -> Batch:
        return batch if next(numbers) < 2000 else Batch(*(array[::-1] for array in batch))

    records, _ = recorded(backend, spoil=later_backwards)
    assert fault_of(records) == OUT_OF_ORDER


def test_what_is_reported_only_after_the_reset_is_a_fault_by_name() -> None:
    backend = Played(3, 3)
    before = backend.info
    backend.info = replace(before, differences=(Difference("starts are blank", "observations", "start"),))
    recorder = Recorder(backend, backend.recv(), (0, 0), Recording("", 5), before)
    assert fault_of(written(recorder)).startswith("changes its differences while it runs")


def test_arrays_that_change_long_after_they_were_handed_out_are_a_fault_if_reuse_is_not_reported() -> None:
    for reuses in (False, True):
        ring, numbers = [np.zeros((3, 3)) for _ in range(64)], count()

        def in_turn(batch: Batch, ring: list[NDArray[np.float64]] = ring, numbers: count[int] = numbers) -> Batch:
            mine = ring[next(numbers) % 64]
            np.copyto(mine, batch.observations)
            return batch._replace(observations=mine)

        backend = Played(3, 3)
        backend.info = replace(backend.info, reuses_buffers=reuses)
        records, _ = recorded(backend, spoil=in_turn)
        assert fault_of(records) == ("" if reuses else ROWS_CHANGED)


def test_an_environment_that_answers_no_more_is_a_fault_by_name() -> None:
    numbers = count()

    def without_the_first(batch: Batch) -> Batch:
        number = next(numbers)
        return batch if number < 500 else batch._replace(env_ids=1 + (2 * number + np.arange(2)) % 5)

    records, _ = recorded(Played(6, 2), spoil=without_the_first)
    assert fault_of(records).startswith("environment 0 is left behind: no answer in the last ")


def test_an_environment_that_was_silent_and_comes_back_when_it_is_waited_for_is_not_left_behind() -> None:
    numbers = count()

    def without_the_first_for_long(batch: Batch) -> Batch:
        loads = 500 <= next(numbers) < 13_000  # the windows have 9,000 batches
        return batch._replace(env_ids=1 + (2 * int(batch.observations[0, 0]) + np.arange(2)) % 5) if loads else batch

    records, loop = recorded(Played(6, 2), spoil=without_the_first_for_long)
    assert loop.batches > 13_000
    assert fault_of(records) == ""


def test_repeats_show_other_environments_until_each_was_shown() -> None:
    backend = Played(6, 2)
    first = backend.recv()
    shown = [Recorder(backend, first, (0, 0), Recording("", 5, chooser=9, repeat=turn)).shown for turn in range(4)]
    assert frozenset.union(*shown[:3]) == frozenset(range(6))
    assert shown[3] == shown[0]


@pytest.mark.parametrize(("num_envs", "row_bytes", "shown"), [(9, 24, 9), (40, 24, 16), (40, 28224, 12), (9, 10**6, 2)])
def test_in_full_as_many_environments_are_shown_as_their_copies_fit(num_envs: int, row_bytes: int, shown: int) -> None:
    backend = Played(num_envs, num_envs)
    first = backend.recv()._replace(observations=np.zeros((num_envs, row_bytes), np.uint8))
    assert len(Recorder(backend, first, (0, 0), Recording("", 5, full=True)).shown) == shown
