"""What becomes of matplotlib's SVG: colours that follow the reader's scheme, texts for screen readers, and no ids.

An element without an id cannot clash with another of the page that a figure is part of: markers are written out at
each point, and nothing is clipped. Colours are attributes, for programs that know no style sheets, and custom
properties of CSS above them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.plotting.colours import COLOURS
from vebench.reports.plotting.figure import POINTS
from vebench.reports.plotting.panels import name_of, own_points, series_with_points

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.reports.chart import Chart, Series

SVG = "http://www.w3.org/2000/svg"
HREF = "{http://www.w3.org/1999/xlink}href"
CLASS = "vebench-figure"
FONTS = "system-ui, sans-serif"
PROPERTIES = {colour.light: f"--vebench-{colour.name}" for colour in COLOURS}
PROLOG = '<?xml version="1.0" encoding="UTF-8"?>\n'
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
LEFT_OUT = {"font-family", "font-variant", "font-stretch", "font-style"}  # the same everywhere


def finished(text: str, charts: Sequence[Chart], *, inline: bool) -> str:
    """Return the SVG that matplotlib has made of ``charts``, to be a file, or ``inline`` a part of an HTML page."""
    made = ET.fromstring(text)  # noqa: S314 - matplotlib's own
    _, _, width, height = made.attrib["viewBox"].split()
    root = ET.Element(
        "svg",
        {
            "xmlns": SVG,
            "viewBox": f"0 0 {_rounded(width)} {_rounded(height)}",
            "width": f"{_rounded(width)}pt",
            "height": f"{_rounded(height)}pt",
            "role": "img",
            "aria-label": title(charts),
            "font-family": FONTS,
            "stroke-linejoin": "round",
        },
    )
    ET.SubElement(root, "title").text = title(charts)
    ET.SubElement(root, "desc").text = description(charts)
    ET.SubElement(root, "style").text = _style_sheet()
    root.extend(_copies(made, {element.attrib["id"]: element for element in made.iter() if "id" in element.attrib}))
    _name_points(root, charts)
    written = ET.tostring(root, encoding="unicode").replace("<svg ", f'<svg class="{CLASS}" ', 1)
    return f"{written}\n" if inline else f"{PROLOG}{written}\n"


def title(charts: Sequence[Chart]) -> str:
    """Return what the figure is called."""
    return one_line("; ".join(chart.title for chart in charts))


def description(charts: Sequence[Chart]) -> str:
    """Return what is drawn, in words and numbers, for those who cannot see it."""
    return " ".join(
        one_line(f"{chart.title}, over {chart.x_label}. {'. '.join(map(_described, series_with_points(chart)))}.")
        for chart in charts
    )


def _described(series: Series) -> str:
    points = ", ".join(f"{figures.number(estimate.median)} at {x:g}" for x, estimate in series.points)
    return f"{series.name}{' (predicted)' if series.role == 'forecast' else ''}: {points}"


def _style_sheet() -> str:
    """Return the colours as custom properties: those for light ground, and for dark ground on a screen that asks.

    A page can set the properties itself. Every selector names the class of the figure, so nothing else changes.
    """
    light = ";".join(f"{PROPERTIES[colour.light]}:{colour.light}" for colour in COLOURS)
    dark = ";".join(f"{PROPERTIES[colour.light]}:{colour.dark}" for colour in COLOURS)
    # Where the page says nothing, :where() lets it: its own rule for the class is stronger than this one.
    here = f":where(.{CLASS})"
    return f"{here}{{{light}}}@media screen and (prefers-color-scheme:dark){{{here}{{{dark}}}}}"


def _copies(element: ET.Element, by_id: dict[str, ET.Element]) -> Iterator[ET.Element]:
    """Yield what is drawn inside ``element``, in order."""
    for child in element:
        tag = child.tag.removeprefix(f"{{{SVG}}}")
        if tag in ("defs", "metadata"):
            continue
        if tag == "use":
            marker = by_id[child.attrib[HREF].removeprefix("#")]
            copy = _copy(marker, "path")
            copy.attrib.update(_attributes(child.attrib["style"]))
            copy.attrib["transform"] = f"translate({_rounded(child.attrib['x'])} {_rounded(child.attrib['y'])})"
        else:
            copy = _copy(child, tag)
            copy.extend(_copies(child, by_id))
        if tag != "g" or len(copy):
            yield copy


def _copy(element: ET.Element, tag: str) -> ET.Element:
    kept = {name: value for name, value in element.attrib.items() if name in ("d", "x", "y", "id")}
    copy = ET.Element(tag, {name: value if name == "id" else _rounded(value) for name, value in kept.items()})
    copy.attrib.update(_attributes(element.attrib.get("style", "")))
    turned = element.attrib.get("transform", "")
    if "rotate(-0 " not in turned and turned:
        copy.attrib["transform"] = _rounded(turned)
    copy.text = element.text.strip() if tag == "text" and element.text else None
    return copy


def _attributes(style: str) -> dict[str, str]:
    """Return declarations as attributes; colours of ours also as the custom properties that take their place."""
    pairs = [part.split(":", 1) for part in style.split(";") if ":" in part]
    declared = {name.strip(): value.strip() for name, value in pairs}
    attributes = {name: _rounded(value) for name, value in declared.items() if name not in LEFT_OUT}
    coloured = [f"{name}:var({PROPERTIES[value]})" for name, value in attributes.items() if value in PROPERTIES]
    return attributes | ({"style": ";".join(coloured)} if coloured else {})


def _rounded(text: str) -> str:
    """Return ``text`` with its numbers to a hundredth of a point."""
    return LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), " ".join(text.split()))


def _name_points(root: ET.Element, charts: Sequence[Chart]) -> None:
    """Give each point a text that browsers show beside the pointer, and remove all ids."""
    by_id = {element.attrib.pop("id"): element for element in root.iter() if "id" in element.attrib}
    for number, chart in enumerate(charts):
        for index, series in enumerate(series_with_points(chart)):
            markers = [path for path in by_id[POINTS.format(number, index)].iter("path") if "transform" in path.attrib]
            own = [series.points[place] for place in own_points(series, chart)]
            for marker, (x, estimate) in zip(markers, own, strict=False):
                ET.SubElement(marker, "title").text = one_line(
                    f"{name_of(series)}: {figures.rate(estimate)}, {chart.x_label}: {x:g}"
                )
