"""What the commands know of backends' work before they measure or report."""

from __future__ import annotations

from functools import cache

from vebench.plan.known_work import Knowledge
from vebench.reports import console


def known() -> Knowledge:
    """Return what is known. If the user's file is damaged, standard error says so, once for all that ask."""
    knowledge = Knowledge.load()
    if knowledge.damage:
        _tell(knowledge.damage)
    return knowledge


@cache
def _tell(damage: str) -> None:
    console.note(damage)
