"""Pages in Markdown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pytest
from markdown_it import MarkdownIt
from support.charts import around, make_chart
from support.pages import Pages, make_pages, page_of
from support.records import make_cell, make_header, write_run

from vebench.errors import UsageError
from vebench.reports import plots
from vebench.reports.document import AnswerText, Document, Table, TableRow, Text
from vebench.reports.formats import markdown
from vebench.reports.formats.registry import MARKDOWN
from vebench.reports.output import save
from vebench.reports.pages.run import RunPage
from vebench.results.records import Run

if TYPE_CHECKING:
    from support.commands import Command

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
LINK = re.compile(r"!\[[^\]]*\]\(([^)]*)\)")


def test_a_run_that_was_not_finished_says_so(sweep: Run) -> None:
    run = Run(msgspec.structs.replace(sweep.header, cells=30), sweep.cells)
    text = markdown.markdown_text(RunPage.of([("r.jsonl", run)]))
    assert "- **incomplete**: 14 of 30 cells\n  - → vebench run --resume r.jsonl" in text


def test_a_markdown_table_has_as_many_columns_in_each_line(page: RunPage) -> None:
    lines = [line for line in markdown.markdown_text(page).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 5
    assert {line.replace("\\|", "").count("|") for line in lines} == {6}
    assert len({len(line) for line in lines}) == 1


def test_a_place_is_one_line_with_the_rate_and_the_speedup(page: RunPage) -> None:
    lines = [line for line in markdown.markdown_text(page).splitlines() if line.startswith("|")]
    assert [re.split(r" +\| +", line.strip("| "))[:3] for line in lines[2:5]] == [
        ["for-loop", "9,212 ±4.0% 1.00x", "9,236 ±4.1% 1.00x"],
        ["gym-async", "7,202 ±4.0% 0.78x", "9,740 ±6.7% 1.06x"],
        ["envpool-sync", "10,002 ±4.0% 1.09x", "**14,402 ±4.0% 1.56x**"],
    ]
    assert re.split(r" +\| +", lines[6].strip("| "))[:3] == ["*ceiling*", "18,810 ±4.0%", "37,610 ±4.0%"]
    assert "<br>" not in "".join(lines)


def test_a_figure_that_is_not_valid_is_struck_with_its_reason_beside_it() -> None:
    cells = [make_cell("for-loop", steps=(900,) * 4), make_cell("gym-sync", steps=(9000,) * 4, verdict="different")]
    assert "| ~~36,000 ±4.0%~~ other work |" in markdown.markdown_text(page_of(*cells))


def test_the_answer_comes_first_and_what_explains_it_is_folded(page: RunPage) -> None:
    (document,) = page.documents
    answer = AnswerText("ALE/Pong-v5", ("A wins by 5 %.", "B cannot be told from it."), ("import a", "a.make(4)"))
    text = markdown.markdown_text(Pages(replace(document, answers=(answer,))))
    first = "**A wins by 5 %.** B cannot be told from it.\n\n```python\nimport a\na.make(4)\n```\n\n### ALE/Pong-v5"
    assert f"## pong.jsonl\n\n{first}" in text
    order = (
        "### Findings",
        "- **failed**",
        "<summary>How to read this",
        "In each cell",
        "<summary>Measured on Test CPU, 2 of 2 CPUs usable, 24.0 GiB</summary>",
        "- machine: ",
    )
    assert [*map(text.index, order)] == sorted(map(text.index, order))
    assert text.count("<details>") == text.count("</details>") == len(re.findall(r"</summary>\n\n(?=\S)", text))
    assert text.count("\n\n</details>\n") == text.count("</details>")


def test_a_place_of_several_figures_has_a_line_for_each() -> None:
    place = Text(("1.20x ±3.0%", "a 100 ±1.0%"), value=around(1.2), values={"ratio": around(1.2)})
    table = Table("t", "backend", ("1 worker",), (TableRow("x", (place,)),), axis=(1,))
    facts = (("differs", "nothing"), ("machine", "Test CPU"))
    text = markdown.markdown_text(Pages(Document("two runs", facts, (table,))))
    assert "| x       | 1.20x ±3.0%<br>a 100 ±1.0% |" in text
    assert text.index("- differs: nothing") < text.index("### t") < text.index("- machine: Test CPU")


def test_whether_a_run_may_be_compared_with_the_first_is_in_the_open(sweep: Run) -> None:
    text = markdown.markdown_text(RunPage.of([("a.jsonl", sweep), ("b.jsonl", sweep)]))
    before_its_table = text[text.index("## b.jsonl") :].partition("\n### ")[0]
    assert "\n- compared: comparable with a.jsonl: " in before_its_table
    assert "<details>" not in before_its_table


def test_faults_are_in_the_open_and_other_findings_are_folded(page: RunPage) -> None:
    text = markdown.markdown_text(page)
    folded = text.index("1 more finding</summary>")
    assert text.index("- **failed**") < folded < text.index("- **imprecise**")


def test_markdown_has_a_title_the_machine_and_the_command_that_repeats_it(page: RunPage) -> None:
    text = markdown.markdown_text(page)
    assert text.startswith("# Throughput of vector-env backends\n\n## pong.jsonl\n")
    assert "- machine: Test CPU, 2 of 2 CPUs usable, 24.0 GiB\n" in text
    assert "- command: `vebench run --env Pong`\n" in text
    assert text.index("### Findings") > text.index("### ALE/Pong-v5")


def test_markdown_has_one_table_for_each_task() -> None:
    cells = [make_cell(backend, env=env) for env in ("Ant-v5", "CartPole-v1") for backend in ("for-loop", "gym-sync")]
    text = markdown.markdown_text(page_of(*cells))
    assert [line for line in text.splitlines() if line.startswith("| backend")] == [
        "| backend  |  1 worker | same work          |"
    ] * 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("**x** <b>", r"\*\*x\*\* \<b>"),
        ("x86_64 __init__", r"x86_64 \_\_init\_\_"),
        ("[a](b)", r"[a\](b)"),
        ("±>100%", "±>100%"),
    ],
)
def test_what_would_be_markup_is_escaped(text: str, shown: str) -> None:
    assert f"## {shown}\n" in markdown.markdown_text(RunPage.of([(text, Run(make_header(), ()))]))


@pytest.mark.parametrize(
    ("text", "shown"), [("costs $5$", "costs <span>$</span>5<span>$</span>"), ("@ada, a@b", "@<!-- -->ada, a@b")]
)
def test_what_github_would_find_later_is_no_formula_and_nobody_is_notified(text: str, shown: str) -> None:
    assert f"## {shown}\n" in markdown.markdown_text(RunPage.of([(text, Run(make_header(), ()))]))


def test_figures_are_files_beside_the_text_with_relative_links(page: RunPage, tmp_path: Path) -> None:
    save(page, MARKDOWN, tmp_path / "my report.md")
    links = [unquote(link) for link in LINK.findall((tmp_path / "my report.md").read_text())]
    assert links[:2] == ["my report-pong-scaling.svg", "my report-pong-efficiency.svg"]
    assert {path.name for path in tmp_path.iterdir()} == {"my report.md", *links}
    assert all((tmp_path / link).read_text().startswith("<?xml") for link in links)


def test_the_first_figure_of_a_task_is_shown_and_the_others_are_folded(page: RunPage) -> None:
    text = markdown.with_figures(page, "report.md")["report.md"]
    shown, folded = LINK.finditer(text), text.index("<details>")
    assert [link.start() < folded for link in shown] == [True, False, False]
    assert "](report-pong-scaling.svg)" in text


def test_a_further_table_of_a_task_stands_below_its_figures_and_those_of_others(page: RunPage) -> None:
    (document,) = page.documents
    names = ("first", "second", "more of the first")
    tables = tuple(Table(name, "c", ("x",), (), group=name.split()[-1]) for name in names)
    charts = tuple(make_chart("a", group=name) for name in ("first", "second"))
    (text, *_) = markdown.with_figures(Pages(replace(document, tables=tables, charts=charts)), "r.md").values()
    order = ("### first", "r-first-scaling.svg", "### second", "r-second-scaling.svg", "### more of the first")
    assert [*map(text.index, order)] == sorted(map(text.index, order))


def test_figures_of_several_runs_and_tasks_have_names_of_their_own(page: RunPage) -> None:
    (document,) = page.documents
    charts = tuple(make_chart("a", group=group) for group in ("ALE/Pong-v5", "Pong-v4", "<script>|"))
    tables = tuple(Table("t", "c", ("x",), (), group=chart.group) for chart in charts)
    two = [replace(document, title=title, charts=charts, tables=tables) for title in ("runs/a.jsonl", "runs/A.jsonl")]
    files = markdown.with_figures(Pages(*two), "r.md")
    assert len({name.lower() for name in files}) == 1 + 6
    assert {"r-a-pong-scaling.svg", "r-a-pong-scaling-2.svg", "r-a-script-scaling.svg"} <= files.keys()
    assert [unquote(link) for link in LINK.findall(files["r.md"])] == [*files][1:]


def test_a_text_that_is_printed_or_that_has_no_figures_has_no_links(
    page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "![" not in markdown.markdown_text(page)
    monkeypatch.setattr(plots, "importable", lambda _: False)
    assert markdown.with_figures(page, "report.md") == {"report.md": markdown.markdown_text(page)}


def test_a_user_without_matplotlib_is_told_what_the_report_lacks(
    vebench: Command, sweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(Path("run.jsonl"), sweep)
    monkeypatch.setattr(plots, "importable", lambda _: False)
    result = vebench("report", "run.jsonl", "-o", "report.md")
    assert (result.status, result.err) == (
        0,
        "vebench: report.md has no figures: figures need matplotlib: pip install 'vebench-rl[report]'\n",
    )
    assert not [*Path().glob("*.svg")]


def test_a_figure_never_overwrites_a_run_file(page: RunPage, sweep: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / "report-pong-efficiency.svg", sweep)
    before = run.read_bytes()
    with pytest.raises(UsageError) as error:
        save(page, MARKDOWN, tmp_path / "report.md")
    assert "report-pong-efficiency.svg: is a run file, and would be overwritten" in str(error.value)
    assert [*tmp_path.iterdir()] == [run]
    assert run.read_bytes() == before


def test_no_folder_of_the_machine_is_in_it(sweep: Run, tmp_path: Path) -> None:
    header = msgspec.structs.replace(sweep.header, command="vebench run -e Pong -o /home/ada/a.jsonl", cells=30)
    failed = make_cell("mine", 4, (), status="failed", reason='File "/home/ada/mine.py", line 3: no /home/ada/x y')
    runs = [(f"{tmp_path}/a b {name}.jsonl", Run(header, (*sweep.cells, failed))) for name in ("one", "two")]
    text = markdown.with_figures(RunPage.of(runs), "report.md")["report.md"]
    assert "/home" not in text
    assert str(tmp_path) not in text
    assert "`vebench run -e Pong -o a.jsonl`" in text
    assert "comparable with a b one.jsonl: " in text


@pytest.mark.parametrize("kind", ["check", "history", "verify", "plan", "list", "machine"])
def test_other_pages_are_all_in_the_open(kind: str) -> None:
    page = {str(kind): page for kind, page in make_pages().items()}[kind]
    (text,) = markdown.with_figures(page, "page.md").values()
    assert text == markdown.markdown_text(page)
    assert "<details>" not in text
    (document,) = page.documents
    assert [f"- {name}: " in text for name, _ in document.facts] == [True] * len(document.facts)


HOSTILE = (
    "<script>alert(1)</script>|`**x**`\n::error::x\x1b[31m\x9b\u202e$y$ @ada [a](javascript:b) </summary></details>"
)


OUR_HTML = {"<details>", "</details>", "<span>", "</span>", "<!-- -->"}


def hostile_page(sweep: Run) -> Pages:
    """Return a page on which every text from outside is hostile."""
    cells = [replace(cell, env=HOSTILE, reason=HOSTILE if cell.reason else None) for cell in sweep.cells]
    mine = [replace(cell, backend=HOSTILE, env=HOSTILE) for cell in sweep.cells[1:3]]
    header = msgspec.structs.replace(sweep.header, command=HOSTILE, packages={HOSTILE: HOSTILE})
    (document,) = RunPage.of([(HOSTILE, Run(header, (*cells, *mine)))]).documents
    answer = AnswerText(HOSTILE, (HOSTILE, HOSTILE), (f"make({HOSTILE!r})", "```", HOSTILE))
    return Pages(replace(document, answers=(answer,), notice=HOSTILE))


def test_a_hostile_name_is_text_wherever_it_stands(sweep: Run) -> None:
    files = markdown.with_figures(hostile_page(sweep), "report.md")
    text = files["report.md"]
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    blocks = [line for token in tokens if token.type == "html_block" for line in token.content.splitlines() if line]
    assert {token.content for token in inside if token.type == "html_inline"} <= OUR_HTML
    assert {line for line in blocks if not line.startswith("<summary>")} <= OUR_HTML
    assert all(line.count("<") == 2 and line.endswith("</summary>") for line in blocks if "<summary>" in line)
    assert blocks.count("<details>") == blocks.count("</details>") > 3
    assert [token for token in inside if token.type == "link_open"] == []
    assert {unquote(str(token.attrs["src"])) for token in inside if token.type == "image"} == {*files} - {"report.md"}
    (fence,) = (token for token in tokens if token.type == "fence")
    assert fence.info == "python"
    assert fence.content.splitlines()[1] == "```"
    assert len({token.level for token in tokens if token.type == "tr_open"}) == 1
    assert {token.tag for token in tokens if token.type == "heading_open"} == {"h2", "h3"}


def test_no_control_character_and_no_command_of_a_ci_service_is_in_it(sweep: Run) -> None:
    for text in markdown.with_figures(hostile_page(sweep), "report.md").values():
        assert not {character for character in text if not character.isprintable()} - {"\n"}
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
