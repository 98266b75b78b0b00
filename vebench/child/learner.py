"""Times the updates of a training algorithm: forward, backward and an optimiser's step. Torch is loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec, spaces_of
from vebench.backends.interface import Setup
from vebench.backends.training import ALGORITHMS, Algorithm, Training
from vebench.child.actions import TAPED, PolicyChoice, layers_of, make_policy
from vebench.child.answers import UpdateTimes
from vebench.child.request import Updating

_CLIP = 0.2  # PPO's usual bound of a change
_STRETCHES = 6  # how often updates are timed with each number of threads


def time_updates(setup: Setup, job: Updating, policy: PolicyChoice, clock: Callable[[], int]) -> UpdateTimes:
    """Return the times of updates on the CPUs of ``setup``, or why the algorithm or its network does not fit the task.

    ``policy`` is the network, if it is one.
    """
    spaces = spaces_of(setup.task)
    usual = ALGORITHMS[job.algorithm]
    if usual.discrete is not None and any(leaf.integer != usual.discrete for leaf in trees.leaves(spaces.actions)):
        kind = "discrete" if usual.discrete else "continuous"
        return UpdateTimes(policy.label, (), f"{usual.title} needs {kind} actions")
    if not job.seconds:
        return UpdateTimes(policy.label, ())
    import torch

    if not policy.is_network:
        seen = spaces.observations
        pictures = isinstance(seen, ArraySpec) and len(seen.shape) == 3 and seen.dtype == np.uint8  # noqa: PLR2004
        policy = replace(TAPED, kind="nature-cnn") if pictures else replace(TAPED, kind="mlp", sizes=usual.widths)
    algorithm = Training(job.algorithm, pictures=policy.kind == "nature-cnn").method
    many: Any = spaces.rows(4 * algorithm.minibatch).observations  # an update takes some rows of many
    try:
        network = make_policy(policy, spaces.actions, many, setup.seed, [])
    except ValueError as error:
        return UpdateTimes(policy.label, (), str(error))
    update = _Update(policy, network, torch.from_numpy(many).to(policy.device), algorithm)
    found: list[tuple[int, ...]] = []
    for power in range(len(setup.cpus).bit_length()):
        torch.set_num_threads(1 << power)
        update()
        found.append(tuple(_stretch(update, job.seconds / _STRETCHES, clock) for _ in range(_STRETCHES)))
        if sum(found[-1]) > min(map(sum, found)):
            break
    return UpdateTimes(policy.label, tuple(found))


def _stretch(update: Callable[[], object], seconds: float, clock: Callable[[], int]) -> int:
    """Return the mean nanoseconds of updates, repeated for ``seconds``."""
    began = clock()
    made = spent = 0
    while spent < 1e9 * seconds:
        update()
        made += 1
        spent = clock() - began
    return spent // made


class _Update:
    """An update of networks with random weights, for rewards and actions of any value: only its time matters.

    The ``trained`` networks of an algorithm have a forward and a backward pass and an optimiser's step. Its ``fixed``
    networks only have a forward pass. Without trained networks, PPO's policy and value are trained: one network for
    pictures, two for vectors.
    """

    def __init__(self, policy: PolicyChoice, network: Any, observations: Any, algorithm: Algorithm) -> None:
        import torch

        self._torch, self._observations = torch, observations
        self._algorithm, self._discrete = algorithm, bool(network.counts)
        self._outputs = network.outputs
        sizes = [self._outputs, 1]
        if algorithm.trained:
            sizes = [self._outputs] * algorithm.trained
        elif policy.kind == "nature-cnn":
            sizes = [self._outputs + 1]
        shape = tuple(observations.shape[1:])
        self._nets = [layers_of(policy, shape, size).to(policy.device) for size in sizes]
        self._fixed = [layers_of(policy, shape, self._outputs).to(policy.device) for _ in range(algorithm.fixed)]
        self._deviation = torch.zeros(self._outputs, device=policy.device, requires_grad=True)
        weights = [[*net.parameters()] for net in self._nets]
        if not algorithm.trained:
            weights = [[*chain.from_iterable(weights), self._deviation]]
        self._optimizers = [torch.optim.Adam(each, 3e-4) for each in weights]

    def __call__(self) -> None:
        """Make an update of random rows."""
        torch = self._torch
        seen = self._observations[torch.randint(len(self._observations), (self._algorithm.minibatch,))]
        seen = seen.float() / 255 if seen.dtype == torch.uint8 else seen.float()
        numbers = torch.randn(len(seen), device=seen.device)
        with torch.no_grad():
            for net in self._fixed:
                numbers = numbers + net(seen).amax(1)
        for number, optimizer in enumerate(self._optimizers):
            if self._algorithm.trained:
                loss = (self._nets[number](seen) - numbers[:, None]).square().mean()
            else:
                loss = self._loss(torch.cat([net(seen) for net in self._nets], 1), numbers)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.5)
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
        # Libraries report the change of the policy, and how often it is clipped, at each update.
        (ratio - 1 - ratio.log()).mean().item()
        ((ratio - 1).abs() > _CLIP).float().mean().item()
        advantage = (numbers - numbers.mean()) / (numbers.std() + 1e-8)
        gain = torch.min(advantage * ratio, advantage * ratio.clamp(1 - _CLIP, 1 + _CLIP)).mean()
        return 0.5 * (value - numbers).square().mean() - gain - 0.01 * choice.entropy().mean()
