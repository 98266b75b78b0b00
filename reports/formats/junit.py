"""A check as JUnit XML, which GitLab, Jenkins and others show beside tests: a test case for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from vebench.errors import one_line
from vebench.reports.pages.check import answer, cell_name, sentence

if TYPE_CHECKING:
    from vebench.analysis.comparison import CellComparison
    from vebench.reports.pages.check import Check

# What a viewer makes of a verdict; one that is not here has passed.
ELEMENTS = {"slower": "failure", "missing": "error", "not comparable": "error"}


def render(check: Check) -> str:
    """Return the XML. An inconclusive cell is skipped where that passes, and else an error."""
    cells = check.comparison.cells
    elements = [_element(cell, check) for cell in cells]
    suite = ET.Element(
        "testsuite",
        name="vebench check",
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
    root = ET.Element("testsuites", name=f"vebench check: {answer(check)}")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _element(cell: CellComparison, check: Check) -> str | None:
    if cell.verdict == "inconclusive":
        return "error" if check.status else "skipped"
    return ELEMENTS.get(cell.verdict)
