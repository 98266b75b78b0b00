"""Pages to render, and what a terminal shows of them."""

import io
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import ClassVar

from rich.console import Console
from support.records import make_header, make_runs, make_sweep

from vebench.analysis.cell import Code, Finding
from vebench.analysis.comparison import compare_runs
from vebench.analysis.statistics import Sample, new_id
from vebench.analysis.summary import summarise
from vebench.backends.interface import Task
from vebench.child.answers import Mismatch, Proof
from vebench.equality.verify import VerifyPage
from vebench.gates.bisect import BisectPage, BisectStep, Candidate
from vebench.gates.bisection import LogRatio, Posterior
from vebench.gates.gate import CheckPage
from vebench.gates.history import history_of
from vebench.machine.host import place, read_host
from vebench.plan.cells import CellKey, Where, expand
from vebench.plan.grammar import BackendChoice, Tolerance
from vebench.plan.spec import RunSpec
from vebench.reports.document import Document, Page, PageKind, Remark, Table
from vebench.reports.formats import terminal
from vebench.reports.overview import Machine, list_page, machine_page, plan_page
from vebench.reports.run import RunPage
from vebench.results.records import CellRecord, Run
from vebench.share.publish import cite_page
from vebench.share.submissions import checked_page
from vebench.tune.choice import TunePage, choose

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PONG = Task("ALE/Pong-v5", "atari", 4)


class Pages:
    """A page of these documents, shown as that of a run."""

    kind: ClassVar[PageKind] = "run"
    title: ClassVar[str] = ""

    def __init__(self, *documents: Document) -> None:
        self.documents = documents


def scaled(sample: Sample, factor: float) -> Sample:
    """Return a sample with every rate times ``factor``, as of another measurement."""
    return replace(sample, rates=tuple(rate * factor for rate in sample.rates), id=new_id())


def page_of(*cells: CellRecord, file: str = "a.jsonl") -> RunPage:
    """Return the page of one run file with these cells."""
    return RunPage.of([(file, Run(make_header(), cells))])


def document_of(page: Page) -> Document:
    """Return the only document of ``page``."""
    (document,) = page.documents
    return document


def table_of(page: Page) -> Table:
    """Return the only table of the only document of ``page``."""
    (table,) = document_of(page).tables
    return table


def on_terminal(page: Page, width: int) -> str:
    """Return what a terminal of ``width`` columns shows."""
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal.OnTerminal(page), crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@cache
def make_pages() -> Mapping[PageKind, Page]:
    """Return a page of every kind, made once."""
    spec = RunSpec(("Pong",), (1, 2), (BackendChoice("for-loop"), BackendChoice("ceiling")))
    placement = place("compact", frozenset({0, 1}), None)
    plan = expand(spec, (PONG,), Where(placement))
    summaries = summarise(make_sweep())
    slower = tuple(replace(cell, sample=scaled(cell.sample, 0.5)) for cell in summaries)
    found = compare_runs(summaries, slower, metrics=("fps",), tolerance=Tolerance(0.05))
    mismatch = Mismatch(1, 7, "rewards", "1.0", "0.5", 0.5)
    proof = Proof("different", rows=40, ends=1, mismatch=mismatch, fault="rewards are clipped to their signs")
    pages: tuple[Page, ...] = (
        page_of(*make_sweep().cells),
        CheckPage("a.jsonl", "b.jsonl", found, ("gymnasium 1.3 against 1.4",), 1),
        BisectPage(
            (Candidate("1.0"), Candidate("1.1"), Candidate("1.2"), Candidate("2.0")),
            "steps",
            (BisectStep(1, LogRatio(0.0, 0.01)), BisectStep(2, skipped="cannot be installed")),
            Posterior([0.0, 0.004, 0.5, 0.496], {1: LogRatio(0.0, 0.01)}, 2, 3, 0.996, True, True, None),
            (CellKey("ALE/Pong-v5", "for-loop", 1, 1),),
            LogRatio(-0.1, 0.01),
        ),
        history_of(make_runs({("gym-async", 2): [100.0 + run % 3 - 20 * (run >= 8) for run in range(12)]})),
        VerifyPage(((plan.cells[0], proof),), 20, plan.spec),
        plan_page(plan),
        TunePage("a.jsonl", make_sweep(), choose(summaries, 0.05, 0.05), 0.05, None, {}),
        list_page(),
        machine_page(
            Machine(
                host=read_host(),
                placement=placement,
                orders={"compact": (0, 1)},
                workers=1,
                versions={"numpy": "2.0"},
                memory_available=None,
                findings=(Finding(Code.CLOCKS, "powersave", "set it to performance"),),
            )
        ),
        checked_page({"one": (None, (Remark("files", "run.jsonl is missing", ("there",), "submit the folder"),))}),
        cite_page(make_header(), summaries[:1]),
    )
    return MappingProxyType({page.kind: page for page in pages})
