"""What crosses the wall between the interpreters is read as it was written."""

import json
import os
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends.interface import Engine, Setup, Task
from vebench.child.actions import TAPED, parse_policy
from vebench.child.answers import (
    Answer,
    Begins,
    CellProof,
    Comparing,
    Done,
    Ends,
    Failure,
    Layout,
    Mismatch,
    Proof,
    Ready,
    ReplicaWindow,
    Timed,
    Warm,
    Window,
    writer,
)
from vebench.child.request import Judging, Proving, Recorded, Recording, Replaying, Request, Settings, Timing
from vebench.engine.interface import decode

texts = st.text(st.characters(codec="utf-8"), max_size=8)
counts = st.integers(0, 2**63 - 1)
seconds = st.floats(1e-9, 1e6)
tasks = st.builds(Task, id=texts, suite=st.just("classic"), frame_skip=st.integers(1, 9), exact=st.booleans())
setups = st.builds(
    Setup,
    task=tasks,
    workers=st.integers(1, 99),
    cpus=st.lists(st.integers(0, 999), max_size=3).map(tuple),
    seed=counts,
    pinned=st.booleans(),
)
recorded = st.builds(Recorded, texts, texts, seconds=seconds)
requests = st.builds(
    Request,
    setup=setups,
    backend=texts,
    target=texts,
    options=st.dictionaries(texts, st.booleans() | st.integers() | texts, max_size=2),
    settings=st.builds(
        Settings,
        duration=seconds,
        windows=st.integers(1, 9),
        warmup=seconds,
        longest_warmup=seconds,
        timeout=seconds,
        memory=texts,
        policy=st.sampled_from([TAPED, parse_policy("mlp:8x8[threads=2]"), parse_policy("sleep:1ms[cpus=0,2]")]),
    ),
    folder=texts,
    nodes=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    mode=st.sampled_from(["alone", "in_turn", "in_step"]),
    go_ahead=st.integers(0, 99),
    job=st.none()
    | st.builds(Recording, path=texts, seed=counts, replica=counts, turn=counts)
    | st.builds(Proving, steps=counts)
    | st.builds(Replaying, st.lists(recorded, max_size=2).map(tuple), path=texts)
    | st.builds(Judging, steps=counts, path=texts, failed=texts)
    | st.builds(Timing, seconds=seconds),
)


@given(requests)
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    assert Request.read(json.dumps(request.as_json())) == request


WINDOW = Window(9, 6, 1, cpu_ns=5, throttled_ns=4, steal_ns=3)
LAYOUT = Layout(2, 2, 1, 1, 4, "same_step", ("rewards are float32",), (0, 1), (Engine("ALE", "1", "2", "ale-py==1"),))
ANSWERS: tuple[Answer, ...] = (
    Ready(5, LAYOUT),
    Warm(),
    WINDOW,
    ReplicaWindow(7, WINDOW),
    Begins(),
    Ends(),
    CellProof("different", 9, 2, environments=4, steps=7, of_steps=9, mismatch=Mismatch(0, 3, "x", "1", "0"), seed=7),
    Done(9, (("0", "0-1"), ("1",)), {"0": 7}, 11, settled=False),
    Proof("different", 7, 1, ("a",), Mismatch(0, 3, "rewards", "1.0", "0.0", 1.0), "clipped"),
    Comparing(7),
    Timed(100, 5, 9, 3, 7),
    Failure("ValueError: \u00e9"),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    reading, writing = os.pipe()
    writer(writing)(answer)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert decode(pipe.read()) == answer


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"Window": {"ns": 9}}',
        b'{"Window": {"ns": 0, "rows": 1, "resets": 0}}',
        b'{"Window": {"ns": 9, "rows": 1, "resets": 2}}',
        b'{"Warm": {}, "Failure": {"reason": "both"}}',
        b'{"greeting": {}}',
        b'{"Done": ' + b"[" * 100_000,
        b'{"Done": {"seats": [["0;rm"]]}}',
        json.dumps({"Ready": {"startup_ns": 1, "layout": {**asdict(LAYOUT), "num_envs": -1}}}).encode(),
        json.dumps({"Ready": {"startup_ns": 1, "layout": {**asdict(LAYOUT), "processes": "two"}}}).encode(),
    ],
)
def test_what_is_no_answer_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)
