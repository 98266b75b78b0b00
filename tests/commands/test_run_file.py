"""The file that a run is measured into: not the name of a report, and what the refusal advises works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vebench.commands import run_file
from vebench.errors import UsageError
from vebench.reports.formats import registry


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-", "-o is the run file (JSON Lines), such as run.jsonl; a table comes from vebench report -o report.md"),
        ("a.MD", "a table comes from vebench report -o report.md"),
        ("a.json", "a table comes from vebench report -o report.json"),
        ("", "-o '': name a file"),
        (".", "-o .: is a folder: name a file in it"),
    ],
)
def test_what_a_run_cannot_be_written_to_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        run_file.named(text)
    assert complaint in str(error.value)


@pytest.mark.parametrize("suffix", registry.suffixes("run"))
def test_the_name_of_a_report_is_refused_with_one_that_a_report_can_have(suffix: str) -> None:
    with pytest.raises(UsageError) as error:
        run_file.named(f"run{suffix}")
    advised = re.search(r"vebench report -o (\S+)$", str(error.value))
    assert advised is not None
    assert registry.by_suffix(Path(advised[1]), "run")


def test_a_run_is_written_to_any_other_file() -> None:
    names = ("a.jsonl", "b", "c.run")
    assert [run_file.named(name) for name in names] == [Path(name) for name in names]
