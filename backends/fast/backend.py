"""Environments of our own classes in our own threads, as backends: ``fast-sync`` and ``fast-async``."""

from vebench.backends.environments.making import read_spaces
from vebench.backends.environments.suites import load_target
from vebench.backends.fast.classes import class_of, refusal
from vebench.backends.fast.share import FastTask, build_task, make_share
from vebench.backends.interface import Difference, Task
from vebench.backends.shared_memory.backend import ShmAsync, ShmSync, Stepped, gymnasium_classes


class _OwnClasses:
    """Environments of our own class or, if it may not step a task, of Gymnasium's, in processes."""

    @staticmethod
    def stepped(task: Task) -> Stepped:
        """Return how the environments of a task are stepped."""
        ours, refused = class_of(task.id), refusal(task.id)
        if ours is None or refused is not None:
            return gymnasium_classes(task)._replace(own_classes=refused)
        kind: type[FastTask] = load_target(ours.target)
        fast, own = build_task(task.id, kind.settings_of(task))
        if fast is None:
            return gymnasium_classes(task)._replace(own_classes=own)
        return Stepped(
            read_spaces(task, fast.observation_space, fast.action_space),
            lambda division: make_share(fast, division, "NextStep"),
            own,
            tuple(Difference(text) for text in fast.leaves_out),
        )


class FastSync(_OwnClasses, ShmSync):
    """``ShmSync`` with our own classes for the environments, and threads in place of its processes."""


class FastAsync(_OwnClasses, ShmAsync):
    """``ShmAsync`` with our own classes for the environments, and threads in place of its processes."""
