"""What an interpreter needs for a library that may not fit beside vebench's own packages: standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Step:
    """One call of ``pip install``: what, with which options, and with which variables in its environment.

    The text ``{folder}`` in a value of a variable stands for the folder of the interpreter.
    """

    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Installation:
    """How an interpreter is made that has a library. Backends of the same library share one.

    ``name`` is what ``vebench peers setup`` and ``-b BACKEND@NAME`` call it, ``title`` what people do. ``pythons`` are
    the versions of Python that it works with, best first; empty: any that vebench runs on. The first ``steps`` is done
    together with the simulators and their packages in the versions of vebench's own interpreter, so that both step the
    same; but for those in ``without``, which the library wants in versions of its own. ``files`` are written into the
    interpreter's folder before, by name. ``note`` says what a user must know or do himself.
    """

    name: str
    title: str
    steps: tuple[Step, ...]
    pythons: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
