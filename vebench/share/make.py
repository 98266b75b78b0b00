"""``vebench share make``: a run with a fixed plan as a folder that others can check."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vebench.analysis.summary import summarise
from vebench.errors import UsageError, one_line
from vebench.reports.console import show
from vebench.reports.figures import without_folders
from vebench.results import store
from vebench.results.records import sealed
from vebench.share import checks
from vebench.share import folder as submission
from vebench.share.checks import command_of, division_of, results_of, suite_of
from vebench.share.submission_page import SubmissionPage

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vebench.results.records import Run

_ACCEPTED, _REFUSED = 0, 1


def submit(file: Path, folder: Path | None) -> int:
    """Show what a submission of the run would contain and whether it would be accepted, and write it to ``folder``.

    Returns 1, and writes nothing, if it would be refused. Raises UsageError for a run of no suite, a Python that did
    not measure it, or a folder that is there; RunFileError for what is not a run file.
    """
    run = store.read(file)
    suite = suite_of(run)
    if folder is not None and folder.exists():
        raise UsageError(f"-o {one_line(str(folder))}: is there already: name a new folder")
    run = _without_names(run)
    found = submission.made(
        folder.name if folder is not None else file.stem,
        run,
        {
            "vebench": run.header.packages.get("vebench", ""),
            "suite": suite.id,
            "plan": suite.digest,
            "division": division_of(run.header.spec),
            "started": run.header.started,
            "command": run.header.command,
            "results": results_of(summarise(run)),
        },
    )
    refusals = checks.refusals(found)
    written = None if refusals else folder
    if written is not None:
        _write(found, written)
    show(SubmissionPage(found, refusals, written))
    return _REFUSED if refusals else _ACCEPTED


def _without_names(run: Run) -> Run:
    """Return the run without the command's own words, and with folders of this machine cut to their last parts."""
    head, was = run.header, run.header.digest
    for choice in head.spec.backends:
        if os.sep in choice.python:
            raise UsageError(f"{choice.label}: names a folder of this machine: measure it by a name on the search path")
    head = msgspec.structs.replace(
        head,
        command=command_of(head.spec),
        host=msgspec.structs.replace(head.host, quota_source=None),
        interpreters={name: msgspec.structs.replace(one, path="") for name, one in head.interpreters.items()},
    )
    plain = without_folders((str(Path.home()),))
    lines = [json.loads(line) for line in store.written(msgspec.structs.replace(run, header=head)).splitlines()]
    for line in lines:
        del line["crc32"]
    data = b"".join(sealed(msgspec.json.encode(_mapped(line, plain))) for line in lines)
    run = store.parse(data, "the run")[0]
    # Lines of other runs stay theirs.
    cells = tuple(replace(cell, run=run.header.digest if cell.run == was else "") for cell in run.cells)
    return msgspec.structs.replace(run, cells=cells)


def _mapped(value: Any, plain: Callable[[str], str]) -> Any:  # noqa: ANN401 - as JSON has it
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {key: _mapped(one, plain) for key, one in value.items()}
    return [_mapped(one, plain) for one in value] if isinstance(value, list) else value


def _write(found: submission.Submission, folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
        with ExitStack() as unless_whole:
            unless_whole.callback(shutil.rmtree, folder)
            for name, content in found.contents.items():
                (folder / name).write_bytes(content)
            unless_whole.pop_all()
    except OSError as error:
        raise UsageError(f"-o {one_line(str(folder))}: {error.strerror}") from None
