"""The lines to paste, in a script of their own and an interpreter of their own: they step what was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.pasting import OWN, PASTED, TASKS, built, pasted, task_of

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.backends.entry import BackendEntry


@pytest.mark.parametrize("entry", [one for one in PASTED if one.installation is None], ids=lambda entry: entry.name)
def test_pasted_lines_step_as_many_environments_as_was_promised(entry: BackendEntry, tmp_path: Path) -> None:
    planned = built(entry, task_of(entry))
    counted = pasted(planned, entry.lines(planned), tmp_path)
    resets = counted["batches"] * planned.batch_size - counted["steps"]
    assert 0 <= resets < counted["batches"] * planned.batch_size / 2


@pytest.mark.parametrize("name", ["for-loop", "gym-sync", "gym-async", "shm-sync", "shm-async"])
def test_so_do_those_of_an_environment_of_the_users_own(name: str, tmp_path: Path) -> None:
    (entry,) = (one for one in PASTED if one.name == name)
    planned = built(entry, OWN)
    counted = pasted(planned, entry.lines(planned), tmp_path)
    ends = counted["batches"] * planned.batch_size - counted["steps"]
    assert (ends > 0) == (name != "for-loop")  # a row of Gymnasium's that only tells of a reset is no step


def test_processes_that_import_the_script_do_not_run_it_again(tmp_path: Path) -> None:
    (entry,) = (one for one in PASTED if one.name == "gym-async")
    planned = built(entry, TASKS[0], context="spawn")
    pasted(planned, entry.lines(planned), tmp_path)
