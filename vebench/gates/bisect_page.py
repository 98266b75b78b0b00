"""A bisection as a page: the commit or release that changed the rate, and the ratio of each that was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vebench.errors import one_line
from vebench.gates.bisection import CERTAIN, Answer, Ratio
from vebench.gates.candidates import Candidate
from vebench.plan.cells import CellKey
from vebench.reports import figures
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text
from vebench.reports.figures import ratio_text


@dataclass(frozen=True)
class BisectPage(DataPage):
    """All candidates from the good end to the bad one, and by their indices what is known of them."""

    candidates: Sequence[Candidate]
    noun: str  # what a candidate is
    file: str  # has all steps
    changed: tuple[CellKey, ...]  # the cells whose rates differ between the ends
    ratios: Mapping[int, Ratio]  # relative to the good end
    steps: Mapping[int, int]
    skipped: Mapping[int, str]  # the reasons
    chances: Sequence[float]  # the posterior of having made the change
    answer: Answer
    one_change: bool  # the ratios on both sides of the answer are clear of the middle between the ends
    status: int
    kind = "bisect"

    @property
    def found(self) -> bool:
        """Whether one candidate made the change."""
        return self.answer.found and self.one_change and self.answer.first == self.answer.last

    @property
    def outcome(self) -> str:
        """The answer in a line: ``slower since 1f3a9c2b71 2026-11-20 Draw once``."""
        first, last = (self.candidates[at].label for at in (self.answer.first, self.answer.last))
        since = f"{'slower' if self._change.log < 0 else 'faster'} since"
        if self.found:
            return f"{since} {first}"
        if self.answer.found and not self.one_change:
            return f"undecided: {first} or the one before may lie in the middle of the ends: several changes?"
        number = figures.counted(self.answer.last - self.answer.first + 1, self.noun)
        skipped = ", and others were skipped" if self.answer.found else ""
        return f"undecided: {since} one of {number}{skipped}, from {first} to {last}"

    @property
    def _change(self) -> Ratio:
        return self.ratios[len(self.candidates) - 1]

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a row for each candidate that was compared, and why others were skipped."""
        good, bad = self.candidates[0], self.candidates[-1]
        skipped = figures.by_key((why, self.candidates[at].label) for at, why in sorted(self.skipped.items()))
        facts = (
            ("good", good.label),
            ("bad", f"{bad.label}: {_as_change(self._change)}"),
            ("from there on", _as_change(self.ratios[self.answer.last]) if self.found else ""),
            ("certainty", f"{self.answer.chance:.1%} (posterior; found at {CERTAIN:.0%})"),
            ("changed", "; ".join(figures.cell_name(key) for key in self.changed)),
            ("steps", one_line(self.file)),
        )
        table = Table(
            title=f"Rates relative to {good.name[:10]}, of {len(self.candidates)} {self.noun}s",
            columns=("ratio", "steps", "chance"),
            rows=tuple(TableRow(self.candidates[at].label, self._texts(at)) for at in sorted(self.ratios)),
            corner=self.noun,
        )
        document = Document(
            title=f"Bisect: {self.outcome}",
            facts=tuple((name, text) for name, text in facts if text),
            tables=(table,),
            legend=(
                "ratio: the rate relative to the good end, with its 95 % confidence interval.",
                f"chance: the probability that this {self.noun} made the change.",
            ),
            explanations=tuple(Remark("skipped", one_line(why), tuple(places)) for why, places in skipped.items()),
            best="where the change is" if self.found else "",
        )
        return (document,)

    def _texts(self, at: int) -> tuple[Text, ...]:
        estimate, chance = self.ratios[at].estimate, self.chances[at]
        best = self.found and at == self.answer.first
        return (
            Text((ratio_text(estimate),), value=estimate),
            Text((str(self.steps[at]),), value=self.steps[at]),
            Text((f"{chance:.1%}",), "best" if best else "plain", chance),
        )

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


def _as_change(ratio: Ratio) -> str:
    return f"{figures.change(ratio.estimate.median)}, ratio {ratio_text(ratio.estimate)}"
