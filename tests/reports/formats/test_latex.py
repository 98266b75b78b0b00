"""Tables as LaTeX."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.pages import Pages
from support.records import make_repeated

from vebench.reports.document import View
from vebench.reports.formats import data
from vebench.reports.run import RunPage

COMMAND = re.compile(r"\\(?:[a-zA-Z]+\{\}|[{}$&#%_])|\{\\char34\}|\{[\[\]*]\}|([-,])\{\}(?=\1)")


def tables_of(text: str) -> list[str]:
    return text.split(r"\begin{table}")[1:]


def test_a_further_table_has_its_own_title_as_caption_and_its_own_notes() -> None:
    rates = {("for-loop", 1): 1000.0, ("for-loop", 2): 1010.0, ("shm-sync", 1): 980.0, ("shm-sync", 2): 1800.0}
    view = View(forecast=4, columns=("efficiency",))
    page = RunPage.of([("a.jsonl", make_repeated(rates))], view)
    (document,) = page.documents
    measured, efficiency, predicted = tables_of(data.latex_tables(page))
    (answer,) = document.answers
    legend = data.in_latex(document.legend[0])
    assert data.in_latex(answer.sentences[0]) in measured
    assert legend in measured
    assert "Bold: the winner." in measured
    for text, title in zip((efficiency, predicted), document.tables[1:], strict=True):
        assert rf"\caption{{{data.in_latex(title.title)}.}}" in text
        assert not any(word in text for word in (legend, "Bold", data.in_latex("±: ")))
        assert all(data.in_latex(note) in text for note in title.notes)
    assert "not predicted: " in predicted.partition(r"\end{tabular}")[2]
    machine = "This machine: Test CPU, 2 of 2 CPUs usable"
    assert [machine in text for text in (measured, efficiency, predicted)] == [True, True, True]


def test_tables_of_two_runs_are_told_apart_by_their_letters_without_folders() -> None:
    one, other = (make_repeated({("for-loop", 1): rate}) for rate in (900.0, 950.0))
    text = data.latex_tables(RunPage.of([("/home/ada/one.jsonl", one), ("/home/ada/other.jsonl", other)]))
    captions = re.findall(r"\\caption\{(.*)\}", text)
    for letter in "AB":
        assert sum(f"{letter}: Pong on Test, 2 CPUs: ALE/Pong-v5: frames/s" in line for line in captions) == 1
    assert len(set(captions)) == len(captions) == 3
    assert "/home" not in text


def test_what_makes_a_run_unusable_is_in_the_caption_and_a_speedup_beside_its_rate() -> None:
    run = make_repeated({("for-loop", 1): 900.0, ("for-loop", 2): 950.0})
    (document,) = RunPage.of([("a.jsonl", run)]).documents
    (table,) = tables_of(data.latex_tables(Pages(replace(document, notice="unusable: odd"))))
    assert " Unusable: odd. ALE/Pong-v5: " in table
    assert r"for-loop & 3,622 \textpm{}10\% 1.00x & " in table


@given(st.text(alphabet=st.characters(min_codepoint=1), max_size=60) | st.text(alphabet="-,", max_size=12))
def test_every_special_character_is_escaped_and_hyphens_and_commas_stay_apart(text: str) -> None:
    left = COMMAND.sub("", shown := data.in_latex(text))
    assert not set(left) & set("\\{}$&#%_^~<>|\"'`[]*\n\r\t\x1b")
    assert not re.search("--|,,", shown)
    assert set(text) - set("-,") or shown.replace("{}", "") == text
    assert left.isprintable()
    assert all(ord(character) < 256 for character in left)
