"""Figures as SVG, PNG and PDF: what is in them, and that they are harmless and always the same."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from support.charts import WORKERS, around, make_chart

from vebench.analysis.statistics import Estimate
from vebench.errors import UsageError
from vebench.reports import needed, plots
from vebench.reports.chart import Chart, Mark, Series
from vebench.reports.plotting import colours
from vebench.reports.plotting.panels import looks_of

NAMES = ("for-loop", "gym-async", "shm-sync")
HOSTILE = "<script>alert(1)</script>|$x^2$&amp;]]>\x1b[31m\u202e\n{a}%d"
PLAIN = "<script>alert(1)</script>"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text


def tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def texts(text: str) -> list[str]:
    return [element.text or "" for element in parsed(text).iter() if tag(element) == "text"]


def tips(text: str) -> list[str]:
    """Return what a browser shows for each point."""
    return [element.text or "" for element in parsed(text).iter() if tag(element) == "title"][1:]


@pytest.fixture(scope="module")
def drawn() -> str:
    """Return a chart as a file."""
    return plots.svg([make_chart(*NAMES)])


def test_each_series_and_each_mark_is_named_and_each_axis_too(drawn: str) -> None:
    expected = {*NAMES, "ceiling", "ideal", "predicted", "cores end", "CPUs end"}
    assert {*expected, "ALE/Pong-v5: frames/s", "workers", "frames/s"} <= set(texts(drawn))


def test_each_point_is_drawn_and_can_be_pointed_at(drawn: str) -> None:
    shown = tips(drawn)
    assert len(shown) == (len(NAMES) + 1) * len(WORKERS) + 1  # a forecast begins with a point that was measured
    assert "gym-async: 10,500 ±5.0%, workers: 1" in shown
    assert "for-loop, predicted: 400,000 ±30%, workers: 128" in shown


def test_ticks_are_plain_numbers(drawn: str) -> None:
    assert {"1", "2", "4", "8", "16", "32", "64", "128", "10k", "50k", "100k", "500k", "1M"} <= set(texts(drawn))


def test_those_who_cannot_see_it_get_its_numbers(drawn: str) -> None:
    root = parsed(drawn)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == root[0].text == "ALE/Pong-v5: frames/s"
    assert "gym-async: 10,500 at 1, 17,911 at 2," in (root[1].text or "")
    assert "for-loop (predicted): 300,000 at 64" in (root[1].text or "")


def test_a_forecast_is_dashed_and_nothing_measured_is(drawn: str) -> None:
    dashed = [e for e in parsed(drawn).iter() if "stroke-dasharray" in e.attrib]
    blue = [e for e in dashed if e.attrib["stroke"] == colours.SERIES[0].light]
    assert len(blue) == 1
    assert {e.attrib["stroke"] for e in dashed} == {colours.SERIES[0].light, colours.MUTED.light}


def test_each_measured_series_has_a_colour_and_a_marker_of_its_own() -> None:
    many = make_chart(*(f"backend-{number}" for number in range(9)))
    looks = [look for (_, role), look in looks_of([many]).items() if role == "measured"]
    assert len({(look.colour, look.marker) for look in looks}) == 9
    assert len({look.marker for look in looks}) == 9


def test_colours_follow_the_readers_scheme_and_are_there_without_style_sheets(drawn: str) -> None:
    blue = colours.SERIES[0]
    style = next(e.text or "" for e in parsed(drawn).iter() if tag(e) == "style")
    light, dark = style.split("@media screen and (prefers-color-scheme:dark)")
    assert f"--vebench-blue:{blue.light}" in light
    assert f"--vebench-blue:{blue.dark}" in dark
    ours = {colour.light for colour in colours.COLOURS}
    for element in parsed(drawn).iter():
        for name in ("fill", "stroke"):
            value = element.attrib.get(name, "none")
            if value != "none":
                assert value in ours
                assert f"{name}:var(--vebench-" in element.attrib["style"]


@pytest.mark.parametrize("inline", [False, True])
def test_the_same_charts_give_the_same_text(*, inline: bool) -> None:
    chart = make_chart(*NAMES)
    assert plots.svg([chart], inline=inline) == plots.svg([chart], inline=inline)


def test_pictures_and_pages_are_the_same_each_time_too() -> None:
    chart = make_chart("for-loop", marks=())
    assert (first := plots.png([chart])) == plots.png([chart])
    assert first.startswith(b"\x89PNG")
    assert (page := plots.pdf([chart])) == plots.pdf([chart])
    assert page.startswith(b"%PDF")
    assert b"Date" not in page


def test_a_figure_in_a_page_has_no_ids_and_styles_nothing_else() -> None:
    text = plots.svg([make_chart(*NAMES)], inline=True)
    assert text.startswith("<svg ")
    assert re.search(r"\bid=|url\(|href", text) is None
    style = next(e.text or "" for e in parsed(text).iter() if tag(e) == "style")
    assert set(re.findall(r"([^{}]+)\{--", style)) == {":where(.vebench-figure)"}


def test_a_file_has_a_ground_and_a_figure_in_a_page_has_that_of_the_page() -> None:
    def is_ground(element: ET.Element, root: ET.Element) -> bool:
        width = root.attrib["viewBox"].split()[2]
        return element.attrib.get("fill") == colours.GROUND.light and f"L {width} 0" in element.attrib.get("d", "")

    for inline in (False, True):
        root = parsed(plots.svg([make_chart("for-loop")], inline=inline))
        assert any(is_ground(element, root) for element in root.iter()) is not inline


def test_hostile_names_are_text_and_nothing_else() -> None:
    chart = make_chart(HOSTILE, title=HOSTILE, group=HOSTILE, x_label=HOSTILE, marks=(Mark(4.0, HOSTILE),))
    for inline in (False, True):
        text = plots.svg([chart], inline=inline)
        assert "<script" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert [shown for shown in texts(text) if shown.startswith(PLAIN[:8])]
        assert {tag(element) for element in parsed(text).iter()} <= {
            "svg",
            "title",
            "desc",
            "style",
            "g",
            "path",
            "text",
        }
    assert plots.png([chart]).startswith(b"\x89PNG")


def test_a_formula_is_not_set_and_letters_of_any_language_are_kept() -> None:
    text = plots.svg([make_chart(r"$\frac{1}{2}$", "円周率")])
    assert {r"$\frac{1}{2}$", "円周率"} <= set(texts(text))


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
    for name, colour in zip(NAMES, colours.SERIES, strict=False):
        samples = {
            fill_of(path) for path in parsed(text).iter() if (path.findtext("{*}title") or "").startswith(f"{name}: ")
        }
        assert samples == {colour.light}


def fill_of(path: ET.Element) -> str:
    return path.attrib["fill"]


@pytest.mark.parametrize(
    "estimate",
    [Estimate(100.0), Estimate(100.0, 0.0, 1e30), Estimate(100.0, 1e-30, float("inf")), Estimate(1e-9), Estimate(1e12)],
)
@pytest.mark.parametrize("linear", [False, True])
def test_any_estimate_can_be_drawn(estimate: Estimate, *, linear: bool) -> None:
    for points in [((1.0, estimate),), ((1.0, estimate), (2.0, around(100.0)))]:
        text = plots.svg([make_chart("a", series=(Series("a", points),), linear=linear)])
        assert len(tips(text)) == len(points)
        assert "nan" not in text
        assert "inf" not in re.sub("<desc>.*</desc>|<title>[^<]*</title>", "", text)


def test_a_series_without_a_point_is_not_in_the_figure() -> None:
    chart = make_chart("a", series=(Series("a", ((1.0, around(5.0)),)), Series("empty", ())))
    assert "empty" not in plots.svg([chart])


def test_without_matplotlib_there_is_one_line_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(needed, "importable", lambda module: module != "matplotlib")
    for draw in (plots.svg, plots.png, plots.pdf):
        with pytest.raises(UsageError) as error:
            draw([make_chart("a")])
        assert str(error.value) == "figures need matplotlib: pip install 'vebench-rl[report]'"
