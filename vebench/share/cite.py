"""``vebench share cite``: how to quote a run, in a sentence for each task and as BibTeX."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vebench.analysis.answer import Reason, answer_for
from vebench.analysis.cell import CellSummary, in_report_order
from vebench.analysis.rules import unusable
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.commands.session import known
from vebench.errors import UsageError, one_line
from vebench.reports import figures
from vebench.reports.answer import rate_of
from vebench.reports.console import Outlet
from vebench.reports.document import AnswerText, Document, Page
from vebench.results import store
from vebench.results.records import Run, RunRecord, with_current_verdicts

_IN_TEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"} | {"\\": "/", "±": "$\\pm$", "^": "\\^{}", "~": "\\~{}"}
)


def cite(file: Path, outlet: Outlet) -> None:
    """Show how to quote the fastest backend of each task. Raises UsageError if no task has one."""
    run = with_current_verdicts(store.read(file), known())
    page = CitePage.of(run, summarise(run, str(file)))
    if not page.quoted:
        raise UsageError(f"{one_line(str(file))}: no rate to quote: see vebench report {shlex.quote(str(file))}")
    outlet.publish(page)


@dataclass(frozen=True)
class CitePage(Page):
    """The fastest cell of each task, with the facts to repeat its measurement."""

    header: RunRecord
    quoted: tuple[CellSummary, ...]
    kind = "cite"

    @classmethod
    def of(cls, run: Run, cells: Sequence[CellSummary]) -> Self:
        """Return the page of a run. Tasks without a winner are left out."""
        quoted = []
        spec, usable = run.header.spec, unusable(cells) is None
        for env in dict.fromkeys(cell.env for cell in in_report_order(cells, spec)):
            found = answer_for([cell for cell in cells if cell.env == env], spec, run.header.usable_cpus, usable=usable)
            if found.best is not None and found.reason in (None, Reason.ALONE):
                quoted.append(found.best)
        return cls(run.header, tuple(quoted))

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each task; then the plan, the machine, the versions and the day."""
        head, host, spec = self.header, self.header.host, self.header.spec
        found = []
        for cell in self.quoted:
            compared = cell.work.proof and cell.work.proof.rows
            work = "the same work as a plain loop" if compared else "work not compared here"
            what = f"{figures.without_folders(())(cell.label)} with {cell.key.size} steps {rate_of(cell)}"
            found.append(f"{short_name(cell.env)}: {what}, {work} ({cell.verdict}).")
        passes = f"{spec.passes} passes of {spec.windows} windows of {spec.duration:g} s"
        plan = f"suite {spec.suite}" if spec.suite else passes
        packages = [f"{name} {version}" for name, version in head.packages.items() if name != "vebench"]
        circumstances = (
            f"Measured with vebench {head.packages.get('vebench', '')} ({plan}) on "
            f"{figures.counted(host.usable_cpus, 'CPU')} of {host.cpu_model}, {host.system}, Python {host.python}, "
            f"{', '.join(packages)}, {head.started[:10]}, run {head.digest}; rates with 95 % confidence intervals."
        )
        return (*found, one_line(circumstances))

    @property
    def bibtex(self) -> str:
        """An entry for BibTeX."""
        version = self.header.packages.get("vebench", "")
        fields = {
            "title": f"Throughput of vector environments, measured with vebench {version}",
            "year": self.header.started[:4],
            "note": " ".join(self.sentences),
        }
        lines = [f"  {name} = {{{text.translate(_IN_TEX)}}}," for name, text in fields.items()]
        return "\n".join((f"@misc{{vebench-{self.header.digest},", *lines, "}", ""))

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the sentences, and the entry for BibTeX."""
        words = AnswerText("", self.sentences, tuple(self.bibtex.splitlines()))
        return (Document("To quote this run", (), (), answers=(words,)),)
