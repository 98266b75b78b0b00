"""Every format of a run's page: what it writes of a real run is as it was approved.

``pytest tests/reports/formats --renew`` writes the approved texts anew: look at their diff before you commit them.
"""

import re
from pathlib import Path

import msgspec
import pytest
from support.pages import on_terminal
from support.records import make_cell, make_header

from vebench.reports.formats import FORMATS, TERMINAL, Format
from vebench.reports.run import RunPage
from vebench.results import store
from vebench.results.records import Run

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
SNAPSHOTS = Path(__file__).parent / "snapshots"
# Formats whose files are pictures, which differ from one version of the library that draws them to the next.
PICTURES = ("svg", "png", "pdf", "transcript")
TEXTS = [form for form in FORMATS if "run" in form.kinds and form.name not in PICTURES]
# Parts of a page in HTML that are no text: pictures, and what they and the page look like.
DRAWN = re.compile(r"<(svg|style|script)\b.*?</\1>", re.DOTALL)
DIGEST = re.compile(r"(?<='sha256-)[^']*")  # of the script
FLOAT = re.compile(r"\d+\.\d{7,}(?:e[+-]?\d+)?")  # Python 3.12 adds floats more exactly than 3.11


def written(form: Format, page: RunPage) -> str:
    """Return a page in a format."""
    rendered = form.render(page)
    if form is TERMINAL:
        return on_terminal(page, 80)
    assert isinstance(rendered, str), f"if {form.name} is a picture, name it above"
    return rendered


@pytest.mark.parametrize("form", TEXTS, ids=[form.name for form in TEXTS])
def test_a_format_writes_a_real_run_as_it_was_approved(form: Format, *, renew: bool) -> None:
    """The run is a real one, reduced to some of its cells."""
    page = RunPage.of([("pong.jsonl", store.read(SNAPSHOTS / "pong.jsonl"))])
    drawn = DIGEST.sub("", DRAWN.sub(r"<\1/>", written(form, page)))
    text = FLOAT.sub(lambda found: f"{float(found[0]):.12g}", "\n".join(line.rstrip() for line in drawn.split("\n")))
    approved = SNAPSHOTS / f"pong.{form.name}.txt"
    if renew:
        approved.write_text(text, encoding="utf-8")
    assert text.splitlines() == approved.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", ["markdown", "html", "latex"])
def test_no_folder_of_the_machine_is_in_what_others_read(name: str) -> None:
    (form,) = (form for form in TEXTS if form.name == name)
    header = msgspec.structs.replace(make_header(), command="vebench run -e Pong -o /home/ada/a.jsonl", cells=30)
    rated = [make_cell("mine:/home/ada/secret.py", workers, (100, 101, 99, 100)) for workers in (1, 2)]
    failed = make_cell("mine", 4, status="failed", reason='File "/home/ada/mine.py", line 3: no /home/ada/x y')
    runs = [(f"/home/ada/my runs/{number}.jsonl", Run(header, (*rated, failed))) for number in ("one", "two")]
    for page in (RunPage.of(runs), RunPage.of(runs[:1])):
        text = written(form, page)
        assert "/home" not in text
        assert "mine:secret.py" in text
        assert name != "markdown" or "`vebench run -e Pong -o a.jsonl`" in text
