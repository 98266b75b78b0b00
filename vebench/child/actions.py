"""The actions of a cell: from a tape sampled beforehand, or from a policy in the timed loop. Also parses ``--policy``.

Numpy and torch are loaded on use, since the parent imports this module, too.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

from vebench.backends import bracketed, trees
from vebench.backends.environments.suites import load_target
from vebench.backends.interface import ActionSpace, ActionSpaceTree, ArrayTree, BackendInfo, Batch
from vebench.machine import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Receive = Callable[[], Batch]

# A pattern for the value of each detail in brackets, and its description. Placement checks whether the CPUs exist.
_DETAILS = {
    "device": (r"cpu|cuda(:\d{1,3})?", "cpu, cuda or cuda:N"),
    "precision": (r"fp32|bf16", "one of fp32, bf16"),
    "compile": (r"true|false", "true or false"),
    "threads": (r"[1-9]\d{0,3}", "from 1 to 9999"),
    "cpus": (r".+", "a list of CPUs"),
}


@dataclass(frozen=True)
class PolicyChoice:
    """A policy, and how it computes."""

    kind: Literal["tape", "mlp", "nature-cnn", "sleep", "function"] = "tape"
    sizes: tuple[int, ...] = ()  # for mlp: the widths of its hidden layers
    pause: str = ""  # for sleep: the time, such as ``0.5ms``
    target: str = ""  # for a user's function: ``module:function``
    # For networks, which torch computes:
    device: str = "cpu"
    precision: str = "fp32"
    compile: bool = False
    threads: int = 1
    cpus: str = ""  # a list of CPUs for the policy alone; if empty, the policy computes on the cell's CPUs

    @property
    def is_network(self) -> bool:
        """Whether the policy is one of vebench's networks, which need torch."""
        return self.kind in ("mlp", "nature-cnn")

    @property
    def label(self) -> str:
        """The policy as a user writes it: ``mlp:64x64[device=cuda]``."""
        rest = self.pause or "x".join(map(str, self.sizes))
        name = self.target or (f"{self.kind}:{rest}" if rest else self.kind)
        details = {key: getattr(self, key) for key in _DETAILS if getattr(self, key) != getattr(TAPED, key)}
        return bracketed.written(name, details)

    @property
    def in_words(self) -> str:
        """The policy for reports; empty for a tape."""
        return "" if self == TAPED else self.label


TAPED = PolicyChoice()


def parse_policy(text: str) -> PolicyChoice:
    """Return the policy that a text describes. Raises ValueError with the fault and the form of a policy."""
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError("brackets do not match")
    policy = _named(name.strip())
    values: dict[str, Any] = {}
    details = bracketed.pairs(rest[:-1], lists=("cpus",)) if bracket else {}
    for key, given in details.items():
        if key not in _DETAILS:
            raise ValueError(f"no detail {key}; known: {', '.join(_DETAILS)}")
        if policy == TAPED or (key != "cpus" and not policy.is_network):
            raise ValueError(f"{key} does not apply to {policy.label}: it applies to mlp:64x64 and nature-cnn")
        pattern, right = _DETAILS[key]
        if not re.fullmatch(pattern, given, re.ASCII):
            raise ValueError(f"{key} must be {right}")
        values[key] = given if key == "cpus" else bracketed.value_of(given)
    return replace(policy, **values)


def _named(text: str) -> PolicyChoice:
    kind, _, rest = text.partition(":")
    if text in ("tape", "nature-cnn"):
        return PolicyChoice(text)  # type: ignore[arg-type] # one of the kinds
    if kind == "sleep":
        if parse_time(rest) > parse_time("60s"):
            raise ValueError("at most 60s")
        return PolicyChoice("sleep", pause=rest)
    if kind == "mlp" and re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4}){0,99}", rest, re.ASCII):
        return PolicyChoice("mlp", tuple(map(int, rest.split("x"))))
    if kind != "mlp" and all(part.isidentifier() for side in (kind, rest) for part in side.split(".")):
        return PolicyChoice("function", target=text)
    raise ValueError(
        "write tape, mlp:64x64 (layers of a perceptron), nature-cnn, sleep:0.5ms or MODULE:FUNCTION, with details in "
        "brackets, such as mlp:64x64[device=cuda]"
    )


def parse_time(text: str) -> float:
    """Return the seconds in ``4ms``, ``250us`` or ``1.5s``. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m)", text, re.ASCII)
    if match is None:
        raise ValueError("write a time with its unit, such as 0.5ms, 250us or 1s")
    return float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[match[2]]


def action_tape(spaces: ActionSpaceTree, seed: int, batch_size: int) -> list[ArrayTree]:
    """Return random batches of actions, each ``(batch_size, *action_shape)``. Every backend of a run gets the same.

    Until tapes repeat, a row has the same actions for any batch size. A tape is long enough against short patterns, and
    small enough to leave the caches to the environments.
    """
    import numpy as np

    from vebench.backends.environments.making import sample

    bytes_per_batch = 8 * batch_size * sum(max(1, space.low.size) for space in trees.leaves(spaces))
    count = min(1024, max(32, (8 << 20) // bytes_per_batch))
    drawn = sample(spaces, seed, batch_size, count)
    return list(trees.as_rows(trees.mapped(lambda leaf: np.ascontiguousarray(leaf.swapaxes(0, 1)), drawn)))


def uploaded(tape: list[ArrayTree], backend: Any) -> list[ArrayTree]:
    """Return the tape on the device of a backend whose rows stay there, else the same tape."""
    return [backend.upload(actions) for actions in tape] if backend.info.on_device else tape


class Actions:
    """The actions of a loop: an endless iterator over batches."""

    def __iter__(self) -> Iterator[ArrayTree]:
        return self

    def __next__(self) -> ArrayTree:
        """Return the next batch of actions, ``(rows, *action_shape)``."""
        raise NotImplementedError

    def receiving(self, recv: Receive) -> Receive:
        """Return the function that the loop calls to receive a batch. ``recv`` is the backend's function."""
        return recv

    def begins(self) -> None:
        """Begin a stretch."""

    def times(self) -> dict[str, int]:
        """Return the measurements since ``begins``: values of fields of ``Window``, by name."""
        return {}


class Tape(Actions):
    """Repeats actions that were sampled beforehand. It costs the loop nothing."""

    def __init__(self, batches: Sequence[ArrayTree]) -> None:
        self._running = cycle(batches)

    def __iter__(self) -> Iterator[ArrayTree]:
        return self._running

    def __next__(self) -> ArrayTree:
        return next(self._running)


class Acting(Actions):
    """Gets actions from a policy, which sees the last batch, and measures its times. ``note`` gets all actions.

    To act, the calling thread moves to ``cpus``, if any, and then back to ``home``. The age of a row counts how often
    the policy acted after it chose the row's action and before it got the row: 0 with a synchronous backend.
    """

    def __init__(
        self,
        policy: Policy,
        first: Batch,
        info: BackendInfo,
        clock: Callable[[], int],
        note: Callable[[ArrayTree], None] | None = None,
        *,
        cpus: tuple[int, ...] = (),
        home: tuple[int, ...] = (),
    ) -> None:
        import numpy as np

        self._policy, self._clock, self._note = policy, clock, note
        self._cpus, self._home = cpus, home
        self._observations: Any = first.observations
        self._taken = self._sent = 0
        # The number of the last batch with each environment. Needed only if batches lack some environments.
        self._seen = np.zeros(info.num_envs, np.int64) if info.num_envs > info.batch_size else None
        self.begins()

    def __next__(self) -> ArrayTree:
        clock, policy = self._clock, self._policy
        began = clock()
        if self._cpus:
            kernel.restrict(self._cpus)
        there = policy.upload(self._observations)
        uploaded = clock()
        chosen = policy.infer(there)
        inferred = clock()
        actions = policy.download(chosen)
        if self._cpus:
            kernel.restrict(self._home)
        self._taken += 1
        if self._note is not None:
            self._note(actions)
        self._sent = sent = clock()
        self._copied += uploaded - began + sent - inferred
        self._inferred += inferred - uploaded
        return actions

    def receiving(self, recv: Receive) -> Receive:
        """Return a function that receives a batch for the loop, and keeps it for the policy."""

        def receive() -> Batch:
            batch = recv()
            self._waits.append(self._clock() - self._sent)
            self._observations = batch[0]
            if self._seen is not None:
                ids = batch[4]
                self._aged += int((self._taken - 1 - self._seen[ids]).sum())
                self._seen[ids] = self._taken
            return batch

        return receive

    def begins(self) -> None:
        """Begin a stretch."""
        self._copied = self._inferred = self._aged = 0
        self._waits: list[int] = []

    def times(self) -> dict[str, int]:
        """Return the nanoseconds of each part of the stretch, quantiles of latencies, and the sum of the rows' ages."""
        import numpy as np

        typical, late = np.percentile(self._waits or (0,), (50, 99))
        return {
            "waited_ns": sum(self._waits),
            "inferred_ns": self._inferred,
            "copied_ns": self._copied,
            "latency_p50_ns": round(typical),
            "latency_p99_ns": round(late),
            "aged": self._aged,
        }


class Fitting(Actions):
    """Actions for a backend whose batches vary in size: one for each row of the last batch, at first ``rows``."""

    def __init__(self, actions: Actions, rows: int) -> None:
        self._actions, self._rows = actions, rows
        self._batches = 0

    def __next__(self) -> ArrayTree:
        actions: ArrayTree = trees.as_rows(next(self._actions))[: self._rows]
        return actions

    def receiving(self, recv: Receive) -> Receive:
        """Return a function that receives a batch, and counts it."""
        receives = self._actions.receiving(recv)

        def receive() -> Batch:
            batch = receives()
            self._rows = len(batch[4])
            self._batches += 1
            return batch

        return receive

    def begins(self) -> None:
        """Begin a stretch."""
        self._batches = 0
        self._actions.begins()

    def times(self) -> dict[str, int]:
        """Return the number of batches, and the measurements of the wrapped actions."""
        return {**self._actions.times(), "batches": self._batches}


class Policy:
    """Chooses actions in three steps, whose times are reported separately. Each step returns when it is complete.

    ``infer`` chooses actions for the result of ``upload``.
    """

    def __init__(self, infer: Callable[[Any], Any]) -> None:
        self.infer = infer

    def upload(self, observations: ArrayTree) -> Any:
        """Copy observations, ``(rows, *observation_shape)`` or a dict or tuple of arrays, to the policy's device."""
        return observations

    def download(self, chosen: Any) -> ArrayTree:
        """Return the actions as a new array of the action space's type, ``(rows, *action_shape)``."""
        actions: ArrayTree = chosen
        return actions


def _calling(function: Callable[[ArrayTree], Any], spaces: ActionSpaceTree) -> Policy:
    """Return the policy of a user's function from observations to actions: arrays, or dicts or tuples of arrays."""
    import numpy as np

    def infer(there: ArrayTree) -> Any:
        rows = len(trees.leaves(there)[0])

        def checked(space: ActionSpace, actions: Any) -> ArrayTree:
            given = np.array(actions, dtype=space.low.dtype)  # a copy: the function may use its array again
            if given.shape != (rows, *space.low.shape):
                raise ValueError(f"the policy returned actions of shape {given.shape}, not {(rows, *space.low.shape)}")
            return given

        try:
            return trees.mapped(checked, spaces, function(there))
        except (KeyError, IndexError, TypeError) as error:
            words = trees.in_words(trees.form(spaces))
            raise ValueError(f"the policy did not return actions as {words}: {error!r}") from error

    return Policy(infer)


class _Network(Policy):
    """A network that samples actions. Its weights are random, from ``seed``, because only its time matters."""

    def __init__(self, policy: PolicyChoice, space: ActionSpace, observations: NDArray[np.generic], seed: int) -> None:
        import numpy as np
        import torch

        super().__init__(self._infer)
        self._torch, self._contiguous = torch, np.ascontiguousarray
        torch.set_num_threads(min(policy.threads, len(kernel.allowed() or (0,))))
        torch.manual_seed(seed)
        self._device = torch.device(policy.device)
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        # The number of choices of each discrete action; empty for continuous actions.
        self.counts = (high.astype(np.int64) - low.astype(np.int64) + 1).tolist() if space.integer else []
        self.outputs = sum(self.counts) if space.integer else len(low)
        self._layers = layers_of(policy, observations.shape[1:], self.outputs).to(self._device).eval()
        kind = np.int64 if space.integer else np.float32
        self._low, self._high = (torch.from_numpy(bound.astype(kind)).to(self._device) for bound in (low, high))
        self._factor = 1 / 255 if observations.dtype == np.uint8 else 1.0
        self._choose = torch.compile(self._sample) if policy.compile else self._sample
        self._half = policy.precision == "bf16"
        self._dtype, self._shape = space.low.dtype, space.low.shape
        like = torch.from_numpy(np.ascontiguousarray(observations))
        self._pinned = torch.empty_like(like, pin_memory=True) if self._device.type == "cuda" else None

    def upload(self, observations: ArrayTree) -> Any:
        """Copy observations to the device. On the CPU, they are not copied."""
        rows = self._torch.from_numpy(self._contiguous(observations))
        if self._pinned is None:
            return rows
        there = self._pinned[: len(rows)].copy_(rows).to(self._device, non_blocking=True)
        self._torch.cuda.synchronize(self._device)
        return there

    def _infer(self, there: Any) -> Any:
        torch = self._torch
        with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            chosen = self._choose(there)
        if self._pinned is not None:
            torch.cuda.synchronize(self._device)
        return chosen

    def download(self, chosen: Any) -> ArrayTree:
        """Return the actions."""
        actions: NDArray[np.generic] = chosen.cpu().numpy().astype(self._dtype, copy=False)
        return actions.reshape(len(actions), *self._shape)

    def _sample(self, rows: Any) -> Any:
        torch = self._torch
        out = self._layers(rows.to(torch.float32) * self._factor).float()
        if not self.counts:
            return torch.clamp(out + torch.randn_like(out), self._low, self._high)
        # The index of the largest logit with Gumbel noise is a sample of the categorical distribution.
        noisy = out - torch.log(-torch.log(torch.rand_like(out).clamp_(1e-20, 1 - 1e-7)))
        chosen = [part.argmax(-1) for part in noisy.split(self.counts, -1)]
        return torch.stack(chosen, -1) + self._low


def layers_of(policy: PolicyChoice, shape: tuple[int, ...], outputs: int) -> Any:
    """Return the layers of a network for observations of this shape."""
    import torch
    from torch import nn

    if policy.kind == "mlp":
        size, parts = max(1, math.prod(shape)), [nn.Flatten()]
        for width in policy.sizes:
            parts += [nn.Linear(size, width), nn.Tanh()]
            size = width
        return nn.Sequential(*parts, nn.Linear(size, outputs))
    if len(shape) != 3:  # noqa: PLR2004 - stack, height, width
        raise ValueError(f"policy nature-cnn takes stacked images, not observations of shape {shape}: use mlp:64x64")
    # Mnih et al., Human-level control through deep reinforcement learning, Nature 518, 2015
    convolutions = (nn.Conv2d(shape[0], 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
    layers: list[Any] = []
    for convolution in convolutions:
        layers += [convolution, nn.ReLU()]
    seen = nn.Sequential(*layers, nn.Flatten())
    size = seen(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(seen, nn.Linear(size, 512), nn.ReLU(), nn.Linear(512, outputs))


def make_policy(
    chosen: PolicyChoice, spaces: ActionSpaceTree, observations: ArrayTree, seed: int, tape: Sequence[ArrayTree]
) -> Policy:
    """Return the ``chosen`` policy, for observations with the shapes and types of these, ``(rows, *shape)``.

    A network's weights are random, from ``seed``. Raises ValueError if the policy does not fit the environment.
    """
    if chosen.kind == "sleep":
        seconds, actions = parse_time(chosen.pause), cycle(tape)

        def sleep(there: ArrayTree) -> Any:
            time.sleep(seconds)  # as if a device computed meanwhile
            return trees.part(next(actions), slice(len(trees.leaves(there)[0])))

        return Policy(sleep)
    if chosen.kind == "function":
        return _calling(load_target(chosen.target), spaces)
    if isinstance(observations, (dict, tuple)) or isinstance(spaces, (dict, tuple)):
        taken = [trees.in_words(trees.form(tree)) for tree in (observations, spaces)]
        raise ValueError(  # noqa: TRY004 - by contract
            f"policy {chosen.label} takes one array of observations and one of actions, "
            f"not {taken[0]} and {taken[1]}: use MODULE:FUNCTION, or sleep:TIME"
        )
    return _Network(chosen, spaces, observations, seed)
