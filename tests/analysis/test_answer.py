"""The answer of a run, for every situation that a run can end in: the sentences that a careful engineer would write."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import typer.main
from support.pages import document_of, on_terminal
from support.records import SECOND, make_cell, make_header, on_hosts

from vebench import cli
from vebench.analysis.answer import answer, corrected
from vebench.analysis.summary import summarise
from vebench.backends.registry import ENTRIES
from vebench.backends.setup import OwnClasses
from vebench.child.window import Window
from vebench.plan.grammar import parse_backends
from vebench.reports.formats import markdown
from vebench.reports.pages.run import RunPage
from vebench.results.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vebench.analysis.answer import TaskAnswer
    from vebench.reports.document import AnswerText
    from vebench.results.records import CellRecord

    Cells = list[CellRecord]

COMMAND = "vebench run --env Pong"
CONTESTANTS = [
    entry.name for entry in ENTRIES if entry.by_default and not entry.reference_row
]  # the reference among them
NO_WINNER = re.compile(r"[nN]o winner|unusable")


def curve(backend: str, rates: dict[int, int], **fields: object) -> Cells:
    """Return a cell of ``backend`` for each number of workers, with four equal windows of so many steps each."""
    return [make_cell(backend, workers, (steps,) * 4, **fields) for workers, steps in rates.items()]


def noisy(backend: str, workers: int, *steps: int, **fields: object) -> Cells:
    return [make_cell(backend, workers, steps, **fields)]


def disturbed(backend: str, workers: int, steps: int, share: float = 0.3, **fields: object) -> Cells:
    """Return a cell whose CPU worked for others for this share of each window."""
    window = Window(SECOND, steps, 0, cpu_ns=SECOND, others_ns=int(share * SECOND * min(workers, 2)))
    return [make_cell(backend, workers, windows=(window,) * 4, **fields)]


def held_back(backend: str, workers: int, steps: int, **fields: object) -> Cells:
    """Return a cell that a CPU quota held back in each window."""
    window = Window(SECOND, steps, 0, cpu_ns=SECOND, throttled_ns=SECOND // 2, throttles=5)
    return [make_cell(backend, workers, windows=(window,) * 4, **fields)]


def failed(backend: str, workers: int, reason: str = "timed out after 300 s in recv") -> Cells:
    return [make_cell(backend, workers, status="failed", reason=reason)]


def page_of(
    cells: Iterable[CellRecord],
    cpus: int = 4,
    *,
    planned: int | None = None,
    command: str = COMMAND,
    interpreter: str | None = None,
    **spec: object,
) -> RunPage:
    """Return the page of a run of these cells on a machine with so many CPUs; other keywords go to its spec."""
    head = msgspec.structs.replace(make_header(cpus, **spec), cells=planned, command=command, interpreter=interpreter)
    return RunPage.of([("a.jsonl", Run(head, tuple(cells)))])


def answers_of(cells: Iterable[CellRecord], **asked: object) -> Sequence[AnswerText]:
    return document_of(page_of(cells, **asked)).answers  # type: ignore[arg-type] # as the table has them


LOOP = curve("for-loop", {1: 1000})
WIDE_STEPS = (1000, 3000, 2000, 4000)  # of a cell whose interval says nothing
CEILING = curve("ceiling", {1: 1500})
RESUME = "vebench run --resume a.jsonl"
UNKNOWN_WORK = {"verdict": "unverified"}
COMPARE = "vebench compare old/python new/python --env Pong"
UNCERTAIN = (
    "Pong on this machine, no winner: gym-async with 2 has the highest rate, "
    "9,798 frames/s (±>100%), too uncertain to tell it from {}."
)
LOOP_IS_KNOWN = "The fastest that is known better: for-loop with 1 worker, 4,000 frames/s (±4.0%)."
SHM_IS_KNOWN = (
    "The fastest that is known better: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%)."
)

# The cells, what was asked for, and the sentences.
SITUATIONS: dict[str, tuple[Cells, dict[str, object], tuple[str, ...]]] = {
    "a plain loop cannot be told from the winner": (
        [*LOOP, *curve("shm-sync", {1: 1010}), *curve("gym-async", {1: 500})],
        {},
        (
            "Pong on this machine: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            "Not distinguishable, at up to 1.07x its rate: shm-sync with 1.",
        ),
    ),
    "the example of the docs": (
        [
            *curve("for-loop", {1: 2714}),
            *curve("shm-async", {4: 5238}),
            *curve("envpool-sync", {4: 6300}),
            *curve("envpool-async", {1: 3400, 2: 5930, 4: 6375}),
        ],
        {},
        (
            "Pong on this machine: envpool-sync with 4 workers, 25,200 frames/s (±4.0%), 2.32x a plain loop (±5.7%).",
            "Not distinguishable, at up to 1.07x its rate: envpool-async with 4.",
            "Without leaving Gymnasium: shm-async with 4, 1.93x (±5.7%).",
        ),
    ),
    "the winner's environments are our own, and so are not those of the plain loop": (
        [*LOOP, *curve("shm-async", {4: 2000}), *curve("fast-async", {4: 4000}, own_classes=OwnClasses("compiled"))],
        {},
        (
            "Pong on this machine: fast-async with 4 workers, 16,000 frames/s (±4.0%), 4.00x a plain loop (±5.7%).",
            "Its environments are vebench's own; with Gymnasium's: shm-async with 4, 2.00x (±5.7%).",
        ),
    ),
    "the winner's environments would have been our own": (
        [*LOOP, *curve("fast-async", {4: 4000}, own_classes=OwnClasses(refused="another version"))],
        {},
        ("Pong on this machine: fast-async with 4 workers, 16,000 frames/s (±4.0%), 4.00x a plain loop (±5.7%).",),
    ),
    "the interface is Gymnasium's but not the environments": (
        [
            *LOOP,
            *curve("shm-async", {4: 2000}),
            *curve("fast-async", {4: 3000}, own_classes=OwnClasses("compiled")),
            *curve("envpool-sync", {4: 4000}),
        ],
        {},
        (
            "Pong on this machine: envpool-sync with 4 workers, 16,000 frames/s (±4.0%), 4.00x a plain loop (±5.7%).",
            (
                "Without leaving Gymnasium: shm-async with 4, 2.00x (±5.7%); with its interface alone: "
                "fast-async with 4, 3.00x (±5.7%), whose environments are vebench's own."
            ),
        ),
    ),
    "one is significantly faster, and is of Gymnasium's kind": (
        [*LOOP, *curve("gym-sync", {1: 950}), *curve("shm-sync", {1: 1000, 2: 1900, 4: 3000})],
        {},
        ("Pong on this machine: shm-sync with 4 workers, 12,000 frames/s (±4.0%), 3.00x a plain loop (±5.7%).",),
    ),
    "a tie of everything": (
        [*LOOP, *curve("gym-sync", {1: 990}), *curve("shm-sync", {1: 1010})],
        {},
        (
            "Pong on this machine: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            "Not distinguishable, at up to 1.07x its rate: shm-sync with 1 and gym-sync with 1.",
        ),
    ),
    "a tie of many, with one that is slower": (
        [
            *LOOP,
            *(cell for name in ("gym-sync", "gym-async", "shm-sync", "shm-async") for cell in curve(name, {2: 1990})),
            *curve("envpool-sync", {2: 2000}),
            *curve("envpool-async", {2: 2010}),
        ],
        {},
        (
            "Pong on this machine: gym-sync with 2 workers, 7,960 frames/s (±4.0%), 1.99x a plain loop (±5.7%).",
            (
                "Not distinguishable, at up to 1.07x its rate: "
                "envpool-async with 2, envpool-sync with 2, gym-async with 2 and 2 others."
            ),
        ),
    ),
    "the plain loop is the fastest": (
        [*LOOP, *curve("gym-async", {1: 400, 2: 600})],
        {},
        (
            (
                "Pong on this machine: for-loop with 1 worker, 4,000 frames/s (±4.0%), "
                "and nothing is faster than this plain loop."
            ),
        ),
    ),
    "a single backend, as asked for": (
        curve("shm-sync", {1: 1000, 2: 1850, 4: 1900}),
        {"backends": [{"name": "shm-sync"}], "command": f"{COMMAND} -b shm-sync --set base=false -o one.jsonl"},
        (
            "Pong on this machine, no winner: only shm-sync was measured.",
            "Its highest rate: shm-sync with 4 workers, 7,600 frames/s (±4.0%).",
            "2 workers reach 97% of it (±5.7%).",
            f"Measure with: {COMMAND} --set base=false",
        ),
    ),
    "a single backend beside the loop that is there for speedups": (
        [*LOOP, *curve("gym-async", {1: 400, 2: 600})],
        {"backends": [{"name": "gym-async"}], "command": f"{COMMAND} --backend=gym-async"},
        (
            "Pong on this machine, no winner: only gym-async was measured.",
            "Its highest rate: gym-async with 2 workers, 2,400 frames/s (±4.0%), 0.60x a plain loop (±5.7%).",
            "More may be faster: 2 workers is the most that was measured, on 4 CPUs.",
            f"Measure with: {COMMAND}",
        ),
    ),
    "a user's own backend alone": (
        [*LOOP, *curve("threads:Threads", {1: 800, 2: 1300})],
        {
            "backends": [{"name": "threads:Threads"}],
            "command": f"{COMMAND} -b threads:Threads --verify -w 1..2 -o a.jsonl",
            "cpus": 2,
        },
        (
            "Pong on this machine, no winner: only threads:Threads was measured.",
            "Its highest rate: threads:Threads with 2 workers, 5,200 frames/s (±4.0%), 1.30x a plain loop (±5.7%).",
            (f"Measure with: {COMMAND} -b threads:Threads --verify -w 1..2 -b {','.join(CONTESTANTS)}"),
        ),
    ),
    "a backend with options beside a reference row": (
        [*curve("envpool-async", {2: 1300}, options={"ratio": 2}), *curve("ceiling", {2: 3000})],
        {
            "backends": [{"name": "envpool-async", "options": {"ratio": 2}}, {"name": "ceiling"}],
            "command": f"{COMMAND} -b 'envpool-async[ratio=2],ceiling' --set base=false",
        },
        (
            "Pong on this machine, no winner: only envpool-async[ratio=2] was measured.",
            "Its highest rate: envpool-async[ratio=2] with 2 workers, 5,200 frames/s (±4.0%).",
            (
                f"Measure with: {COMMAND} -b 'envpool-async[ratio=2],ceiling' --set base=false "
                f"-b {','.join(name for name in CONTESTANTS if name != 'envpool-async')}"
            ),
        ),
    ),
    "a single backend, since the others failed": (
        [*LOOP, *failed("gym-sync", 1), *failed("shm-sync", 1)],
        {},
        (
            "Pong on this machine, no winner: only for-loop has a rate.",
            "Its highest rate: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            f"Measure the others with: {RESUME}",
        ),
    ),
    "the highest rate is known to nothing": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *noisy("gym-async", 2, *WIDE_STEPS)],
        {"command": f"{COMMAND} --rounds 4 -o wide.jsonl"},
        (
            UNCERTAIN.format("shm-sync and for-loop"),
            SHM_IS_KNOWN,
            f"Measure with: {COMMAND} --rounds 4 --until 10%",
        ),
    ),
    "the highest rate is known to nothing, and cells are missing": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *noisy("gym-async", 2, *WIDE_STEPS)],
        {"planned": 27},
        (
            UNCERTAIN.format("shm-sync and for-loop").replace("winner", "winner, so far (3 of 27 cells)"),
            SHM_IS_KNOWN,
            f"Measure with: {RESUME}",
        ),
    ),
    "the highest rate of a side of a comparison is known to nothing": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *noisy("gym-async", 2, *WIDE_STEPS)],
        {"interpreter": "new/python", "command": f"{COMPARE} --budget 10m -o a.jsonl", "repeats": 5},
        (
            UNCERTAIN.format("shm-sync and for-loop"),
            SHM_IS_KNOWN,
            f"Measure with: {COMPARE} --budget 10m --repeats 10",
        ),
    ),
    "a comparison is not finished": (
        [*LOOP, *noisy("gym-async", 2, *WIDE_STEPS)],
        {"interpreter": "new/python", "command": COMPARE, "planned": 8},
        (
            UNCERTAIN.format("for-loop").replace("winner", "winner, so far (2 of 8 cells)"),
            LOOP_IS_KNOWN,
            f"Measure with: {COMPARE}",
        ),
    ),
    "another size of the best backend is known to nothing": (
        [*LOOP, *curve("shm-sync", {1: 1000, 4: 2300}), *noisy("shm-sync", 2, *WIDE_STEPS)],
        {},
        (
            "Pong on this machine: shm-sync with 4 workers, 9,200 frames/s (±4.0%), 2.30x a plain loop (±5.7%).",
            "With 2 workers it may be faster: 9,798 frames/s (±>100%).",
        ),
    ),
    "a size of the best backend is known, but a rate of another backend above it is not": (
        [
            *LOOP,
            *curve("shm-sync", {1: 1000, 4: 2300}),
            *noisy("shm-sync", 2, *WIDE_STEPS),
            *noisy("gym-async", 2, *(steps - 50 for steps in WIDE_STEPS)),
        ],
        {},
        (
            (
                "Pong on this machine, no winner: shm-sync with 2 has the highest rate, "
                "9,798 frames/s (±>100%), too uncertain to tell it from gym-async and for-loop."
            ),
            (
                "The fastest that is known better: shm-sync with 4 workers, 9,200 frames/s (±4.0%), "
                "2.30x a plain loop (±5.7%)."
            ),
            f"Measure with: {COMMAND} --until 10%",
        ),
    ),
    "only the best backend is known": (
        [*noisy("for-loop", 1, *WIDE_STEPS), *curve("shm-sync", {2: 2600})],
        {"planned": 81},
        (
            (
                "Pong on this machine, so far (2 of 81 cells): shm-sync with 2 workers, 10,400 frames/s (±4.0%), "
                "1.06x a plain loop (±>100%)."
            ),
            "Not distinguishable, at up to 4.91x its rate: for-loop with 1.",
        ),
    ),
    "only a size of the best backend is known": (
        [
            *noisy("for-loop", 1, *WIDE_STEPS),
            *curve("shm-sync", {2: 2600}),
            *noisy("shm-sync", 4, *(steps + 600 for steps in WIDE_STEPS)),
        ],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 10,400 frames/s (±4.0%), 1.06x a plain loop (±>100%).",
            "Not distinguishable, at up to 4.91x its rate: for-loop with 1.",
            "With 4 workers it may be faster: 12,238 frames/s (±>100%).",
        ),
    ),
    "a tie of what is not known well": (
        [*noisy("for-loop", 1, 940, 1000, 1060, 1010), *noisy("gym-sync", 1, 1060, 1000, 950, 1020)],
        {},
        (
            "Pong on this machine: for-loop with 1 worker, 4,020 frames/s (±13%).",
            "Not distinguishable, at up to 1.16x its rate: gym-sync with 1.",
        ),
    ),
    "the highest rate is known to nothing, although the run went on until it was to be": (
        [*LOOP, *noisy("gym-async", 2, *WIDE_STEPS)],
        {"until": 0.02},
        (
            UNCERTAIN.format("for-loop"),
            LOOP_IS_KNOWN,
            f"Measure with: {RESUME}",
        ),
    ),
    "the highest rate is hardly known, but that it is the highest": (
        [*LOOP, *noisy("shm-sync", 2, 3000, 4000, 5000, 4200)],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 16,395 frames/s (±78%), 4.10x a plain loop (±78%).",
            "Its ± is wide, but all other backends are significantly slower.",
        ),
    ),
    "all rates are hardly known, since passes differ, but not what they are to each other": (
        [
            make_cell(backend, 1, tuple(round(steps * shift * noise) for noise in (0.99, 1.01)), repeat=repeat)
            for repeat, shift in enumerate((0.5, 1.0, 1.5))
            for backend, steps in (("for-loop", 1000), ("gym-sync", 1010 + repeat), ("shm-sync", 1900 + 9 * repeat))
        ],
        {"repeats": 3},
        (
            "Pong on this machine: shm-sync with 1 worker, 6,937 frames/s (±>100%), 1.91x a plain loop (±0.7%).",
            "The ± of its rate is wide because passes differed; between backends that cancels.",
        ),
    ),
    "a lower rate is known to nothing": (
        [*LOOP, *curve("shm-sync", {2: 2600}), *noisy("gym-async", 2, *WIDE_STEPS)],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 10,400 frames/s (±4.0%), 2.60x a plain loop (±5.7%).",
            "Not distinguishable, at up to 4.91x its rate: gym-async with 2.",
        ),
    ),
    "one window each": (
        [*noisy("for-loop", 1, 1000), *noisy("gym-sync", 1, 990), *noisy("shm-sync", 2, 1900)],
        {"repeats": 5},
        (
            (
                "Pong on this machine, no winner: "
                "no rate counts, since shm-sync, for-loop and gym-sync have one window only."
            ),
            f"Measure with: {COMMAND} --repeats 10",
        ),
    ),
    "one window of the fastest": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *noisy("gym-async", 2, 2500)],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",
            "Left out, though faster: gym-async with 2, 10,000 frames/s (no interval); it has one window only.",
        ),
    ),
    "the fastest does other work": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *curve("envpool-sync", {2: 3000}, verdict="different")],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",
            "Left out, though faster: envpool-sync with 2, 12,000 frames/s (±4.0%); it does other work.",
        ),
    ),
    "a slower one does other work": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *curve("gym-sync", {1: 900}, verdict="different")],
        {},
        ("Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",),
    ),
    "all but the loop do other work": (
        [*LOOP, *(cell for name in ("gym-sync", "shm-sync") for cell in curve(name, {1: 2000}, verdict="different"))],
        {},
        (
            ("Pong on this machine, no winner: only for-loop is left, since gym-sync and shm-sync do other work."),
            "The highest rate that counts: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            "Compare the work with: vebench verify --env ALE/Pong-v5 -b gym-sync,shm-sync",
        ),
    ),
    "nobody has compared the work of the fastest": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *curve("mine:Fast", {2: 3000}, **UNKNOWN_WORK)],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",
            "Left out, though faster: mine:Fast with 2, 12,000 frames/s (±4.0%); it is not known to do the same work.",
        ),
    ),
    "nobody has compared the work of any": (
        [*LOOP, *curve("gym-sync", {2: 1900}, **UNKNOWN_WORK)],
        {},
        (
            (
                "Pong on this machine, no winner: "
                "only for-loop is left, since gym-sync is not known to do the same work."
            ),
            "The highest rate that counts: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            f"Measure with: {COMMAND} --verify",
        ),
    ),
    "nobody has compared the work of a user's own backend, and cells are missing": (
        [*LOOP, *curve("my.mod:Own", {2: 1900}, options={"mode": "a b"}, **UNKNOWN_WORK)],
        {"planned": 9},
        (
            (
                "Pong on this machine, no winner, so far (2 of 9 cells): "
                "only for-loop is left, since my.mod:Own[mode=a b] is not known to do the same work."
            ),
            "The highest rate that counts: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            "Compare the work with: vebench verify --env ALE/Pong-v5 -b 'my.mod:Own[mode=a b]'",
        ),
    ),
    "nobody has compared the work of the only backend of a comparison": (
        curve("my.mod:Own", {2: 1900}, **UNKNOWN_WORK),
        {"interpreter": "new/python", "command": COMPARE},
        (
            "Pong on this machine, no winner: no rate counts, since my.mod:Own is not known to do the same work.",
            "Compare the work with: vebench verify --env ALE/Pong-v5 -b my.mod:Own",
        ),
    ),
    "the work of any cannot be compared": (
        curve("envpool-sync", {2: 1900}, env="Own-v0", verdict_reason="it draws its start", **UNKNOWN_WORK),
        {"envs": ["my.module:Own-v0"]},
        (
            ("Own on this machine, no winner: no rate counts, since envpool-sync is not known to do the same work."),
            "Compare the work with: vebench verify --env my.module:Own-v0 -b envpool-sync",
        ),
    ),
    "the fastest is faster than the simulator": (
        [*LOOP, *curve("gym-sync", {1: 800}), *curve("shm-sync", {1: 2000}), *CEILING],
        {},
        (
            ("Pong on this machine: for-loop with 1 worker, 4,000 frames/s (±4.0%)."),
            (
                "Left out, though faster: shm-sync with 1, 8,000 frames/s (±4.0%); "
                "it is significantly faster than the bare simulator."
            ),
        ),
    ),
    "all but the loop are faster than the simulator": (
        [*LOOP, *curve("shm-sync", {1: 2000}), *CEILING],
        {},
        (
            (
                "Pong on this machine, no winner: only for-loop is left, "
                "since shm-sync is significantly faster than the bare simulator."
            ),
            "The highest rate that counts: for-loop with 1 worker, 4,000 frames/s (±4.0%).",
            f"Measure with: {COMMAND} --repeats 6",
        ),
    ),
    "most cells were disturbed": (
        [*LOOP, *disturbed("gym-sync", 1, 1500), *disturbed("shm-sync", 2, 3000)],
        {},
        ("No winner: this run is unusable.", f"Measure on an idle machine: {COMMAND}"),
    ),
    "most cells of two tasks were held back": (
        [cell for env in ("Ant-v5", "Ant-v4") for cell in held_back("for-loop", 1, 1500, env=env)],
        {"envs": ["Ant-v5", "Ant-v4"]},
        ("No winner: this run is unusable.", f"Measure on more CPUs, or with fewer --workers: {COMMAND}"),
    ),
    "the winner was disturbed": (
        [*LOOP, *curve("gym-sync", {1: 900}), *disturbed("shm-sync", 2, 1900)],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",
            "Others took CPU time while it was measured: it may be faster still.",
        ),
    ),
    "one that was disturbed might be as fast as the winner": (
        [*LOOP, *curve("shm-sync", {2: 1900}), *disturbed("gym-async", 2, 1500), *curve("gym-sync", {2: 1500})],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",
            "Not distinguishable: gym-async with 2.",
        ),
    ),
    "a quota held the winner back": (
        [*LOOP, *curve("gym-sync", {1: 900}), *held_back("shm-sync", 2, 1300)],
        {},
        (
            "Pong on this machine: shm-sync with 2 workers, 5,200 frames/s (±4.0%), 1.30x a plain loop (±5.7%).",
            "A CPU quota held it back: with more CPUs it may be faster.",
        ),
    ),
    "no loop was measured": (
        [*curve("gym-sync", {2: 1000}), *curve("envpool-sync", {2: 1900})],
        {},
        (
            "Pong on this machine: envpool-sync with 2 workers, 7,600 frames/s (±4.0%).",
            "Without leaving Gymnasium: gym-sync with 2, 4,000 frames/s (±4.0%).",
        ),
    ),
    "several tasks": (
        [
            *(cell for env in ("ALE/Pong-v5", "Ant-v5") for cell in curve("for-loop", {1: 1000}, env=env)),
            *curve("gym-sync", {1: 2000}),
            *curve("shm-sync", {1: 3000}, env="Ant-v5"),
        ],
        {"envs": ["Pong", "Ant"]},
        (
            "Pong on this machine: gym-sync with 1 worker, 8,000 frames/s (±4.0%), 2.00x a plain loop (±5.7%).",
            "Ant on this machine: shm-sync with 1 worker, 12,000 frames/s (±4.0%), 3.00x a plain loop (±5.7%).",
        ),
    ),
    "two versions of a task": (
        [
            cell
            for env in ("Ant-v4", "Ant-v5")
            for cell in (*curve("for-loop", {1: 1000}, env=env), *curve("gym-sync", {1: 2000}, env=env))
        ],
        {"envs": ["Ant-v4", "Ant-v5"]},
        (
            "Ant-v4 on this machine: gym-sync with 1 worker, 8,000 frames/s (±4.0%), 2.00x a plain loop (±5.7%).",
            "Ant-v5 on this machine: gym-sync with 1 worker, 8,000 frames/s (±4.0%), 2.00x a plain loop (±5.7%).",
        ),
    ),
    "everything failed": (
        [*failed("for-loop", 1), *failed("gym-sync", 1)],
        {},
        (
            ("Pong on this machine, no winner: no backend could be measured."),
            f"Once what the findings name is mended, measure with: {RESUME}",
        ),
    ),
    "no cell is there": ([], {}, ("No winner: nothing has been measured yet.", f"Measure with: {RESUME}")),
    "the user ended the first cell": (
        failed("for-loop", 1, "interrupted"),
        {"planned": 8},
        ("Pong on this machine, no winner, so far (0 of 8 cells): no cell has a rate yet.", f"Measure with: {RESUME}"),
    ),
    "reference rows only": (
        [*curve("null", {1: 2_500_000}), *CEILING],
        {"backends": [{"name": "null"}, {"name": "ceiling"}], "command": f"{COMMAND} -b null,ceiling"},
        ("Pong on this machine, no winner: only reference rows were measured.", f"Measure with: {COMMAND}"),
    ),
    "fewer workers are as good": (
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 2880, 3: 2990, 4: 3000})],
        {},
        (
            "Pong on this machine: shm-sync with 4 workers, 12,000 frames/s (±4.0%), 3.00x a plain loop (±5.7%).",
            "2 workers reach 96% of it (±5.7%).",
        ),
    ),
    "one worker is almost as good": (
        [*LOOP, *curve("envpool-sync", {1: 2850, 2: 3000})],
        {"cpus": 2},
        (
            "Pong on this machine: envpool-sync with 2 workers, 12,000 frames/s (±4.0%), 3.00x a plain loop (±5.7%).",
            "1 worker reaches 95% of it (±5.7%).",
            "Without leaving Gymnasium: for-loop with 1, 1.00x.",
        ),
    ),
    "one worker is best": (
        [*LOOP, *curve("shm-sync", {1: 1200, 2: 900, 4: 700})],
        {},
        ("Pong on this machine: shm-sync with 1 worker, 4,800 frames/s (±4.0%), 1.20x a plain loop (±5.7%).",),
    ),
    "more workers are slower from some number on": (
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 1900, 4: 1500})],
        {},
        ("Pong on this machine: shm-sync with 2 workers, 7,600 frames/s (±4.0%), 1.90x a plain loop (±5.7%).",),
    ),
    "CPUs are left": (
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 1900, 4: 3700})],
        {"cpus": 64},
        (
            "Pong on this machine: shm-sync with 4 workers, 14,800 frames/s (±4.0%), 3.70x a plain loop (±5.7%).",
            "More may be faster: 4 workers is the most that was measured, on 64 CPUs.",
        ),
    ),
    "more workers than CPUs are best": (
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 1500, 4: 2000})],
        {"cpus": 2},
        (
            (
                "Pong on this machine: shm-sync with 4 workers on 2 CPUs, 8,000 frames/s (±4.0%), "
                "2.00x a plain loop (±5.7%)."
            ),
        ),
    ),
    "several environments for each worker": (
        [
            *(cell for envs in (1, 16) for cell in curve("for-loop", {1: 1000}, envs_per_worker=envs)),
            *curve("shm-sync", {1: 1000, 2: 1900}),
            *curve("shm-sync", {1: 1100, 2: 2200}, envs_per_worker=16),
            *curve("envpool-sync", {1: 2800, 2: 3000}, envs_per_worker=16),
        ],
        {"envs_per_worker": [1, 16]},
        (
            (
                "Pong on this machine: envpool-sync with 2 workers x 16 envs, 12,000 frames/s (±4.0%), "
                "3.00x a plain loop (±5.7%)."
            ),
            "1 worker x 16 envs reaches 93% of it (±5.7%).",
            "Without leaving Gymnasium: shm-sync with 2 x 16 envs, 2.20x (±5.7%).",
        ),
    ),
    "cells are missing": (
        [*LOOP, *curve("gym-sync", {1: 900}), *curve("shm-sync", {2: 1900})],
        {"planned": 27},
        (
            (
                "Pong on this machine, so far (3 of 27 cells): shm-sync with 2 workers, 7,600 frames/s (±4.0%), "
                "1.90x a plain loop (±5.7%)."
            ),
        ),
    ),
    "a third party's adapter wins": (
        [*LOOP, *curve("gym-sync", {1: 1100}), *curve("mine.adapters:Fast", {2: 3000}, options={"mode": "a"})],
        {},
        (
            (
                "Pong on this machine: mine.adapters:Fast[mode=a] with 2 workers, 12,000 frames/s (±4.0%), "
                "3.00x a plain loop (±5.7%)."
            ),
            "Without leaving Gymnasium: gym-sync with 1, 1.10x (±5.7%).",
        ),
    ),
    "everything at once keeps to four sentences": (
        [
            *LOOP,
            *curve("envpool-async", {1: 2800, 2: 3000}),
            *curve("envpool-sync", {2: 2990}),
            *curve("shm-sync", {2: 1900}),
            *curve("mine:Fast", {2: 4000}, **UNKNOWN_WORK),
        ],
        {},
        (
            "Pong on this machine: envpool-sync with 2 workers, 11,960 frames/s (±4.0%), 2.99x a plain loop (±5.7%).",
            "Left out, though faster: mine:Fast with 2, 16,000 frames/s (±4.0%); it is not known to do the same work.",
            "Not distinguishable, at up to 1.06x its rate: envpool-async with 2.",
            "Without leaving Gymnasium: shm-sync with 2, 1.90x (±5.7%).",
        ),
    ),
    "a backend has an evil name": (
        [*LOOP, *curve("<script>:\x1b[31mA\u202e|\n", {2: 3000})],
        {},
        (
            (
                "Pong on this machine: <script>: [31mA | with 2 workers, 12,000 frames/s (±4.0%), "
                "3.00x a plain loop (±5.7%)."
            ),
            "Without leaving Gymnasium: for-loop with 1, 1.00x.",
        ),
    ),
}


@pytest.mark.parametrize(("cells", "asked", "sentences"), SITUATIONS.values(), ids=SITUATIONS)
def test_the_answer_is_what_a_careful_engineer_would_write(
    cells: Cells, asked: dict[str, object], sentences: tuple[str, ...]
) -> None:
    assert tuple(sentence for one in answers_of(cells, **asked) for sentence in one.sentences) == sentences


@pytest.mark.parametrize(
    ("cells", "asked"), [(cells, asked) for cells, asked, _ in SITUATIONS.values()], ids=SITUATIONS
)
def test_the_marked_place_is_the_winners_and_there_is_none_without_one(cells: Cells, asked: dict[str, object]) -> None:
    document = document_of(page_of(cells, **asked))
    won = {one.group for one in document.answers if not NO_WINNER.search(one.sentences[0])}
    marked = {
        table.group: f"{row.label} with {table.columns[index].removesuffix(' !')}"
        for table in document.tables
        for row in table.rows
        for index, text in enumerate(row.texts)
        if text.tone == "best"
    }
    assert marked.keys() == won
    for one in document.answers:
        assert one.group not in marked or marked[one.group] in one.sentences[0]
        assert len(one.sentences) <= 5
    assert bool(document.best) == bool(won)


def recommended() -> Iterator[str]:
    """Yield each command that an answer of the table ends with, as a user would copy it."""
    for cells, asked, _ in SITUATIONS.values():
        for one in answers_of(cells, **asked):
            *others, last = one.sentences
            assert not any("vebench " in sentence for sentence in others)
            assert last.endswith(".") or ": vebench " in last
            if not last.endswith("."):
                yield last.partition(": vebench ")[2]


def test_every_command_that_is_recommended_is_one_that_can_be_typed() -> None:
    group = typer.main.get_command(cli.app)
    lines = set(recommended())
    assert {line.split()[0] for line in lines} == {"run", "compare", "verify"}
    for line in lines:
        name, *words = shlex.split(line)
        command = group.get_command(typer.Context(group), name)  # type: ignore[attr-defined]
        context = command.make_context(name, words, obj=None)
        parse_backends(context.params["backends"] or ())


def test_that_a_run_is_unusable_is_explained_once() -> None:
    cells, asked, _ = SITUATIONS["most cells of two tasks were held back"]
    document = document_of(page_of(cells, **asked))  # type: ignore[arg-type] # as the table has them
    assert document.notice.startswith("unusable: a CPU quota held back 2 of 2 cells")
    assert [one.group for one in document.answers] == [""]


def code_of(cells: Iterable[CellRecord], **asked: object) -> tuple[str, ...]:
    (one,) = answers_of([*LOOP, *cells], **asked)
    return one.code


def test_the_winners_code_is_what_its_library_needs_for_what_was_built() -> None:
    cells = curve("envpool-async", {2: 3000}, num_envs=6, batch_size=2, threads=2)
    assert code_of(cells)[2:] == (
        "envs = envpool.make_gymnasium(",
        '    "Pong-v5", num_envs=6, batch_size=2, num_threads=2, use_fire_reset=False,',
        ")",
    )


def test_the_code_for_a_users_environment_names_its_module() -> None:
    cells = [make_cell(name, 1, (steps,) * 4, env="Own-v0") for name, steps in (("for-loop", 100), ("gym-sync", 900))]
    (one,) = answers_of(cells, envs=["my.module:Own-v0"])
    assert '    return gymnasium.make("my.module:Own-v0", disable_env_checker=True)' in one.code


def test_there_is_no_code_without_a_winner_nor_for_a_third_party_nor_for_several_replicas() -> None:
    assert code_of(curve("gym-sync", {1: 2000})) != ()
    assert code_of(curve("mine:Fast", {1: 2000})) == ()
    assert code_of(curve("gym-sync", {2: 2000}, replicas=((0,), (1,)))) == ()


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("vebench run -e Pong -o a.jsonl -w 2", "vebench run -e Pong -w 2 --repeats 6"),
        ("vebench run -e Pong -oa.jsonl --repeats=1", "vebench run -e Pong --repeats 6"),
        ("vebench run -e Pong --output=a.jsonl --repeats 1 -q", "vebench run -e Pong -q --repeats 6"),
        ("vebench run -b 'shm-async[ratio=3]' -e Pong", "vebench run -b 'shm-async[ratio=3]' -e Pong --repeats 6"),
        ("", "vebench run --env Pong --repeats 6"),
        ("vebench run -e 'Po\x1b[31mng", "vebench run -e ''\"'\"'Po [31mng' --repeats 6"),
    ],
)
def test_the_command_to_measure_with_is_the_runs_own_with_what_is_to_change(command: str, again: str) -> None:
    (one,) = answers_of([*LOOP, *curve("shm-sync", {1: 2000}), *CEILING], command=command)
    assert one.sentences[-1] == f"Measure with: {again}"


def test_the_answer_is_last_on_a_terminal_and_first_in_markdown() -> None:
    page = page_of([*LOOP, *curve("gym-sync", {1: 2000}), *failed("shm-sync", 1)])
    (one,) = document_of(page).answers
    assert on_terminal(page, 200).rstrip().endswith(one.code[-1])
    text = markdown.markdown_text(page)
    assert f"## a.jsonl\n\n**{one.sentences[0]}**\n\n```python\nimport ale_py\n" in text
    assert text.index(one.code[-1]) < text.index("### Findings") < text.index("- machine: ")


@pytest.mark.parametrize(("cpus", "where"), [((), "this machine"), ((2,), "host-0"), ((2, 2), "these hosts")])
def test_an_answer_says_where_it_holds(cpus: tuple[int, ...], where: str) -> None:
    cells = (*LOOP, *curve("shm-sync", {2: 7600}))
    page = RunPage.of([("a.jsonl", Run(on_hosts(make_header(2), *cpus), tuple(cells)))])
    (answer,) = document_of(page).answers
    assert answer.sentences[0].startswith(f"Pong on {where}: shm-sync with 2 workers")


def simulated(rates: dict[str, float], rng: np.random.Generator) -> TaskAnswer:
    """Return the answer of a run in which processes differ by 3 % and windows by 2 %."""
    cells = [
        make_cell(backend, 1, tuple(round(process * rng.lognormal(0, 0.02)) for _ in range(2)), repeat=repeat)
        for repeat in range(3)
        for backend, rate in rates.items()
        for process in [rate * rng.lognormal(0, 0.03)]
    ]
    head = make_header()
    return answer(summarise(Run(head, tuple(cells))), head.spec, 2)


def test_the_backend_that_is_truly_fastest_is_the_winner_or_among_those_that_cannot_be_told_from_it() -> None:
    rng, lost = np.random.default_rng(1), 0
    for _ in range(60):
        found = simulated({"for-loop": 1000, "gym-sync": 5000, "shm-sync": 5000, "envpool-sync": 5150}, rng)
        assert found.best is not None
        lost += "envpool-sync" not in {found.best.label, *(cell.label for cell in found.tied)}
    assert lost <= 4


def test_a_backend_that_is_faster_by_a_quarter_wins_alone() -> None:
    rng, alone = np.random.default_rng(2), 0
    for _ in range(20):
        found = simulated({"for-loop": 1000, "gym-sync": 5000, "shm-sync": 5000, "envpool-sync": 6250}, rng)
        assert found.best is not None
        alone += (found.best.label, found.tied) == ("envpool-sync", ())
    assert alone >= 18


def test_of_equal_backends_none_is_called_slower_and_no_rate_is_too_high() -> None:
    rng, told, held, rates = np.random.default_rng(3), 0, 0, []
    names = ("for-loop", "gym-sync", "gym-async", "shm-sync", "envpool-sync", "envpool-async")
    for _ in range(60):
        found = simulated(dict.fromkeys(names, 5000), rng)
        assert found.best is not None
        assert found.best.frames_per_second is not None
        rate = corrected(found.best.frames_per_second, found.selected)
        assert rate.low is not None
        assert rate.high is not None
        told += len(found.tied) < len(names) - 1
        held += rate.low <= 20000 <= rate.high
        rates.append(rate.median / 20000)
    assert told <= 3
    assert held >= 54
    assert abs(np.mean(rates) - 1) < 0.01


def test_of_those_that_do_as_well_the_simplest_to_use_is_named() -> None:
    (one,) = answers_of([*LOOP, *curve("fast-async", {4: 3010}), *curve("fast-sync", {4: 3000})], cpus=4)
    assert "fast-sync with 4" in one.sentences[0]
    assert "fast-async with 4" in one.sentences[1]
