"""What crosses the wall between the interpreters is read as it was written."""

import json
import os
from dataclasses import asdict, replace

import pytest

from vebench.backends.interface import Engine, Setup, Task
from vebench.child.actions import parse_policy
from vebench.child.answers import (
    Answer,
    CellProof,
    Done,
    Failure,
    Layout,
    Mismatch,
    Proof,
    Ready,
    ReplicaWindow,
    Timed,
    Warm,
    Window,
    send,
)
from vebench.child.request import Job, Judging, Recorded, Recording, Replaying, Request, Settings, Stepping, Timing
from vebench.engine.runner import decode

SETUP = Setup(Task("\u00e9-v1", "classic", 2, exact=True), 3, cpus=(0, 2), seed=2**62, pinned=True)
SETTINGS = Settings(0.5, 3, 1e-9, 5.0, 300.0, "local")
JOBS = (
    None,
    Recording("x.rows", 2**62, replica=1, repeat=2),
    Stepping(50),
    Replaying((Recorded("a", "b", 0.5), Recorded("c", "d")), path="/tmp"),
    Judging(50, path="x", failed="why"),
    Timing(0.1),
)


@pytest.mark.parametrize("policy", ["tape", "mlp:8x8[threads=2]", "sleep:1ms[cpus=0,2]"])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: type(job).__name__)
def test_a_request_is_read_as_it_was_written(job: Job | None, policy: str) -> None:
    settings = replace(SETTINGS, policy=parse_policy(policy))
    options = {"a": True, "b": 1, "c": "text"}
    request = Request(SETUP, "b", options, settings, "/", 1, 2, (0, 1), "in_turn", go_ahead=5, job=job)
    assert Request.read(json.dumps(request.as_json())) == request


WINDOW = Window(9, 6, 1, cpu_ns=5, throttled_ns=4, steal_ns=3)
LAYOUT = Layout(2, 2, 1, 1, 4, "same_step", ("rewards are float32",), (0, 1), (Engine("ALE", "1", "2", "ale-py==1"),))
ANSWERS: tuple[Answer, ...] = (
    Ready(5, LAYOUT),
    Warm(),
    WINDOW,
    ReplicaWindow(7, WINDOW),
    CellProof("different", 9, 2, environments=4, steps=7, of_steps=9, mismatch=Mismatch(0, 3, "x", "1", "0"), seed=7),
    Done(9, (("0", "0-1"), ("1",)), 11, settled=False, timed=Timed(100, 5, 9, 3, 7, reset_ns=(7,))),
    Proof("different", 7, 1, ("a",), Mismatch(0, 3, "rewards", "1.0", "0.0", 1.0), "clipped"),
    Timed(100, 5, 9, 3, 7, step_ns=(4, 6), lengths=(33,)),
    Failure("ValueError: \u00e9"),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    reading, writing = os.pipe()
    send(writing, answer)
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
        b'{"Warm": {}, "Failure": {"reason": "both"}}',
        json.dumps({"Ready": {"startup_ns": 1, "layout": {**asdict(LAYOUT), "num_envs": -1}}}).encode(),
        json.dumps({"Ready": {"startup_ns": 1, "layout": {**asdict(LAYOUT), "processes": "two"}}}).encode(),
    ],
)
def test_what_is_no_answer_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)
