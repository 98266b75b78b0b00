"""``vebench install``: makes virtual environments with the backends of other projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.registry import ENTRIES, INSTALLATIONS
from vebench.errors import InterruptedRunError, UsageError, did_you_mean, shown
from vebench.interpreters import venvs
from vebench.interpreters.process_guard import terminable
from vebench.interpreters.venvs import NotHadError, python_of
from vebench.reports import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.backends.packages import Installation

_DONE, _NOT_HAD = 0, 1
ALL = "all"


def install(names: Sequence[str]) -> int:
    """Make the virtual environments of these backends or installations, or of ``all``. Returns the exit status.

    Raises UsageError for an unknown name, and InterruptedRunError if the user interrupts.
    """
    of_backends = {one.name: one.library.installation for one in ENTRIES if one.library.installation is not None}
    known = of_backends | {one.name: one for one in INSTALLATIONS}
    for name in names:
        if name not in known and name != ALL:
            near = did_you_mean(name, known)
            raise UsageError(f"{shown(name)}: no such installation{near}; vebench list shows them")
    chosen = INSTALLATIONS if ALL in names else {known[name].name: known[name] for name in names}.values()
    with terminable():
        return max(map(_set_up, chosen))


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
