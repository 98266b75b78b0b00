"""A library's sampling loop, as other projects have them: it steps environments by itself, and asks a policy to act."""

from functools import partial

import numpy as np

from vebench.backends.peers.samplers import Act, Makers, Sampler


def in_pieces(makers: Makers, act: Act, *, at_once: bool) -> None:
    """Step environments for ever, with episodes kept as for a learner. ``at_once``: an end resets in its step."""
    environments = [make() for make in makers]
    pieces: list[list[object]] = [[environment.reset(seed=99)] for environment in environments]
    ended = [False] * len(environments)
    while True:
        for index, action in enumerate(act()):
            if ended[index]:
                pieces[index], ended[index] = [environments[index].reset()], False
                continue
            row = environments[index].step(action)
            pieces[index].append(np.float32(row[1]))
            ended[index] = row[2] or row[3]
            if ended[index] and at_once:
                pieces[index], ended[index] = [environments[index].reset()], False


def unwilling(makers: Makers, _act: Act) -> None:
    """Fail as a library does that cannot be used."""
    makers[0]().reset()
    raise RuntimeError("no such policy")


NextStep = partial(Sampler, sample=partial(in_pieces, at_once=False), module="json", autoreset="next_step")
SameStep = partial(Sampler, sample=partial(in_pieces, at_once=True), module="json", autoreset="same_step")
Unwilling = partial(Sampler, sample=unwilling, module="json", autoreset="next_step")
