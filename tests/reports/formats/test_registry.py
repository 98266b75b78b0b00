"""The table of formats: what a name and a suffix mean, and that each format renders what the table says."""

import json
from collections import Counter
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from support.pages import make_pages

from vebench.errors import UsageError
from vebench.reports import formats
from vebench.reports.document import PageKind
from vebench.reports.formats import FORMATS, TERMINAL, Format

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
PAIRS = [(form, kind) for form in FORMATS for kind in sorted(form.kinds)]


@pytest.mark.parametrize(("form", "kind"), PAIRS, ids=[f"{form.name}-{kind}" for form, kind in PAIRS])
def test_a_format_renders_every_kind_of_page_that_the_table_says(form: Format, kind: PageKind) -> None:
    rendered = form.render(make_pages()[kind])
    assert isinstance(rendered, bytes) == form.binary
    assert isinstance(rendered, str | bytes) == (form is not TERMINAL)
    if form.name in ("json", "github", "bmf"):
        assert json.loads(str(rendered))
    elif form.name in ("junit", "svg", "transcript"):
        assert ET.fromstring(str(rendered)).tag.rpartition("}")[2] in ("testsuites", "svg")
    elif isinstance(rendered, str):
        assert rendered.endswith("\n")


def test_names_and_suffixes_are_unique_for_each_kind_of_page() -> None:
    assert set(TERMINAL.kinds) == set(get_args(PageKind)) == set(make_pages())
    pairs = Counter((kind, name) for form in FORMATS for kind in form.kinds for name in (form.name, *form.suffixes))
    assert set(pairs.values()) == {1}


def test_help_names_the_formats_and_the_programs_that_read_them() -> None:
    assert formats.choices("verify") == "terminal, markdown, html or json"
    assert "json, github (github-action-benchmark), bmf (Bencher), " in formats.choices("run")


@pytest.mark.parametrize(
    ("file", "name"),
    [("a.md", "markdown"), ("a.Markdown", "markdown"), ("a.CSV", "csv"), ("a.json", "json"), ("a.txt", "terminal")],
)
def test_a_suffix_means_a_format_unless_one_is_named(file: str, name: str) -> None:
    assert formats.format_for(None, Path(file), "run").name == name
    assert formats.format_for("bmf", Path(file), "run").name == "bmf"
    assert formats.format_for(None, None, "run") is TERMINAL


def test_an_unknown_format_or_suffix_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"\.png, \.pdf;"):
        formats.format_for(None, Path("a.docx"), "run")
    with pytest.raises(UsageError, match="-f svg: no such format"):
        formats.format_for("svg", None, "check")
