"""Times the updates of a training algorithm: forward, backward and an optimiser's step. Torch is loaded on use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from vebench.backends.environments.making import ArraySpec, make, read_spaces
from vebench.backends.interface import Setup
from vebench.backends.training import ALGORITHMS, Training
from vebench.child.actions import TAPED, PolicyChoice, layers_of, make_policy
from vebench.child.answers import Learned
from vebench.child.request import Learning

_STRETCHES = 6  # how often updates are timed with each number of threads


def time_updates(setup: Setup, job: Learning, policy: PolicyChoice, clock: Callable[[], int]) -> Learned:
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
    rows = Training(job.algorithm, pictures=policy.kind == "nature-cnn").updates.rows
    observations: Any = spaces.rows(4 * rows).observations  # an update takes some rows of many
    make_policy(policy, spaces.actions, observations, setup.seed, [])  # refuses what does not fit
    update = _UPDATES[known.loss](policy, spaces.actions, torch.from_numpy(observations).to(policy.device), rows)
    found: list[tuple[int, ...]] = []
    for power in range(len(setup.cpus).bit_length()):
        torch.set_num_threads(1 << power)
        update()
        found.append(tuple(_stretch(update, job.seconds / _STRETCHES, clock) for _ in range(_STRETCHES)))
        if sum(found[-1]) > min(map(sum, found)):
            break
    return Learned(policy.label, tuple(found))


def _stretch(update: Callable[[], object], seconds: float, clock: Callable[[], int]) -> int:
    """Return the mean nanoseconds of updates, repeated for ``seconds``."""
    began, made, spent = clock(), 0, 0
    while spent < 1e9 * seconds:
        update()
        made, spent = made + 1, clock() - began
    return spent // made


# These functions return an update of the policy's network, for a task's space of actions, from ``rows`` of the
# observations. Weights, rewards and actions may have any values, because only the time of an update matters.


def _actor_critic(policy: PolicyChoice, space: Any, observations: Any, rows: int) -> Callable[[], None]:
    """Return PPO's update. Pictures have one network for the policy and the value, vectors have two."""
    import torch
    from torch.distributions import Categorical, Independent, Normal

    outputs, shared = _outputs(space), policy.kind == "nature-cnn"
    nets = torch.nn.ModuleList([_network(policy, observations, outputs + shared)])
    if not shared:
        nets.append(_network(policy, observations, 1))
    deviation = torch.nn.Parameter(torch.zeros(outputs, device=policy.device))
    descend = _adam([*nets.parameters(), deviation])
    shape = (rows,) if space.integer else (rows, outputs)
    actions, numbers = torch.zeros(shape, device=policy.device), torch.randn(rows, device=policy.device)

    def update() -> None:
        seen = _chosen(observations, rows)
        out = nets[0](seen)
        value = out[:, -1] if shared else nets[1](seen)[:, 0]
        first = out[:, :outputs]
        choice = Categorical(logits=first) if space.integer else Independent(Normal(first, deviation.exp()), 1)
        likelihood = choice.log_prob(actions)
        ratio = (likelihood - likelihood.detach()).exp()
        advantage = (numbers - numbers.mean()) / (numbers.std() + 1e-8)
        gain = torch.min(advantage * ratio, advantage * ratio.clamp(0.8, 1.2)).mean()
        descend(0.5 * (value - numbers).square().mean() - gain - 0.01 * choice.entropy().mean())

    return update


def _q_values(policy: PolicyChoice, space: Any, observations: Any, rows: int) -> Callable[[], None]:
    """Return DQN's update."""
    import torch

    if not space.integer:
        raise ValueError("it needs discrete actions")
    online, target = (_network(policy, observations, _outputs(space)) for _ in range(2))
    descend, numbers = _adam(online.parameters()), torch.randn(rows, device=policy.device)

    def update() -> None:
        with torch.no_grad():
            goal = numbers + 0.99 * target(_chosen(observations, rows)).amax(1)
        descend(torch.nn.functional.smooth_l1_loss(online(_chosen(observations, rows))[:, 0], goal))

    return update


def _soft_actor_critic(policy: PolicyChoice, space: Any, observations: Any, rows: int) -> Callable[[], None]:
    """Return SAC's update: two critics with targets, the policy, and the weight of the entropy."""
    import torch

    if space.integer or policy.kind != "mlp":
        raise ValueError("it needs continuous actions and a perceptron")
    outputs = _outputs(space)
    actor = _network(policy, observations, 2 * outputs)
    critics, targets = (
        torch.nn.ModuleList([_network(policy, observations, 1, outputs) for _ in range(2)]) for _ in range(2)
    )
    weight = torch.zeros(1, device=policy.device, requires_grad=True)
    of_critics, of_actor, of_weight = _adam(critics.parameters()), _adam(actor.parameters()), _adam([weight])
    numbers = torch.randn(rows, device=policy.device)

    def act(seen: Any) -> tuple[Any, Any]:
        mean, deviation = actor(seen).chunk(2, -1)
        normal = torch.distributions.Normal(mean, deviation.clamp(-5, 2).exp())
        drawn = normal.rsample()
        return drawn.tanh(), (normal.log_prob(drawn) - (1 - drawn.tanh().square() + 1e-6).log()).sum(-1)

    def values(nets: Any, seen: Any, action: Any) -> Any:
        return torch.cat([net(torch.cat((seen, action), 1)) for net in nets], 1)

    def update() -> None:
        seen, later = (_chosen(observations, rows).flatten(1) for _ in range(2))
        with torch.no_grad():
            action, likelihood = act(later)
            goal = numbers + 0.99 * (values(targets, later, action).amin(1) - likelihood)
        of_critics((values(critics, seen, action) - goal[:, None]).square().mean())
        action, likelihood = act(seen)
        of_actor((weight.exp().detach() * likelihood - values(critics, seen, action).amin(1)).mean())
        of_weight((weight * (-likelihood.detach() - 1.0)).mean())
        with torch.no_grad():
            for target, own in zip(targets.parameters(), critics.parameters(), strict=True):
                target.lerp_(own, 0.005)

    return update


_UPDATES = {"actor-critic": _actor_critic, "q-values": _q_values, "soft-actor-critic": _soft_actor_critic}


def _outputs(space: Any) -> int:
    """Return the number of outputs that choose an action."""
    choices = space.high.astype(np.int64) - space.low.astype(np.int64) + 1 if space.integer else np.ones(space.low.size)
    return int(choices.sum())


def _network(policy: PolicyChoice, observations: Any, outputs: int, more: int = 0) -> Any:
    """Return a network of observations, or of vectors that are longer by ``more``."""
    shape = tuple(observations.shape[1:])
    return layers_of(policy, (prod(shape) + more,) if more else shape, outputs).to(policy.device)


def _chosen(observations: Any, rows: int) -> Any:
    """Return random rows as a network takes them."""
    import torch

    chosen = observations[torch.randint(len(observations), (rows,), device=observations.device)].float()
    return chosen / 255 if observations.dtype == torch.uint8 else chosen


def _adam(weights: Any) -> Callable[[Any], None]:
    """Return a function that changes the weights to lower a loss."""
    import torch

    weights = list(weights)
    optimizer = torch.optim.Adam(weights, 3e-4)

    def descend(loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 0.5)
        optimizer.step()
        loss.item()  # waits for a device

    return descend
