"""``vebench share check``: whether submissions are accepted, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from vebench.errors import RunFileError, one_line
from vebench.reports import figures
from vebench.reports.console import Outlet
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text
from vebench.share import folder
from vebench.share.checks import AS_WRITTEN, CheckFailure, failures
from vebench.share.folder import Submission

Checked: TypeAlias = tuple[Submission | None, tuple[CheckFailure, ...]]  # None for a folder that cannot be read


def check(paths: Sequence[Path], outlet: Outlet) -> int:
    """Check submissions, show the result, and return 1 if one is refused."""
    found: dict[str, Checked] = {}
    for path in paths:
        try:
            submission = folder.read(path)
            found[one_line(str(path))] = submission, failures(submission)
        except RunFileError as error:
            found[one_line(str(path))] = None, (CheckFailure("files", str(error), AS_WRITTEN),)
    outlet.publish(CheckedPage(found))
    return 1 if any(reasons for _, reasons in found.values()) else 0


@dataclass(frozen=True)
class CheckedPage(DataPage):
    """The checked submissions by folder."""

    found: Mapping[str, Checked]
    kind = "submission"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a row for each submission, and the failures."""
        rows: list[TableRow] = []
        explanations: list[Remark] = []
        for name, (submission, reasons) in self.found.items():
            about = (figures.DASH,) * 3
            if submission is not None:
                host = submission.machine.host
                machine = one_line(f"{figures.counted(host.usable_cpus, 'CPU')}, {host.cpu_model}")
                about = submission.manifest.suite, submission.manifest.division, machine
            verdict = Text(("refused",), "struck") if reasons else Text(("accepted",))
            rows.append(TableRow(name, (verdict, *(Text((text,)) for text in about))))
            where = (name,) if len(self.found) > 1 else ()
            explanations += [
                Remark(one.check, one_line(one.reason), (*where, *one.places), one.remedy) for one in reasons
            ]
        columns = ("verdict", "suite", "division", "machine")
        table = Table("Submissions", columns, tuple(rows), corner="folder", numbers=False)
        refused = sum(bool(reasons) for _, reasons in self.found.values())
        title = f"{figures.counted(len(rows), 'submission')}, {refused or 'none'} refused"
        return (Document(title, (), (table,), explanations=tuple(explanations)),)

    @property
    def data(self) -> list[dict[str, object]]:
        """An object for each submission."""
        return [
            {"folder": name, "accepted": not reasons, "refusals": [asdict(one) for one in reasons]}
            for name, (_, reasons) in self.found.items()
        ]
