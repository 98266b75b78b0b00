"""Steps a backend for a comparison: ``python -m vebench.child.proof.stepping RECORDS``.

This process has the adapter, and no judge. RECORDS is the descriptor to which everything that the backend returns is
written. Its request and the trials come as two lines of JSON on standard input; a byte after that asks for the trial's
next reset, since nobody who steps a backend for a measurement knows either when it will end.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
import traceback
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import registry, trees
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import CountsFrames
from vebench.child.loading import load, one_line
from vebench.child.loop import action_tape
from vebench.child.proof.batches import NAMES, about, changed, malformed
from vebench.child.proof.recording import Began, Broken, Closed, Ended, Failed, Rows, write
from vebench.child.proof.silence import Silence
from vebench.child.proof.trials import Trial
from vebench.child.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Factory, VectorBackend
    from vebench.backends.trees import Tree
    from vebench.child.proof.recording import About, Record
    from vebench.child.proof.trials import Reset

    Enough = Callable[[], bool]


class UnheardError(Exception):
    """Nobody wants to know any more."""


def stepped(factory: Factory, request: Request, trial: Trial, enough: Enough) -> Generator[Record]:
    """Yield what a backend returns in a trial, and last that it is closed.

    ``enough`` returns whether the next reset may come.
    """
    setup = trial.setup(request.setup)
    backend = factory(setup, **request.options)
    try:
        counts = SUITES[setup.task.suite].frames is not None and isinstance(backend, CountsFrames)
        frames = _frames if counts else _no_frames
        first = about(
            backend.info,
            tape_seed=trial.tape_seed,
            constructor_seed=trial.seed,
            in_order=backend.info.in_order,
            frames_from=backend.frames_from if isinstance(backend, CountsFrames) else None,
        )
        yield first
        tape = action_tape(backend.info.action_space, trial.tape_seed, backend.info.batch_size)
        for reset in trial.resets:
            yield from _history(backend, reset, tape, frames, enough)
        yield Ended(0, _report_changed(first, backend) or "")
    finally:
        backend.close()
    yield Closed()


def _history(
    backend: VectorBackend,
    reset: Reset,
    tape: Sequence[ArrayTree],
    frames: Callable[[Any], NDArray[np.int64]],
    enough: Enough,
) -> Generator[Record]:
    """Yield every batch after a reset, each as soon as it is there."""
    info = backend.info
    kept = Kept()
    always_all = info.batch_size == info.num_envs and info.fewest_rows is None
    yield Began(reset.seed, reset.tape_at)
    backend.reset(reset.seed)
    silence = None if always_all else Silence(info.num_envs)
    number = 0
    while True:
        batch = backend.recv()
        fault = malformed(batch, info.num_envs, info.batch_size, info.fewest_rows)
        if fault is None and not info.reuses_buffers:
            fault = kept.changed("though no reuse of buffers is declared")
        if fault is None and silence is not None:
            fault = silence.note(batch[4])
        if fault is not None:
            yield Broken(number, fault)
            return
        observations, rewards, terminated, truncated, env_ids = kept.keep(batch)
        shown = np.arange(len(env_ids))
        yield Rows(number, env_ids, rewards, terminated, truncated, shown, observations, frames(backend))
        if enough():
            return
        if (fault := kept.changed("before the next actions were sent")) is not None:
            yield Broken(number, fault)
            return
        backend.send(trees.part(tape[(reset.tape_at + number) % len(tape)], slice(len(env_ids))))
        number += 1


def _report_changed(first: About, backend: VectorBackend) -> str | None:
    return changed(first, about(backend.info, tape_seed=first.tape_seed, constructor_seed=first.constructor_seed))


class Kept:
    """The arrays of the last batch, to see whether they change, and copies of them."""

    def __init__(self) -> None:
        self._arrays: list[Tree] = []
        self._copies: list[Tree] = []

    def keep(self, batch: Sequence[Tree]) -> list[Tree]:
        """Keep a batch, and return copies of its arrays."""
        self._arrays = list(batch)
        self._copies = [trees.mapped(np.copy, array) for array in self._arrays]
        return self._copies

    def changed(self, when: str) -> str | None:
        """Return the fault if rows have changed since they were handed out, None if they have not."""
        for field, arrays, copies in zip(NAMES, self._arrays, self._copies):  # noqa: B905 - none before the first batch
            for (name, array), copy in zip(trees.named_leaves(arrays, field), trees.leaves(copies), strict=True):
                if array.tobytes() != copy.tobytes():
                    return f"{name} change after they were handed out, {when}"
        return None


def _frames(backend: CountsFrames) -> NDArray[np.int64]:
    frames = backend.frames()
    return np.empty(0, np.int64) if frames is None else np.array(frames)


def _no_frames(_backend: object) -> NDArray[np.int64]:
    return np.empty(0, np.int64)


def _prepared(request: Request) -> Factory:
    """Return the adapter. What takes long to import is imported, as it would be later."""
    factory, entry = load(request.target), registry.find(request.backend)
    packages = entry.packages + (SUITES[request.setup.task.suite].packages if entry.steps_gymnasium else ())
    for package in packages:
        with suppress(ImportError):
            importlib.import_module(package.module)
    return factory


def main(records: int) -> int:
    """Step the trials that standard input names, and write what comes. Returns the exit status."""
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    request = Request.read(orders.readline().decode())
    sys.path.append(request.folder)  # last, because the user's folder must not shadow a library
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)  # backends read nothing from it

    def enough() -> bool:
        if not select.select([orders], [], [], 0)[0]:
            return False
        if not orders.read(1):
            raise UnheardError
        return True

    # What a backend forks must not keep the pipe open: the judge would wait for it if this process died.
    os.register_at_fork(after_in_child=lambda: os.dup2(devnull, records))
    with os.fdopen(records, "wb", buffering=1 << 16) as file:
        try:
            factory = _prepared(request)
            trials = [Trial.read(body) for body in json.loads(orders.readline() or b"[]")]
            for trial in trials:
                with closing(stepped(factory, request, trial, enough)) as all_of_it:
                    for record in all_of_it:
                        write(file, record)
                        file.flush()
        except (BrokenPipeError, UnheardError):
            os.dup2(devnull, records)  # what is left in the buffer goes nowhere
            return 0
        except BaseException as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
            traceback.print_exc()
            write(file, Failed(one_line(error)))
            return 1
    return 0


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)
    sys.exit(main(int(sys.argv[1])))
