"""Policies: their names, the time of each part of a loop with a policy, and networks, where torch is installed."""

import re
from itertools import count, cycle

import numpy as np
import pytest
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, BackendInfo, Batch
from vebench.child.actions import Acting, PolicyChoice, make_policy, parse_policy
from vebench.child.loop import Loop

UPLOAD, INFER, DOWNLOAD, STEP = 5, 200, 7, 1000


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("tape", PolicyChoice("tape")),
        ("nature-cnn", PolicyChoice("nature-cnn")),
        ("mlp:64x32", PolicyChoice("mlp", (64, 32))),
        ("sleep:0.5ms", PolicyChoice("sleep", pause="0.5ms")),
        ("mine.agents:Agent.act", PolicyChoice("function", target="mine.agents:Agent.act")),
        ("mlp:8[device=cuda:1,precision=bf16]", PolicyChoice("mlp", (8,), device="cuda:1", precision="bf16")),
        ("nature-cnn[compile=true,threads=2]", PolicyChoice("nature-cnn", compile=True, threads=2)),
        ("sleep:1ms[cpus=0-3,8]", PolicyChoice("sleep", pause="1ms", cpus="0-3,8")),
    ],
)
def test_a_name_means(text: str, meaning: PolicyChoice) -> None:
    assert parse_policy(text) == meaning
    assert meaning.label == text
    assert meaning.is_network == (meaning.kind in ("mlp", "nature-cnn"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(
            (text, "write tape, mlp:64x64")
            for text in ("", "network", "mlp", "mlp:64x", "mlp:0", "mine:", "nature-cnn:2")
        ),
        ("sleep:5", "write a time with its unit"),
        ("sleep:61s", "at most 60s"),
        ("mlp:8[device=cuda", "brackets do not match"),
        ("mlp:8[device]", "device is not KEY=VALUE"),
        ("mlp:8[devise=cuda]", "no detail devise"),
        ("mlp:8[device=tpu]", "device must be"),
        ("mlp:8[precision=fp16]", "precision must be"),
        ("mlp:8[compile=maybe]", "compile must be"),
        ("mlp:8[threads=0]", "threads must be"),
        ("sleep:1ms[device=cuda]", "device does not apply to sleep:1ms"),
        ("tape[cpus=0]", "cpus does not apply to tape"),
    ],
)
def test_a_name_that_means_nothing_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        parse_policy(text)


class Machine:
    """A backend and a policy that move one clock. Batch ``n`` shows ``n``; slow ones take ten times as long."""

    def __init__(self, ids: list[list[int]], num_envs: int, slow_every: int = 0) -> None:
        self.info = BackendInfo(num_envs, len(ids[0]), ActionSpace.discrete(2), 1)
        self.now = 0
        self.seen: list[float] = []
        self.sent: list[NDArray[np.generic]] = []
        self._ids, self._numbers, self._slow_every = cycle(ids), count(), slow_every

    def clock(self) -> int:
        return self.now

    def recv(self) -> Batch:
        number = next(self._numbers)
        self.now += STEP * (10 if self._slow_every and number % self._slow_every == 0 else 1)
        ids = np.array(next(self._ids))
        no = np.zeros(len(ids), np.bool_)
        return Batch(np.full((len(ids), 1), float(number)), np.zeros(len(ids)), no, no.copy(), ids)

    def send(self, actions: NDArray[np.generic]) -> None:
        self.sent.append(actions)

    def upload(self, observations: NDArray[np.generic]) -> NDArray[np.generic]:
        self.now += UPLOAD
        return observations

    def infer(self, there: NDArray[np.generic]) -> NDArray[np.generic]:
        self.now += INFER
        self.seen.append(float(there[0, 0]))
        return there[:, 0].astype(np.int64)

    def download(self, chosen: NDArray[np.generic]) -> NDArray[np.generic]:
        self.now += DOWNLOAD
        return chosen


def driven(machine: Machine, batches: int) -> tuple[Loop, dict[str, int], int]:
    """Return the loop after so many batches, what was counted, and how long they took."""
    loop = Loop(machine, Acting(machine, machine.recv(), machine.info, machine.clock), machine.clock)
    started = machine.now
    times = dict(loop.run_for(batches * STEP, batches).times)
    return loop, times, machine.now - started


def test_the_policy_sees_each_batch_and_the_times_of_its_parts_add_up() -> None:
    _, late, _ = driven(Machine([[0, 1]], 2, slow_every=20), 100)
    assert (late["latency_p50_ns"], late["latency_p99_ns"]) == (STEP, 10 * STEP)
    machine = Machine([[0, 1]], 2)
    _, times, whole = driven(machine, 50)
    assert machine.seen[:5] == [0, 1, 2, 3, 4]
    assert [actions.tolist() for actions in machine.sent[:5]] == [[number] * 2 for number in range(5)]
    assert (times["waited_ns"], times["inferred_ns"]) == (50 * STEP, 50 * INFER)
    assert times["copied_ns"] == 50 * (UPLOAD + DOWNLOAD)
    assert times["waited_ns"] + times["inferred_ns"] + times["copied_ns"] == whole


@pytest.mark.parametrize(
    ("ids", "num_envs", "age"),
    [
        ([[0, 1]], 2, 0),  # all rows answer the last actions
        ([[0, 1], [2, 3]], 4, 1),  # two halves take turns
        ([[0], [1], [2]], 3, 2),
        ([[0], [1], [0], [2]], 3, 2),  # 0 is back after one turn of others, 1 and 2 after three: (1 + 3 + 1 + 3) / 4
    ],
)
def test_a_row_is_as_old_as_the_policy_acted_for_others_since(ids: list[list[int]], num_envs: int, age: int) -> None:
    machine = Machine(ids, num_envs)
    loop, _, _ = driven(machine, 4 * len(ids))
    stretch = loop.run_for(8 * len(ids) * STEP, 8 * len(ids))
    assert stretch.times["aged"] == age * stretch.rows


VECTOR, PICTURE = np.zeros((5, 17)), np.zeros((5, 4, 84, 84), np.uint8)
TURNED = np.zeros((17, 5)).T[::-1]
TURNED.flags.writeable = False
SPACES = (
    ActionSpace.discrete(6),
    ActionSpace(np.zeros(3, np.int64), np.array([1, 2, 4])),
    ActionSpace(np.full(6, -0.4, np.float32), np.full(6, 0.4, np.float32)),
    ActionSpace(np.full((2, 2), -np.inf, np.float32), np.full((2, 2), np.inf, np.float32)),
)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    ("name", "observations"),
    [("mlp:8x8", VECTOR), ("nature-cnn", PICTURE), ("mlp:4", PICTURE), ("mlp:8[precision=bf16]", TURNED)],
)
def test_the_actions_of_a_network_are_in_the_space(
    name: str, observations: NDArray[np.generic], space: ActionSpace
) -> None:
    pytest.importorskip("torch", reason="needs torch: make test-all")
    policy = make_policy(parse_policy(name), space, observations, 3, [])
    actions = np.asarray(policy.download(policy.infer(policy.upload(observations))))
    assert (actions.shape, actions.dtype) == ((5, *space.low.shape), space.low.dtype)
    assert ((actions >= space.low) & (actions <= space.high)).all()


def test_pictures_are_what_nature_cnn_takes() -> None:
    pytest.importorskip("torch", reason="needs torch: make test-all")
    with pytest.raises(ValueError, match="use mlp:64x64"):
        make_policy(parse_policy("nature-cnn"), SPACES[0], VECTOR, 0, [])
