"""Submissions of runs that were measured in fake worlds, by the real commands: other tools take them as honest."""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from vebench import cli
from vebench.backends import packages
from vebench.child.answers import CellProof, Done, Failure
from vebench.child.request import Recording, Replaying
from vebench.child.window import Window
from vebench.engine.interface import InterruptedCellError
from vebench.machine.host import Allowance, read_host
from vebench.machine.sysfs import Quota
from vebench.results.records import INTERRUPTED

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / name) for name in ("", "machine")]  # as pytest has them

from support.fakes import SECOND, FakeCell, fake_world, steady  # noqa: E402 - as above
from support.paced import resolve  # noqa: E402 - as above
from test_placement import machine  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.interpreters.waiting import Interrupts
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

ODD = ("", "", "", "loaded", "interrupted", "quota", "no envpool", "failing")
SHAPES = (
    (1, 1, 1, 1),
    (1, 1, 2, 1),
    (1, 1, 2, 2),
    (1, 1, 6, 1),
    (1, 1, 4, 2),
    (2, 1, 4, 2),
    (2, 2, 2, 3),
    (2, 2, 8, 2),
)
CHOICES = (
    "gym-sync",
    "gym-sync,fast-sync",
    "",
    "envpool-async[ratio=2],shm-sync",
    "gym-async",
    "for-loop,envpool-sync",
)
COSTS = {"null": 1e-6, "yardstick": 1e-4, "ceiling": 1e-5, "for-loop": 9e-5, "gym-async": 2e-4}


class FakeRun:
    """A run in a world of its own, in which something may be odd. ``may_lack``: the checks that may refuse it."""

    may_lack = frozenset({"undisturbed", "intervals", "findings"})

    def __init__(self, seed: int, twin: int = 0) -> None:
        draw = Random(seed)  # noqa: S311 - noise to repeat, no secret
        self.seed = seed
        self.odd, self.backends = ODD[seed % len(ODD)], CHOICES[seed % len(CHOICES)]
        self.topology = machine(*draw.choice(SHAPES[: 4 if seed % 3 else None]), interleaved=draw.random() < 0.3)
        self.suite, self.noise = draw.choice(("classic-3", "mujoco-5", "atari-5")), draw.choice((0.003, 0.01, 0.02))
        self.draw = Random(f"{seed} {twin}")  # noqa: S311 - as above
        self.cells: dict[str, Cell] = {}
        self.began = seed * 1000 + twin * 37

    def again(self, twin: int) -> FakeRun:
        """Return another run in this world."""
        return FakeRun(self.seed, twin)

    def script(self, cell: Cell, spec: RunSpec) -> Iterator[Any]:
        draw, cpus = self.draw, max(1, len(cell.cpus))
        cost = COSTS.get(cell.backend.name, 7e-5) * (1 + len(cell.task.id) / 10) * draw.gauss(1, self.noise)
        size = Random(repr((self.suite, cell.key.without_repeat)))  # noqa: S311 - as above
        busy = 0.98 if cpus == 1 else size.uniform(0.6, 1)
        loaded = self.odd == "loaded" and draw.random() < 0.5
        for answer in steady(cell, spec):
            if isinstance(answer, Window):
                ns, taken = round(answer.ns * draw.uniform(1, 1.02)), draw.uniform(0.2, 0.5) * loaded
                cpu_ns, others_ns = round(ns * cpus * busy * (1 - taken)), round(ns * cpus * taken)
                rows = round(cpu_ns / 1e9 / cost * draw.gauss(1, self.noise) / cell.shape.batch_size)
                rows *= cell.shape.batch_size
                yield Window(ns, rows, rows // 24, cpu_ns=cpu_ns, others_ns=others_ns, steal_ns=0, throttled_ns=0)
            else:
                yield replace(answer, warmup_ns=SECOND // 9) if isinstance(answer, Done) else answer

    def proof(self, cell: Cell, rows: tuple[int, ...]) -> CellProof:
        envs, whole = cell.shape.num_envs, round(sum(rows) / cell.shape.num_envs * self.draw.uniform(1.075, 1.15))
        steps = min(whole, self.draw.choice((whole, 2000)))
        counts = {
            "environments": min(envs, 4),
            "steps": steps,
            "of_steps": whole,
            "num_envs": envs,
            "timed_rows": sum(rows),
        }
        return CellProof("identical", rows=min(steps, 600), ends=steps // 20, **counts)

    @contextmanager
    def start(self, spec: RunSpec, _interrupts: Interrupts, python: str = "") -> Iterator[Callable[[Cell], object]]:  # noqa: ARG002 - as Launcher
        @contextmanager
        def launch(cell: Cell) -> Iterator[FakeCell]:
            if isinstance(cell.job, Replaying):
                yield FakeCell([self.proof(self.cells[each.name], each.rows) for each in cell.job.recordings])
            elif self.odd == "failing" and cell.backend.name == "gym-async":
                yield FakeCell([Failure("it broke")])
            elif self.odd == "interrupted" and len(self.cells) == 7:
                self.odd, self.may_lack = "resumed", self.may_lack | {"complete", "work"}  # of cells amid which it was
                yield FakeCell([InterruptedCellError(INTERRUPTED)])
            else:
                if isinstance(cell.job, Recording):
                    self.cells[cell.job.path] = cell
                yield FakeCell([*self.script(cell, spec)])

        yield launch

    def submitted(self, folder: Path) -> Path:
        """Run and submit it, and return the submission, which is written even if it would be refused."""
        quota = Quota(len(self.topology.online) * 0.7 + 0.5, "cpu.max") if self.odd == "quota" else None
        allowance = Allowance(self.topology.online, None, quota)
        world = fake_world(
            self.start,  # type: ignore[arg-type]
            read_host=lambda: replace(read_host(), topology=self.topology, allowance=allowance),
            resolve=resolve,
            memory_available=lambda: None,
            clock=partial(next, count(step=5)),
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self.began),
        )
        folder.mkdir()
        run, made, find = str(folder / "run.jsonl"), folder / "made", packages.find_spec
        lacking, chosen = self.odd == "no envpool", ["-b", self.backends] if self.backends else []
        with (
            patch.object(packages, "find_spec", lambda name: None if lacking and name == "envpool" else find(name)),
            patch("vebench.commands.submit.checks.refusals", return_value=()),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()) as said,
        ):
            cli.invoke(["run", "--suite", self.suite, *chosen, "-o", run, "-q"], world)
            if self.odd == "resumed":
                cli.invoke(["run", "--resume", run, "-q"], world)
            assert cli.invoke(["submit", run, "-o", str(made)]) == 0, said.getvalue()
        return made
