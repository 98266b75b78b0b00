"""What formats share: texts without the folders of this machine, and tables in few words."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vebench.reports.document import Table, Text

_KERNEL = r"(?!(?:dev|proc|sys)(?:/|\b))"
# A path between quotation marks may hold spaces. Else it ends at the first character that few names have.
_QUOTED = re.compile(rf"""(?<=['"`])/{_KERNEL}[^'"`/][^'"`]*(?=['"`])""")
_PLAIN = r"""[^\s/'"`|<>,;:()\[\]{}]"""
# No path begins within a word, an address or a tag: frames/s, ./a, ~/a, https://host/a, </a>.
_BARE = re.compile(rf"(?:file://|(?<![\w./~<-]))/{_KERNEL}(?:(?:{_PLAIN}+/)+{_PLAIN}*|{_PLAIN}{{2,}})")


def without_folders(names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces each absolute path in a text by its last part.

    ``names`` are those of files that texts may quote: they are found whatever characters they hold.
    """
    absolute = {name: _last(name) for name in sorted(names, key=len, reverse=True) if PurePath(name).is_absolute()}

    def replaced(text: str) -> str:
        for name, last in absolute.items():
            text = text.replace(name, last)
        return _BARE.sub(_last_of, _QUOTED.sub(_last_of, text))

    return replaced


def _last_of(match: re.Match[str]) -> str:
    return _last(match[0])


def _last(path: str) -> str:
    return PurePath(path).name


def places_of(table: Table) -> Sequence[int | None]:
    """Return the place of each column on the axis, None for one beside it; any number where there is no axis."""
    return table.axis or [0] * len(table.columns)


def in_few_words(text: Text) -> tuple[str, ...]:
    """Return the lines of a place of a compact table: a rate has its speedup on the same line, without its interval."""
    speedup = text.values.get("speedup")
    if isinstance(speedup, Estimate):
        return (f"{text.lines[0]} {figures.number(speedup.median)}x",)
    return text.lines
