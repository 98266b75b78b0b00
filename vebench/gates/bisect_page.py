"""A bisection as a page: the commit or release that changed the rate, and the ratio of each that was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vebench.errors import one_line
from vebench.gates.bisection import CERTAIN, Answer, Ratio
from vebench.gates.candidates import Candidate
from vebench.plan.cells import CellKey
from vebench.reports import figures
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text, Tone


@dataclass(frozen=True)
class BisectPage(DataPage):
    """All candidates from the good end to the bad one, each a ``noun``, and what is known of them by their indices.

    ``changed`` are the cells that differ between the ends, ``ratios`` are relative to the good end, ``chances`` are the
    posterior of having made the change, ``skipped`` has the reasons. ``file`` has all steps. ``one_change``: the ratios
    on both sides of the answer are clear of the middle between those of the ends.
    """

    candidates: Sequence[Candidate]
    noun: str
    file: str
    changed: tuple[CellKey, ...]
    ratios: Mapping[int, Ratio]
    steps: Mapping[int, int]
    skipped: Mapping[int, str]
    chances: Sequence[float]
    answer: Answer
    one_change: bool
    status: int
    kind = "bisect"

    @property
    def found(self) -> bool:
        """Whether one candidate made the change."""
        return self.answer.found and self.one_change and self.answer.first == self.answer.last

    @property
    def outcome(self) -> str:
        """The answer in a line: ``slower since 1f3a9c2b71 2026-11-20 Draw once``."""
        first, last = (self.candidates[at].label for at in self.answer[:2])
        direction = "slower" if self._change.log < 0 else "faster"
        if not self.answer.found:
            return f"undecided: {direction} since one of {self._range}, from {first} to {last}"
        if not self.one_change:
            return f"undecided: {first} or the one before may lie in the middle of the ends: several changes?"
        if self.answer.first == self.answer.last:
            return f"{direction} since {first}"
        return (
            f"undecided: {direction} since one of {self._range}, of which others were skipped, from {first} to {last}"
        )

    @property
    def _change(self) -> Ratio:
        return self.ratios[len(self.candidates) - 1]

    @property
    def _range(self) -> str:
        return figures.counted(self.answer.last - self.answer.first + 1, self.noun)

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a row for each candidate that was compared, and why others were skipped."""
        good, bad = self.candidates[0], self.candidates[-1]
        compared = [at for at in range(1, len(self.candidates)) if at in self.ratios]
        document = Document(
            title=f"Bisect: {self.outcome}",
            facts=(
                ("good", good.label),
                (
                    "bad",
                    f"{bad.label}: {self._by(len(self.candidates) - 1)}",
                ),
                *((("from there on", self._by(self.answer.last)),) if self.found else ()),
                ("certainty", f"{self.answer.chance:.1%} (posterior; found at {CERTAIN:.0%})"),
                ("changed", "; ".join(figures.cell_name(key) for key in self.changed)),
                ("steps", one_line(self.file)),
            ),
            tables=(
                Table(
                    title=f"Rates relative to {good.name[:10]}, of {len(self.candidates)} {self.noun}s",
                    columns=("ratio", "steps", "chance"),
                    rows=tuple(TableRow(self.candidates[at].label, self._texts(at)) for at in compared),
                    corner=self.noun,
                ),
            ),
            legend=(
                "ratio: the rate relative to the good end, with its 95 % confidence interval.",
                f"chance: the probability that this {self.noun} made the change.",
            ),
            explanations=tuple(
                Remark("skipped", one_line(why), tuple(places))
                for why, places in figures.by_key(
                    (why, self.candidates[at].label) for at, why in sorted(self.skipped.items())
                ).items()
            ),
            best="where the change is" if self.found else "",
        )
        return (document,)

    def _texts(self, at: int) -> tuple[Text, ...]:
        chance = self.chances[at]
        tone: Tone = "best" if self.found and self.answer.first <= at <= self.answer.last else "plain"
        return (
            self._ratio(at),
            Text((str(self.steps[at]),), value=self.steps[at]),
            Text((f"{chance:.1%}",), tone, chance),
        )

    def _by(self, at: int) -> str:
        return f"{figures.change(self.ratios[at].estimate.median)}, ratio {self._ratio(at).lines[0]}"

    def _ratio(self, at: int) -> Text:
        estimate = self.ratios[at].estimate
        return Text((f"{estimate.median:.3f} {figures.spread(estimate)}",), value=estimate)

    @property
    def data(self) -> dict[str, object]:
        """The answer, and an object for each candidate."""
        return {
            "status": self.status,
            "outcome": self.outcome,
            "found": self.found,
            "first": self.candidates[self.answer.first].name,
            "last": self.candidates[self.answer.last].name,
            "chance": self.answer.chance,
            "ratio": self.ratios[self.answer.last].estimate if self.found else None,
            "ends": self._change.estimate,
            "changed": [key._asdict() for key in self.changed],
            "candidates": [
                {
                    "name": one.name,
                    "day": one.day or None,
                    "subject": one.subject or None,
                    "ratio": self.ratios[at].estimate if at in self.ratios else None,
                    "steps": self.steps.get(at, 0),
                    "chance": self.chances[at],
                    "skipped": self.skipped.get(at),
                }
                for at, one in enumerate(self.candidates)
            ],
        }
