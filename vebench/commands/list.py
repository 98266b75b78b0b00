"""``vebench list``: show what can be measured here, and why the rest cannot."""

from __future__ import annotations

from vebench.reports.output import show
from vebench.reports.pages.list import ListPage


def show_list() -> None:
    """Print the backends, their options, and the known tasks."""
    show(ListPage())
