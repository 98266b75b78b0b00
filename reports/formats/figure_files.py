"""What the figures of a page are called as files."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.reports.chart import Chart
    from vebench.reports.document import Document

LONGEST = 60  # characters of a part of a name


def figure_files(documents: Sequence[Document], stem: str) -> list[list[tuple[Chart, str]]]:
    """Return for each document its charts, each with the name of its file: ``report-pong-scaling.svg``.

    ``stem`` is the name of the file that they belong to, without its suffix. Of several documents, the name of each is
    in those of its figures. No two names are equal, also where case does not matter.
    """
    taken: set[str] = set()
    return [
        [(chart, _free(_name(chart, document, documents, stem), taken)) for chart in document.charts]
        for document in documents
    ]


def _name(chart: Chart, document: Document, documents: Sequence[Document], stem: str) -> str:
    own = [PurePath(document.title).stem] if len(documents) > 1 else []
    return "-".join([stem, *filter(None, map(_plain, (*own, short_name(chart.group), chart.kind)))])


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST].strip("-")


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.lower())
    return f"{free}.svg"
