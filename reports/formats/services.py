"""What services read: rates for those that keep figures over time, and verdicts beside tests and workflows.

Annotations are not in the table of formats: nobody asks for them by name. They are written whenever a check or a
comparison runs in a GitHub workflow, beside the format that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from vebench.analysis.comparison import group_of
from vebench.analysis.findings import Gravity
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.formats.data import dump
from vebench.reports.pages.check import cell_name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.pairing import CellComparison, SpeedVerdict
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.check import CheckPage
    from vebench.reports.pages.run import RunPage, Section


# What a viewer of JUnit XML makes of a verdict; one that is not here has passed.
_ELEMENTS = {"slower": "failure", "missing": "error", "not comparable": "error"}
_LEVELS = {"slower": "error", "missing": "warning", "not comparable": "warning", "inconclusive": "warning"}
# Both are written so in a workflow command (github.com/actions/toolkit, packages/core/src/command.ts).
ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = {**ESCAPES, ":": "%3A", ",": "%2C"}


def bmf(page: RunPage) -> str:
    """Return rates in Bencher Metric Format: ``{cell: {"throughput": {"value", "lower_value", "upper_value"}}}``."""
    metrics = {}
    for name, rate, _ in _named_rates(page):
        values = {"value": rate.median, "lower_value": rate.low, "upper_value": rate.high}
        known = {key: value for key, value in values.items() if value is not None}
        metrics[name] = {"throughput": known}
    return dump(metrics)


def github(page: RunPage) -> str:
    """Return rates as github-action-benchmark's ``customBiggerIsBetter``, in frames a second."""
    return dump(
        [
            {"name": name, "unit": "frames/s", "value": rate.median, "range": figures.spread(rate), "extra": note}
            for name, rate, note in _named_rates(page)
        ]
    )


def _named_rates(page: RunPage) -> Iterator[tuple[str, Estimate, str]]:
    """Yield a name, a rate in frames a second, and a note for every cell that has a rate, without reference rows.

    A name stays the same from run to run. Of several files, names begin with the file's, so that each is unique.
    """
    for section in page.sections:
        prefix = f"{section.name}: " if len(page.sections) > 1 else ""
        for cell in section.cells:
            if cell.frames_per_second is not None and not cell.reference_row:
                name = one_line(f"{cell.env} / {cell.label} / {cell.key.size}")
                yield f"{prefix}{name}", cell.frames_per_second, _note(cell, section)


def _note(cell: CellSummary, section: Section) -> str:
    """Return the steps a second, and what was found of the cell; a fault of the run is one of each of its cells."""
    faults = (finding for finding in section.findings if finding.code.gravity is Gravity.FAULT)
    codes = ", ".join(dict.fromkeys(finding.code for finding in (*cell.findings, *faults)))
    steps = f"{figures.number(cell.steps_per_second.median)} steps/s" if cell.steps_per_second else ""
    return ", ".join(part for part in (steps, codes) if part)


def junit(page: CheckPage) -> str:
    """Return verdicts as JUnit XML, a test case for each cell.

    GitLab, Jenkins and others show it beside tests. An inconclusive cell is an error if that is why its backend does
    not pass, and else skipped.
    """
    cells, command = page.comparison.cells, page.comparison.names.command
    verdicts = {group.key: group.verdict for group in page.comparison.groups}
    elements = [_element(cell, verdicts[group_of(cell.key)]) for cell in cells]
    suite = ET.Element(
        "testsuite",
        name=f"vebench {command}",
        tests=str(len(cells)),
        failures=str(elements.count("failure")),
        errors=str(elements.count("error")),
        skipped=str(elements.count("skipped")),
    )
    for cell, element in zip(cells, elements, strict=True):
        case = ET.SubElement(suite, "testcase", classname=one_line(cell.key.env), name=cell_name(cell.key))
        if element is not None:
            ET.SubElement(case, element, type=cell.verdict, message=sentence(cell))
        ET.SubElement(case, "system-out").text = sentence(cell)
    root = ET.Element("testsuites", name=f"vebench {command}: {page.outcome}")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _element(cell: CellComparison, of_backend: SpeedVerdict) -> str | None:
    if cell.verdict in _ELEMENTS or cell.failed:
        return _ELEMENTS.get(cell.verdict, "error")
    if cell.verdict != "inconclusive":
        return None
    return "error" if of_backend == "inconclusive" else "skipped"


def workflow_commands(page: CheckPage) -> str:
    """Return a workflow command for each cell that is slower or failed, or whose verdict is not known."""
    return "".join(
        f"::{level} title={_escaped(f'vebench: {cell.verdict}', _PROPERTY_ESCAPES)}::"
        f"{_escaped(sentence(cell), ESCAPES)}\n"
        for cell in page.comparison.cells
        if (level := "error" if cell.failed else _LEVELS.get(cell.verdict))
    )


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
