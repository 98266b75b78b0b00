"""Tables as LaTeX."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from support.pages import Pages, page_of
from support.records import make_cell

from vebench.reports.document import Answer
from vebench.reports.formats import latex

if TYPE_CHECKING:
    from vebench.reports.pages.run import RunPage

COMMAND = re.compile(r"\\(?:[a-zA-Z]+\{\}|[{}$&#%_])|\{\\char34\}|\{[\[\]*]\}|([-,])\{\}(?=\1)")


def test_a_task_is_a_table_of_booktabs_with_a_line_for_each_backend(page: RunPage) -> None:
    text = latex.render(page)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1
    assert r"\begin{tabular}{lrrrl}" in text
    rules = [line.strip() for line in text.splitlines() if re.fullmatch(r" +\\(top|mid|bottom)rule", line)]
    assert rules == [r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"]
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 1 + 5
    assert {line.replace(r"\&", "").count("&") for line in lines} == {4}
    assert r"\textbf{14,402 \textpm{}4.0\% 1.56x}" in text
    assert r"mine.adapters:Fast{[}mode=a\textbar{}b{]}" in text
    assert r"\textit{ceiling}" in text


def test_the_caption_is_the_answer_to_its_task(page: RunPage) -> None:
    (document,) = page.documents
    (table,) = document.tables
    answers = (Answer("other", ("Not this.",)), Answer(table.group, ("A wins by 5 %.", "More.")))
    text = latex.render(Pages(replace(document, answers=answers)))
    assert r"\caption{A wins by 5 \%. ALE/Pong-v5: frames/s (4 frames per step).}" in text
    assert r"\label{tab:vebench-pong}" in text


def test_tables_of_several_tasks_have_labels_of_their_own() -> None:
    envs = ("Ant-v5", "Ant-v4", "CartPole-v1")
    text = latex.render(page_of(*(make_cell(env=env, steps=(100,) * 4) for env in envs)))
    labels = re.findall(r"\\label\{(.*)\}", text)
    assert len(set(labels)) == 3
    assert labels[0] == "tab:vebench-ant"


def test_no_folder_of_the_machine_is_in_it() -> None:
    cell = make_cell("mine:/home/ada/secret.py", steps=(100,) * 4)
    assert "/home" not in latex.render(page_of(cell, file="/home/ada/run.jsonl"))


@given(st.text(alphabet=st.characters(min_codepoint=1), max_size=60))
def test_every_special_character_is_escaped(text: str) -> None:
    left = COMMAND.sub("", latex.escaped(text))
    assert not set(left) & set("\\{}$&#%_^~<>|\"'`[]*\n\r\t\x1b")
    assert not re.search("--|,,", left.replace("-{}", "")) or "--" not in latex.escaped(text)
    assert left.isprintable()
    assert all(ord(character) < 256 for character in left)


def test_hostile_names_break_no_table() -> None:
    name = r"\input{/etc/passwd}\\ & % } $ \end{tabular} [1] *" + "\n\x1b\u202e"
    cells = [make_cell("for-loop", steps=(900,) * 4, env=name), make_cell(name, steps=(900,) * 4, env=name)]
    text = latex.render(page_of(*cells, file=name))
    commands = re.sub(r"\\[{}&%$]", "", text)
    assert commands.count("{") == commands.count("}")
    assert re.findall(r"\\(?:input|end|begin)\{\w+\}", text) == [
        r"\begin{table}", r"\begin{tabular}", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    rows = [line for line in commands.splitlines() if line.endswith(r"\\")]
    assert [row.count("&") for row in rows] == [2, 2, 2]
    assert [line for line in commands.splitlines() if "%" in line] == [latex.HEAD]


@given(st.text(alphabet="-,", max_size=12))
def test_hyphens_and_commas_stay_apart(text: str) -> None:
    shown = latex.escaped(text)
    assert "--" not in shown
    assert ",," not in shown
    assert shown.replace("{}", "") == text
