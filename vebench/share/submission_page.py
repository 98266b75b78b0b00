"""What a submission contains, and why submissions are or are not accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import DataPage, Document, Page, Remark, Table, TableRow, Text
from vebench.share.folder import MANIFEST, RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from vebench.share.checks import Refusal
    from vebench.share.folder import Submission

_MEANING = {
    RUN: "the plan, the machine, and all windows and proofs, without folders of this machine",
    "machine.json": "the machine, apart from the run",
    "packages.json": "versions of the packages that affect figures, and digests of their files",
    MANIFEST: "suite, division, figures, and the checksums of the other files",
}


def _remarks(refusals: Iterable[Refusal], where: str = "") -> tuple[Remark, ...]:
    return tuple(
        Remark(
            one.check,
            one_line(one.reason),
            tuple(map(one_line, (*([where] if where else ()), *one.places))),
            one.remedy,
        )
        for one in refusals
    )


def _machine(found: Submission) -> str:
    host = found.machine.host
    return one_line(f"{figures.counted(host.usable_cpus, 'CPU')}, {host.cpu_model}")


@dataclass(frozen=True)
class SubmissionPage(Page):
    """A submission that may be written, and why it would be refused. ``written``: its folder, None if it is in none."""

    found: Submission
    refusals: tuple[Refusal, ...]
    written: Path | None
    kind = "plan"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: what the files contain, and what is to be changed."""
        manifest, host = self.found.manifest, self.found.machine.host
        versions = ", ".join(f"{name} {one.version}" for name, one in self.found.packages.items())
        accepted = f"written to {self.written}" if self.written else "accepted, not written: name a folder with -o"
        state = "refused" if self.refusals else accepted
        rows = tuple(
            TableRow(name, (Text((figures.size(len(content)),)), Text((_MEANING[name],))))
            for name, content in self.found.contents.items()
        )
        facts = (
            ("state", one_line(state)),
            ("suite", f"{manifest.suite}, plan {manifest.plan}"),
            ("division", manifest.division),
            ("measured", f"{manifest.started}, by {manifest.command}"),
            ("machine", f"{_machine(self.found)}; {host.system} {host.kernel}"),
            ("packages", f"Python {host.python}, {versions}"),
        )
        table = Table("Files", ("size", "contents"), rows, corner="file", numbers=False)
        return (Document("Submission", facts, (table,), explanations=_remarks(self.refusals)),)


@dataclass(frozen=True)
class CheckedPage(DataPage):
    """Submissions by folder, with the reasons why each is refused; None in place of one that cannot be read."""

    found: Mapping[str, tuple[Submission | None, tuple[Refusal, ...]]]
    kind = "submission"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a row for each submission, and the reasons."""
        rows = []
        for folder, (found, refusals) in self.found.items():
            verdict = Text(("refused",), "struck") if refusals else Text(("accepted",))
            unreadable = found is None or any(one.check == "files" for one in refusals)
            about = ("-",) * 3
            if found is not None and not unreadable:
                about = found.manifest.suite, found.manifest.division, _machine(found)
            rows.append(TableRow(folder, (verdict, *(Text((one_line(text),)) for text in about))))
        columns = ("verdict", "suite", "division", "machine")
        table = Table("Submissions", columns, tuple(rows), corner="folder", numbers=False)
        several = len(self.found) > 1
        remarks = tuple(
            remark
            for folder, (_, refusals) in self.found.items()
            for remark in _remarks(refusals, folder if several else "")
        )
        refused = sum(bool(refusals) for _, refusals in self.found.values())
        title = f"{figures.counted(len(self.found), 'submission')}, {refused or 'none'} refused"
        return (Document(title, (), (table,), explanations=remarks),)

    @property
    def data(self) -> list[dict[str, object]]:
        """An object for each submission."""
        return [
            {
                "folder": folder,
                "accepted": not refusals,
                "refusals": [
                    {"check": one.check, "reason": one.reason, "remedy": one.remedy, "places": [*one.places]}
                    for one in refusals
                ],
            }
            for folder, (_, refusals) in self.found.items()
        ]
