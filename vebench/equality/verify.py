"""``vebench verify``: compares backends with the reference, and finds the smallest example of a difference."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from vebench.analysis.rules import way_out
from vebench.backends import registry
from vebench.backends.entry import MAX_COUNT
from vebench.backends.registry import REFERENCE
from vebench.child.actions import PolicyChoice
from vebench.child.answers import Proof
from vebench.child.equality.recording import Comparer
from vebench.commands.proving import drawn_seed, prove
from vebench.commands.session import World, known
from vebench.equality.shrink import PLACES, Source
from vebench.equality.sides import DiffStats, Example, LostError, both
from vebench.errors import InterruptedRunError, UsageError, one_line, shown
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec, check_count
from vebench.plan.tasks import asked_as, check_policy
from vebench.plan.verdicts import BEST_FIRST, SAME, excuses, reasons_of, why_not_identical
from vebench.reports import figures
from vebench.reports.document import AnswerText, Document, Page, Remark, Table, TableRow, Text, Tone

MAX_STEPS = 10_000_000
EXAMPLE_S = 20.0  # limit to find a case in which a backend differs, and to shrink it; 0 disables the search
_STEPS_OF_EXAMPLE = 400  # most steps of each environment in a case
_COLUMNS = ("work status", "rows", "ends", "cut off", "fewest", "frames")
_MEANINGS = (
    "identical: all compared rows have the same bytes. equal: the same, except for rewards rounded to float32.",
    "equivalent: only differences that the adapter declares. different: not the same work. unverified: not known.",
    "same distribution: rows differ by chance, but episodes do not differ significantly (0.1 % level).",
    "rows: compared rows, in all layouts. ends: ends of episodes in these rows. cut off: ends by a time limit.",
    "fewest: ends of the environment with the fewest, in the layout of --num-envs.",
    "frames: simulated during the comparison. If the backend claims another number, it follows after 'of'.",
)


def compare_backends(
    asked: RunSpec, seed: int | None, world: World, *, num_envs: int, steps: int, policy: str | None = None
) -> VerifyPage:
    """Compare backends with the reference, and return the verdicts.

    Only the tasks, backends and timeout of ``asked`` are used. Without a ``seed``, a random one is used. In the first
    layout, each backend makes at least ``steps`` steps in each of at least ``num_envs`` environments. A user's
    ``policy`` chooses actions, by default random ones.
    """
    if policy is not None:
        if not re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", policy):
            raise UsageError(f"--policy {shown(policy)}: for backends, write MODULE:FUNCTION")
        check_policy(policy)
        asked = replace(asked, policy=PolicyChoice("function", target=policy))
    check_count("--steps", steps, 1, MAX_STEPS)
    check_count("--num-envs", num_envs, 1, MAX_COUNT)
    if asked.backends and all(choice.entry.reference_row for choice in asked.backends):
        rows = " and ".join(sorted({choice.name for choice in asked.backends}))
        raise UsageError(f"--backend: {rows} cannot be compared with {registry.REFERENCE}: name another backend")
    spec = replace(asked, workers=(num_envs,), seed=drawn_seed() if seed is None else seed)
    try:
        proofs = prove(spec, steps, known(), world, in_full=False)
        examples = tuple(_examples(proofs, steps, spec)) if EXAMPLE_S else ()
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: to repeat with the same seed: --seed {spec.seed}") from None
    return VerifyPage(tuple(proofs), steps, spec, examples)


def _examples(proofs: Sequence[tuple[Cell, Proof]], steps: int, spec: RunSpec) -> Iterator[tuple[str, Cell, Example]]:
    """Write the smallest example of each backend whose rows differ, if one is found. Yield it with the file's name."""
    number = 1
    for cell, proof in proofs:
        if proof.verdict != "different" or proof.mismatch is None or proof.mismatch.field not in PLACES:
            continue
        with suppress(LostError, UsageError):
            found = _example(cell, min(steps, _STEPS_OF_EXAMPLE), spec)
            if found is not None and found.script:
                name = "example.py" if number == 1 else f"example-{number}.py"
                found.write(name)
                number += 1
                yield name, cell, found


def _example(cell: Cell, steps: int, spec: RunSpec) -> Example | None:
    """Return the smallest case in which a backend differs from the reference, None if the search fails."""
    until = time.monotonic() + EXAMPLE_S
    for exact in (True, False):  # Some backends differ only in the task's variant with chance.
        task = {**asdict(cell.task), "exact": exact}
        own = {"adapter": cell.entry.target, "values": cell.backend.options, "task": task}
        reference = {"adapter": registry.find(REFERENCE).target, "values": {}, "task": task}
        asked = [
            (REFERENCE, cell.interpreter.home or sys.executable, reference),
            (cell.backend.label, cell.interpreter.path or sys.executable, own),
        ]
        with both(asked, spec.timeout) as two:
            # An adapter with same-step autoreset returns no final observation.
            finals = all(side.about["mode"] == "next_step" for side in two.sides)
            two.stats = DiffStats(Comparer(), finals=finals)
            source = Source(two.space, spec.seed)
            for case in source.cases(cell.workers, steps, fixed=False):
                if time.monotonic() > until:
                    return None
                if (found := two.step(case, two.stats.anew(""))) is not None:
                    left = max(0.0, until - time.monotonic())
                    return two.smallest(case, found, source.constants(), fixed=False, seconds=left)
    return None


@dataclass(frozen=True)
class VerifyPage(Page):
    """The proof of every backend on every task."""

    proofs: tuple[tuple[Cell, Proof], ...]
    steps: int  # the least number of steps of each environment
    # The user's spec. Its workers are the number of environments. Its seed determines layouts, lengths and seeds.
    spec: RunSpec
    examples: tuple[tuple[str, Cell, Example], ...] = ()  # of backends that differ, each with the name of its file
    kind = "verify"

    @property
    def status(self) -> int:
        """The exit status: 1 if a backend does different work or failed, 3 if none could be compared."""
        verdicts = {proof.verdict for _, proof in self.proofs}
        crashed = any(proof.failed and cell.skip is None for cell, proof in self.proofs)
        if crashed or "different" in verdicts:
            return 1
        return 3 if verdicts <= {"unverified"} else 0

    @property
    def outcome(self) -> str:
        """The outcome in a few words: ``1 different, 5 identical``."""
        counts = Counter[str](proof.verdict for _, proof in self.proofs)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in BEST_FIRST[::-1] if counts[verdict])

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task, with a row for each backend, and then the reasons of verdicts."""
        envs = dict.fromkeys(cell.task.id for cell, _ in self.proofs)
        answers = []
        for file, cell, example in self.examples:
            label = one_line(cell.backend.label)
            words = f"Run the smallest example of {label} with PYTHONPATH=. python .vebench/{file}"
            answers.append(AnswerText("", (words,), tuple(example.script.splitlines())))
        document = Document(
            title=f"Same work as {REFERENCE}: {self.outcome}",
            facts=(("drawn from", f"--seed {self.spec.seed}"),) if self.proofs else (),
            tables=tuple(_task(env, [pair for pair in self.proofs if pair[0].task.id == env]) for env in envs),
            legend=_MEANINGS if any(proof.simulated is not None for _, proof in self.proofs) else _MEANINGS[:-1],
            remarks=tuple(_explanations(self, several=len(envs) > 1)),
            answers=tuple(answers),
        )
        return (document,)

    @property
    def data(self) -> list[dict[str, object]]:
        """An object for each task and backend."""
        return [
            {
                "env": cell.task.id,
                "backend": cell.backend.label,
                # "parting" is part of the format: other programs read this key.
                **{"parting" if name == "mismatch" else name: value for name, value in asdict(proof).items()},
                "summary": why_not_identical(proof),
                "script": next((example.script for _, of, example in self.examples if of is cell), None),
                "seed": self.spec.seed,
                "command": self.again(cell),
            }
            for cell, proof in self.proofs
        ]

    def again(self, cell: Cell, *, steps: int | None = None) -> str:
        """Return the command that repeats the comparison of a backend. ``steps``: another length, without the seed."""
        words = [
            *("-e", asked_as(cell.task.id, self.spec.envs)),
            *("-b", cell.backend.label),
            *("--num-envs", str(cell.workers)),
            *("--steps", str(steps or self.steps)),
            *(() if steps else ("--seed", str(self.spec.seed))),
            *(() if self.spec.timeout == RunSpec.timeout else ("--timeout", f"{self.spec.timeout:g}")),
            *(("--policy", self.spec.policy.label) if self.spec.policy.target else ()),
        ]
        return one_line(f"vebench verify {shlex.join(words)}")


def _task(env: str, proofs: Sequence[tuple[Cell, Proof]]) -> Table:
    shown = _COLUMNS if any(proof.simulated is not None for _, proof in proofs) else _COLUMNS[:-1]
    stepped = [(cell, proof) for cell, proof in proofs if cell.skip is None]  # remarks explain the other cells
    notes = ((one_line(line), one_line(cell.backend.label)) for cell, proof in proofs for line in _remarks(proof))
    return Table(
        title=one_line(env),
        columns=shown,
        rows=tuple(_row(cell, proof, len(shown)) for cell, proof in stepped or proofs),
        notes=tuple(figures.with_names(notes)),
        numbers=False,
    )


def _row(cell: Cell, proof: Proof, columns: int) -> TableRow:
    tone: Tone = "missing" if proof.verdict in ("different", "unverified") else "plain"
    few = proof.verdict in SAME and proof.fewest_ends < 3  # noqa: PLR2004 - few rows after an end were compared
    frames = figures.DASH
    if proof.simulated is not None and proof.claimed is not None:
        of_claimed = "" if proof.simulated == proof.claimed else f" of {proof.claimed:,}"
        frames = f"{proof.simulated:,}{of_claimed}"
    counts = proof.rows, proof.ends, proof.cut_off
    texts = (
        Text((proof.verdict,), tone, proof.verdict),
        *(Text((f"{count:,}",), value=count) for count in counts),
        Text((f"{proof.fewest_ends:,}",), "missing" if few else "plain", proof.fewest_ends),
        Text((frames,), value=proof.simulated),
    )
    return TableRow(one_line(cell.backend.label), texts[:columns])


def _explanations(page: VerifyPage, *, several: bool) -> Iterator[Remark]:
    """Yield the reasons why backends are different or unverified, or that no episode ended, the most important first.

    Backends that cannot run come last, grouped by reason.
    """
    for cell, proof in sorted(page.proofs, key=lambda pair: -BEST_FIRST.index(pair[1].verdict)):
        no_end = proof.verdict in SAME and not proof.ends
        if cell.skip is not None or (proof.verdict in SAME and not no_end):
            continue
        lines = ["no episode ended"] if no_end else reasons_of(proof)
        if proof.log:
            lines.append(f"what it printed: {proof.log}")
        first, *others = map(one_line, lines or ["no reason was given"])
        where = f" on {cell.task.id}" if several else ""
        remedy, command = f"{way_out(proof.reason or '')}compare again:", page.again(cell)
        if no_end:
            remedy, command = "compare more:", page.again(cell, steps=max(5000, 5 * page.steps))
        elif proof.verdict == "unverified" and not proof.failed:
            remedy, command = f"{way_out(proof.reason or '')}compare it on another task, or leave it out with -b", ""
        yield Remark(proof.verdict, one_line(f"{cell.backend.label}{where}: {first}"), tuple(others), remedy, command)
    unable = figures.by_key((cell.skip, cell.backend.label) for cell, _ in page.proofs if cell.skip is not None)
    for reason, labels in unable.items():
        text = one_line(f"{', '.join(labels)}: {reason}")
        yield Remark("unverified", text, (), "provide what is missing, or leave it out with -b")


def _remarks(proof: Proof) -> Iterator[str]:
    """Yield notes on invalid values, own classes, declared differences, and other engines."""
    if proof.invalid is not None:
        yield f"warning: the environment itself returns invalid values: {proof.invalid}"
    if proof.own_classes is not None:
        yield proof.own_classes.words
    if proof.verdict in SAME:
        yield from filter(None, (proof.reason, *excuses(proof)))
    for engine in proof.engines:
        if engine.unlike and proof.verdict in SAME:
            yield f"{engine.words}; the rows compared here were the same"
        elif engine.unlike:
            yield f"{engine.words}: {engine.matching} is the same version"
