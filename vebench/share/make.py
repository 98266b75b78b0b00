"""``vebench share make``: write a run as a folder that others can check."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec

from vebench.errors import UsageError, one_line
from vebench.files import with_texts
from vebench.reports import figures
from vebench.reports.console import note, show
from vebench.results import store
from vebench.results.records import Run
from vebench.share.check import CheckedPage
from vebench.share.checks import failures
from vebench.share.folder import Submission, command_of, submission_of


def make(file: Path, folder: Path | None) -> int:
    """Show the submission of a run, write it to ``folder``, and return the exit status.

    A submission that would be refused is not written: the status is 1. Raises UsageError for a run without a suite, or
    if the folder exists. Raises RunFileError if ``file`` is not a run file.
    """
    run = store.read(file)
    if folder is not None and folder.exists():
        raise UsageError(f"-o {one_line(str(folder))}: exists already: name a new folder")
    submission = submission_of(folder.name if folder else file.stem, _without_private_names(run))
    reasons = failures(submission)
    show(CheckedPage({submission.name: (submission, reasons)}))
    if reasons:
        return 1
    if folder is None:
        note("not written: name a folder with -o")
    else:
        _write(submission, folder)
        note(f"written to {folder}")
    return 0


def _without_private_names(run: Run) -> Run:
    """Return the run with a neutral command, and with paths of this machine cut to their last parts."""
    head = run.header
    for choice in head.spec.backends:
        if os.sep in choice.python:
            raise UsageError(f"{choice.label}: names a folder of this machine: measure it by a name on the search path")
    plain_head = msgspec.structs.replace(
        head,
        command=command_of(head.spec),
        host=msgspec.structs.replace(head.host, quota_source=None),
        interpreters={name: msgspec.structs.replace(one, path="") for name, one in head.interpreters.items()},
    )
    shorten = figures.without_folders((str(Path.home()),))
    renamed = msgspec.structs.replace(run, header=plain_head)
    plain = msgspec.convert(with_texts(msgspec.to_builtins(renamed), shorten), Run)
    # A line belongs to the run by the digest of its header, which has changed. Lines of other runs must not match it.
    cells = tuple(replace(cell, run=plain.header.digest if cell.run == head.digest else "") for cell in plain.cells)
    return msgspec.structs.replace(plain, cells=cells)


def _write(submission: Submission, folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
        with ExitStack() as unless_whole:
            unless_whole.callback(shutil.rmtree, folder)
            for name, content in submission.contents.items():
                (folder / name).write_bytes(content)
            unless_whole.pop_all()
    except OSError as error:
        raise UsageError(f"-o {one_line(str(folder))}: {error.strerror}") from None
