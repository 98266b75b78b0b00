"""Figures as SVG, PNG and PDF: what is in them, that they are harmless and always the same, and their colours."""

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pytest
from support.charts import WORKERS, around, make_chart

from vebench.analysis.statistics import Estimate
from vebench.reports import plots
from vebench.reports.document import Chart, ChartLine, Mark
from vebench.reports.plots import COLOURS, GROUND, INK, MUTED, SERIES

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


def tips(text: str) -> list[str]:
    """Return what a browser shows for each point."""
    return [element.text or "" for element in parsed(text).iter() if tag(element) == "title"][1:]


@pytest.fixture(scope="module")
def drawn() -> str:
    """Return a chart as a file."""
    return plots.svg([make_chart(*NAMES)])


def test_each_series_and_each_mark_is_named_and_each_axis_too(drawn: str) -> None:
    expected = {*NAMES, "ceiling", "ideal", "predicted", "cores end", "CPUs end"}
    assert {*expected, "ALE/Pong-v5: frames/s", "workers (log scale)", "frames/s (log scale)"} <= set(texts(drawn))


def test_each_point_is_drawn_and_can_be_pointed_at(drawn: str) -> None:
    shown = tips(drawn)
    assert len(shown) == (len(NAMES) + 1) * len(WORKERS) + 1  # a forecast begins with a point that was measured
    assert "gym-async: 10,500 ±5.0%, workers: 1" in shown
    assert "for-loop, predicted: 400,000 ±30%, workers: 128" in shown


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((10_000, 40_000), {"10k", "20k"}),
        ((1_000, 700_000), {"1k", "3k", "10k", "30k", "100k", "300k"}),
        ((9_500, 10_500), {"9k", "10k", "11k"}),
        ((0.9, 30), {"1", "2", "5", "10", "20"}),
    ],
)
def test_ticks_of_rates_are_round_and_plain(values: tuple[float, float], labels: set[str]) -> None:
    shown = texts(plots.svg([make_chart("a", series=curve(*values), marks=())]))
    assert labels <= {*shown}
    assert len(shown) < 15


def test_an_interval_that_says_nothing_does_not_flatten_the_others() -> None:
    points = (*((float(x), around(100.0)) for x in (1, 2, 3)), (4.0, Estimate(120.0, 1e-9, 1e12)))
    shown = texts(plots.svg([make_chart("a", series=(ChartLine("a", points, banded=True),), marks=())]))
    ticks = [float(text) for text in shown if text.isdecimal() and text not in "1234"]
    assert ticks
    assert 40 < min(ticks) <= max(ticks) < 300


def test_a_mark_beyond_the_axis_is_not_drawn() -> None:
    chart = make_chart("a", series=curve(1.0, 2.0), marks=(Mark(4.0, "cores end"), Mark(16.0, "CPUs end")))
    assert {"cores end", "CPUs end"} & {*texts(plots.svg([chart]))} == {"cores end"}


def test_many_numbers_of_workers_have_ticks_at_powers_of_two() -> None:
    points = tuple((float(workers), around(5.0 * workers)) for workers in range(1, 61))
    shown = set(texts(plots.svg([make_chart("a", series=(ChartLine("a", points),), marks=())])))
    assert {"1", "2", "4", "8", "16", "32"} <= shown
    assert not {"3", "7", "31", "59"} & shown


def test_the_key_has_the_series_in_the_order_in_which_their_lines_end(drawn: str) -> None:
    shown = [text for text in texts(drawn) if text in {*NAMES, "ceiling", "ideal", "predicted"}]
    assert shown == ["ceiling", "ideal", "shm-sync", "gym-async", "for-loop", "predicted"]


def test_a_long_name_is_shortened_in_its_middle() -> None:
    name = f"envpool-async[{'x' * 50}\x1b,num_threads=8,a=1,ratio=2]"
    (short,) = (shown for shown in texts(plots.svg([make_chart(name, title="t")])) if shown.startswith("envpool"))
    assert len(short) <= 34
    assert short.endswith("ratio=2]")
    assert short.isprintable()


def test_those_who_cannot_see_it_get_its_numbers(drawn: str) -> None:
    root = parsed(drawn)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == root[0].text == "ALE/Pong-v5: frames/s"
    assert "gym-async: 10,500 at 1, 17,911 at 2," in (root[1].text or "")
    assert "for-loop (predicted): 300,000 at 64" in (root[1].text or "")


def style_of(element: ET.Element) -> dict[str, str]:
    pairs = (part.split(":", 1) for part in element.attrib.get("style", "").split(";") if ":" in part)
    return {name.strip(): value.strip() for name, value in pairs}


def test_a_forecast_is_dashed_and_of_what_is_measured_what_is_async() -> None:
    def dashes(*names: str, **fields: object) -> list[str]:
        drawn = parsed(plots.svg([make_chart(*names, **fields)]))
        return [style["stroke"] for e in drawn.iter() if "stroke-dasharray" in (style := style_of(e))]

    assert dashes("for-loop", "gym-sync").count(plots.SERIES[0].light) == 1  # its forecast
    assert plots.SERIES[1].light not in dashes("for-loop", "gym-sync")
    for points in (curve(100, 200)[0].points, ((1.0, around(100)),)):
        pair = (ChartLine("gym-sync", points, family="gym"), ChartLine("gym-async", points, family="gym", dashed=True))
        assert {*dashes("gym-sync", series=pair, marks=())} == {plots.SERIES[1].light}


def test_a_backend_has_its_colour_whatever_is_beside_it() -> None:
    gym, shm, mine = (ChartLine(f"{name}-sync", ((1.0, around(9.0)),), family=name) for name in ("gym", "shm", "mine"))
    whole = make_chart("gym", series=(gym, shm, mine))
    for series in ((gym, shm, mine), (mine, shm)):
        drawn = plots.svg([make_chart("gym", series=series)], among=[whole], part="d1")
        bars = {e.findtext("{*}title", "").split("-")[0]: style_of(e) for e in parsed(drawn).iter() if tag(e) == "path"}
        assert [bars[one.family]["fill"] for one in series] == [
            plots.SERIES[{"gym": 1, "shm": 2, "mine": 5}[one.family]].light for one in series
        ]


def test_few_numbers_of_workers_are_bars_with_the_winner_first_and_the_bounds_last() -> None:
    def bars(name: str, *medians: float, **fields: object) -> ChartLine:
        return ChartLine(name, tuple((float(x), around(one)) for x, one in enumerate(medians, 1)), **fields)

    series = (
        bars("ceiling", 90, 95, role="bound"),
        bars("slow", 10, 20),
        bars("wins", 40, 39, mark=Mark(2.0, "winner", wins=True)),
        bars("tied", 40, 41, banded=True, mark=Mark(2.0, "not distinguishable")),
        ChartLine("ideal", ((1.0, around(10.0)),), "ideal"),
    )
    drawn = plots.svg([make_chart("a", series=series)])
    shown = texts(drawn)
    assert [text for text in shown if text in {"wins", "tied", "slow", "ceiling", "ideal"}] == [
        "wins", "tied", "slow", "ceiling",
    ]  # fmt: skip
    assert {"39.0  winner", "41.0  not distinguishable", "20.0", "0", "frames/s, with 95 % intervals"} <= {*shown}
    bold = [element.text for element in parsed(drawn).iter() if "font-weight" in style_of(element)]
    assert bold == ["39.0  winner", "ALE/Pong-v5: frames/s"]
    assert "slow: 20.0 ±5.0%, workers: 2" in tips(drawn)


def test_each_measured_series_has_a_colour_and_a_marker_of_its_own() -> None:
    many = make_chart(*(f"backend-{number}" for number in range(9)))
    root = parsed(plots.svg([many]))
    markers = {(element.findtext("{*}title") or "").split(":")[0]: (element.get(HREF), style_of(element).get("fill"))
               for element in root.iter() if tag(element) == "use"}  # fmt: skip
    of_backends = [markers[f"backend-{number}"] for number in range(9)]
    assert len({marker for marker, _ in of_backends}) == 9
    assert len({colour for _, colour in of_backends}) == 8


def test_colours_are_in_the_picture_for_light_ground_and_a_rule_has_those_for_dark(drawn: str) -> None:
    style = next(e.text or "" for e in parsed(drawn).iter() if tag(e) == "style")
    condition, *rules = re.split(r"[{}]+", style.rstrip("}"))
    assert condition == "@media screen and (prefers-color-scheme:dark)"
    dark = dict(zip(rules[::2], rules[1::2], strict=True))
    styles = [style_of(element) for element in parsed(drawn).iter()]
    used = {(name, style[name]) for style in styles for name in ("fill", "stroke") if name in style}
    assert {value for _, value in used} - {"none"} <= {colour.light for colour in plots.COLOURS}
    for name, value in used:
        if value != "none":
            colour = next(one for one in plots.COLOURS if one.light == value)
            assert dark[f'[style*="{name}: {value}"]'] == f"{name}:{colour.dark}!important"


def test_the_same_charts_give_the_same_bytes() -> None:
    bars = make_chart("a", series=(ChartLine("a", ((1.0, around(5.0)),), dashed=True),))
    for chart in (make_chart(*NAMES), bars):
        assert plots.svg([chart], part="d1") == plots.svg([chart], part="d1")
        assert (first := plots.picture([chart], "png")) == plots.picture([chart], "png")
        assert (page := plots.picture([chart], "pdf")) == plots.picture([chart], "pdf")
        assert (first[:4], page[:4], b"Date" in page) == (b"\x89PNG", b"%PDF", False)


def test_a_figure_in_a_page_shares_no_id_with_another_and_styles_nothing_else() -> None:
    chart = make_chart(*NAMES)
    one, other = (plots.svg([chart], part=part) for part in ("d1", "d2"))
    assert one.startswith("<svg ")
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (one, other)]
    assert ids[0]
    assert ids[0].isdisjoint(ids[1])
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', one)) <= ids[0]
    (style,) = re.findall("<style.*?</style>", one, re.DOTALL)
    selectors = re.findall(r"[{}]([^{}@]+)\{", style)
    assert selectors
    assert all(re.fullmatch(r'\[style\*="(fill|stroke): #[0-9a-f]{6}"\]', selector) for selector in selectors)


def test_a_file_has_a_ground_and_a_figure_in_a_page_has_that_of_the_page() -> None:
    def is_ground(element: ET.Element, root: ET.Element) -> bool:
        width = root.attrib["viewBox"].split()[2]
        return style_of(element).get("fill") == plots.GROUND.light and f"L {width} 0" in element.get("d", "")

    for part in ("", "d1"):
        root = parsed(plots.svg([make_chart("for-loop")], part=part))
        assert any(is_ground(element, root) for element in root.iter()) is not bool(part)


def test_hostile_names_are_text_and_nothing_else() -> None:
    chart = make_chart(HOSTILE, title=HOSTILE, group=HOSTILE, x_label=HOSTILE, marks=(Mark(4.0, HOSTILE),))
    for part in ("", "d1"):
        text = plots.svg([chart], part=part)
        assert "<script" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert [shown for shown in texts(text) if shown.startswith(PLAIN[:8])]
        known = {"svg", "title", "desc", "style", "defs", "clipPath", "rect", "g", "path", "use", "text"}
        assert {tag(element) for element in parsed(text).iter()} <= known
    assert plots.picture([chart], "png").startswith(b"\x89PNG")


def test_what_a_user_has_set_for_figures_of_his_own_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = make_chart("for-loop")
    before = plots.svg([chart])
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)
    monkeypatch.setitem(mpl.rcParams, "lines.linewidth", 7.0)
    assert plots.svg([chart]) == before
    assert mpl.rcParams["text.usetex"] is True


def test_charts_of_a_group_share_a_row_and_a_series_looks_the_same_in_all() -> None:
    first, second = make_chart(*NAMES), make_chart(*NAMES[1:], kind="efficiency", title="efficiency", linear=True)
    third = replace(first, group="Ant-v5")

    def size(*charts: Chart) -> list[float]:
        return [float(number) for number in parsed(plots.svg(charts)).attrib["viewBox"].split()[2:]]

    alone, row, both = size(first), size(first, second), size(first, third)
    assert row[0] > 1.8 * alone[0]
    assert row[1] == alone[1]
    assert both == [alone[0], 2 * alone[1]]
    text = plots.svg([first, second])
    for name, colour in zip(NAMES, (plots.SERIES[index] for index in (0, 5, 6)), strict=True):
        points = [e for e in parsed(text).iter() if (e.findtext("{*}title") or "").startswith(f"{name}: ")]
        assert {style_of(point)["fill"] for point in points} == {colour.light}


@pytest.mark.parametrize(
    "estimate",
    [Estimate(100.0), Estimate(100.0, 0.0, 1e30), Estimate(100.0, 1e-30, float("inf")), Estimate(1e-9), Estimate(1e12)],
)
def test_any_estimate_can_be_drawn(estimate: Estimate) -> None:
    points = ((1.0, estimate), (2.0, around(100.0)), (3.0, around(90.0)), (4.0, around(80.0)))
    for number, linear in ((1, False), (4, False), (4, True)):
        text = plots.svg([make_chart("a", series=(ChartLine("a", points[:number]),), linear=linear)])
        assert len(tips(text)) == number
        assert "nan" not in text
        assert "inf" not in re.sub("<desc>.*</desc>|<title>[^<]*</title>", "", text)


def test_a_chart_may_be_there_twice_and_a_name_may_begin_with_an_underscore() -> None:
    chart = make_chart("_a", marks=())
    text = plots.svg([chart, chart])
    assert len(tips(text)) == 2 * len(tips(plots.svg([chart])))
    assert [shown.strip() for shown in texts(text)].count("_a") == 2


Vector = npt.NDArray[np.float64]

# G. Machado, M. Oliveira, L. Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency, IEEE
# Transactions on Visualization and Computer Graphics 15 (6), 2009: severity 1.0.
SEEN = {
    "all cones": np.eye(3),
    "no long": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no middle": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no short": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# IEC 61966-2-1: from linear sRGB to XYZ, and the white of it.
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> Vector:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float((TO_XYZ @ linear(colour))[1]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(light: Vector) -> Vector:
    parts = TO_XYZ @ np.clip(light, 0, 1) / WHITE
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_any_two_series_can_be_told_apart_with_any_colour_vision(ground: str, seen: str) -> None:
    for colours, apart in (((*SERIES, MUTED), 20), ((*SERIES[:5], MUTED), 27)):  # the latter are of default backends
        places = [lab(SEEN[seen] @ linear(getattr(colour, ground))) for colour in colours]
        assert min(float(np.linalg.norm(one - other)) for one, other in combinations(places, 2)) >= apart


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_lines_and_texts_stand_out_from_their_ground(ground: str) -> None:
    behind = getattr(GROUND, ground)
    assert min(contrast(getattr(colour, ground), behind) for colour in SERIES) >= 3
    assert min(contrast(getattr(colour, ground), behind) for colour in (INK, MUTED)) >= 4.5


def test_no_two_colours_are_the_same() -> None:
    assert len({colour.light for colour in COLOURS}) == len(COLOURS)
