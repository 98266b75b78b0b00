"""Verdicts as JUnit XML, which GitLab, Jenkins and others show beside tests: a test case for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from vebench.errors import one_line
from vebench.reports.pages.check import cell_name, sentence

if TYPE_CHECKING:
    from vebench.analysis.pairing import CellComparison
    from vebench.reports.pages.check import CheckPage

# What a viewer makes of a verdict; one that is not here has passed.
ELEMENTS = {"slower": "failure", "missing": "error", "not comparable": "error"}


def render(page: CheckPage) -> str:
    """Return the XML. An inconclusive cell is skipped where that passes, and otherwise an error."""
    cells, command = page.comparison.cells, page.comparison.names.command
    elements = [_element(cell, page) for cell in cells]
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


def _element(cell: CellComparison, page: CheckPage) -> str | None:
    if cell.verdict == "inconclusive":
        return "error" if page.status else "skipped"
    return ELEMENTS.get(cell.verdict, "error" if cell.failed else None)
