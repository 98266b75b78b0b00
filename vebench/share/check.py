"""``vebench share check``: whether folders that others have submitted are accepted, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.errors import RunFileError, one_line
from vebench.share import folder as submission
from vebench.share.checks import AS_WRITTEN, Refusal, refusals
from vebench.share.submission_page import CheckedPage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.reports.console import Outlet

_ACCEPTED, _REFUSED = 0, 1


def check(folders: Sequence[Path], outlet: Outlet) -> int:
    """Check submissions, and show why those that are not accepted are not. Returns 1 if there is one."""
    found: dict[str, tuple[submission.Submission | None, tuple[Refusal, ...]]] = {}
    for folder in folders:
        try:
            read = submission.read(folder)
            found[one_line(str(folder))] = read, refusals(read)
        except RunFileError as error:
            refusal = Refusal("files", str(error), AS_WRITTEN)
            found[one_line(str(folder))] = None, (refusal,)
    outlet.publish(CheckedPage(found))
    return _REFUSED if any(reasons for _, reasons in found.values()) else _ACCEPTED
