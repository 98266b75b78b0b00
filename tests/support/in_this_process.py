"""A world whose cells are real, backends, environments and all, but step in this process: no interpreter is started.

What the child does is what it always does. Only the process is missing: use it where that is not the point.
"""

import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.fakes import fake_world

from vebench.backends.interface import Setup
from vebench.child import main as child
from vebench.child.answers import Answer, Failure
from vebench.child.equality import recorder, recording, replay
from vebench.child.request import Request, Timing
from vebench.commands.session import World
from vebench.engine.launcher import settings_of
from vebench.engine.runner import CellError, Conversation, decode
from vebench.machine import kernel
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.process_guard import Interrupts


@contextmanager
def start_here(
    spec: RunSpec, interrupts: Interrupts, python: str = sys.executable, *, layouts: int | None = None
) -> Iterator[Callable[[Cell], object]]:
    """Start cells that are alone on their CPUs, in this process."""
    assert python == sys.executable

    with tempfile.TemporaryDirectory() as scratch:

        @contextmanager
        def launch(cell: Cell) -> Iterator[CellHere]:
            yield CellHere(cell, spec, Path(scratch), layouts)

        assert not interrupts.requested
        yield launch
        assert not list(Path(scratch).iterdir()), "what was recorded is removed once it is compared"


class CellHere(Conversation):
    """A cell that has done all it was asked for before its first answer is read."""

    def __init__(self, cell: Cell, spec: RunSpec, recordings: Path, layouts: int | None) -> None:
        assert cell.mode == "alone"
        self._cell, self._spec, self._recordings, self._layouts = cell, spec, recordings, layouts
        self._printed = io.StringIO()

    def messages(self) -> Iterator[Answer]:
        with tempfile.TemporaryDirectory() as scratch, Path(os.devnull).open("rb") as nothing:
            request, answers = Path(scratch, "request.json"), Path(scratch, "answers")
            asked = self._request(self._cell, nothing.fileno()).as_json()
            request.write_text(json.dumps(asked), encoding="utf-8")
            with answers.open("wb") as written, self._as_in_a_process_of_its_own():
                child.main(str(request), written.fileno())
            lines = answers.read_bytes().splitlines()
        for answer in map(decode, lines):
            if isinstance(answer, Failure):
                raise CellError(answer.reason)
            yield answer

    def log(self) -> str:
        return self._printed.getvalue()

    def _request(self, cell: Cell, go_ahead: int) -> Request:
        spec, job = self._spec, cell.job
        if job is not None and not isinstance(job, Timing):
            job = replace(job, path=str(self._recordings / job.path))
        return Request(
            setup=Setup(cell.task, cell.workers, cell.envs_per_worker, cell.cpus, spec.seed, pinned=False),
            backend=cell.backend.name,
            options=cell.backend.options,
            settings=settings_of(spec),
            folder=str(Path.cwd()),
            start_seed=spec.seed,
            tape_seed=spec.seed + 1,
            go_ahead=go_ahead,
            job=job,
        )

    @contextmanager
    def _as_in_a_process_of_its_own(self) -> Iterator[None]:
        """Keep what it prints, what it puts on the path and what it warns of from the test."""
        with warnings.catch_warnings(), redirect_stdout(self._printed), redirect_stderr(self._printed):
            warnings.simplefilter("ignore")
            # However busy the machine of a test is; and no longer than it takes, since games take a while to load.
            trials_of = recorder.trials_of
            replaced = {
                (recorder, "trials_of"): lambda *asked: trials_of(*asked)[: self._layouts],
                (replay, "trials_of"): lambda *asked: trials_of(*asked)[: self._layouts],
                (replay, "LOOK_ON_S"): 300.0,
                (recording, "PATIENCE_S"): 0.4,
                (recorder, "LEAST_S"): 0.0,
                (recorder, "TIMES_LONGER"): 1,
                (recorder, "TIMES_FOR_ONE"): 1,
                (kernel, "steal_ns"): lambda _cpus: None,
                (kernel, "busy_ns"): lambda _cpus: None,
            }
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "path", [*sys.path])
                for (module, name), value in replaced.items():
                    patch.setattr(module, name, value)
                yield


def world_here(*, layouts: int | None = None, **parts: object) -> World:
    """Return a world in which cells are real and start no process; ``parts`` replace some of it.

    ``layouts``: how many are compared, all unless it is given: the first have the fewest environments.
    """
    return fake_world(**{"start": partial(start_here, layouts=layouts), **parts})
