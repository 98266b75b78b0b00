"""Figures as SVG, PNG and PDF: what is in them, that they are harmless and always the same, and their colours."""

import re
from xml.etree import ElementTree as ET

import pytest
from support.charts import around, make_chart

from vebench.analysis.statistics import Estimate
from vebench.reports import charts
from vebench.reports.charts import MUTED, SERIES
from vebench.reports.document import Chart, ChartLine

NAMES = ("for-loop", "gym-async", "shm-sync")
HOSTILE = "<script>alert(1)</script>|$x^2$&amp;]]>\x1b[31m\u202e\n{a}%d円周率"
PLAIN = "<script>alert(1)</script>"
HREF = "{http://www.w3.org/1999/xlink}href"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def texts(text: str) -> list[str]:
    return [element.text or "" for element in parsed(text).iter() if tag(element) == "text"]


def curve(*medians: float) -> tuple[ChartLine, ...]:
    """Return one series with as many numbers of workers as no bars have."""
    values = (*medians, *[medians[-1]] * 4)[:4]
    return (ChartLine("a", tuple((3.0 + index, Estimate(float(value))) for index, value in enumerate(values))),)


@pytest.fixture(scope="module")
def drawn() -> str:
    """Return a chart as a file."""
    return charts.svg([make_chart(*NAMES)])


def test_each_series_and_each_mark_is_named_and_each_axis_too(drawn: str) -> None:
    expected = {*NAMES, "ceiling", "ideal", "cores end", "CPUs end"}
    assert {*expected, "ALE/Pong-v5: frames/s", "workers (log scale)", "frames/s (log scale)"} <= set(texts(drawn))


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((10_000, 40_000), {"10k", "20k"}),
        ((1_000, 700_000), {"1k", "5k", "10k", "50k", "100k", "500k"}),
        ((9_500, 10_500), {"9k", "10k", "11k"}),
        ((0.9, 30), {"1", "2", "5", "10", "20"}),
    ],
)
def test_ticks_of_rates_are_round_and_plain(values: tuple[float, float], labels: set[str]) -> None:
    shown = texts(charts.svg([make_chart("a", series=curve(*values), marks=())]))
    assert labels <= {*shown}
    assert len(shown) < 20


def test_an_interval_that_says_nothing_does_not_flatten_the_others() -> None:
    points = (*((float(x), around(100.0)) for x in (1, 2, 3)), (4.0, Estimate(120.0, 1e-9, 1e12)))
    shown = texts(charts.svg([make_chart("a", series=(ChartLine("a", points),), marks=())]))
    ticks = [float(text) for text in shown if text.isdecimal() and text not in "1234"]
    assert ticks
    assert 40 < min(ticks) <= max(ticks) < 300


def test_a_long_name_is_shortened_in_its_middle() -> None:
    name = f"envpool-async[{'x' * 50}\x1b,num_threads=8,a=1,ratio=2]"
    (short,) = (one for one in texts(charts.svg([make_chart(name, title="t")])) if one.startswith("envpool"))
    assert len(short) <= 34
    assert short.endswith("ratio=2]")
    assert short.isprintable()


def test_those_who_cannot_see_it_get_its_numbers(drawn: str) -> None:
    root = parsed(drawn)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == root[0].text == "ALE/Pong-v5: frames/s"
    assert "gym-async: 10,500 at 1, 17,911 at 2," in (root[1].text or "")


def style_of(element: ET.Element) -> dict[str, str]:
    pairs = (part.split(":", 1) for part in element.attrib.get("style", "").split(";") if ":" in part)
    return {name.strip(): value.strip() for name, value in pairs}


def lines_of(drawn: list[Chart], **how: object) -> list[dict[str, str]]:
    """Return the styles of the lines and markers of series."""
    styles = [style_of(element) for element in parsed(charts.svg(drawn, **how)).iter()]
    colours = {*SERIES}
    return [style for style in styles if {style.get("stroke"), style.get("fill")} & colours]


def test_what_is_async_is_dashed() -> None:
    def dashes(*names: str, **fields: object) -> list[str]:
        return [style["stroke"] for style in lines_of([make_chart(*names, **fields)]) if "stroke-dasharray" in style]

    points = curve(100, 200)[0].points
    pair = (ChartLine("gym-sync", points, family="gym"), ChartLine("gym-async", points, family="gym", dashed=True))
    assert {*dashes("gym-sync", series=pair, marks=())} == {SERIES[1]}


def test_a_backend_has_its_colour_whatever_is_beside_it() -> None:
    lines = {name: ChartLine(f"{name}-sync", curve(9, 10)[0].points, family=name) for name in ("gym", "shm", "mine")}
    whole = make_chart("gym", series=tuple(lines.values()), marks=())
    for name, number in {"gym": 1, "shm": 2, "mine": 5}.items():
        alone = make_chart("gym", series=(lines[name],), marks=())
        drawn = lines_of([alone], among=[whole], part="d1")
        assert {colour for style in drawn for colour in (style.get("fill"), style.get("stroke"))} - {None, "none"} == {
            SERIES[number]
        }


def test_the_winner_is_named_at_its_point() -> None:
    series = (ChartLine("wins", ((1.0, around(40.0)), (2.0, around(39.0))), winner=2.0),)
    bold = [element.text for element in parsed(charts.svg([make_chart("a", series=series)])).iter()
            if "font-weight" in style_of(element)]  # fmt: skip
    assert sorted(filter(None, bold)) == ["ALE/Pong-v5: frames/s", "winner"]


def test_the_same_charts_give_the_same_bytes() -> None:
    chart = make_chart("a", series=(ChartLine("a", ((1.0, around(5.0)),), dashed=True),))
    for form, begin in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        data = charts.drawn([chart], form)
        assert data.startswith(begin)
        assert b"Date" not in data
        assert data == charts.drawn([chart], form)


def test_a_figure_in_a_page_shares_no_id_with_another() -> None:
    chart = make_chart(*NAMES)
    one, other = (charts.svg([chart], part=part) for part in ("d1", "d2"))
    assert one.startswith("<svg ")
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (one, other)]
    assert ids[0]
    assert ids[0].isdisjoint(ids[1])
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', one)) <= ids[0]


def test_hostile_names_are_text_and_nothing_else() -> None:
    chart = make_chart(HOSTILE, title=HOSTILE, group=HOSTILE, marks=((4.0, HOSTILE),))
    for part in ("", "d1"):
        text = charts.svg([chart], part=part)
        assert "<script" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert [shown for shown in texts(text) if shown.startswith(PLAIN[:8])]
        known = {"svg", "title", "desc", "style", "defs", "clipPath", "rect", "g", "path", "use", "text"}
        assert {tag(element) for element in parsed(text).iter()} <= known
    assert charts.drawn([chart], "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "estimate",
    [Estimate(100.0), Estimate(100.0, 0.0, 1e30), Estimate(100.0, 1e-30, float("inf")), Estimate(1e-9), Estimate(1e12)],
)
def test_any_estimate_can_be_drawn(estimate: Estimate) -> None:
    points = ((1.0, estimate), (2.0, around(100.0)), (3.0, around(90.0)), (4.0, around(80.0)))
    for number in (1, 4):
        text = charts.svg([make_chart("a", series=(ChartLine("a", points[:number]),))])
        assert "nan" not in text
        assert "inf" not in re.sub("<desc>.*</desc>|<title>[^<]*</title>", "", text)


def contrast_with_white(colour: str) -> float:
    """Return the contrast of a colour with white (WCAG 2.1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 1.05 / (sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05)


def test_lines_and_texts_stand_out_from_their_ground() -> None:
    assert min(map(contrast_with_white, SERIES)) >= 3
    assert contrast_with_white(MUTED) >= 4.5
