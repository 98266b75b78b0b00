"""Pages in Markdown."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.charts import make_chart
from support.pages import Pages
from support.records import make_header, write_run

from vebench.errors import UsageError
from vebench.reports.console import save
from vebench.reports.document import Table
from vebench.reports.formats import MARKDOWN, markdown
from vebench.reports.run import RunPage
from vebench.results.records import Run

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
LINK = re.compile(r"!\[[^\]]*\]\(([^)]*)\)")


def test_faults_are_in_the_open_and_other_findings_are_folded(page: RunPage) -> None:
    text = markdown.markdown_text(page)
    folded = text.index("1 more finding</summary>")
    assert text.index("- **failed**") < folded < text.index("- **imprecise**")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("**x** <b>", r"\*\*x\*\* \<b>"),
        ("x86_64 __init__", r"x86_64 \_\_init\_\_"),
        ("[a](b)", r"[a\](b)"),
        ("±>100%", "±>100%"),
        ("costs $5$", "costs <span>$</span>5<span>$</span>"),  # no formula to GitHub
        ("@ada, a@b", "@<!-- -->ada, a@b"),  # nor does it notify anybody
    ],
)
def test_what_would_be_markup_is_escaped(text: str, shown: str) -> None:
    assert f"- file: {shown}\n" in markdown.markdown_text(RunPage.of([(text, Run(make_header(), ()))]))


def test_figures_are_files_beside_the_text_with_relative_links(page: RunPage, tmp_path: Path) -> None:
    save(page, MARKDOWN, tmp_path / "my report.md")
    links = [unquote(link) for link in LINK.findall((tmp_path / "my report.md").read_text())]
    assert links == ["my report-1-pong-rate.svg"]
    assert {path.name for path in tmp_path.iterdir()} == {"my report.md", *links}
    assert all((tmp_path / link).read_text().startswith("<?xml") for link in links)


def test_a_further_table_of_a_task_stands_below_its_figures_and_those_of_others(page: RunPage) -> None:
    (document,) = page.documents
    names = ("first", "second", "more of the first")
    tables = tuple(Table(name, ("x",), (), group=name.split()[-1]) for name in names)
    charts = tuple(make_chart("a", group=name) for name in ("first", "second"))
    (text, *_) = markdown.with_figures(Pages(replace(document, tables=tables, charts=charts)), "r.md").values()
    order = ("### first", "r-1-first-rate.svg", "### second", "r-2-second-rate.svg", "### more of the first")
    assert [*map(text.index, order)] == sorted(map(text.index, order))


def test_figures_of_several_runs_and_tasks_have_names_of_their_own(page: RunPage) -> None:
    (document,) = page.documents
    groups = ("ALE/Pong-v5", "Pong-v4", "<script>|")
    tables = tuple(Table("t", ("x",), (), group=group) for group in groups)
    two = []
    for file in ("runs/a.jsonl", "runs/A.jsonl"):
        charts = tuple(make_chart("a", group=group, title=file) for group in groups)
        two.append(replace(document, file=file, charts=charts, tables=tables))
    files = markdown.with_figures(Pages(*two), "r.md")
    assert {"r-1-pong-rate.svg", "r-2-pong-rate.svg", "r-6-script-rate.svg"} <= files.keys()
    assert [unquote(link) for link in LINK.findall(files["r.md"])] == [*files][1:]


def test_a_text_that_is_printed_or_without_figures_has_no_links(page: RunPage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "![" not in markdown.markdown_text(page)
    monkeypatch.setattr(markdown, "importable", lambda _: False)
    assert markdown.with_figures(page, "report.md") == {"report.md": markdown.markdown_text(page)}


def test_a_figure_never_overwrites_a_run_file(page: RunPage, sweep: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / "report-1-pong-rate.svg", sweep)
    before = run.read_bytes()
    with pytest.raises(UsageError) as error:
        save(page, MARKDOWN, tmp_path / "report.md")
    assert "report-1-pong-rate.svg: is a run file, and would be overwritten" in str(error.value)
    assert [*tmp_path.iterdir()] == [run]
    assert run.read_bytes() == before
