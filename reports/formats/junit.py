"""Verdicts as JUnit XML, which GitLab, Jenkins and others show beside tests: a test case for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from vebench.analysis.comparison import group_of
from vebench.errors import one_line
from vebench.reports.pages.check import cell_name, sentence

if TYPE_CHECKING:
    from vebench.analysis.pairing import CellComparison, SpeedVerdict
    from vebench.reports.pages.check import CheckPage

# What a viewer makes of a verdict; one that is not here has passed.
ELEMENTS = {"slower": "failure", "missing": "error", "not comparable": "error"}


def render(page: CheckPage) -> str:
    """Return the XML. An inconclusive cell is an error if that is why its backend does not pass, and else skipped."""
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
    if cell.verdict in ELEMENTS or cell.failed:
        return ELEMENTS.get(cell.verdict, "error")
    if cell.verdict != "inconclusive":
        return None
    return "error" if of_backend == "inconclusive" else "skipped"
