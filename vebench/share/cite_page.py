"""How to quote a run: a sentence for each task, with what makes the figure repeatable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from vebench.analysis.answer import Reason, answer
from vebench.analysis.cell import in_report_order
from vebench.analysis.rules import unusable
from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import AnswerText, DataPage, Document
from vebench.reports.figures import without_folders
from vebench.reports.pages.answer import rate_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.results.records import Run, RunRecord


@dataclass(frozen=True)
class Quote:
    """The cell that a run names for one task."""

    cell: CellSummary

    @property
    def backend(self) -> str:
        """The backend, without folders of the machine."""
        return without_folders(())(self.cell.label)

    @property
    def sentence(self) -> str:
        """The figure in words."""
        work = (
            "the same work as a plain loop"
            if self.cell.work.proof and self.cell.work.proof.rows
            else "work not compared here"
        )
        return (
            f"{short_name(self.cell.env)}: {self.backend} with {self.cell.key.size} steps "
            f"{rate_of(self.cell)}, {work} ({self.cell.verdict})."
        )


@dataclass(frozen=True)
class CitePage(DataPage):
    """A run as others quote it: which vebench measured it, where and when, and the fastest backend of each task."""

    header: RunRecord
    quotes: tuple[Quote, ...]
    kind = "cite"

    @classmethod
    def of(cls, run: Run, cells: Sequence[CellSummary]) -> Self:
        """Return the page of a run with these cells; tasks for which no backend can be named are left out."""
        quotes = []
        for env in dict.fromkeys(cell.env for cell in in_report_order(cells, run.header.spec)):
            found = answer(
                [cell for cell in cells if cell.env == env],
                run.header.spec,
                run.header.usable_cpus,
                usable=unusable(cells) is None,
            )
            if found.best is not None and found.reason in (None, Reason.ALONE):
                quotes.append(Quote(found.best))
        return cls(run.header, tuple(quotes))

    @property
    def circumstances(self) -> str:
        """What decides the figures: the plan, the machine, the versions and the day."""
        head, host = self.header, self.header.host
        packages = [f"{name} {version}" for name, version in head.packages.items() if name != "vebench"]
        passes = f"{head.spec.passes} passes of {head.spec.windows} windows of {head.spec.duration:g} s"
        what = f"suite {head.spec.suite}" if head.spec.suite else passes
        return one_line(
            f"Measured with vebench {head.packages.get('vebench', '')} ({what}) on "
            f"{figures.counted(host.usable_cpus, 'CPU')} of "
            f"{host.cpu_model}, {host.system}, Python {host.python}, {', '.join(packages)}, {head.started[:10]}, "
            f"run {head.digest}; rates with 95 % confidence intervals."
        )

    @property
    def headline(self) -> str:
        """What the run is, in a few words."""
        return f"Throughput of vector environments, measured with vebench {self.header.packages.get('vebench', '')}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a sentence for each task, and the circumstances."""
        sentences = (*(one.sentence for one in self.quotes), self.circumstances)
        entry = tuple(bibtex(self).splitlines())
        return (Document("To quote this run", (), (), answers=(AnswerText("", sentences, entry),)),)

    @property
    def data(self) -> dict[str, object]:
        """The figures and the circumstances."""
        return {
            "run": self.header.digest,
            "circumstances": self.circumstances,
            "quotes": [
                {
                    "env": one.cell.env,
                    "backend": one.backend,
                    "workers": one.cell.workers,
                    "frames_per_second": one.cell.frames_per_second,
                    "verdict": one.cell.verdict,
                    "sentence": one.sentence,
                }
                for one in self.quotes
            ],
        }


def bibtex(page: CitePage) -> str:
    """Return an entry for BibTeX."""
    escaped = str.maketrans(
        {letter: f"\\{letter}" for letter in "&%$#_{}"} | {"\\": "/", "±": "$\\pm$", "^": "\\^{}", "~": "\\~{}"}
    )
    fields = {
        "title": page.headline,
        "year": page.header.started[:4],
        "note": " ".join((*(one.sentence for one in page.quotes), page.circumstances)),
    }
    lines = "".join(f"  {name} = {{{text.translate(escaped)}}},\n" for name, text in fields.items())
    return f"@misc{{vebench-{page.header.digest},\n{lines}}}\n"
