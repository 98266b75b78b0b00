"""A study as a page: its answer first, then the tables, why, how far to trust it, and the commands that repeat it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from vebench.analysis.statistics import Estimate
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Document, Explanation, Listing, Table, TableRow, Text
from vebench.reports.pages.run_facts import CONDITION, facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.reports.conclusion import Conclusion
    from vebench.reports.document import Value
    from vebench.reports.page import Kind
    from vebench.reports.pages.run import Section

OF_ALL = ("machine", "system", "packages")  # facts that are the same for all runs of a study
OF_EACH = (CONDITION, "measured", "policy", "proof")


@dataclass(frozen=True)
class StudyPage:
    """What a study concludes from ``runs``, with its exit status.

    ``command`` measures it again, and ``again`` concludes again from the same files. ``left_out`` are the parts that
    were not measured, each with why.
    """

    name: str
    question: str
    conclusion: Conclusion
    runs: tuple[Section, ...]
    left_out: Mapping[str, str]
    command: str
    again: str
    status: int
    kind: ClassVar[Kind] = "study"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """What is concluded and why; then what that rests on."""
        return self._answer(), self._grounds()

    @property
    def data(self) -> dict[str, object]:
        """The conclusion, with each place of its tables in ``places``."""
        found = self.conclusion
        return {
            "study": self.name,
            "question": self.question,
            "headline": found.headline,
            "decided": found.decided,
            "status": self.status,
            "why": list(found.why),
            "undecided": list(found.undecided),
            "left_out": dict(self.left_out),
            "runs": [run.name for run in self.runs],
            "places": self.places,
        }

    @property
    def places(self) -> list[dict[str, str | float | None]]:
        """Each place of the tables: where it is, what it says, and the figure with its interval if it is one."""
        return [
            {
                "table": table.title,
                "row": row.label,
                "column": column,
                "text": " ".join(text.lines),
                **_ends(text.value),
            }
            for table in self.conclusion.tables
            for row in table.rows
            for column, text in zip(table.columns, row.texts, strict=True)
        ]

    def _answer(self) -> Document:
        found = self.conclusion
        return Document(
            title=one_line(found.headline),
            facts=(("question", one_line(self.question)),),
            tables=tuple(_with_why(found)),
            legend=tuple(map(one_line, found.legend)) if found.tables else (),
            explanations=tuple(self._open()),
        )

    def _open(self) -> Iterator[Explanation]:
        """Yield what could not be decided, and what was left out."""
        if self.conclusion.undecided:
            more = 2 * max((run.run.header.spec.repeats for run in self.runs), default=1)
            first, *others = map(one_line, self.conclusion.undecided)
            remedy = f"fix what failed, if anything did; --repeats {more} makes intervals narrower"
            yield Explanation("not decided", first, tuple(others), remedy)
        for part, why in self.left_out.items():
            yield Explanation(
                "left out", one_line(f"part {part}: {why}"), (), "measure the study again once it can run"
            )

    def _grounds(self) -> Document:
        """Return the machine, how each run went, and the commands."""
        first = {} if not self.runs else dict(facts(self.runs[0].run.header, self.runs[0].cells))
        of_each = [(name, value) for run in self.runs for name, value in self._of_run(run)]
        return Document(
            title="How far to trust it, and how to repeat it",
            facts=(
                *((name, first[name]) for name in OF_ALL if name in first),
                *of_each,
                ("measure again", one_line(self.command)),
                ("conclude again", one_line(self.again)),
                *(("look at a run", one_line(f"vebench report {shlex.quote(run.name)}")) for run in self.runs),
            ),
            tables=(),
        )

    def _of_run(self, run: Section) -> Iterator[tuple[str, str]]:
        """Yield the facts of one run, named by its file where there are several."""
        known = dict(facts(run.run.header, run.cells))
        of = f" of {_part(run)}" if len(self.runs) > 1 else ""
        for name in OF_EACH:
            if name in known:
                yield f"{name}{of}", known[name]
        if doubts := _doubts(run):
            yield f"in doubt{of}", doubts


def _with_why(found: Conclusion) -> Iterator[Table]:
    """Yield the tables, with the sentences that explain the answer below the last one; these alone if there is none."""
    why = Listing("Why:", tuple(map(one_line, found.why))) if found.why else None
    *others, last = found.tables or (Table("Nothing to compare", "", (), ()),)
    yield from others
    yield replace(last, listing=why)


def _doubts(run: Section) -> str:
    """Return how many cells were disturbed, failed, or are compared with no other; empty if none are."""
    counts = {
        "disturbed": sum(cell.disturbed for cell in run.cells),
        "held back by a quota": sum(cell.throttled for cell in run.cells),
        "failed": sum(cell.faulty_repeats > 0 for cell in run.cells),
        "skipped": sum(cell.status == "skipped" for cell in run.cells),
        "struck": sum(cell.struck for cell in run.cells),
        "unverified": sum(cell.verdict == "unverified" and bool(cell.windows) for cell in run.cells),
    }
    known = [f"{count} {what}" for what, count in counts.items() if count]
    return f"of {figures.counted(len(run.cells), 'cell')}, {', '.join(known)}" if known else ""


def _part(run: Section) -> str:
    return run.name.rpartition("/")[2].partition(".")[0]


def _ends(value: Value) -> dict[str, float | None]:
    if isinstance(value, Estimate):
        return {"median": value.median, "low": value.low, "high": value.high}
    number = float(value) if isinstance(value, int | float) else None
    return {"median": number, "low": None, "high": None}


@dataclass(frozen=True)
class StudiesPage:
    """The studies that there are: names with their questions."""

    questions: Sequence[tuple[str, str]]
    kind: ClassVar[Kind] = "list"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document."""
        rows = tuple(TableRow(name, (Text((question,)),)) for name, question in self.questions)
        document = Document(
            title="Studies",
            facts=(),
            tables=(Table("", "study", ("question",), rows, numbers=False),),
            legend=("vebench study NAME measures one and answers. MODULE:NAME is one of your own.",),
        )
        return (document,)
