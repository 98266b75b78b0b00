"""Times the updates of a training algorithm: forward, backward and an optimiser's step. Torch is loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from vebench.backends.environments.making import ArraySpec, make, read_spaces
from vebench.backends.interface import Setup
from vebench.backends.training import ALGORITHMS, Training
from vebench.child.actions import TAPED, PolicyChoice, layers_of, make_policy
from vebench.child.answers import UpdateTimes
from vebench.child.request import Updating

_CLIP = 0.2  # PPO's usual bound of a change
_STRETCHES = 6  # how often updates are timed with each number of threads


def time_updates(setup: Setup, job: Updating, policy: PolicyChoice, clock: Callable[[], int]) -> UpdateTimes:
    """Return the times of updates on the CPUs of ``setup``. ``policy`` is the network, if it is one.

    Raises ValueError if the algorithm or the network does not fit the task.
    """
    import torch

    environment = make(setup.task)
    try:
        spaces = read_spaces(setup.task, environment.observation_space, environment.action_space)
    finally:
        environment.close()
    seen, known = spaces.observations, ALGORITHMS[job.algorithm]
    if not policy.is_network:
        pictures = isinstance(seen, ArraySpec) and len(seen.shape) == 3 and seen.dtype == np.uint8  # noqa: PLR2004
        policy = replace(TAPED, kind="nature-cnn") if pictures else replace(TAPED, kind="mlp", sizes=known.widths)
    rows = Training(job.algorithm, pictures=policy.kind == "nature-cnn").known.rows
    many: Any = spaces.rows(4 * rows).observations  # an update takes some rows of many
    make_policy(policy, spaces.actions, many, setup.seed, [])  # refuses what does not fit
    space: Any = spaces.actions
    if known.discrete is not None and known.discrete != space.integer:
        raise ValueError(f"{known.title} needs {'discrete' if known.discrete else 'continuous'} actions")
    update = _Update(policy, space, torch.from_numpy(many).to(policy.device), known.trained, known.fixed)
    found: list[tuple[int, ...]] = []
    for power in range(len(setup.cpus).bit_length()):
        torch.set_num_threads(1 << power)
        update(rows)
        stretches = [_stretch(lambda: update(rows), job.seconds / _STRETCHES, clock) for _ in range(_STRETCHES)]
        found.append(tuple(stretches))
        if sum(stretches) > min(map(sum, found)):
            break
    return UpdateTimes(policy.label, tuple(found))


def _stretch(update: Callable[[], object], seconds: float, clock: Callable[[], int]) -> int:
    """Return the mean nanoseconds of updates, repeated for ``seconds``."""
    began, made, spent = clock(), 0, 0
    while spent < 1e9 * seconds:
        update()
        made, spent = made + 1, clock() - began
    return spent // made


class _Update:
    """An update of networks with random weights, for rewards and actions of any value: only its time matters.

    With ``trained`` networks, each has a forward and a backward pass and an optimiser's step. ``fixed`` networks only
    have a forward pass. Without ``trained`` networks, PPO's policy and value are trained. Pictures have one network for
    both, vectors have two.
    """

    def __init__(self, policy: PolicyChoice, space: Any, observations: Any, trained: int, fixed: int) -> None:
        import torch

        self._torch, self._observations, self._trained, self._discrete = torch, observations, trained, space.integer
        choices = (
            space.high.astype(np.int64) - space.low.astype(np.int64) + 1 if space.integer else [1] * space.low.size
        )
        self._outputs, shape = int(np.sum(choices)), tuple(observations.shape[1:])
        shared = not trained and policy.kind == "nature-cnn"
        sizes = [self._outputs] * trained or [self._outputs + 1] * shared or [self._outputs, 1]
        self._nets, self._fixed = (
            [layers_of(policy, shape, size).to(policy.device) for size in each]
            for each in (sizes, [self._outputs] * fixed)
        )
        self._deviation = torch.zeros(self._outputs, device=policy.device, requires_grad=True)
        self._weights = [[*net.parameters()] for net in self._nets]
        if not trained:
            self._weights = [[*chain.from_iterable(self._weights), self._deviation]]
        self._optimizers = [torch.optim.Adam(weights, 3e-4) for weights in self._weights]

    def __call__(self, rows: int) -> None:
        """Make an update of this number of random rows."""
        torch = self._torch
        seen = self._observations[torch.randint(len(self._observations), (rows,))]
        seen = seen.float() / 255 if seen.dtype == torch.uint8 else seen.float()
        numbers = torch.randn(rows, device=seen.device)
        with torch.no_grad():
            for net in self._fixed:
                numbers = numbers + net(seen).amax(1)
        for number, (weights, optimizer) in enumerate(zip(self._weights, self._optimizers, strict=True)):
            if self._trained:
                loss = (self._nets[number](seen) - numbers[:, None]).square().mean()
            else:
                loss = self._loss(torch.cat([net(seen) for net in self._nets], 1), numbers)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 0.5)
            optimizer.step()
            loss.item()  # waits for a device

    def _loss(self, out: Any, numbers: Any) -> Any:
        """Return PPO's loss, given outputs for actions and values."""
        torch, chosen, value = self._torch, out[:, : self._outputs], out[:, -1]
        if self._discrete:
            choice = torch.distributions.Categorical(logits=chosen)
            likelihood = choice.log_prob(torch.zeros(len(out), device=out.device))
        else:
            choice = torch.distributions.Normal(chosen, self._deviation.exp())
            likelihood = choice.log_prob(torch.zeros_like(chosen)).sum(1)
        ratio = (likelihood - likelihood.detach()).exp()
        # Libraries report both at each update.
        for reported in ((ratio - 1 - ratio.log()).mean(), ((ratio - 1).abs() > _CLIP).float().mean()):
            reported.item()
        advantage = (numbers - numbers.mean()) / (numbers.std() + 1e-8)
        gain = torch.min(advantage * ratio, advantage * ratio.clamp(1 - _CLIP, 1 + _CLIP)).mean()
        return 0.5 * (value - numbers).square().mean() - gain - 0.01 * choice.entropy().mean()
