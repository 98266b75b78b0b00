"""A run as a terminal shows it, after its command, as one SVG. The SVG is light or dark, like the reader's system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, Group, NewLine, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text as Line

from vebench.reports import figures
from vebench.reports.document import Page, SimplePage
from vebench.reports.formats.terminal import OnTerminal

_COLUMNS = 90
_WIDE, _HIGH, _EDGE = 8.4, 19, 14  # a letter, a line and the margin, in pixels
_NAMES = ("rect", "text", ".dim", ".red", ".yellow", ".green", ".cyan")  # elements, then styles of the terminal
_LIGHT = ("#f6f8fa", "#1f2328", "#59636e", "#c01c28", "#7d4e00", "#116329", "#0a5c80")
_DARK = ("#151b23", "#f0f6fc", "#9aa4af", "#ff7b72", "#e3b341", "#56d364", "#56d4dd")
_FONT = "14px ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono','DejaVu Sans Mono',monospace"


def transcript_svg(page: Page) -> str:
    """Return what a terminal shows of ``page``, each document after the command that measured it."""
    documents = figures.without_folders(document.file for document in page.documents)(page.documents)
    shown: list[RenderableType] = []
    for document in documents:
        shown += [
            Line(f"$ {value}", "bold", no_wrap=True, overflow="ignore")
            for name, value in document.facts
            if name == "command"
        ]
        shown += [OnTerminal(SimplePage(page.kind, (document,))), NewLine()]
    lines = [*_lines(Group(*shown[:-1]))]
    title = escape("; ".join(document.title for document in documents))
    wide, high = round(_COLUMNS * _WIDE + 2 * _EDGE), len(lines) * _HIGH + 2 * _EDGE
    light, dark = ("".join(map("{}{{fill:{}}}".format, _NAMES, colours)) for colours in (_LIGHT, _DARK))
    text = "".join(part for number, line in enumerate(lines) for part in _drawn(line, _EDGE + (number + 0.75) * _HIGH))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" xml:space="preserve">\n<title>{title}</title>\n<style>text{{font:{_FONT};white-space:pre}}'
        f".bold{{font-weight:bold}}.strike{{text-decoration:line-through}}{light}"
        f'@media(prefers-color-scheme:dark){{{dark}}}</style>\n<rect width="100%" height="100%" rx="8"/>\n'
        f"{text}</svg>\n"
    )


def _lines(shown: RenderableType) -> Iterator[list[Segment]]:
    """Yield the lines of a terminal, which wraps lines that are too long for it."""
    console = Console(file=StringIO(), width=_COLUMNS)
    for line in Segment.split_lines(console.render(shown)):
        cuts = range(_COLUMNS, max(Segment.get_line_length(line), 1) + _COLUMNS, _COLUMNS)
        yield from Segment.divide(line, cuts)


def _drawn(line: Iterable[Segment], y: float) -> Iterator[str]:
    """Yield a text for each segment of a line. All letters have the same width, whichever font is there."""
    x = float(_EDGE)
    for segment in line:
        words, style = segment.text.strip(), segment.style or Style()
        if words:
            marks = (("bold", style.bold), ("dim", style.dim), ("strike", style.strike))
            names = [name for name, on in marks if on] + ([style.color.name] if style.color else [])
            begin = x + (len(segment.text) - len(segment.text.lstrip())) * _WIDE
            place = f'x="{begin:.1f}" y="{y:.1f}" textLength="{cell_len(words) * _WIDE:.1f}"'
            yield f'<text class="{" ".join(names)}" {place} lengthAdjust="spacingAndGlyphs">{escape(words)}</text>\n'
        x += segment.cell_length * _WIDE
