"""What is written of a backend's rows is read again as it was, and nothing else is read."""

import io
from dataclasses import fields
from tempfile import NamedTemporaryFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from vebench.backends import trees
from vebench.child.equality.recording import Began, Ended, LastSeen, Order, Record, Rows, read_records, write

PLAIN = st.sampled_from([np.dtype(name) for name in ("uint8", "float32", "float64", "int64", "bool")])


@st.composite
def batches(draw: st.DrawFn) -> Rows:
    count = draw(st.integers(0, 4))
    shape = (draw(st.integers(0, count)), *draw(arrays.array_shapes(max_dims=3, max_side=5)))
    one = arrays.arrays(draw(PLAIN), shape)
    tree = st.tuples(one) | st.fixed_dictionaries({"b": one, "a": st.tuples(one, one)})
    return Rows(
        number=draw(st.integers(0, 1 << 40)),
        env_ids=np.arange(count),
        rewards=draw(arrays.arrays(np.float64, count)),
        terminated=draw(arrays.arrays(np.bool_, count)),
        truncated=draw(arrays.arrays(np.bool_, count)),
        shown=np.arange(shape[0]),
        observations=draw(one | tree),
    )


def read(content: bytes) -> list[Record]:
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return list(read_records(file.name))


def written(*records: object) -> bytes:
    file = io.BytesIO()
    for record in records:
        write(file, record)  # type: ignore[arg-type]
    return file.getvalue()


@given(st.lists(batches(), max_size=3))
def test_rows_are_read_as_they_were_written(rows: list[Rows]) -> None:
    order = Order(1, np.arange(6, dtype=np.int32).reshape(3, 2))
    records = [Began(7, 3), order, *rows, Ended("odd")]
    read_again = read(written(*records))
    assert [type(record) for record in read_again] == [type(record) for record in records]
    for one, other in zip(records, read_again, strict=True):
        for item in fields(one):
            before, after = getattr(one, item.name), getattr(other, item.name)
            if not isinstance(before, np.ndarray) and item.name != "observations":
                assert before == after
                continue
            assert trees.form(before) == trees.form(after)
            for array, again in zip(trees.leaves(before), trees.leaves(after), strict=True):
                assert (array.dtype, array.shape) == (again.dtype, again.shape)
                assert array.tobytes() == again.tobytes()


def test_pictures_take_less_room_than_they_have_bytes_and_are_read_as_they_were() -> None:
    picture = np.zeros((2, 4, 84, 84), np.uint8)
    picture[:, :, 40] = 7
    ids = np.arange(2)
    content = written(Rows(0, ids, np.zeros(2), ids > 5, ids > 5, ids, picture), Ended())
    assert len(content) < picture.nbytes / 10
    rows, _ = read(content)
    assert isinstance(rows, Rows)
    assert np.array_equal(np.asarray(rows.observations), picture)


def test_a_damaged_recording_is_cut_off_where_it_is_damaged() -> None:
    whole = written(Began(7))
    for damaged in (b"", whole[:-1], whole[:8] + b"no zlib " * 99):
        assert read(whole + damaged) == [Began(7)]


@pytest.mark.parametrize(
    ("batches", "every", "silent"),
    [(1000, None, False), (30_000, None, True), (30_000, 900, False)],  # few; many; seldom, but it answers
)
def test_an_environment_that_does_not_answer_in_many_batches_is_silent(
    batches: int, every: int | None, silent: bool
) -> None:
    seen = LastSeen(3)
    ids = np.tile([1, 2], (batches, 1))
    if every is not None:
        ids[::every, 0] = 0
    seen.add(ids)
    assert [*seen.silent()] == [0] * silent
