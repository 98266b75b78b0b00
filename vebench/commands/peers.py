"""``vebench peers``: other projects' backends, what each needs, and interpreters that have it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from vebench.backends.registry import ENTRIES, INSTALLATIONS
from vebench.errors import InterruptedRunError, UsageError, did_you_mean, shown
from vebench.interpreters import venvs
from vebench.interpreters.venvs import NotHadError, python_of
from vebench.reports import console
from vebench.reports.console import show
from vebench.reports.pages.list import peers_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.backends.packages import Installation

_DONE, _NOT_HAD = 0, 1
_SETUP, ALL = "setup", "all"


def peers(words: Sequence[str]) -> int:
    """Show other projects' backends, or with ``setup NAME ...`` make their interpreters. Returns the exit status.

    Raises UsageError for other words and unknown names, InterruptedRunError if the user interrupts.
    """
    if not words:
        show(peers_page())
        return _DONE
    first, *names = words
    if first != _SETUP:
        raise UsageError(f"{shown(first)}: write vebench peers, or vebench peers {_SETUP} NAME")
    of_backends = {
        entry.name: entry.library.installation for entry in ENTRIES if entry.library.installation is not None
    }
    known = of_backends | {one.name: one for one in INSTALLATIONS}
    if not names:
        raise UsageError(f"name what to set up: {', '.join(one.name for one in INSTALLATIONS)}, or {ALL}")
    for name in names:
        if name not in known and name != ALL:
            near = did_you_mean(name, known)
            raise UsageError(f"{shown(name)}: no such installation{near}; vebench peers shows them")
    chosen = INSTALLATIONS if ALL in names else {known[name].name: known[name] for name in names}.values()
    # A request to end (SIGTERM) is an interrupt as well, so that nothing unfinished is left.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return max(map(_set_up, chosen))
    finally:
        signal.signal(signal.SIGTERM, before)


def _set_up(one: Installation) -> int:
    if venvs.is_made(one):
        console.note(f"{one.name}: is already set up: {python_of(one.name)}")
        return _DONE
    try:
        path = venvs.set_up(one, console.note)
    except NotHadError as error:
        console.note(f"{one.name}: could not be had: {error}")
        return _NOT_HAD
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: {one.name} is not set up; run the same command to continue") from None
    console.note(f"{one.name}: set up: {path}{f'; {one.note}' if one.note else ''}")
    return _DONE
