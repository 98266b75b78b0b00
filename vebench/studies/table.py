"""The studies that there are: every module in ``questions``, and those that a user names as ``MODULE:NAME``."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.errors import UsageError, did_you_mean, one_line, shown
from vebench.studies import questions
from vebench.studies.study import Study

if TYPE_CHECKING:
    from collections.abc import Iterator

_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
# A part is a file beside the others.
_PART = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)


def names() -> tuple[str, ...]:
    """Return the names of the studies that come with vebench."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(questions.__path__)))


def studies() -> tuple[Study, ...]:
    """Return the studies that come with vebench."""
    return tuple(map(find, names()))


def find(name: str) -> Study:
    """Return the study of this name, or a user's own by ``module:name``. Raises UsageError if it cannot be had.

    The module may be in the current folder: the user has named it.
    """
    if ":" not in name:
        if name not in names():
            near = did_you_mean(name, names())
            raise UsageError(f"{shown(name)}: no such study{near}; there are {', '.join(names())}, and MODULE:NAME")
        return _of(importlib.import_module(f"{questions.__name__}.{name}"), "STUDY", name)
    if not _TARGET.fullmatch(name):
        raise UsageError(f"{shown(name)}: a study of your own is named MODULE:NAME")
    module, _, attribute = name.partition(":")
    with _current_folder_last():
        try:
            loaded = importlib.import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
            what = one_line(f"{type(error).__name__}: {error}")
            raise UsageError(f"{name}: module {module} cannot be imported: {what}") from None
    return _of(loaded, attribute, name)


def _of(module: object, attribute: str, name: str) -> Study:
    found = getattr(module, attribute, None)
    if not isinstance(found, Study):
        raise UsageError(f"{name}: {attribute} is no study: it must be a vebench.studies.study.Study")
    parts = [part.name for part in found.parts]
    if not parts or len(set(parts)) < len(parts) or not all(map(_PART.fullmatch, parts)):
        raise UsageError(f"{name}: its parts need names of their own, in small letters, digits, . - and _")
    return found


@contextmanager
def _current_folder_last() -> Iterator[None]:
    """Let modules of the current folder be imported, where no library has their names."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
